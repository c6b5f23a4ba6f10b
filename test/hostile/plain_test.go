package hostile

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
)

// plain is an honest member without a cluster: the test writes what another implementation's controller would.
type plain struct {
	*account
	services, pods string   // its ranges
	exports        []string // Services of Namespace default
	// announces is false for a member without a Gateway, which has no ClusterInfo.
	announces bool
}

// south has no Gateway. harbour is like Antrea's member: when its Gateway moves it deletes its ClusterInfo and makes it
// again, so that for a moment it announces nothing.
const south, harbour = "south", "harbour"

// startPlain lets the members without clusters join. The leader receives them every few seconds until the test ends.
func (w *world) startPlain() {
	w.t.Helper()
	w.plain = []*plain{
		{account: w.account("member-"+south, south, true), services: "10.95.0.0/16",
			exports: []string{"web", "only-" + south, "quiet-" + south}},
		{account: w.account("member-"+harbour, harbour, false), services: "10.99.0.0/16", pods: "10.70.0.0/16",
			announces: true,
			exports:   []string{"web", "only-" + harbour, "quiet-" + harbour}},
	}
	for _, p := range w.plain {
		w.write(p, announcement(p.id))
		if p.announces {
			w.write(p, p.clusterInfo(0))
		}
		for i, name := range p.exports {
			w.write(p, service(p.id, "default", name, 80))
			w.write(p, ofService(export(p.id,
				multicluster.ResourceExportName(p.id, "default", name, multicluster.EndpointsSuffix), multicluster.EndpointsKind,
				object{"endpoints": object{"subsets": list[any](object{"addresses": list[any](object{"ip": p.address(i)}),
					"ports": ports(80)})}}), "default", name))
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.heartbeat(ctx)
		}()
		w.t.Cleanup(func() { cancel(); <-done })
	}
}

// write creates an object with a member's own token.
func (w *world) write(p *plain, o object) {
	w.t.Helper()
	gvr := exports
	if o["kind"] == "MemberClusterAnnounce" {
		gvr = announces
	}
	// The first exports may come before the leader has bound the account that has just announced its cluster.
	w.eventually(fmt.Sprintf("%s creates %v", p.id, o["metadata"]), 30*time.Second, func(ctx context.Context) error {
		_, err := p.api.Resource(gvr).Namespace(area).Create(ctx, &unstructured.Unstructured{Object: o},
			metav1.CreateOptions{})
		return err
	})
}

// heartbeat touches the announcement, as members do. A failure shows in the ClusterSet's status.
func (p *plain) heartbeat(ctx context.Context) {
	for tick := time.NewTicker(5 * time.Second); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case now := <-tick.C:
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, multicluster.AnnotationTouchTimestamp,
				now.UTC().Format(time.RFC3339))
			_, _ = p.api.Resource(announces).Namespace(area).Patch(ctx, multicluster.AnnounceName(p.id), types.MergePatchType,
				patch, metav1.PatchOptions{})
		}
	}
}

// address is the endpoint of the n-th export.
func (p *plain) address(n int) string {
	at := netip.MustParsePrefix(p.services).Addr().As4()
	at[3] = byte(10 + n)
	return netip.AddrFrom4(at).String()
}

// gatewayIP returns the address that the member announces since the n-th beat. No other member has ever announced it.
func (p *plain) gatewayIP(n int) string { return fmt.Sprintf("192.168.79.%d", 101+(n+2)/3%100) }

func (p *plain) clusterInfo(n int) object {
	return export(p.id, p.id+multicluster.ClusterInfoSuffix, multicluster.ClusterInfoKind, object{
		"namespace": "kube-system", "name": p.id,
		"clusterInfo": object{"clusterID": p.id, "serviceCIDR": p.services, "podCIDRs": list(p.pods),
			"gatewayInfos": list[any](object{"gatewayIP": p.gatewayIP(n)})},
	})
}

// withdraw deletes the ClusterInfo of the members that have one and waits until it is gone.
func (w *world) withdraw() {
	w.t.Helper()
	for _, p := range w.plain {
		if !p.announces {
			continue
		}
		name := p.id + multicluster.ClusterInfoSuffix
		api := p.api.Resource(exports).Namespace(area)
		if err := api.Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
			w.t.Fatalf("%s deletes its ClusterInfo: %v", p.id, err)
		}
		w.eventually(p.id+"'s ClusterInfo is gone", 30*time.Second, func(ctx context.Context) error {
			_, err := api.Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("still there: %w", err)
		})
	}
}

// announceAgain makes the ClusterInfo again, with the Gateway of the n-th beat.
func (w *world) announceAgain(n int) {
	w.t.Helper()
	for _, p := range w.plain {
		if p.announces {
			w.write(p, p.clusterInfo(n))
		}
	}
}

// plainArrived returns an error for objects of the members without clusters that are missing in a member.
func (w *world) plainArrived(ctx context.Context, h *honest, n int) error {
	for _, p := range w.plain {
		if !p.announces {
			continue
		}
		info := &mcv1alpha1.ClusterInfoImport{}
		if err := h.client.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: p.id + multicluster.ClusterInfoSuffix},
			info); err != nil {
			return err
		}
		s := info.Spec
		if s.ServiceCIDR != p.services || !slices.Equal(s.PodCIDRs, []string{p.pods}) || len(s.GatewayInfos) != 1 ||
			s.GatewayInfos[0].GatewayIP != p.gatewayIP(n) {
			return fmt.Errorf("%s has ClusterInfo %+v of %s, want gateway %s", h.id, s, p.id, p.gatewayIP(n))
		}
	}
	return nil
}
