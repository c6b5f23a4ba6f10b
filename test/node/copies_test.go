package node

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
)

// testNetworksOfCopies starts Pods that name their VirtualNetwork by the copy of their Namespace in the central
// cluster, as in Contrail CN2. The import of the copy comes after the first ADD, and goes while the Pods run.
func testNetworksOfCopies(t *testing.T, c *cluster) {
	const namespace, copied = "ns1", "kubemanager-cluster2-cluster2-ns1"
	objects := c.objects(t)
	create := func(o client.Object) {
		t.Helper()
		if err := objects.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = objects.Delete(context.Background(), o, client.GracePeriodSeconds(0)) })
	}
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace,
		Labels: map[string]string{"core.juniper.net/isolated-namespace": "true"}}}
	create(space)
	network := &contrailv4.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "vn2"}}
	network.Spec.V4SubnetReference = &contrailv4.ResourceReference{Name: "vn2"}
	create(network)
	named := tombolov1alpha1.ObjectName{Namespace: namespace, Name: "vn2"}
	lease := &tombolov1alpha1.SubnetLease{ObjectMeta: metav1.ObjectMeta{Name: "uid-of-the-subnet"},
		Spec: tombolov1alpha1.SubnetLeaseSpec{Subnet: named, VirtualNetwork: named, CIDR: "10.50.0.0/24",
			Gateway: "10.50.0.1"}}
	create(lease)

	r := newRig(t, c).withOVS()
	r.edit = func(conf *config.Config) { conf.FeatureGates["TenantNetworks"] = true }
	r.ready()
	start := func(name string) *pod {
		t.Helper()
		o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{
			"k8s.v1.cni.cncf.io/networks": `[{"name": "vn2", "namespace": "` + copied + `", "interface": "eth1"}]`}},
			Spec: corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{{Name: "c", Image: "none"}}}}
		create(o)
		r.uids.Store(name, o.UID)
		p := r.sandbox(name)
		p.namespace = namespace
		return p
	}
	refused := func(p *pod) error {
		err := r.attach(p)
		if err == nil {
			if _, err = r.call("DEL", p); err != nil {
				t.Fatal(err)
			}
			return fmt.Errorf("Pod %s starts", p.name)
		}
		for _, want := range []string{"annotation k8s.v1.cni.cncf.io/networks: entry 1: VirtualNetwork " + copied +
			"/vn2 is of another Namespace: name one of Namespace " + namespace + ", or of its copy in the central cluster",
			"this cluster has no TenantNetworkImport " + copied} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("ADD fails with %v, want %s", err, want)
			}
		}
		return nil
	}
	web := start("copies-web")
	if err := refused(web); err != nil {
		t.Error(err)
	}

	imported := &tombolov1alpha1.TenantNetworkImport{ObjectMeta: metav1.ObjectMeta{Name: copied},
		Spec: tombolov1alpha1.TenantNetworkImportSpec{Number: 7,
			Namespace: &tombolov1alpha1.NamespaceReference{Name: namespace, UID: space.UID}}}
	create(imported)
	r.eventually("the Node claims addresses", func() error { // and the controller answers
		var report tombolov1alpha1.NodeNetworkReport
		if err := objects.Get(t.Context(), client.ObjectKey{Name: nodeName}, &report); err != nil {
			return err
		}
		for _, n := range report.Spec.Networks {
			if n.Namespace == namespace && n.Name == "vn2" {
				lease.Spec.Nodes = []tombolov1alpha1.NodeBlocks{{Node: nodeName, Claim: n.Claim, CIDRs: []string{"10.50.0.0/28"}}}
				return objects.Update(t.Context(), lease)
			}
		}
		return fmt.Errorf("the report has %+v", report.Spec)
	})
	db := start("copies-db")
	for _, p := range []*pod{web, db} {
		r.eventually("Pod "+p.name+" starts", func() error { return r.attach(p) })
	}
	const toDB = "10.50.0.3:8080"
	db.serve(t, 8080)
	works := func(when string) {
		t.Helper()
		for p, want := range map[*pod]string{web: "10.50.0.2/24", db: "10.50.0.3/24"} {
			err := p.within(func() error {
				link, err := netlink.LinkByName("eth1")
				if err != nil {
					return err
				}
				have, err := netlink.AddrList(link, netlink.FAMILY_V4)
				if err != nil || len(have) != 1 || have[0].IPNet.String() != want {
					return fmt.Errorf("eth1 has %v, want %s: %w", have, want, err)
				}
				return nil
			})
			if err != nil {
				t.Errorf("%s, Pod %s: %v", when, p.name, err)
			}
		}
		r.eventually(when+", the Pods reach each other in the network", func() error { return connects(web, toDB) })
		r.eventually(when+", the network status has the VirtualNetwork", func() error {
			o, err := c.client.CoreV1().Pods(namespace).Get(t.Context(), web.name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if have := o.Annotations["k8s.v1.cni.cncf.io/network-status"]; !strings.Contains(have, `"ns1/vn2"`) ||
				!strings.Contains(have, `"10.50.0.2"`) {
				return fmt.Errorf("it is %s", have)
			}
			return nil
		})
	}
	works("with the import")

	if err := objects.Delete(t.Context(), imported); err != nil {
		t.Fatal(err)
	}
	late := start("copies-late")
	r.eventually("the import is gone", func() error { return refused(late) })
	works("without the import")
	r.stop()
	r.ready()
	works("without the import, after a restart of the agent")
	for _, p := range []*pod{web, db} {
		r.del(p)
	}
}
