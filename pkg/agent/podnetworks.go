package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/desired"
	"github.com/tombolo-net/tombolo/pkg/ipam"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// networkObjects are the sources about further interfaces of Pods. They are nil without feature gate TenantNetworks.
type networkObjects struct {
	requests   *derive.Source[derive.Object, podRequest]         // of Pods of this Node
	interfaces *derive.Table[derive.Object, podInterfaces]       // that these Pods request
	report     *derive.Source[derive.Object, tenant.ReportFacts] // the NodeNetworkReport of this Node
	others     *derive.Source[derive.Object, bool]               // NetworkAttachmentDefinitions of other plugins
	shown      *derive.Source[derive.Object, shownStatus]        // of Pods of this Node that request networks
	copies     namespaceCopies
	separate   *separateNetworks
	routes     routeTables
}

// other reports whether another plugin makes the interfaces of a NetworkAttachmentDefinition.
func (n networkObjects) other(k derive.Object) bool {
	other, _ := n.others.Get(k)
	return other
}

// namespaceCopies knows the copies of this cluster's Namespaces in the central cluster.
type namespaceCopies struct {
	namespaces *derive.Source[derive.Object, tenant.NamespaceFacts]
	imports    *derive.Source[derive.Object, tenant.ClusterSetFacts]
	read       bool // imports are read
}

// has reports whether a Namespace of the central cluster is the copy of a Namespace of this cluster.
func (c namespaceCopies) has(name, namespace string) bool {
	i, _ := c.imports.Get(derive.Object{Name: name})
	f, _ := c.namespaces.Get(derive.Object{Name: namespace})
	return i.CopyOf(namespace, f.UID)
}

// podRequest is the request of a Pod of this Node for interfaces in VirtualNetworks.
type podRequest struct {
	UID  types.UID // that the kubelet gives the runtime
	Text string    // of the annotation about further interfaces
	Own  tenant.OwnRequest
	Host bool // it has hostNetwork, and a request
}

// ownReportOf returns the content of the report of this Node, and nothing of other reports.
func ownReportOf(node string) func(*tombolov1alpha1.NodeNetworkReport) tenant.ReportFacts {
	return func(n *tombolov1alpha1.NodeNetworkReport) tenant.ReportFacts {
		if n.Name != node {
			return nil
		}
		return tenant.ReportFactsOf(n)
	}
}

// requestOf returns the networks that a Pod requests. Each Pod of this Node that is not in the host's network has a
// row.
func requestOf(node string) func(*corev1.Pod) podRequest {
	return func(p *corev1.Pod) podRequest {
		if p.Spec.NodeName != node || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			return podRequest{}
		}
		if p.Spec.HostNetwork {
			own := tenant.OwnRequestOf(p.Annotations)
			return podRequest{Own: own, Host: own != tenant.OwnRequest{}}
		}
		uid := p.UID
		if mirrored := p.Annotations[corev1.MirrorPodAnnotationKey]; mirrored != "" {
			uid = types.UID(mirrored)
		}
		return podRequest{UID: uid, Text: p.Annotations[tenant.AnnotationNetworks], Own: tenant.OwnRequestOf(p.Annotations)}
	}
}

// podNetworks claims addresses of VirtualNetworks for this Node, and gives them to Pods. A claim stays while a Pod
// requests the network, or an address is held. Addresses are allocated only in blocks that answer the present claim.
type podNetworks struct {
	tables   *tables
	store    *ipam.Store
	progress *progress
	api      nodeNetworkAPI
	uid      func() types.UID
	log      *slog.Logger
	wake     chan struct{} // the report may differ
	urgent   chan struct{} // an ADD waits for blocks
	shown    atomic.Bool   // a watch showed a change of the report

	mu      sync.Mutex
	claims  map[derive.Object]string               // by VirtualNetwork; nil before the report was read
	written *tombolov1alpha1.NodeNetworkReportSpec // nil if it is not known
}

// nodeNetworkAPI reads and writes the report of this Node.
type nodeNetworkAPI interface {
	get(ctx context.Context) (*tombolov1alpha1.NodeNetworkReport, error)
	create(ctx context.Context, r *tombolov1alpha1.NodeNetworkReport) error
	patch(ctx context.Context, merge []byte) error
}

