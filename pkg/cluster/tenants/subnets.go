package tenants

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/retry"
	"github.com/tombolo-net/tombolo/pkg/tenant"
	"github.com/tombolo-net/tombolo/pkg/watch"
)

// subnetSources are the objects that Subnets and their leases depend on.
type subnetSources struct {
	facts    *derive.Source[derive.Object, tenant.SubnetFacts]
	statuses *derive.Source[derive.Object, facts[contrailv4.SubnetStatus]]
	leases   *derive.Source[derive.Object, tenant.LeaseFacts]
	reports  *derive.Source[derive.Object, tenant.ReportFacts]
	nodes    *derive.Source[derive.Object, []tenant.Reserved]
	reserved []derive.Readable[derive.Object, []tenant.Reserved]
	allowed  *derive.Source[derive.Object, tenant.Allowed]
}

// newSubnetSources declares the kinds. agents are the options of the agents' ConfigMap, and member is where the
// ConfigMap of the member controller is declared.
func newSubnetSources(k, member *watch.Kinds, agents, ofMember []watch.Option) *subnetSources {
	allowed := watch.IfAllowed()
	s := &subnetSources{
		facts: watch.NewSource(k, "subnets", tenant.SubnetFactsOf, allowed),
		statuses: watch.NewSource(k, "subnet-status", func(n *contrailv4.Subnet) facts[contrailv4.SubnetStatus] {
			return facts[contrailv4.SubnetStatus]{n.UID, n.Status}
		}, allowed),
		leases:  watch.NewSource(k, "subnetleases", tenant.LeaseFactsOf, allowed),
		reports: watch.NewSource(k, "nodenetworkreports", tenant.ReportFactsOf, allowed),
		nodes:   watch.NewSource(k, "node-ranges", nodeRanges),
	}
	s.reserved = []derive.Readable[derive.Object, []tenant.Reserved]{s.nodes,
		watch.NewSource(k, "service-ranges", serviceRanges, watch.Optional()),
		watch.NewSource(k, "configured-ranges", configuredRanges, agents...),
		watch.NewSource(member, "member-ranges", memberRanges, ofMember...),
		watch.NewSource(k, "ranges-of-clusters", clusterRanges, allowed)}
	s.allowed = watch.NewSource(k, "allowed-ranges", allowedRanges, agents...)
	return s
}

// rangeOf returns the range that a text is, which may be an address.
func rangeOf(text string) netip.Prefix {
	p, err := netip.ParsePrefix(strings.TrimSpace(text))
	if err != nil {
		if ip, err := netip.ParseAddr(strings.TrimSpace(text)); err == nil {
			p = netip.PrefixFrom(ip, ip.BitLen())
		}
	}
	return p.Masked()
}

// reserve adds the ranges in texts to a list. It leaves out texts that are not valid: other controllers report them.
func reserve(to *[]tenant.Reserved, what string, texts ...string) {
	for _, text := range texts {
		if p := rangeOf(text); p.IsValid() && !p.Addr().Is4In6() {
			*to = append(*to, tenant.Reserved{CIDR: p, What: what})
		}
	}
}

// nodeRanges returns the ranges of a Node and its Pods. Each Node has a row.
func nodeRanges(n *corev1.Node) []tenant.Reserved {
	out := []tenant.Reserved{}
	reserve(&out, "the Pods of Node "+n.Name, n.Spec.PodCIDRs...)
	for _, a := range n.Status.Addresses {
		reserve(&out, "an address of Node "+n.Name, a.Address)
	}
	reserve(&out, "the network of Node "+n.Name, strings.Split(n.Annotations[transportNetworks], ",")...)
	for text := range strings.SplitSeq(n.Annotations[multicluster.AnnotationGatewayIP], ",") {
		if !strings.Contains(text, "/") { // no Node reserves a range here
			reserve(&out, "the Gateway of Node "+n.Name, text)
		}
	}
	return out
}

// transportNetworks is the annotation in which the agents announce the networks of their Nodes.
const transportNetworks = "tombolo.io/transport-networks"

func serviceRanges(s *networkingv1.ServiceCIDR) (out []tenant.Reserved) {
	reserve(&out, "the Services of ServiceCIDR "+s.Name, s.Spec.CIDRs...)
	return out
}

