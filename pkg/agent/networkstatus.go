package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// annotationStatus on a Pod has the addresses of its interfaces, as of the Network Plumbing Working Group.
const annotationStatus = "k8s.v1.cni.cncf.io/network-status"

// interfaceStatus is an entry of the annotation.
type interfaceStatus struct {
	Name      string   `json:"name"` // "namespace/name" of the network
	Interface string   `json:"interface"`
	IPs       []string `json:"ips"`
	MAC       string   `json:"mac,omitempty"`
	Default   bool     `json:"default,omitempty"`
	DNS       struct{} `json:"dns"`
	Gateway   []string `json:"gateway,omitempty"`
}

// shownStatus is a Pod of this Node, with its request for further networks and the present value of the annotation.
type shownStatus struct {
	Object   types.UID // of the Pod in the API server
	UID      types.UID // that the kubelet gives the runtime
	Requests string
	Status   string
}

// shownStatusOf returns the row of a Pod of a Node. Any Pod may have a further interface, since an annotation of its
// Namespace may name a separate network. A Pod that has ended keeps its row.
func shownStatusOf(node string) func(*corev1.Pod) shownStatus {
	return func(p *corev1.Pod) shownStatus {
		if p.Spec.NodeName != node || p.Spec.HostNetwork {
			return shownStatus{}
		}
		uid := p.UID
		if mirrored := p.Annotations[corev1.MirrorPodAnnotationKey]; mirrored != "" {
			uid = types.UID(mirrored)
		}
		return shownStatus{p.UID, uid, p.Annotations[tenant.AnnotationNetworks], p.Annotations[annotationStatus]}
	}
}

// networkStatuses writes the addresses of Pods with further interfaces into an annotation of these Pods, and removes
// the annotation with the interfaces. It does not change Pods whose further interfaces another plugin makes, such as
// Multus.
type networkStatuses struct {
	tables   *tables
	progress *progress
	patch    func(ctx context.Context, pod derive.Object, merge []byte) error // of the Pod's status
	log      *slog.Logger
	wake     chan struct{}
	written  map[derive.Object]writtenStatus
}

// writtenStatus is an annotation that a watch may not show yet.
type writtenStatus struct {
	pod  types.UID
	text string
	at   time.Time
}

const (
	// statusesLeast is the least time between two comparisons. It bounds the number of writes if another client keeps
	// changing the annotation.
	statusesLeast = 500 * time.Millisecond
	// statusShown is how long the watch may take to show a write. After that the annotation is written again.
	statusShown = 5 * time.Second
)

func (n *networkStatuses) changed() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// run keeps the annotations until ctx ends.
func (n *networkStatuses) run(ctx context.Context) {
	if n.progress.await(ctx, func() (bool, error) { return n.progress.ready(), nil }) != nil {
		return
	}
	var failed time.Duration
	for {
		again := networksAgain
		switch pending, err := n.write(ctx); {
		case err != nil && ctx.Err() == nil:
			failed = min(max(2*failed, failedAgain), failedLong)
			again = failed
			n.log.Warn("write the network status of Pods; trying again", "error", err)
		case pending:
			failed, again = 0, statusShown
		default:
			failed = 0
		}
		if sleep(ctx, statusesLeast) != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-n.wake:
		case <-time.After(again):
		}
	}
}

// write writes the annotations that differ from the desired ones. pending is true while the watch has not shown all
// writes yet.
func (n *networkStatuses) write(ctx context.Context) (pending bool, failed error) {
	_, rebuilding := n.tables.pods.rebuilding.Get(self)
	attached := map[derive.Object][]cni.Attachment{}
	for _, row := range n.tables.pods.attachments.All() {
		k := derive.Object{Namespace: row.Value.PodNamespace, Name: row.Value.PodName}
		attached[k] = append(attached[k], row.Value)
	}
	rows := n.tables.objects.networks.shown.All()
	there := map[derive.Object]bool{}
	for _, row := range rows {
		there[row.Key] = true
		want, own := n.statusOf(row.Key, row.Value, attached[row.Key])
		if !own || want == row.Value.Status || want == "" && rebuilding {
			delete(n.written, row.Key)
			continue
		}
		last, before := n.written[row.Key]
		if before && last.pod == row.Value.Object && last.text == want && time.Since(last.at) < statusShown {
			pending = true
			continue
		}
		n.written[row.Key] = writtenStatus{row.Value.Object, want, time.Now()} // a failed write waits as long
		if err := n.writeOne(ctx, row.Key, row.Value.Object, want); err != nil {
			failed = errors.Join(failed, fmt.Errorf("Pod %s: %w", row.Key, err))
			if ctx.Err() != nil {
				return pending, failed
			}
			continue
		}
		pending = true
	}
	for k := range n.written {
		if !there[k] {
			delete(n.written, k)
		}
	}
	return pending, failed
}

// writeOne writes or removes the annotation of a Pod. The patch has the UID, so the API server refuses it for another
// Pod of the same name.
func (n *networkStatuses) writeOne(ctx context.Context, pod derive.Object, uid types.UID, text string) error {
	ctx, cancel := context.WithTimeout(ctx, publishLimit)
	defer cancel()
	annotations := map[string]any{annotationStatus: nil}
	if text != "" {
		annotations[annotationStatus] = text
	}
	merge, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid, "annotations": annotations}})
	if err != nil {
		return err
	}
	if err = n.patch(ctx, pod, merge); apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // a watch shows it
	}
	return err
}