const (
	// extrasWait is how long an ADD waits for a Pod's networks.
	extrasWait = 10 * time.Second
	// networksAgain is the time between two comparisons of the report. After a failure the time is failedAgain, and
	// doubles with each further failure up to failedLong.
	networksAgain, failedAgain, failedLong = 5 * time.Minute, 2 * time.Second, time.Minute
	// networksSettle is how long changes are gathered before the report is compared. Each Pod causes four changes: it
	// comes, gets its address, loses it and goes. With an API server on the same machine, writes at once delayed an ADD by
	// 8 ms. Only policies on other Nodes wait for the addresses, and the Pod's programs start later.
	networksSettle = 100 * time.Millisecond
)

// changed has the report compared, with other changes of the same moment.
func (p *podNetworks) changed() { desired.Signal(p.wake) }

// hurry has the report compared at once, since an ADD waits for blocks.
func (p *podNetworks) hurry() { desired.Signal(p.urgent) }

// run keeps the report until ctx ends.
func (p *podNetworks) run(ctx context.Context) {
	if p.progress.await(ctx, func() (bool, error) { return p.progress.ready(), nil }) != nil {
		return
	}
	var failed time.Duration
	for {
		wait := networksAgain
		if err := p.report(ctx); err == nil {
			failed = 0
		} else if ctx.Err() == nil {
			failed = min(max(2*failed, failedAgain), failedLong)
			wait = failed
			p.log.Warn("report the VirtualNetworks of Pods; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-p.urgent:
		case <-time.After(wait):
		case <-p.wake:
			select {
			case <-ctx.Done():
				return
			case <-p.urgent:
			case <-time.After(networksSettle):
			}
		}
	}
}

// report writes the report if it should be another one.
func (p *podNetworks) report(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, publishLimit)
	defer cancel()
	if err := p.adopt(ctx); err != nil {
		return err
	}
	want := p.desired()
	p.compareShown()
	p.mu.Lock()
	written := p.written
	p.mu.Unlock()
	if reflect.DeepEqual(written, &want) || written == nil && len(want.Networks) == 0 {
		return nil
	}
	text, err := json.Marshal(map[string]any{"spec": map[string]any{"networks": want.Networks}})
	if err != nil {
		return err
	}
	err = errNoReport
	if written != nil {
		err = p.api.patch(ctx, text)
	}
	if errors.Is(err, errNoReport) || apierrors.IsNotFound(err) {
		uid := p.uid()
		if uid == "" {
			return errors.New("this Node has no object")
		}
		err = p.api.create(ctx, &tombolov1alpha1.NodeNetworkReport{ObjectMeta: metav1.ObjectMeta{Name: p.tables.nodeName,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: p.tables.nodeName, UID: uid}}},
			Spec: want})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.written = &want; err != nil {
		p.written = nil
		if apierrors.IsAlreadyExists(err) {
			p.written = unlikeAny()
		}
	}
	return err
}

// unlikeAny returns a content that differs from every desired report. It stands for an existing report whose content is
// unknown.
func unlikeAny() *tombolov1alpha1.NodeNetworkReportSpec {
	return &tombolov1alpha1.NodeNetworkReportSpec{Networks: make([]tombolov1alpha1.NodeNetwork, 1)}
}

var errNoReport = errors.New("there is no report")

// show starts a comparison of the report with the object that a watch shows. Another client may have deleted it, for
// example together with the Node's object, which the kubelet then creates again. The blocks of a Node without a report
// would be given to other Nodes.
func (p *podNetworks) show(changes []derive.Change[derive.Object, tenant.ReportFacts]) {
	if len(changes) > 0 {
		p.shown.Store(true)
		p.changed()
	}
}