// agentsRanges has the settings of the agents' configuration with ranges. Package config of the agent declares the
// keys.
type agentsRanges struct {
	PodCIDRs       string `json:"podCIDRs"`
	ServiceCIDR    string `json:"serviceCIDR"`
	ServiceCIDRv6  string `json:"serviceCIDRv6"`
	TenantNetworks struct {
		SubnetCIDRs []string `json:"subnetCIDRs"`
	} `json:"tenantNetworks"`
}

// configuredRanges returns the ranges of Pods and Services in the agents' configuration.
func configuredRanges(m *corev1.ConfigMap) (out []tenant.Reserved) {
	var c agentsRanges
	if err := yaml.Unmarshal([]byte(m.Data["antrea-agent.conf"]), &c); err != nil {
		return nil // the agents report it
	}
	reserve(&out, "the Services of the agents' configuration", c.ServiceCIDR, c.ServiceCIDRv6)
	reserve(&out, "the Pods of the agents' configuration (podCIDRs)", strings.Split(c.PodCIDRs, ",")...)
	return out
}

// allowedRanges returns the ranges that Subnets may be in. A range that is not valid allows nothing. No agent starts
// with such a range.
func allowedRanges(m *corev1.ConfigMap) (out tenant.Allowed) {
	var c agentsRanges
	if err := yaml.Unmarshal([]byte(m.Data["antrea-agent.conf"]), &c); err != nil {
		return tenant.Allowed{Given: true}
	}
	out.Given = len(c.TenantNetworks.SubnetCIDRs) > 0
	for _, text := range c.TenantNetworks.SubnetCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			out.CIDRs = append(out.CIDRs, p.Masked())
		}
	}
	return out
}

// memberRanges returns the ranges that the member controller announces to other clusters.
func memberRanges(m *corev1.ConfigMap) (out []tenant.Reserved) {
	var c struct {
		ServiceCIDR string   `json:"serviceCIDR"`
		PodCIDRs    []string `json:"podCIDRs"`
	}
	if err := yaml.Unmarshal([]byte(m.Data["controller_manager_config.yaml"]), &c); err != nil {
		return nil // the member controller reports it
	}
	reserve(&out, "the Services of the member controller's configuration", strings.Split(c.ServiceCIDR, ",")...)
	reserve(&out, "the Pods of the member controller's configuration", c.PodCIDRs...)
	return out
}

// clusterRanges returns the ranges of another cluster, and the addresses of its Gateways.
func clusterRanges(i *mcv1alpha1.ClusterInfoImport) (out []tenant.Reserved) {
	of := " of cluster " + i.Spec.ClusterID + " (ClusterInfoImport " + i.Namespace + "/" + i.Name + ")"
	reserve(&out, "the Pods"+of, i.Spec.PodCIDRs...)
	reserve(&out, "the Services"+of, i.Spec.Services()...)
	for _, g := range slices.Concat(i.Spec.GatewayInfos, i.Spec.LeavingGateways) {
		reserve(&out, "a Gateway"+of, g.GatewayIP)
		if g.WireGuard != nil {
			reserve(&out, "a Gateway"+of, g.WireGuard.InsideIP)
		}
	}
	return out
}

// subnetTables are the statuses of Subnets, and the leases.
type subnetTables struct {
	*subnetSources
	tenants    *tenant.Tables
	cluster    *derive.Table[derive.Name, state]
	inCopy     func(derive.Object, *derive.Reader) bool // as of tables
	byUID      *derive.Index[derive.Object, derive.Object, tenant.SubnetFacts]
	claimants  *derive.Index[derive.Object, derive.Object, tenant.ReportFacts] // reports by VirtualNetwork
	leaseSteps *derive.Table[derive.Object, leaseStep]
	steps      *derive.Table[derive.Object, subnetStep]
}

type subnetStep = step[contrailv4.SubnetStatus]

// leaseStep is the desired lease of a Subnet. Without a range there should be no lease.
type leaseStep struct {
	Want  tenant.LeaseFacts // its version is the version of the lease that there is, or ""
	Due   bool
	Short []string // Nodes that lack addresses
}

