package agent

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	plumbingv1 "github.com/tombolo-net/tombolo/pkg/apis/plumbing/v1"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/derive"
)

// TestNetworkStatus follows the annotation of Pods with further interfaces.
func TestNetworkStatus(t *testing.T) {
	r := newNetworkRig(t)
	writes := 0
	var fails error
	n := &networkStatuses{tables: r.p.tables, progress: r.p.progress, log: slog.New(slog.DiscardHandler),
		wake: make(chan struct{}, 1), written: map[derive.Object]writtenStatus{}}
	n.patch = func(_ context.Context, pod derive.Object, merge []byte) error {
		if fails != nil {
			return fails
		}
		var m struct {
			Metadata struct {
				UID         types.UID
				Annotations map[string]*string
			}
		}
		if err := json.Unmarshal(merge, &m); err != nil {
			return err
		}
		for i, p := range r.view.Pods {
			if p.Name != pod.Name {
				continue
			}
			if p.UID != m.Metadata.UID {
				return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, p.Name, errors.New("another UID"))
			}
			writes++
			p = p.DeepCopy()
			for k, v := range m.Metadata.Annotations {
				if delete(p.Annotations, k); v != nil {
					p.Annotations[k] = *v
				}
			}
			r.view.Pods[i] = p
		}
		return nil
	}
	settle := func(wantWrites int, wantPending bool) {
		t.Helper()
		writes = 0
		r.settle()
		pending, err := n.write(t.Context())
		if err != nil || writes != wantWrites || pending != wantPending {
			t.Errorf("%d writes, pending %t: %v; want %d, %t", writes, pending, err, wantWrites, wantPending)
		}
	}
	attach := func(pod, ifName, network, mac string, ips ...netip.Prefix) {
		r.view.Attachments = append(r.view.Attachments, cni.Attachment{ContainerID: "c-" + pod, IfName: ifName,
			PodNamespace: "a", PodName: pod, PodUID: types.UID("uid-" + pod), PortName: pod + ifName, MAC: mac, IPs: ips,
			VirtualNetwork: network})
	}
	status := func(pod string) string {
		for _, p := range r.view.Pods {
			if p.Name == pod {
				return strings.Join(strings.Fields(p.Annotations[annotationStatus]), " ")
			}
		}
		return "no Pod"
	}
	prefix := netip.MustParsePrefix
	r.pod("web", "a/blue, a/blue@net7")
	r.pod("plain", "")
	r.pod("mixed", "a/blue, a/bridge")
	r.view.Others = append(r.view.Others, &plumbingv1.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "bridge"},
		Spec:       plumbingv1.NetworkAttachmentDefinitionSpec{Config: `{"type": "bridge"}`}})
	attach("plain", "eth0", "", "0a:00:00:00:00:01", prefix("10.11.0.9/24"))
	attach("mixed", "eth1", "a/blue", "0a:00:00:00:00:02", prefix("10.50.0.9/24"))
	attach("web", "net7", "a/blue", "0a:00:00:00:00:05", prefix("10.50.0.4/24"))
	attach("web", "eth0", "", "0a:00:00:00:00:03", prefix("10.11.0.2/24"))
	settle(1, true)
	attach("web", "eth1", "a/blue", "0a:00:00:00:00:04", prefix("10.50.0.3/24"), prefix("fd50::3/64"))
	r.view.Attachments[len(r.view.Attachments)-1].PodUID = "of an earlier Pod"
	settle(0, false)
	r.view.Attachments[len(r.view.Attachments)-1].PodUID = "uid-web"
	settle(1, true)
	const want = `[ { "name": "a/default-podnetwork", "interface": "eth0", "ips": [ "10.11.0.2" ], ` +
		`"mac": "0a:00:00:00:00:03", "default": true, "dns": {}, "gateway": [ "10.11.0.1" ] }, ` +
		`{ "name": "a/blue", "interface": "eth1", "ips": [ "10.50.0.3", "fd50::3" ], "mac": "0a:00:00:00:00:04", ` +
		`"dns": {}, "gateway": [ "10.50.0.1" ] }, ` +
		`{ "name": "a/blue", "interface": "net7", "ips": [ "10.50.0.4" ], "mac": "0a:00:00:00:00:05", "dns": {}, ` +
		`"gateway": [ "10.50.0.1" ] } ]`
	if have := status("web"); have != want {
		t.Errorf("the status is %s, want %s", have, want)
	}
	for _, pod := range []string{"plain", "mixed"} {
		if have := status(pod); have != "" {
			t.Errorf("Pod %s has the status %s", pod, have)
		}
	}
	settle(0, false)

	// A tenant changes it. The write that a watch does not show is not repeated at once.
	setStatus := func(pod, value string) {
		for i, p := range r.view.Pods {
			if p.Name == pod {
				p = p.DeepCopy()
				p.Annotations[annotationStatus] = value
				r.view.Pods[i] = p
			}
		}
	}
	setStatus("web", "[]")
	settle(1, true)
	setStatus("web", "[]")
	settle(0, true)
	k := derive.Object{Namespace: "a", Name: "web"}
	late := n.written[k]
	late.at = late.at.Add(-2 * statusShown)
	n.written[k] = late
	settle(1, true)
	settle(0, false)

	// The API server is away. Then the interfaces go.
	r.view.Attachments = r.view.Attachments[:2]
	r.settle()
	fails = errors.New("away")
	if _, err := n.write(t.Context()); err == nil || !strings.Contains(err.Error(), "Pod a/web: away") {
		t.Errorf("without an API server: %v", err)
	}
	fails = nil
	n.tables.pods.rebuilding.Set(self, true)
	settle(0, false)
	n.tables.pods.rebuilding.Delete(self)
	settle(1, true)
	if have := status("web"); have != "" {
		t.Errorf("without interfaces the status is %s", have)
	}
	settle(0, false)

	// A Pod names the copy of its Namespace in the central cluster. Its annotation does not depend on the import later.
	copied := &tombolov1alpha1.TenantNetworkImport{ObjectMeta: metav1.ObjectMeta{Name: "copy-of-a"}}
	copied.Spec.Number, copied.Spec.Namespace = 7, &tombolov1alpha1.NamespaceReference{Name: "a", UID: "5e2d"}
	objects := r.view.Others
	r.view.Others = append(objects[:len(objects):len(objects)], copied)
	r.pod("copied", "copy-of-a/blue, a/blue")
	attach("copied", "eth2", "a/blue", "0a:00:00:00:00:07", prefix("10.50.0.6/24"))
	attach("copied", "eth1", "a/blue", "0a:00:00:00:00:06", prefix("10.50.0.5/24"))
	settle(1, true)
	first := status("copied")
	if i, j := strings.Index(first, `"10.50.0.5"`), strings.Index(first, `"10.50.0.6"`); i < 0 || j < i ||
		strings.Count(first, `"a/blue"`) != 2 {
		t.Errorf("the status is %s, want two interfaces in a/blue", first)
	}
	r.view.Others = objects
	settle(0, false)
	setStatus("copied", "[]")
	settle(1, true)
	if have := status("copied"); have != first {
		t.Errorf("without the import the status is %s, want %s", have, first)
	}
	settle(0, false)
	r.view.Attachments = r.view.Attachments[:2]
	settle(1, true)
	if have := status("copied"); have != "" {
		t.Errorf("without interfaces and import the status is %s", have)
	}

	// The agent makes no interface for an entry of another Namespace. The annotation is another program's.
	r.pod("foreign", "b/blue")
	setStatus("foreign", `[{"name": "b/blue"}]`)
	settle(0, false)

	// An annotation of the Namespace names the Pod's own network, which is a separate one.
	r.pod("own", "")
	attach("own", "eth0", "", "0a:00:00:00:00:06", prefix("10.11.0.6/24"))
	attach("own", "vn0", "a/blue", "0a:00:00:00:00:07", prefix("10.50.0.6/24"))
	settle(1, true)
	if have := status("own"); !strings.Contains(have, `"interface": "vn0", "ips": [ "10.50.0.6" ]`) ||
		!strings.Contains(have, `"ips": [ "10.11.0.6" ], "mac": "0a:00:00:00:00:06", "default": true`) {
		t.Errorf("the status of a Pod in its own network is %s", have)
	}
	settle(0, false)
	r.view.Pods = []*corev1.Pod{}
	settle(0, false)
	if len(n.written) != 0 {
		t.Errorf("without Pods it remembers %v", n.written)
	}
}
