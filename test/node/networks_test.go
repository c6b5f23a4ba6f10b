package node

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
)

// Annotations of Pods that name VirtualNetworks: of further interfaces, and of the first one.
const further, first = "k8s.v1.cni.cncf.io/networks", "net.juniper.contrail.podnetwork"

// networks is a rig with VirtualNetworks in a Namespace. They have leases and no Subnets, since no controller runs.
type networks struct {
	*rig
	objects   client.Client
	namespace string
	space     *corev1.Namespace
	made      map[string]types.UID // the UIDs of VirtualNetworks, by name
	leases    map[string]*tombolov1alpha1.SubnetLease
}

// newNetworks returns a running rig with VirtualNetworks, by their names. All of them may be networks of first
// interfaces.
func newNetworks(t *testing.T, c *cluster, namespace string, specs map[string]tombolov1alpha1.SubnetLeaseSpec,
) *networks {
	t.Helper()
	n := &networks{objects: c.objects(t), namespace: namespace, made: map[string]types.UID{},
		leases: map[string]*tombolov1alpha1.SubnetLease{}}
	n.rig = newRig(t, c)
	n.space = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	n.create(n.space)
	for name, spec := range specs {
		network := &contrailv4.VirtualNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		network.Spec.V4SubnetReference, network.Spec.PodNetwork = &contrailv4.ResourceReference{Name: name}, true
		n.create(network)
		n.made[name] = network.UID
		spec.Subnet = tombolov1alpha1.ObjectName{Namespace: namespace, Name: name}
		spec.VirtualNetwork = spec.Subnet
		n.leases[name] = &tombolov1alpha1.SubnetLease{
			ObjectMeta: metav1.ObjectMeta{Name: namespace + "-uid-of-" + name}, Spec: spec}
		n.create(n.leases[name])
	}
	n.withOVS()
	n.edit = func(conf *config.Config) {
		conf.FeatureGates["TenantNetworks"] = true
		conf.TenantNetworks.SubnetCIDRs = []string{"10.50.0.0/15"}
	}
	n.ready()
	ctx, cancel := context.WithCancel(t.Context())
	var granting sync.WaitGroup
	granting.Go(func() { n.grant(ctx) })
	t.Cleanup(func() { cancel(); granting.Wait() })
	return n
}

// create creates an object for the time of the test.
func (n *networks) create(o client.Object) {
	n.t.Helper()
	if err := n.objects.Create(n.t.Context(), o); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = n.objects.Delete(context.Background(), o, client.GracePeriodSeconds(0)) })
}

// remove deletes an object.
func (n *networks) remove(o client.Object) {
	n.t.Helper()
	if err := n.objects.Delete(n.t.Context(), o, client.GracePeriodSeconds(0)); err != nil {
		n.t.Fatal(err)
	}
}

// start makes a Pod in networks, which an annotation names.
func (n *networks) start(name, annotation string, list ...string) *pod {
	n.t.Helper()
	p := n.declare(name, annotation, list...)
	n.eventually("Pod "+name+" starts", func() error { return n.attach(p) })
	return p
}

// declare makes the object of a Pod in networks, and its sandbox.
func (n *networks) declare(name, annotation string, list ...string) *pod {
	n.t.Helper()
	for i := range list {
		list[i] = n.namespace + "/" + list[i]
	}
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: n.namespace, Name: name,
		Labels:      map[string]string{"name": name},
		Annotations: map[string]string{annotation: strings.Join(list, ",")}},
		Spec: corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{{Name: "c", Image: "none"}}}}
	n.create(o)
	n.uids.Store(name, o.UID)
	p := n.sandbox(name)
	p.namespace = n.namespace
	return p
}

// grant gives the Node the first addresses of the networks that it claims, as the controller does, until ctx ends.
func (n *networks) grant(ctx context.Context) {
	ticks := time.NewTicker(50 * time.Millisecond)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		var report tombolov1alpha1.NodeNetworkReport
		if n.objects.Get(ctx, client.ObjectKey{Name: nodeName}, &report) != nil {
			continue // the Node writes it once a Pod claims addresses
		}
		for _, network := range report.Spec.Networks {
			lease := n.leases[network.Name]
			if network.Namespace != n.namespace || len(lease.Spec.Nodes) > 0 {
				continue
			}
			lease.Spec.Nodes = []tombolov1alpha1.NodeBlocks{{Node: nodeName, Claim: network.Claim,
				CIDRs: []string{strings.Replace(lease.Spec.CIDR, "/24", "/28", 1)}}}
			if err := n.objects.Update(ctx, lease); err != nil && ctx.Err() == nil {
				n.t.Errorf("grant addresses of %s: %v", network.Name, err)
				return
			}
		}
	}
}