func newSubnetTables(e *derive.Engine, s *subnetSources, tenants *tenant.Tables,
	cluster *derive.Table[derive.Name, state], inCopy func(derive.Object, *derive.Reader) bool,
) *subnetTables {
	t := &subnetTables{subnetSources: s, tenants: tenants, cluster: cluster, inCopy: inCopy}
	t.byUID = derive.NewIndex(s.facts, "uid", func(_ derive.Object, f tenant.SubnetFacts) []derive.Object {
		return []derive.Object{leaseOf(f.UID)}
	})
	t.claimants = derive.NewIndex(s.reports, "network", func(_ derive.Object, f tenant.ReportFacts) (out []derive.Object) {
		for k := range f {
			out = append(out, k)
		}
		return out
	})
	t.leaseSteps = derive.NewTable(e, "lease-steps", t.leaseStep, derive.KeysOf(s.leases), derive.KeysOfIndex(t.byUID))
	t.steps = derive.NewTable(e, "subnet-steps", t.step, derive.KeysOf(s.statuses))
	return t
}

// leaseOf returns the key of the lease of a Subnet.
func leaseOf(uid types.UID) derive.Object { return derive.Object{Name: string(uid)} }

// leaseStep returns the desired lease of a Subnet, and whether it has to be written. If the Subnet is deleted or has
// another range, the lease ends: it is deleted once no Node has blocks of it. The zone of a lease does not change.
func (t *subnetTables) leaseStep(k derive.Object, r *derive.Reader) (leaseStep, []problem.Problem) {
	have, exists := derive.Get(r, t.leases, k)
	cluster, _ := derive.Get(r, t.cluster, self)
	want, pools := have, []netip.Prefix(nil)
	want.Ending = true
	for _, row := range derive.List(r, t.byUID, k) {
		s, _ := derive.Get(r, t.tenants.Subnets, row.Key)
		_, numbered := derive.Get(r, t.tenants.IDs, tenant.VirtualName(s.Network))
		if !cluster.On || !s.Served || !numbered || exists && (have.Network != s.Network || have.Range != s.Range) {
			continue
		}
		if exists && s.Zone != have.Zone && len(have.Nodes) == 0 {
			continue // its network moved to this zone before a Pod had an address
		}
		want.Subnet, want.Network, want.Range, want.Ending, pools = row.Key, s.Network, s.Range, false, s.Pools
		if !exists { // Pods have addresses in the zone of an existing lease
			want.Zone = s.Zone
		}
	}
	if !want.Range.CIDR.IsValid() {
		return leaseStep{}, nil
	}
	var claims []tenant.Claim
	for _, row := range derive.List(r, t.claimants, want.Network) {
		if _, there := derive.Get(r, t.nodes, row.Key); !there {
			continue
		}
		c := row.Value[want.Network].ClaimOn(row.Key.Name, want.Range)
		if want.Ending {
			c.Pods, c.Requested = 0, nil
		}
		claims = append(claims, c)
	}
	var short []string
	want.Nodes, short = tenant.Grant(want.Range, pools, have.Nodes, claims)
	if want.Ending && len(want.Nodes) == 0 {
		return leaseStep{Want: tenant.LeaseFacts{ResourceVersion: have.ResourceVersion}, Due: exists}, nil
	}
	return leaseStep{Want: want, Due: !exists || !reflect.DeepEqual(want, have), Short: short}, nil
}

// step returns the status of a Subnet. The leader's controller writes the status of one in a copy.
func (t *subnetTables) step(k derive.Object, r *derive.Reader) (subnetStep, []problem.Problem) {
	if t.inCopy(k, r) {
		return subnetStep{}, nil
	}
	f, _ := derive.Get(r, t.statuses, k)
	cluster, _ := derive.Get(r, t.cluster, self)
	s, _ := derive.Get(r, t.tenants.Subnets, k)
	l, _ := derive.Get(r, t.leaseSteps, leaseOf(f.UID))
	ps := problem.List(slices.Clone(s.Problems))
	if len(l.Short) > 0 {
		ps.Add(problem.About("Subnet", k.Namespace, k.Name), "spec.cidr", reasonFull, "it is full: Pods on "+
			problem.Few(l.Short)+" get no address: delete Pods, extend spec.ranges if there are any, or use another "+
			"VirtualNetwork with a larger Subnet")
	}
	want := contrailv4.SubnetStatus{Status: observe(cluster.On, ps)}
	if s.Range.CIDR.IsValid() {
		for _, row := range derive.List(r, t.claimants, s.Network) {
			want.IPCount += int64(len(row.Value[s.Network].ClaimOn(row.Key.Name, s.Range).Held))
		}
		want.AllocationUsage = fmt.Sprintf("%.2f%%", s.Range.Usage(int(want.IPCount)))
	}
	if cluster.On && !s.Served {
		want.State = contrailv4.StateFailure
	}
	return subnetStep{f.UID, want, want != f.Have}, nil
}