// compareShown writes the report again if a watch showed another content. The watch may be late and show an earlier
// content of ours. Then the same content is written once more.
func (p *podNetworks) compareShown() {
	if !p.shown.Swap(false) {
		return
	}
	have, ok := p.tables.objects.networks.report.Get(derive.Object{Name: p.tables.nodeName})
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !ok:
		p.written = nil
	case p.written == nil || !reflect.DeepEqual(have,
		tenant.ReportFactsOf(&tombolov1alpha1.NodeNetworkReport{Spec: *p.written})):
		p.written = unlikeAny()
	}
}

// adopt takes the claims over that an earlier process has written.
func (p *podNetworks) adopt(ctx context.Context) error {
	p.mu.Lock()
	known := p.claims != nil
	p.mu.Unlock()
	if known {
		return nil
	}
	have, err := p.api.get(ctx)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claims = map[derive.Object]string{}
	if err != nil {
		return nil
	}
	p.written = &have.Spec
	for _, n := range have.Spec.Networks {
		p.claims[derive.Object{Namespace: n.Namespace, Name: n.Name}] = n.Claim
	}
	return nil
}

// desired returns the content of the report, and ends claims that it lacks.
func (p *podNetworks) desired() (out tombolov1alpha1.NodeNetworkReportSpec) {
	type use struct {
		ends map[string]bool // "namespace/pod interface" that are in the network, or request it
		more int             // further addresses of such ends, of earlier sandboxes
		n    tombolov1alpha1.NodeNetwork
	}
	uses := map[derive.Object]*use{}
	of := func(k derive.Object) *use {
		if uses[k] == nil {
			uses[k] = &use{ends: map[string]bool{}, n: tombolov1alpha1.NodeNetwork{Namespace: k.Namespace, Name: k.Name}}
		}
		return uses[k]
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	held := map[string]bool{}
	for _, r := range p.store.Records() {
		namespace, name, ok := strings.Cut(r.VirtualNetwork, "/")
		if !ok {
			continue
		}
		u, end := of(derive.Object{Namespace: namespace, Name: name}), r.Owner+" "+r.IfName
		if held[end] {
			u.more++
		}
		held[end], u.ends[end] = true, true
		_, pod, _ := strings.Cut(r.Owner, "/")
		for _, ip := range r.IPs {
			u.n.Addresses = append(u.n.Addresses, tombolov1alpha1.PodNetworkAddress{Address: ip.Addr().String(), Pod: pod,
				UID: types.UID(r.PodUID), Own: r.IfName == tenant.OwnInterface})
		}
	}
	elsewhere := p.elsewhere()
	for _, row := range p.tables.objects.networks.interfaces.All() {
		for _, x := range row.Value.List { // ADD reports errors
			k := derive.Object{Namespace: row.Key.Namespace, Name: x.Name}
			v, ok := p.tables.tenants.VirtualNetworks.Get(k)
			first := x.Interface == tenant.FirstInterface
			if !ok || len(v.Leases) == 0 || first && (p.tables.ownFault(v) != nil || elsewhere[row.Key] == row.Value.UID) {
				continue
			}
			u := of(k)
			u.ends[row.Key.String()+" "+interfaceIn(v, x)] = true
			for _, ip := range x.IPs {
				u.n.Requested = append(u.n.Requested, ip.String())
			}
		}
	}
	for k := range p.claims {
		if uses[k] == nil {
			delete(p.claims, k)
		}
	}
	for k, u := range uses {
		if p.claims[k] == "" {
			p.claims[k] = strconv.FormatInt(time.Now().UnixNano(), 36)
		}
		u.n.Claim, u.n.Pods = p.claims[k], int32(len(u.ends)+u.more)
		slices.Sort(u.n.Requested)
		u.n.Requested = slices.Compact(u.n.Requested)
		slices.SortFunc(u.n.Addresses, func(a, b tombolov1alpha1.PodNetworkAddress) int {
			return cmp.Compare(a.Address, b.Address)
		})
		out.Networks = append(out.Networks, u.n)
	}
	slices.SortFunc(out.Networks, func(a, b tombolov1alpha1.NodeNetwork) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// Extras returns the interfaces in VirtualNetworks that a Pod requests. It waits until this Node has addresses for
// them.
func (p *podNetworks) Extras(ctx context.Context, namespace, name string, uid types.UID) (out []cni.Extra, err error) {
	ctx, cancel := context.WithTimeout(ctx, extrasWait)
	defer cancel()
	why := errors.New("the agent has not read the Pod yet: it needs the API server")
	final := p.progress.await(ctx, func() (bool, error) {
		request, ok := p.tables.objects.networks.interfaces.Get(derive.Object{Namespace: namespace, Name: name})
		switch {
		case !ok || uid != "" && uid != request.UID:
			return false, nil
		case !request.Known:
			why = fmt.Errorf("the agent has not read Namespace %s yet: it needs the API server", namespace)
			return false, nil
		case request.Err != "" && request.Awaited:
			why = errors.New(request.Err)
			return false, nil
		case request.Err != "":
			return false, errors.New(request.Err)
		}
		out = nil
		for _, x := range request.List {
			extra, err := p.extra(namespace, x)
			if err != nil {
				p.hurry()
				why = fmt.Errorf("annotation %s: VirtualNetwork %s/%s %w", annotationOf(x), namespace, x.Name, err)
				return false, nil
			}
			if extra.IfName != x.Interface {
				out = append(out, cni.Extra{Routes: cni.Routes{IfName: x.Interface}, Inside: extra.VirtualNetwork})
			}
			out = append(out, extra)
		}
		return true, p.overlapping(namespace, out)
	})
	if ctx.Err() != nil && errors.Is(final, ctx.Err()) {
		return nil, why
	}
	p.share(namespace, out)
	return out, final
}

// overlapping returns an error for a Pod that requests two networks with overlapping ranges, since the Pod would route
// an address to only one of them. One of the two is a separate network. The other one may also be a network that the
// first interface reaches, since that interface has no routing table of its own.
func (p *podNetworks) overlapping(namespace string, list []cni.Extra) error {
	of := func(x cni.Extra, in netip.Prefix) (netip.Prefix, bool) {
		for _, own := range x.Ranges {
			if own.CIDR.Overlaps(in) {
				return own.CIDR, true
			}
		}
		return netip.Prefix{}, false
	}
	const remedy = "a Pod cannot have addresses of both: remove one of the two, or give one of them another range"
	reached := p.firstReaches(namespace, list)
	for i, x := range list {
		zone := p.tables.objects.networks.separate.zoneOf(virtualKey(x))
		for _, own := range x.Ranges {
			for _, y := range list[:i] {
				if other, ok := of(y, own.CIDR); ok && y.VirtualNetwork != x.VirtualNetwork {
					return fmt.Errorf("annotation %s: VirtualNetwork %s has range %s, and VirtualNetwork %s has range %s, and they "+
						"overlap: %s", tenant.AnnotationNetworks, y.VirtualNetwork, other, x.VirtualNetwork, own.CIDR, remedy)
				}
			}
			if zone == 0 || x.IfName == tenant.FirstInterface {
				continue
			}
			for _, joined := range reached {
				if joined.Overlaps(own.CIDR) {
					return fmt.Errorf("annotation %s: VirtualNetwork %s has range %s, and the Pod's first interface reaches range "+
						"%s, and they overlap: %s", tenant.AnnotationNetworks, x.VirtualNetwork, own.CIDR, joined, remedy)
				}
			}
		}
	}
	return nil
}

// virtualKey returns the VirtualNetwork of an interface.
func virtualKey(x cni.Extra) derive.Object {
	namespace, name, _ := strings.Cut(x.VirtualNetwork, "/")
	return derive.Object{Namespace: namespace, Name: name}
}

// firstReaches returns the ranges of the Pod's first interface, and the ranges of networks that it is joined with.
func (p *podNetworks) firstReaches(namespace string, list []cni.Extra) (out []netip.Prefix) {
	node, _ := p.tables.node.Get(self)
	if i := slices.IndexFunc(list, func(x cni.Extra) bool { return x.IfName == tenant.FirstInterface }); i >= 0 {
		if list[i].Inside != "" {
			return slices.Clone(node.PodCIDRs)
		}
		return list[i].Joined // its own range is compared as the others
	}
	reached, _ := p.tables.objects.networks.routes.reached.Get(derive.Object{Name: namespace})
	return slices.Concat(node.PodCIDRs, reached)
}

// share leaves each joined range to one interface of a Pod.
func (p *podNetworks) share(namespace string, list []cni.Extra) {
	reached, _ := p.tables.objects.networks.routes.reached.Get(derive.Object{Name: namespace})
	var further []*cni.Routes
	for i := range list {
		x := &list[i].Routes
		if x.IfName != tenant.FirstInterface {
			further = append(further, x)
			continue
		}
		reached = slices.Clone(x.Joined)
		for _, own := range x.Ranges {
			reached = append(reached, own.CIDR)
		}
	}
	cni.Share(reached, further...)
}

// interfaceIn returns the name of the interface that has the address of a requested network.
func interfaceIn(v tenant.VirtualNetwork, x tenant.PodNetwork) string {
	if v.Zone != 0 && x.Interface == tenant.FirstInterface {
		return tenant.OwnInterface
	}
	return x.Interface
}

// extra returns an interface as it can be made now. Otherwise its error names the part that the VirtualNetwork lacks.
func (p *podNetworks) extra(namespace string, x tenant.PodNetwork) (cni.Extra, error) {
	key := derive.Object{Namespace: namespace, Name: x.Name}
	out := cni.Extra{Routes: cni.Routes{IfName: x.Interface}, VirtualNetwork: key.String(), MAC: x.MAC, Requested: x.IPs}
	v, ok := p.tables.tenants.VirtualNetworks.Get(key)
	switch {
	case !ok || !v.Place.Known:
		return out, errors.New("is not there, or has no Subnet: create it with a Subnet, look at its observation, or " +
			"correct the annotation")
	case x.Interface == tenant.FirstInterface && p.tables.ownFault(v) != nil:
		return out, p.tables.ownFault(v)
	case v.Place.Closed():
		return out, errors.New("has the number of an older network: create it again")
	}
	out.IfName = interfaceIn(v, x)
	out.Joined, _ = p.tables.objects.networks.routes.reached.Get(key)
	for _, l := range p.leases(v) {
		if _, ok := p.blocks(key, l); !ok {
			return out, fmt.Errorf("has no addresses on this Node yet: look at the observation of Subnet %s, and whether "+
				"tombolo-controller runs", l.Subnet)
		}
		out.Ranges = append(out.Ranges, cni.ExtraRange{CIDR: l.Range.CIDR, Gateway: l.Range.Gateway})
	}
	families, _ := p.tables.this.familiesRow.Get(self)
	wanted := 0
	for i, serves := range []bool{families.Has4(), families.Has6()} {
		if v.Subnets[i] != "" && serves {
			wanted++
		}
	}
	if len(out.Ranges) != wanted || wanted == 0 {
		return out, errors.New("has no addresses of its Subnets, or of no version of IP that this Node serves: look at its " +
			"observation, and at these of its Subnets")
	}
	for _, ip := range x.IPs {
		if !slices.ContainsFunc(out.Ranges, func(r cni.ExtraRange) bool { return r.CIDR.Contains(ip) }) {
			return out, fmt.Errorf("has no Subnet with %s: correct ips in the annotation", ip)
		}
	}
	return out, nil
}

// leases returns the leases of a VirtualNetwork that give addresses to Pods of this Node.
func (p *podNetworks) leases(v tenant.VirtualNetwork) (out []tenant.LeaseFacts) {
	families, _ := p.tables.this.familiesRow.Get(self)
	for _, l := range v.Leases {
		if !l.Ending && families.Serve(l.Range.Gateway) {
			out = append(out, l)
		}
	}
	return out
}

// blocks returns the blocks of a lease that this Node may use now.
func (p *podNetworks) blocks(network derive.Object, l tenant.LeaseFacts) ([]netip.Prefix, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.usable(network, l)
}

// usable is blocks while p.mu is held.
func (p *podNetworks) usable(network derive.Object, l tenant.LeaseFacts) ([]netip.Prefix, bool) {
	for _, n := range l.Nodes {
		if n.Node == p.tables.nodeName && n.Claim == p.claims[network] && n.Claim != "" {
			return n.Blocks, len(n.Blocks) > 0
		}
	}
	return nil, false
}

// Allocate calls a function that allocates addresses in the blocks of this Node. If the blocks are full, or lack a
// requested address, it waits for further blocks.
func (p *podNetworks) Allocate(ctx context.Context, x cni.Extra, allocate func([]ipam.Range) error) error {
	ctx, cancel := context.WithTimeout(ctx, extrasWait)
	defer cancel()
	namespace, name, _ := strings.Cut(x.VirtualNetwork, "/")
	var last error
	err := p.progress.await(ctx, func() (bool, error) {
		v, _ := p.tables.tenants.VirtualNetworks.Get(derive.Object{Namespace: namespace, Name: name})
		last = p.allocate(derive.Object{Namespace: namespace, Name: name}, v, x, allocate)
		var exhausted *ipam.BlocksExhaustedError
		var elsewhere *ipam.NotHereError
		if errors.Is(last, errNoBlocks) || errors.As(last, &exhausted) || errors.As(last, &elsewhere) {
			p.hurry()
			return false, nil
		}
		return true, last
	})
	if last != nil {
		return last
	}
	return err
}

var errNoBlocks = errors.New("this Node has no addresses of its Subnets now: look at their observations, and whether " +
	"tombolo-controller runs")

// allocate has addresses allocated. The claim cannot end meanwhile.
func (p *podNetworks) allocate(k derive.Object, v tenant.VirtualNetwork, x cni.Extra, allocate func([]ipam.Range) error,
) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ranges []ipam.Range
	for _, want := range x.Ranges {
		for _, l := range p.leases(v) {
			blocks, ok := p.usable(k, l)
			if !ok || l.Range.CIDR != want.CIDR {
				continue
			}
			r := ipam.Range{Prefix: want.CIDR, Reserved: []netip.Addr{want.Gateway}, Blocks: blocks}
			for _, ip := range x.Requested {
				if want.CIDR.Contains(ip) {
					r.Want = ip
				}
			}
			ranges = append(ranges, r)
			break
		}
	}
	if len(ranges) != len(x.Ranges) {
		return errNoBlocks
	}
	return allocate(ranges)
}

// nodeNetworkClient is nodeNetworkAPI over HTTP.
type nodeNetworkClient struct {
	*reportClient
	node string
}

const nodeNetworksResource = "nodenetworkreports"

func (c nodeNetworkClient) get(ctx context.Context) (*tombolov1alpha1.NodeNetworkReport, error) {
	out := &tombolov1alpha1.NodeNetworkReport{}
	return out, c.reports.Get().Resource(nodeNetworksResource).Name(c.node).Do(ctx).Into(out)
}

func (c nodeNetworkClient) create(ctx context.Context, r *tombolov1alpha1.NodeNetworkReport) error {
	return c.reports.Post().Resource(nodeNetworksResource).Body(r).Do(ctx).Error()
}

func (c nodeNetworkClient) patch(ctx context.Context, merge []byte) error {
	return c.reports.Patch(types.MergePatchType).Resource(nodeNetworksResource).Name(c.node).Body(merge).Do(ctx).Error()
}

// newPodNetworks returns the claims of this Node; nil without the feature gate.
func (a *Agent) newPodNetworks(client *reportClient) *podNetworks {
	if a.tables.tenants == nil {
		return nil
	}
	p := &podNetworks{tables: a.tables, store: a.ipam, progress: a.progress, log: a.log, uid: a.uid,
		api: nodeNetworkClient{client, a.options.NodeName}, wake: make(chan struct{}, 1), urgent: make(chan struct{}, 1)}
	a.ipam.Watch(p.changed)
	a.tables.objects.networks.interfaces.Watch(func([]derive.Change[derive.Object, podInterfaces]) { p.changed() })
	a.tables.tenants.VirtualNetworks.Watch(func([]derive.Change[derive.Object, tenant.VirtualNetwork]) { p.changed() })
	a.tables.objects.networks.report.Watch(p.show)
	return p
}