// recorded reports whether the Pod has an interface in a VirtualNetwork of its Namespace, or its annotation still shows
// one. A running Pod keeps its interface if the TenantNetworkImport of its Namespace's copy goes.
func (s shownStatus) recorded(namespace, name string, list []cni.Attachment) bool {
	network := namespace + "/" + name
	return strings.Contains(s.Status, strconv.Quote(network)) || slices.ContainsFunc(list, func(a cni.Attachment) bool {
		return a.PodUID == s.UID && a.VirtualNetwork == network
	})
}

// statusOf returns the annotation that a Pod should have, "" for no annotation. It returns false if the annotation is
// another program's.
func (n *networkStatuses) statusOf(pod derive.Object, s shownStatus, list []cni.Attachment) (string, bool) {
	others, networks := false, n.tables.objects.networks
	requested, err := tenant.PodNetworks(pod.Namespace, s.Requests, tenant.Entries{
		Other: func(k derive.Object) bool {
			other := networks.other(k)
			others = others || other
			return other
		},
		Copied: func(k derive.Object) bool {
			return networks.copies.has(k.Namespace, pod.Namespace) ||
				!networks.other(k) && s.recorded(pod.Namespace, k.Name, list)
		}})
	if err != nil || others {
		return "", false
	}
	var first, further []interfaceStatus
	for _, a := range list {
		switch a.PodUID {
		case s.UID:
		case "": // the record was lost: the annotation may be right
			return "", false
		default:
			continue
		}
		one := interfaceStatus{Interface: a.IfName, MAC: a.MAC}
		for _, ip := range a.IPs {
			one.IPs = append(one.IPs, ip.Addr().String())
		}
		if namespace, name, ok := a.VirtualKey(); ok {
			one.Name, one.Gateway = a.VirtualNetwork, n.gateways(derive.Object{Namespace: namespace, Name: name}, a.IPs)
			if one.Default = a.IfName == tenant.FirstInterface; one.Default {
				first = append(first, one)
			} else {
				further = append(further, one)
			}
			continue
		}
		one.Name, one.Default = pod.Namespace+"/"+contrailv4.DefaultPodNetwork, true
		if network, ok := n.tables.outputs.network.Get(self); ok {
			for i := range network.PodCIDRs {
				one.Gateway = append(one.Gateway, network.Gateway(i).String())
			}
		}
		first = append(first, one)
	}
	if len(further) == 0 {
		return "", s.Requests != ""
	}
	order := func(s interfaceStatus) int {
		return slices.IndexFunc(requested, func(x tenant.PodNetwork) bool { return x.Interface == s.Interface })
	}
	slices.SortStableFunc(further, func(a, b interfaceStatus) int { return cmp.Compare(order(a), order(b)) })
	text, err := json.MarshalIndent(append(first, further...), "", "    ")
	return string(text), err == nil
}

// gateways returns the gateways of an interface in a VirtualNetwork.
func (n *networkStatuses) gateways(network derive.Object, ips []netip.Prefix) (out []string) {
	v, _ := n.tables.tenants.VirtualNetworks.Get(network)
	for _, ip := range ips {
		for _, l := range v.Leases {
			if gateway := l.Range.Gateway.String(); l.Range.CIDR.Contains(ip.Addr()) && !slices.Contains(out, gateway) {
				out = append(out, gateway)
			}
		}
	}
	return out
}

// newNetworkStatuses returns the writer of this Node; nil without the feature gate.
func (a *Agent) newNetworkStatuses(client *reportClient) *networkStatuses {
	if a.tables.tenants == nil {
		return nil
	}
	n := &networkStatuses{tables: a.tables, progress: a.progress, patch: client.patchPodStatus, log: a.log,
		wake: make(chan struct{}, 1), written: map[derive.Object]writtenStatus{}}
	a.tables.objects.networks.shown.Watch(func([]derive.Change[derive.Object, shownStatus]) { n.changed() })
	a.tables.objects.networks.copies.imports.Watch(func([]derive.Change[derive.Object, tenant.ClusterSetFacts]) {
		n.changed()
	})
	a.tables.objects.networks.others.Watch(func([]derive.Change[derive.Object, bool]) { n.changed() })
	a.tables.pods.attachments.Watch(func([]derive.Change[derive.Name, cni.Attachment]) { n.changed() })
	a.tables.pods.rebuilding.Watch(func([]derive.Change[derive.Name, bool]) { n.changed() })
	a.tables.tenants.VirtualNetworks.Watch(func([]derive.Change[derive.Object, tenant.VirtualNetwork]) { n.changed() })
	return n
}

// patchPodStatus changes the annotations of a Pod through its status subresource. There the API server ignores changes
// of the spec.
func (c *reportClient) patchPodStatus(ctx context.Context, pod derive.Object, merge []byte) error {
	return c.nodes.Patch(types.MergePatchType).Namespace(pod.Namespace).Resource("pods").Name(pod.Name).
		SubResource("status").Body(merge).Do(ctx).Error()
}