func (c *controller) offerSubnet(key derive.Object, s subnetStep) {
	status := statusOf(s.Want.Status)
	status["ipCount"], status["allocationUsage"] = nil, nil
	if s.Want.IPCount != 0 {
		status["ipCount"] = s.Want.IPCount
	}
	if s.Want.AllocationUsage != "" {
		status["allocationUsage"] = s.Want.AllocationUsage
	}
	c.offer("Subnet", key, &contrailv4.Subnet{}, s.UID, s.Due, status)
}

// offerLease queues the write of a lease, or removes a queued one that is no longer due. The write has the version of
// the lease for which it was planned, so the API server refuses it if the lease has changed since.
func (c *controller) offerLease(key derive.Object, s leaseStep) {
	object := problem.About("SubnetLease", "", key.Name)
	o := retry.Offer{Key: object.String(), Group: s.Want.Subnet.Namespace}
	if s.Due {
		verb, do := "create", c.createLease
		switch {
		case !s.Want.Range.CIDR.IsValid():
			verb, do = "delete", c.deleteLease
		case s.Want.ResourceVersion != "":
			verb, do = "update", c.updateLease
		}
		o.Writes = []retry.Write{{
			What:  verb + " " + object.String(),
			Blame: problem.Problem{Object: object, Reason: retry.ReasonWriteFailed, Message: leaseRemedy},
			Do:    func(ctx context.Context) error { return do(ctx, leaseObject(key, s.Want)) },
		}}
	}
	c.queue.Set(o)
}

// leaseRemedy is the remedy for a refused write of a lease.
const leaseRemedy = "if a field is unknown, apply tombolo-crds.yml of this version; otherwise " + remedy

// createLease creates a lease. An API server with an earlier definition would drop the zone without an error, and Pods
// would have addresses of another network in the common zone. So it has to refuse fields that it does not know.
func (c *controller) createLease(ctx context.Context, l *tombolov1alpha1.SubnetLease) error {
	return c.to.Create(ctx, l, client.FieldValidation(metav1.FieldValidationStrict))
}

func (c *controller) updateLease(ctx context.Context, l *tombolov1alpha1.SubnetLease) error {
	text, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": l.ResourceVersion},
		"spec":     map[string]any{"ending": l.Spec.Ending, "nodes": l.Spec.Nodes},
	})
	if err != nil {
		return err
	}
	return c.to.Patch(ctx, l, client.RawPatch(types.MergePatchType, text))
}

func (c *controller) deleteLease(ctx context.Context, l *tombolov1alpha1.SubnetLease) error {
	version := l.ResourceVersion
	return client.IgnoreNotFound(c.to.Delete(ctx, l, client.Preconditions{ResourceVersion: &version}))
}

func leaseObject(key derive.Object, f tenant.LeaseFacts) *tombolov1alpha1.SubnetLease {
	l := &tombolov1alpha1.SubnetLease{}
	l.Name, l.ResourceVersion = key.Name, f.ResourceVersion
	l.Spec = tombolov1alpha1.SubnetLeaseSpec{
		Subnet:         tombolov1alpha1.ObjectName{Namespace: f.Subnet.Namespace, Name: f.Subnet.Name},
		VirtualNetwork: tombolov1alpha1.ObjectName{Namespace: f.Network.Namespace, Name: f.Network.Name},
		CIDR:           f.Range.CIDR.String(), Gateway: f.Range.Gateway.String(), Ending: f.Ending,
		Zone: int32(f.Zone),
	}
	for _, n := range f.Nodes {
		blocks := tombolov1alpha1.NodeBlocks{Node: n.Node, Claim: n.Claim}
		for _, b := range n.Blocks {
			blocks.CIDRs = append(blocks.CIDRs, b.String())
		}
		l.Spec.Nodes = append(l.Spec.Nodes, blocks)
	}
	return l
}
