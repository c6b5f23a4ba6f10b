package diagnose

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"
	npv1alpha2 "sigs.k8s.io/network-policy-api/apis/v1alpha2"

	crdv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1alpha1"
	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/cli/remote"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

// now is the time in all clusters of healthy.
var now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

var made = metav1.NewTime(now.Add(-time.Hour))

func metaOf(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: made, Generation: 1}
}

// probesOf gives a Gateway of east good results of a way to west.
func probesOf(f *Facts) *api.ProbedWay {
	a := f.Clusters[1].agent("node-1")
	a.Probes = &api.Probes{Ways: []api.ProbedWay{{Peer: "west", To: address(2, 2), Size: 1450, MTU: 1450,
		ProbeResult: api.ProbeResult{Samples: 300, Sent: 900, P50Seconds: .01, P99Seconds: .02}}}}
	return &a.Probes.Ways[0]
}

// nodeProbesOf gives a Node of east good results of another one.
func nodeProbesOf(f *Facts, of, to string) *api.ProbedNode {
	a := f.Clusters[1].agent(of)
	if a.Probes == nil {
		a.Probes = &api.Probes{}
	}
	a.Probes.Nodes = append(a.Probes.Nodes, api.ProbedNode{Node: to, To: "10.1.0.1",
		ProbeResult: api.ProbeResult{Samples: 60, Sent: 60, P50Seconds: .001}})
	return &a.Probes.Nodes[len(a.Probes.Nodes)-1]
}

// healthy returns the facts of a ClusterSet of three clusters, of which north is the leader. Each has the Gateways
// node-1
// and node-2, and node-3.
func healthy() Facts {
	ids := []string{"north", "east", "west"}
	var f Facts
	for i, id := range ids {
		c := Cluster{Name: id, Version: "v1.36.3", Now: now, Unread: map[Kind]string{}, Absent: map[Kind]bool{}}
		c.Token = &Token{Namespace: "kube-system", Name: "member-token", Keys: []string{"ca.crt", "token"},
			Subject: "system:serviceaccount:area:" + id, CAEnds: now.AddDate(9, 0, 0)}
		set := mcv1alpha2.ClusterSet{ObjectMeta: metaOf("kube-system", "set")}
		set.Spec = mcv1alpha2.ClusterSetSpec{ClusterID: id, Namespace: "area", Leaders: []mcv1alpha2.LeaderClusterInfo{
			{ClusterID: "north", Server: "https://10.0.0.1:6443", Secret: "member-token"}}}
		set.Status.Conditions = []mcv1alpha2.ClusterSetCondition{{Type: mcv1alpha2.ClusterSetReady,
			Status: corev1.ConditionTrue}}
		c.Sets = []mcv1alpha2.ClusterSet{set}
		if id == "north" {
			area := mcv1alpha2.ClusterSet{ObjectMeta: metaOf("area", "set")}
			area.Spec = mcv1alpha2.ClusterSetSpec{ClusterID: id, Leaders: []mcv1alpha2.LeaderClusterInfo{{ClusterID: id}}}
			for _, member := range ids {
				area.Status.ClusterStatuses = append(area.Status.ClusterStatuses, mcv1alpha2.ClusterStatus{ClusterID: member,
					Conditions: []mcv1alpha2.ClusterCondition{{Type: mcv1alpha2.ClusterReady, Status: corev1.ConditionTrue}}})
				c.ResourceExports = append(c.ResourceExports, mcv1alpha1.ResourceExport{ObjectMeta: metaOf("area",
					member+"-clusterinfo"),
					Spec: mcv1alpha1.ResourceExportSpec{Kind: "ClusterInfo", ClusterID: member, ClusterInfo: infoOf(slices.Index(ids,
						member), member)},
					Status: mcv1alpha1.ResourceExportStatus{Conditions: []mcv1alpha1.ResourceExportCondition{
						{Type: mcv1alpha1.ResourceExportSucceeded, Status: corev1.ConditionTrue}}}})
			}
			c.Sets = append(c.Sets, area)
		}
		for n := 1; n <= 3; n++ {
			name := fmt.Sprintf("node-%d", n)
			node := corev1.Node{ObjectMeta: metaOf("", name),
				Spec: corev1.NodeSpec{PodCIDRs: []string{fmt.Sprintf("10.1%d.%d.0/24", i, n)}}}
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			c.Nodes = append(c.Nodes, node)
			if n < 3 {
				c.Gateways = append(c.Gateways, mcv1alpha1.Gateway{ObjectMeta: metaOf("kube-system", name), GatewayIP: address(i,
					n),
					InternalIP: address(i, n), ServiceCIDR: fmt.Sprintf("10.9%d.0.0/16", i)})
			}
			c.Agents = append(c.Agents, agentOf(ids, i, n))
		}
		for j, other := range ids {
			if j != i {
				c.Infos = append(c.Infos, mcv1alpha1.ClusterInfoImport{ObjectMeta: metaOf("kube-system", other+"-clusterinfo"),
					Spec: *infoOf(j, other)})
				status := mcv1alpha2.ClusterStatus{ClusterID: other, Conditions: []mcv1alpha2.ClusterCondition{
					{Type: mcv1alpha2.ClusterReachable, Status: corev1.ConditionTrue, Reason: "AllWaysUp"}}}
				c.Sets[0].Status.ClusterStatuses = append(c.Sets[0].Status.ClusterStatuses, status)
			}
		}
		for _, at := range [][2]string{{"kube-system", "tombolo-controller"}, {"kube-system", "tombolo-policy-controller"},
			{"kube-system", "antrea-mc-controller"}, {"area", "antrea-mc-controller"}} {
			if at[0] == "area" && id != "north" {
				continue
			}
			c.Deployments = append(c.Deployments, appsv1.Deployment{ObjectMeta: metaOf(at[0], at[1]),
				Status: appsv1.DeploymentStatus{ReadyReplicas: 1}})
			c.Leases = append(c.Leases, coordinationv1.Lease{ObjectMeta: metaOf(at[0], at[1]), Spec: coordinationv1.LeaseSpec{
				HolderIdentity: ptr.To("pod-1"), RenewTime: &metav1.MicroTime{Time: now.Add(-2 * time.Second)}}})
		}
		c.Webhooks = []admissionv1.ValidatingWebhookConfiguration{{ObjectMeta: metaOf("", "tombolo-policies"),
			Webhooks: []admissionv1.ValidatingWebhook{{Name: "p",
				ClientConfig: admissionv1.WebhookClientConfig{CABundle: authority}}}}}
		c.ServiceExports = []mcsv1beta1.ServiceExport{{ObjectMeta: metaOf("shop", "db"),
			Status: mcsv1beta1.ServiceExportStatus{
				Conditions: []metav1.Condition{{Type: "Valid", Status: "True"}, {Type: "Ready", Status: "True"}, {Type: "Conflict",
					Status: "False"}}}}}
		c.ServiceImports = []mcsv1beta1.ServiceImport{{ObjectMeta: metaOf("shop", "db"),
			Status: mcsv1beta1.ServiceImportStatus{
				Conditions: []metav1.Condition{{Type: "Ready", Status: "True"}}}}}
		c.EndpointSlices = []discoveryv1.EndpointSlice{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-1",
			Labels: map[string]string{discoveryv1.LabelServiceName: "db"}}, Endpoints: []discoveryv1.Endpoint{{}}}}
		c.ClusterPolicies = []crdv1beta1.ClusterNetworkPolicy{{ObjectMeta: metaOf("", "deny"),
			Status: crdv1beta1.PolicyStatus{
				Phase: crdv1beta1.PhaseRealized, ObservedGeneration: 1}}}
		c.Policies = []crdv1beta1.NetworkPolicy{{ObjectMeta: metaOf("shop", "web"), Status: crdv1beta1.PolicyStatus{
			Phase: crdv1beta1.PhaseRealized, ObservedGeneration: 1}}}
		c.StandardPolicies = []npv1alpha2.ClusterNetworkPolicy{{ObjectMeta: metaOf("", "base")}}
		exchanged(&c, id == "north")
		f.Clusters = append(f.Clusters, c)
	}
	return f
}

// exchanged gives a cluster the endpoints of an imported Service, its name in CoreDNS, and a quota.
func exchanged(c *Cluster, leader bool) {
	c.ImportedSlices = []discoveryv1.EndpointSlice{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop",
		Name: "antrea-mc-db-1", CreationTimestamp: made, Labels: map[string]string{mcsv1beta1.LabelServiceName: "db",
			mcsv1beta1.LabelSourceCluster: "elsewhere"}}, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.95.0.7"}}}}}
	c.Resolved = &Resolved{Served: true, Names: []ResolvedName{{Namespace: "shop", Name: "db", Want: []string{"10.90.0.9"},
		Have: []string{"10.90.0.9"}, Changed: made.Time}}}
	for i := range c.Agents {
		c.Agents[i].Upcalls = &api.Upcalls{Missed: 1000}
	}
	if !leader {
		return
	}
	c.ResourceImports = []mcv1alpha1.ResourceImport{{ObjectMeta: metaOf("area", "shop-db-endpoints"),
		Spec: mcv1alpha1.ResourceImportSpec{Namespace: "shop", Name: "db", Kind: "Endpoints",
			Endpoints: &mcv1alpha1.EndpointsImport{Subsets: []corev1.EndpointSubset{{
				Addresses: []corev1.EndpointAddress{{IP: "10.95.0.7"}, {IP: "10.95.0.8"}}}}}}}}
	c.Quotas = []corev1.ResourceQuota{{ObjectMeta: metaOf("area", "antrea-mc-members"), Status: corev1.ResourceQuotaStatus{
		Hard: corev1.ResourceList{"count/events": resource.MustParse("5000")},
		Used: corev1.ResourceList{"count/events": resource.MustParse("300")}}}}
}

func address(cluster, node int) string { return fmt.Sprintf("192.168.%d.%d", 70+cluster, 100+node) }

func infoOf(i int, id string) *mcv1alpha1.ClusterInfo {
	return &mcv1alpha1.ClusterInfo{ClusterID: id, ServiceCIDR: fmt.Sprintf("10.9%d.0.0/16", i),
		PodCIDRs:     []string{fmt.Sprintf("10.1%d.0.0/16", i)},
		GatewayInfos: []mcv1alpha1.GatewayInfo{{GatewayIP: address(i, 1)}, {GatewayIP: address(i, 2)}}}
}

// agentOf returns the agent of a Node, all of whose ways are up.
func agentOf(ids []string, cluster, n int) Agent {
	name := fmt.Sprintf("node-%d", n)
	a := Agent{Node: name, Pod: &corev1.Pod{ObjectMeta: metaOf("kube-system", "tombolo-agent-"+name),
		Status: corev1.PodStatus{Phase: corev1.PodRunning}}}
	a.Status = &api.Status{Node: name, Version: "v0.3.1", Ready: true, OVS: "3.1.0", Role: "regular",
		OpenFlow: api.OpenFlow{Connected: true}, Problems: []api.Problem{},
		Network: &api.Network{Mode: "encap", Tunnel: "geneve", Port: 6081, Encryption: "none", PeerEncryption: "none",
			LinkMTU: 1500, PodMTU: 1450, TunnelOverhead: 50}}
	way := func(to string) api.Way {
		return api.Way{To: to, State: up, Forwarding: true, Diagnostic: "No Diagnostic", RemoteState: up,
			RemoteDiagnostic: "No Diagnostic", Flaps: 1, RxPackets: 1000, TxPackets: 1000}
	}
	for other := 1; other <= 3; other++ {
		if other == n {
			continue
		}
		p := api.Peer{Kind: "Node", Name: fmt.Sprintf("node-%d", other), Via: address(cluster, other)}
		if n < 3 || other < 3 {
			p.Ways = []api.Way{way(address(cluster, other))}
		}
		a.Peers = append(a.Peers, p)
	}
	for j, id := range ids {
		if j == cluster {
			continue
		}
		p := api.Peer{Kind: "Cluster", Name: id, Role: "regular"}
		to := cluster
		if n < 3 {
			p.Role, a.Status.Role, to = "gateway", "gateway", j
		}
		p.Ways = []api.Way{way(address(to, 1)), way(address(to, 2))}
		a.Peers = append(a.Peers, p)
	}
	return a
}

// setWay changes a way of a Node, to a cluster or to a Node, now and seconds later.
func setWay(c *Cluster, node, peer, to string, change func(w *api.Way)) {
	a := c.agent(node)
	if a.Later == nil {
		for _, p := range a.Peers {
			p.Ways = slices.Clone(p.Ways)
			a.Later = append(a.Later, p)
		}
	}
	for _, peers := range [][]api.Peer{a.Peers, a.Later} {
		for _, p := range peers {
			for i := range p.Ways {
				if p.Name == peer && p.Ways[i].To == to {
					change(&p.Ways[i])
				}
			}
		}
	}
}

// Ends of a way that is down, as BFD reports them.
func silent(w *api.Way) { // it receives nothing
	w.State, w.Forwarding, w.Diagnostic, w.RemoteState = down, false, "Control Detection Time Expired", down
}

func unheard(w *api.Way) { // receives the far end's packets, which does not receive its own
	w.State, w.Forwarding, w.Diagnostic = starting, false, "Neighbor Signaled Session Down"
	w.RemoteState, w.RemoteDiagnostic = down, "Control Detection Time Expired"
}

// cutNode cuts all ways between a Gateway and other clusters, as both ends see it.
func cutNode(f *Facts, i, n int) {
	ids := []string{"north", "east", "west"}
	for j := range f.Clusters {
		if j == i {
			continue
		}
		for m := 1; m <= 2; m++ {
			setWay(&f.Clusters[i], fmt.Sprintf("node-%d", n), ids[j], address(j, m), silent)
			setWay(&f.Clusters[j], fmt.Sprintf("node-%d", m), ids[i], address(i, n), silent)
		}
	}
}

func TestHealthy(t *testing.T) {
	for _, r := range Run(healthy()) {
		if r.Status == Fail || r.Status == Unknown {
			t.Errorf("%s %s %s %s: %s", r.Status, r.Code, r.Cluster, r.Object, r.Detail)
		}
	}
	ways := Run(healthy())
	i := slices.IndexFunc(ways, func(r Result) bool { return r.Code == "TD036" })
	// 4 ways of Gateways between each two clusters, and in each cluster the ways of 2 Gateways and a Node.
	if want := "21 ways are up, as both ends see it"; ways[i].Detail != want {
		t.Errorf("%s, want %s", ways[i].Detail, want)
	}
}

// TestFaults holds that the first failing check names the fault, and that no other check of the same severity invents
// one: codes are all that fail.
func TestFaults(t *testing.T) {
	east := func(f *Facts) *Cluster { return &f.Clusters[1] }
	for _, row := range []struct {
		name  string
		fault func(f *Facts)
		codes string
		want  []string // in the first failing result
	}{
		{"an API server is away", func(f *Facts) {
			f.Clusters[1] = Cluster{Name: "east", Fault: "dial tcp 10.0.0.2:6443: connect: connection refused"}
		}, "TD001", []string{"east", "connection refused", "kubectl get --raw /version"}},
		{"a clock is ahead", func(f *Facts) { east(f).Ahead = 2 * time.Minute }, "TD002",
			[]string{"the clocks of north and east are 2m0s apart", "NTP"}},
		{"a clock is behind", func(f *Facts) { east(f).Ahead = -2 * time.Minute }, "TD002",
			[]string{"east is 2m0s behind this machine"}},
		{"a clock of a Node is behind", func(f *Facts) {
			for i, ahead := range []time.Duration{-40 * time.Second, -20 * time.Second, 10 * time.Minute} {
				a := &east(f).Agents[i]
				a.Probes, a.Ahead, a.Took = &api.Probes{At: now}, ahead, 2*time.Second
			}
			east(f).Ahead = 2 * time.Second
			east(f).Agents[2].Took = 15 * time.Minute // the answer took so long
		}, "TD004", []string{"Node node-1", "its clock is 42s behind the API server's"}},
		{"the relay is not ready", func(f *Facts) {
			relay := appsv1.Deployment{ObjectMeta: metaOf(api.RelayNamespace, api.RelayService)}
			east(f).Deployments = append(east(f).Deployments, relay)
			relay.Spec.Replicas = ptr.To[int32](0) // it is meant
			f.Clusters[2].Deployments = append(f.Clusters[2].Deployments, relay)
		}, "TD015", []string{"Deployment tombolo-observe/tombolo-observe", "0 of 1 replicas are ready"}},
		{"a Node is down", func(f *Facts) {
			east(f).Nodes[2].Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
				Reason: "NodeStatusUnknown", Message: "Kubelet stopped posting node status."}
		}, "TD003", []string{"Node node-3", "Kubelet stopped posting"}},
		{"no agent on a Node", func(f *Facts) { a := east(f).agent("node-3"); *a = Agent{Node: "node-3", Fault: "none"} },
			"TD010", []string{"Node node-3", "no Pod of tombolo-agent"}},
		{"an agent crashes", func(f *Facts) {
			a := east(f).agent("node-3")
			a.Fault, a.Status = "x", nil
			a.Pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "tombolo-agent", State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}
		}, "TD010", []string{"Node node-3", "CrashLoopBackOff", "--previous"}},
		{"an agent does not answer", func(f *Facts) { a := east(f).agent("node-3"); a.Fault, a.Status = "timeout", nil },
			"TD011", []string{"Node node-3", "timeout", "kubectl logs -n kube-system tombolo-agent-node-3"}},
		{"an agent waits", func(f *Facts) {
			s := east(f).agent("node-3").Status
			s.Ready, s.Waiting = false, []string{"no connection to the OVSDB"}
		}, "TD012", []string{"Node node-3", "no connection to the OVSDB"}},
		{"the switch refuses flows", func(f *Facts) {
			east(f).agent("node-3").Status.OpenFlow.Refused = []string{"Service: actions=bad: OFPBAC_BAD_TYPE"}
		}, "TD013", []string{"Node node-3", "refuses 1 flows", "OFPBAC_BAD_TYPE"}},
		{"the switch is away", func(f *Facts) { east(f).agent("node-3").Status.OpenFlow.Connected = false }, "TD013",
			[]string{"Node node-3", "no OpenFlow connection"}},
		{"an old agent", func(f *Facts) { east(f).agent("node-3").Status.Version = "v0.2.0" }, "TD014",
			[]string{"2 versions", "v0.2.0 on node-3"}},
		{"an old cluster", func(f *Facts) {
			for i := range east(f).Agents {
				east(f).Agents[i].Status.Version = "v0.1.0"
			}
		}, "TD014", []string{"v0.1.0", "upgrade the older"}},
		{"a controller is not ready", func(f *Facts) { east(f).Deployments[2].Status.ReadyReplicas = 0 }, "TD015",
			[]string{"Deployment kube-system/antrea-mc-controller", "0 of 1"}},
		{"a controller is missing", func(f *Facts) { east(f).Deployments = east(f).Deployments[1:] }, "TD015",
			[]string{"Deployment kube-system/tombolo-controller", "does not exist"}},
		{"a controller hangs", func(f *Facts) { east(f).Leases[0].Spec.RenewTime.Time = now.Add(-3 * time.Minute) }, "TD016",
			[]string{"Lease kube-system/tombolo-controller", "3m0s ago, by pod-1"}},
		{"a webhook's certificate ends", func(f *Facts) { east(f).Now = authorityEnds.Add(-48 * time.Hour) }, "TD016 TD017",
			nil},
		{"a webhook without a certificate", func(f *Facts) { east(f).Webhooks[0].Webhooks[0].ClientConfig.CABundle = nil },
			"TD017", []string{"ValidatingWebhookConfiguration tombolo-policies", "no certificate"}},
		{"a switch that loses packets", func(f *Facts) {
			a := east(f).agent("node-3")
			a.Upcalls, a.UpcallsLater = &api.Upcalls{Missed: 1000, Lost: 5}, &api.Upcalls{Missed: 1100, Lost: 25}
		}, "TD018", []string{"Node node-3", "has lost 20 packets of new connections in 2.5s", "25 of 1125 were lost"}},
		{"a switch that has lost packets once", func(f *Facts) {
			a := east(f).agent("node-3")
			a.Upcalls, a.UpcallsLater = &api.Upcalls{Lost: 5}, &api.Upcalls{Lost: 5}
		}, "", nil},
		{"a switch that loses few packets", func(f *Facts) {
			for i, later := range []api.Upcalls{{Missed: 100, Lost: 9}, {Missed: 100_000, Lost: 900}} {
				a := &east(f).Agents[i]
				a.Upcalls, a.UpcallsLater = &api.Upcalls{}, &later
			}
		}, "", nil},
		{"a port without a device", func(f *Facts) {
			east(f).agent("node-3").BadPorts = []api.Port{{Name: "web-1", Pod: "shop/web", Error: "No such device"}}
		}, "TD019", []string{"port web-1 of Node node-3 (Pod shop/web)", "No such device", "delete the Pod"}},
		{"names that CoreDNS does not know", func(f *Facts) {
			n := &east(f).Resolved.Names[0]
			n.Have, n.Code = nil, "NameError"
		}, "TD047", []string{"name db.shop.svc.clusterset.local", "answers with NameError, and the import has 10.90.0.9"}},
		{"names with an old address", func(f *Facts) { east(f).Resolved.Names[0].Have = []string{"10.90.0.1"} }, "TD047",
			[]string{"answers with 10.90.0.1, and"}},
		{"CoreDNS without the zone", func(f *Facts) { east(f).Resolved = &Resolved{} }, "", nil},
		{"old endpoints of an import", func(f *Facts) {
			east(f).ImportedSlices[0].Endpoints[0].Addresses[0] = "10.95.0.1"
		}, "TD048", []string{"east: ServiceImport shop/db", "that the leader has no longer: 10.95.0.1"}},
		{"own endpoints of an import", func(f *Facts) {
			east(f).ImportedSlices[0].Labels[mcsv1beta1.LabelSourceCluster] = "east"
			east(f).ImportedSlices[0].Endpoints[0].Addresses[0] = "10.11.0.1"
		}, "", nil},
		{"an import that is gone", func(f *Facts) {
			f.Clusters[0].ResourceImports = nil
			f.Clusters[0].ImportedSlices, f.Clusters[2].ImportedSlices = nil, nil
		}, "TD048", []string{"east: ServiceImport shop/db", "that the leader has no longer: 10.95.0.7"}},
		{"an import of another ClusterSet with the same leader", func(f *Facts) {
			f.Clusters[0].ResourceImports = nil
			f.Clusters[0].Sets[1].Name = "other"
		}, "", nil},
		{"a member of two Common Areas", func(f *Facts) {
			c := &f.Clusters[0]
			second := c.Sets[1]
			second.Namespace = "second"
			c.Sets = append(c.Sets, second)
			for i := range 10_000 {
				c.ResourceExports = append(c.ResourceExports, mcv1alpha1.ResourceExport{
					ObjectMeta: metav1.ObjectMeta{Namespace: []string{"area", "second"}[i%2]},
					Spec:       mcv1alpha1.ResourceExportSpec{Kind: "LabelIdentity", ClusterID: "east"}})
			}
		}, "TD015", []string{"second/antrea-mc-controller"}},
		{"one name without an answer", func(f *Facts) {
			east(f).Resolved.Names = append(east(f).Resolved.Names, ResolvedName{Namespace: "shop", Name: "web",
				Fault: "connection reset"}, ResolvedName{Namespace: "shop", Name: "old", Code: "NameError"})
		}, "TD047", []string{"name old.shop.svc.clusterset.local"}},
		{"a member with many exports", func(f *Facts) {
			c := &f.Clusters[0]
			for range 8000 {
				c.ResourceExports = append(c.ResourceExports, mcv1alpha1.ResourceExport{
					Spec: mcv1alpha1.ResourceExportSpec{Kind: "LabelIdentity", ClusterID: "east"}})
			}
		}, "TD049", []string{"north: cluster east",
			"it has 8000 LabelIdentities, and the leader accepts 10000 of one member"}},
		{"a quota that is nearly used up", func(f *Facts) {
			f.Clusters[0].Quotas[0].Status.Used["count/events"] = resource.MustParse("4500")
		}, "TD049", []string{"ResourceQuota area/antrea-mc-members", "4500 of 5k events are used"}},
		{"the token is missing", func(f *Facts) { east(f).Token.Missing = true }, "TD020",
			[]string{"Secret kube-system/member-token", "does not exist", "create membertoken"}},
		{"the token is none", func(f *Facts) { east(f).Token.Malformed = "it has no three parts" }, "TD020",
			[]string{"no three parts"}},
		{"the token ends", func(f *Facts) { east(f).Token.Expires = now.AddDate(0, 0, 5) }, "TD020", []string{"in 5 days"}},
		{"the token has ended", func(f *Facts) { east(f).Token.Expires = now.AddDate(0, 0, -5) }, "TD020",
			[]string{"ended on 2026-02-27"}},
		{"the leader's CA ends", func(f *Facts) { east(f).Token.CAEnds = now.AddDate(0, 0, 1) }, "TD020",
			[]string{"CA of the leader"}},
		{"two members with one token", func(f *Facts) { east(f).Token.Subject = f.Clusters[0].Token.Subject }, "TD021",
			[]string{"north and east use the token of one account"}},
		{"two members with one ID", func(f *Facts) { east(f).Sets[0].Spec.ClusterID = "west" }, "TD021 TD030 TD034",
			[]string{"east and west have the same cluster ID, west"}},
		{"another ClusterSet", func(f *Facts) { east(f).Sets[0].Name = "other" }, "TD021",
			[]string{"north is in ClusterSet set"}},
		{"the leader refuses the token", func(f *Facts) {
			s := &east(f).Sets[0].Status
			s.Conditions[0].Status, s.Conditions[0].Message = corev1.ConditionFalse, "Disconnected from leader"
			s.ClusterStatuses[0].Conditions = append(s.ClusterStatuses[0].Conditions, mcv1alpha2.ClusterCondition{
				Type: mcv1alpha2.ClusterReady, Status: corev1.ConditionFalse, Reason: "Disconnected",
				Message: "write MemberClusterAnnounce: Unauthorized"})
		}, "TD022", []string{"ClusterSet kube-system/set", "Unauthorized", "the token in Secret kube-system/member-token " +
			"is wrong or old"}},
		{"a silent member", func(f *Facts) {
			c := &f.Clusters[0].Sets[1].Status.ClusterStatuses[1].Conditions[0]
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, "Disconnected", "No MemberClusterAnnounce update after noon"
		}, "TD038", []string{"cluster east", "it is silent for the leader", "after noon"}},
		{"a member that is gone", func(f *Facts) {
			c := &east(f).Sets[0].Status.ClusterStatuses[1].Conditions[0]
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, "ClusterGone", "0 of 4 ways are up"
		}, "TD038", []string{"cluster west", "it is gone", "0 of 4"}},
		{"a member that has left, as it was meant", func(f *Facts) {
			east(f).Infos[1].Annotations = map[string]string{multicluster.AnnotationWithdrawn: "2026-03-04T05:00:00Z"}
		}, "", nil},
		{"a silent member of a leader that is no member", func(f *Facts) {
			f.Clusters[0].Sets = f.Clusters[0].Sets[1:]
			c := &f.Clusters[0].Sets[0].Status.ClusterStatuses[1].Conditions[0]
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, "Disconnected", "No MemberClusterAnnounce update after noon"
		}, "TD038", []string{"north: cluster east", "it is silent for the leader"}},
		{"Service ranges meet", func(f *Facts) {
			f.Clusters[0].ResourceExports[1].Spec.ClusterInfo.ServiceCIDR = "10.92.128.0/17"
		}, "TD030", []string{"the Service range 10.92.128.0/17 of east meets the Service range 10.92.0.0/16 of west"}},
		{"Pod ranges meet that the leader refuses", func(f *Facts) {
			e := &f.Clusters[0].ResourceExports[1]
			e.Spec.ClusterInfo.PodCIDRs = []string{"10.12.0.0/16"}
			e.Status.Conditions = []mcv1alpha1.ResourceExportCondition{{Type: mcv1alpha1.ResourceExportFailure,
				Reason:  "RangesMeet",
				Message: "10.12.0.0/16 is that of west"}}
		}, "TD030 TD040", []string{"the Pod range 10.12.0.0/16 of east meets the Pod range 10.12.0.0/16 of west"}},
		{"another tunnel", func(f *Facts) {
			for i := range east(f).Agents {
				n := east(f).Agents[i].Status.Network
				n.Tunnel, n.Port = "vxlan", 4789
			}
		}, "TD031", []string{"tunnelType is geneve in north and vxlan in east"}},
		{"encryption on one side", func(f *Facts) {
			for i := range east(f).Agents {
				east(f).Agents[i].Status.Network.PeerEncryption = "wireGuard"
			}
		}, "TD031", []string{"multicluster.trafficEncryptionMode is none in north and wireGuard in east"}},
		{"a Node with an old configuration", func(f *Facts) { east(f).agent("node-3").Status.Network.Port = 6082 }, "TD031",
			[]string{"tunnelPort differs between Nodes: 6081 on node-1, node-2; 6082 on node-3"}},
		{"a large defaultMTU", func(f *Facts) {
			for i := range east(f).Agents {
				east(f).Agents[i].Status.Network.PodMTU = 1500
			}
		}, "TD032", []string{"Node node-1", "up to 1500 bytes and 1550 in the tunnel, and its link carries 1500",
			"lower it to 1450"}},
		{"a small link in another cluster", func(f *Facts) {
			for i := range east(f).Agents {
				n := east(f).Agents[i].Status.Network
				n.LinkMTU, n.PodMTU = 1400, 1350
			}
		}, "TD032", []string{"Gateway node-1 of east", "packets of Pods of north have up to 1500 bytes",
			"its link carries 1400"}},
		{"a small link between Gateways", func(f *Facts) {
			probesOf(f).Size = 1350
			f.Clusters[2].agent("node-2").Probes = &api.Probes{Ways: []api.ProbedWay{{Peer: "east", To: address(1, 1),
				Size: 1350, MTU: 1450}}}
		}, "TD039", []string{"way east/node-1 > west/node-2", "up to 1450 bytes", "comes back has 1350",
			"defaultMTU: 1350"}},
		{"a way that loses packets", func(f *Facts) {
			p := probesOf(f)
			p.Samples, p.Loss300, p.Loss60 = 200, .02, .05
		}, "TD044", []string{"way east/node-1 > west/node-2", "4 of the last 200 probes", "2.0 %"}},
		{"a Node that does not answer probes", func(f *Facts) {
			for _, name := range []string{"node-1", "node-2"} {
				nodeProbesOf(f, name, "node-3").LostInRow = 3
			}
			nodeProbesOf(f, "node-3", "node-1").Loss300 = .5 // it answers again
		}, "TD045", []string{"east", "Node node-3 (10.1.0.1)",
			"the newest 3 probes of 2 of the 2 Nodes that probe it: node-1, node-2"}},
		{"a slow Node", func(f *Facts) { nodeProbesOf(f, "node-1", "node-3").P50Seconds = .4 }, "TD045",
			[]string{"1 of the 1 Nodes that probe it take longer than 300 ms: node-1"}},
		{"a Node that is not Ready does not answer probes", func(f *Facts) {
			nodeProbesOf(f, "node-1", "node-3").LostInRow = 9
			east(f).Nodes[2].Status.Conditions[0].Status = corev1.ConditionFalse
		}, "TD003", nil},
		{"a NodeLatencyMonitor without the gate", func(f *Facts) {
			nodeProbesOf(f, "node-1", "node-3")
			east(f).agent("node-2").Probes = &api.Probes{}
			east(f).Monitors = []crdv1alpha1.NodeLatencyMonitor{{ObjectMeta: metaOf("", "default")}}
		}, "TD046", []string{"NodeLatencyMonitor default", "agents of 1 of 3 Nodes send no probes: node-2",
			"{NodeLatencyMonitor: true}"}},
		{"a NodeLatencyMonitor that is new", func(f *Facts) {
			east(f).agent("node-2").Probes = &api.Probes{}
			east(f).Monitors = []crdv1alpha1.NodeLatencyMonitor{{ObjectMeta: metav1.ObjectMeta{Name: "default",
				CreationTimestamp: metav1.NewTime(now)}}}
		}, "", nil},
		{"a slow way", func(f *Facts) { probesOf(f).P50Seconds = .45 }, "TD044",
			[]string{"way east/node-1 > west/node-2", "longer than 450 ms"}},
		{"a way that has lost packets, and a single one now", func(f *Facts) {
			p := probesOf(f)
			p.Samples, p.Loss300 = 300, .05 // not in the last minute
			q := *p
			q.Samples, q.Loss300, q.Loss60 = 60, 1./60, 1./60
			east(f).agent("node-1").Probes.Ways = append(east(f).agent("node-1").Probes.Ways, q)
		}, "", nil},
		{"a way that is down has old results", func(f *Facts) {
			p := probesOf(f)
			p.Size, p.Loss300, p.Loss60, p.Samples, p.Paused = 1000, .5, .5, 300, true
		}, "", nil},
		{"no Gateway", func(f *Facts) {
			east(f).Gateways = nil
			for i := range east(f).Agents {
				east(f).Agents[i].Peers = nil
			}
		}, "TD033", []string{"east", "it has no Gateway", "kubectl annotate node NODE"}},
		{"a Gateway without a Node", func(f *Facts) { east(f).Gateways[1].Name = "node-9" }, "TD033",
			[]string{"Gateway kube-system/node-9", "its Node does not exist"}},
		{"a cluster is not known", func(f *Facts) { east(f).Infos = east(f).Infos[:1] }, "TD034",
			[]string{"cluster west", "received nothing about it", "west-clusterinfo"}},
		{"an import is refused", func(f *Facts) {
			east(f).Infos[1].Status.Conditions = []mcv1alpha1.ClusterInfoImportCondition{{Type: mcv1alpha1.ClusterInfoReady,
				Status: corev1.ConditionFalse, Reason: "RangeOverlaps", Message: "10.98.0.0/16"}}
		}, "TD034", []string{"ClusterInfoImport kube-system/west-clusterinfo", "RangeOverlaps: 10.98.0.0/16"}},
		{"old gateways", func(f *Facts) { east(f).Infos[1].Spec.GatewayInfos[0].GatewayIP = "192.168.72.9" }, "TD034",
			[]string{"it has the gateways 192.168.72.9, 192.168.72.102, and cluster west has 192.168.72.101, 192.168.72.102"}},
		{"a cut Gateway", func(f *Facts) { cutNode(f, 1, 1) }, "TD035",
			[]string{"Gateway east/node-1", "all 4 ways between it and other clusters are down", "UDP 6081 (geneve)"}},
		{"a cut Gateway that does not answer", func(f *Facts) {
			cutNode(f, 1, 1)
			a := east(f).agent("node-1")
			a.Fault, a.Status, a.Peers, a.Later = "timeout", nil, nil, nil
		}, "TD011 TD035", nil},
		{"one way is down in one direction", func(f *Facts) {
			setWay(east(f), "node-1", "west", address(2, 2), unheard)
			setWay(&f.Clusters[2], "node-2", "east", address(1, 1), silent)
		}, "TD036", []string{"way east/node-1 to west/node-2: ", "east/node-1 receives packets of west/node-2, but not the " +
			"reverse",
			"UDP 6081 (geneve) from east/node-1 to west/node-2 does not arrive, and the other direction works",
			"in this direction alone", "west/node-2 to east/node-1: down (Control Detection Time Expired)"}},
		{"the same, and the end that receives nothing is not asked", func(f *Facts) {
			setWay(east(f), "node-1", "west", address(2, 2), unheard)
			f.Clusters[2] = Cluster{Name: "west", Fault: "away"}
		}, "TD001 TD036", nil},
		{"one way is down in both directions", func(f *Facts) {
			setWay(east(f), "node-1", "west", address(2, 2), silent)
			setWay(&f.Clusters[2], "node-2", "east", address(1, 1), silent)
		}, "TD036", []string{"neither end receives packets of the other", "check that 192.168.72.102 is the address of " +
			"west/node-2"}},
		{"a way between Nodes", func(f *Facts) {
			setWay(east(f), "node-3", "node-1", address(1, 1), silent)
			setWay(east(f), "node-1", "node-3", address(1, 3), unheard)
		}, "TD036", []string{"way east/node-1 to east/node-3", "UDP 6081 (geneve) from east/node-1 to east/node-3 does not " +
			"arrive"}},
		{"a way that has come up meanwhile", func(f *Facts) {
			setWay(east(f), "node-1", "west", address(2, 2), func(*api.Way) {})
			for i := range east(f).agent("node-1").Peers {
				if p := &east(f).agent("node-1").Peers[i]; p.Name == "west" {
					p.Ways[1].State = down
				}
			}
		}, "", nil},
		{"ways of Gateways that leave", func(f *Facts) {
			east(f).Infos[1].Spec.LeavingGateways = []mcv1alpha1.GatewayInfo{{GatewayIP: address(2, 2)}}
			f.Clusters[2].Gateways[1].Annotations = map[string]string{multicluster.AnnotationPhase: multicluster.PhaseLeaving}
			setWay(east(f), "node-1", "west", address(2, 2), silent)
			setWay(&f.Clusters[2], "node-2", "east", address(1, 1), silent)
		}, "", nil},
		{"reports of Nodes are old", func(f *Facts) {
			c := &east(f).Sets[0].Status.ClusterStatuses[1].Conditions[0]
			c.Status, c.Reason = corev1.ConditionFalse, "AllWaysDown"
		}, "TD037", []string{"cluster west", "AllWaysDown"}},
		{"endpoints are left out", func(f *Facts) {
			e := &f.Clusters[0].ResourceExports[1]
			e.Status.Conditions[0].Reason, e.Status.Conditions[0].Message = mcv1alpha1.ReasonEndpointsLeftOut,
				"10.0.0.1 is in no range"
		}, "TD040", []string{"ResourceExport area/east-clusterinfo", "in part", "10.0.0.1 is in no range",
			"in cluster east"}},
		{"an export without a Service", func(f *Facts) {
			east(f).ServiceExports[0].Status.Conditions[0] = metav1.Condition{Type: "Valid", Status: "False",
				Reason: "NoService", Message: "create it"}
		}, "TD041", []string{"ServiceExport shop/db", "NoService: create it"}},
		{"an export that conflicts", func(f *Facts) {
			east(f).ServiceExports[0].Status.Conditions[2] = metav1.Condition{Type: "Conflict", Status: "True",
				Reason: "PortConflict"}
		}, "TD041", []string{"ServiceExport shop/db", "PortConflict"}},
		{"an export without a controller", func(f *Facts) { east(f).ServiceExports[0].Status.Conditions = nil }, "TD041",
			[]string{"ServiceExport shop/db", "no controller has looked at it"}},
		{"no endpoints in one cluster",
			func(f *Facts) { east(f).EndpointSlices[0].Endpoints[0].Conditions.Ready = ptr.To(false) },
			"TD042", []string{"east", "Service shop/db", "no ready endpoint in this cluster; requests go to north, west"}},
		{"an import has no Namespace", func(f *Facts) {
			east(f).ServiceImports[0].Status.Conditions[0] = metav1.Condition{Type: "Ready", Status: "False", Reason: "Pending",
				Message: "no Namespace"}
		}, "TD043", []string{"ServiceImport shop/db", "Pending: no Namespace"}},
		{"a policy is not understood", func(f *Facts) {
			east(f).ClusterPolicies[0].Status.Conditions = []metav1.Condition{{Type: crdv1beta1.ConditionRealizable,
				Status: "False",
				Reason: "NotServed", Message: "spec.egress[0].to[0].fqdn"}}
		}, "TD050", []string{"ClusterNetworkPolicy deny", "NotServed: spec.egress[0].to[0].fqdn"}},
		{"a policy waits for a Node", func(f *Facts) {
			s := &east(f).Policies[0].Status
			s.Phase, s.CurrentNodesRealized, s.DesiredNodesRealized = crdv1beta1.PhaseRealizing, 1, 3
		}, "TD050", []string{"NetworkPolicy shop/web of crd.antrea.io", "Realizing: in force on 1 of 3 Nodes"}},
		{"a policy of SIG Network", func(f *Facts) {
			east(f).StandardPolicies[0].Status.Conditions = []metav1.Condition{{Type: "Realized", Status: "False",
				Reason: "NotAllNodes"}}
		}, "TD050", []string{"ClusterNetworkPolicy base of policy.networking.k8s.io", "NotAllNodes"}},
		{"scope ClusterSet without the gate", func(f *Facts) {
			east(f).agent("node-3").Status.Problems = []api.Problem{{Object: "NetworkPolicy shop/web", Reason: "NotStretched",
				Message: "scope"}}
		}, "TD051", []string{"NetworkPolicy shop/web", "mean this cluster alone", "enableStretchedNetworkPolicy"}},
		{"problems of Nodes", func(f *Facts) {
			for i := range east(f).Agents {
				east(f).Agents[i].Status.Problems = []api.Problem{{Object: "Pod shop/web", Reason: "MTUTooLarge",
					Message: "delete the Pod"}}
			}
		}, "TD052", []string{"Nodes node-1, node-2, node-3", "MTUTooLarge: Pod shop/web: delete the Pod"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := healthy()
			row.fault(&f)
			var codes []string
			var first *Result
			results := Run(f)
			for i, r := range results {
				if r.Status != Fail {
					continue
				}
				if first == nil {
					first = &results[i]
				}
				if !slices.Contains(codes, r.Code) {
					codes = append(codes, r.Code)
				}
			}
			if have := strings.Join(codes, " "); have != row.codes {
				t.Errorf("fail: %s, want %s", have, row.codes)
			}
			var b strings.Builder
			if first != nil {
				Print(&b, []Result{*first})
			}
			for _, want := range row.want {
				if !strings.Contains(b.String(), want) {
					t.Errorf("%q is not in\n%s", want, b.String())
				}
			}
		})
	}
}

// TestUnknown holds that a check without its facts is unknown, and never passes.
func TestUnknown(t *testing.T) {
	f := healthy()
	f.Clusters[1] = Cluster{Name: "east", Fault: "away"}
	f.Clusters[2].Unread[ServiceExports] = "serviceexports is forbidden"
	for i := range f.Clusters[2].Agents {
		f.Clusters[2].Agents[i] = Agent{Node: f.Clusters[2].Agents[i].Node, Pod: f.Clusters[2].Agents[i].Pod,
			Fault: "timeout"}
	}
	for _, r := range Run(f) {
		switch {
		case r.Cluster == "east" && r.Status != Unknown && r.Code != "TD001":
			t.Errorf("%s is %s of a cluster that is away: %s", r.Code, r.Status, r.Detail)
		case r.Cluster == "west" && r.Status == Pass && slices.Contains([]string{"TD011", "TD012", "TD013", "TD014", "TD041",
			"TD042", "TD052"}, r.Code):
			t.Errorf("%s passes without its facts", r.Code)
		case r.Cluster == "west" && r.Code == "TD041" && r.Detail != "list ServiceExports: serviceexports is forbidden":
			t.Errorf("%s does not say why: %s", r.Code, r.Detail)
		}
	}
}

// TestUnknownSwitch holds that counters and ports that were not read are unknown.
func TestUnknownSwitch(t *testing.T) {
	for _, row := range []struct {
		code   string
		change func(a *Agent)
		want   string
	}{
		{"TD018", func(a *Agent) { a.Upcalls = nil }, "could not read the counters"},
		{"TD018", func(a *Agent) { a.Upcalls, a.UpcallsFault = &api.Upcalls{Lost: 5}, "timeout" },
			"could not be read again: timeout"},
		{"TD018", func(a *Agent) { a.Upcalls = &api.Upcalls{Lost: 5} }, "does not report them"},
		{"TD019", func(a *Agent) { a.PortsFault = "no OVSDB" }, "could not be read: no OVSDB"},
	} {
		f := healthy()
		row.change(eastOf(&f).agent("node-3"))
		if !slices.ContainsFunc(Run(f), func(r Result) bool {
			return r.Code == row.code && r.Status == Unknown && r.Object == "Node node-3" && strings.Contains(r.Detail, row.want)
		}) {
			t.Errorf("%s is not unknown: %s", row.code, row.want)
		}
		if hasFail(f, row.code) {
			t.Errorf("%s fails: %s", row.code, row.want)
		}
	}
}

// TestPrint holds that one result is one line, whatever objects have in their texts.
func TestPrint(t *testing.T) {
	f := healthy()
	f.Clusters[1].Infos[1].Annotations = map[string]string{multicluster.AnnotationWithdrawn: "2026-03-04T05:00:00Z"}
	f.Clusters[1].agent("node-3").Status.Waiting = []string{"a\x1b[2Jb\nc"}
	f.Clusters[1].agent("node-3").Status.Ready = false
	for range 30 {
		e := f.Clusters[1].ServiceExports[0].DeepCopy()
		e.Status.Conditions = nil
		f.Clusters[1].ServiceExports = append(f.Clusters[1].ServiceExports, *e)
	}
	var b strings.Builder
	Print(&b, Run(f))
	if n := strings.Count(b.String(), "fail     TD041"); n != most {
		t.Errorf("%d of 30 results of a check are written, want %d", n, most)
	}
	for _, want := range []string{
		"pass     TD002  clocks\n",
		"pass     TD010  agents run: north (3 of 3), east (3 of 3), west (3 of 3)\n",
		"fail     TD012  agents are ready: east: Node node-3: its network is not ready: it waits: a [2Jb c\n",
		"pass     TD038  other clusters: east: cluster west: it has left: the leader withdrew it at 2026-03-04T05:00:00Z\n",
		"         TD041  exported Services: 10 more results, which -o json has\n",
		"skip     TD040  exports at the leader: east (it is no leader), west (it is no leader)\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}

func TestDefects(t *testing.T) {
	f := healthy()
	stop := make(chan struct{})
	defer close(stop)
	for _, row := range []struct {
		check Check
		limit time.Duration
		want  string
	}{
		{Check{Code: "TD900", each: func(*Facts, *Cluster, *report) { panic("nil map") }}, time.Minute,
			"the check has a defect: nil map"},
		{Check{Code: "TD901", each: func(*Facts, *Cluster, *report) { <-stop }}, 10 * time.Millisecond,
			"the check took longer than 10ms"},
	} {
		results := row.check.run(&f, row.limit)
		if last := results[len(results)-1]; last.Status != Unknown || last.Detail != row.want {
			t.Errorf("%+v, want %s", last, row.want)
		}
	}
}

// TestTable holds that each check is whole, that codes are unique, and that the table of faults shows it.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for i, c := range checks {
		if c.Name == "" || c.Cause == "" || c.Remedy == "" || c.Severity == "" || (c.each == nil) == (c.all == nil) {
			t.Errorf("%s is not whole", c.Code)
		}
		if seen[c.Code] || i > 0 && c.Code <= checks[i-1].Code {
			t.Errorf("%s is used twice, or is not in order", c.Code)
		}
		seen[c.Code] = true
	}
}

// TestAPIServer reads a real API server, with all rights and without any.
func TestAPIServer(t *testing.T) {
	config := apiserver.Start(t, "../../deploy/crds")
	k, err := client.New(config, client.Options{Scheme: scheme()})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []client.Object{
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}},
		&mcsv1beta1.ServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"}},
		&mcv1alpha2.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "set"},
			Spec: mcv1alpha2.ClusterSetSpec{
				ClusterID: "east", Leaders: []mcv1alpha2.LeaderClusterInfo{{ClusterID: "north", Server: "https://10.0.0.1",
					Secret: "token"}}}},
	} {
		if err := k.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	from := remote.New("east", config)
	from.Timeout = time.Minute // of a busy machine
	f := Gather(t.Context(), []*remote.Cluster{from})
	c := f.Clusters[0]
	if len(c.Unread) > 0 || len(c.Absent) > 0 || c.Fault != "" || c.Ahead.Abs() > 5*time.Second {
		t.Errorf("unread %v, absent %v, fault %q, ahead %s", c.Unread, c.Absent, c.Fault, c.Ahead)
	}
	if len(c.Nodes) != 1 || len(c.ServiceExports) != 1 || c.id() != "east" || c.Token == nil || !c.Token.Missing {
		t.Errorf("%+v", c)
	}
	f.Clusters[0].Now = f.Clusters[0].Now.Add(time.Hour) // the Node is not new any more
	results := Run(f)
	i := slices.IndexFunc(results, func(r Result) bool { return r.Status == Fail })
	if r := results[i]; r.Code != "TD010" || r.Object != "Node node-1" || r.Detail != "it has no Pod of tombolo-agent" {
		t.Errorf("the first fault is %+v", r)
	}
	settles(t, k, from)
	without := rest.CopyConfig(config)
	without.Impersonate.UserName = "user"
	if c := gather(t.Context(), remote.New("east", without)); c.Fault != "" || len(c.Unread) < 10 ||
		!strings.Contains(c.Unread[Nodes], "forbidden") || !strings.Contains(c.AgentsFault, "may this user do it?") {
		t.Errorf("without rights: fault %q, agents %q, unread %v", c.Fault, c.AgentsFault, c.Unread)
	}
}

// settles reads the EndpointSlices of an import that is gone a second time: they stay, and they are gone.
func settles(t *testing.T, k client.Client, from *remote.Cluster) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	stays := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "antrea-mc-db-1",
		Labels: ofImports}, AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.95.0.7"}}}}
	for _, o := range []client.Object{namespace, stays} {
		if err := k.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for _, there := range []bool{true, false} {
		f := healthy()
		f.Clusters[0].ResourceImports = nil
		f.settle(t.Context(), []*remote.Cluster{from, from, from})
		if hasFail(f, codeStale) != there {
			t.Errorf("%s fails: %t, want %t", codeStale, !there, there)
		}
		if err := k.Delete(t.Context(), stays); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
}

// TestStaying keeps addresses that were there before and are there now.
func TestStaying(t *testing.T) {
	slice := func(name string, addresses ...string) discoveryv1.EndpointSlice {
		return discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name},
			Endpoints: []discoveryv1.Endpoint{{Addresses: addresses}}}
	}
	have := staying([]discoveryv1.EndpointSlice{slice("a", "1", "2"), slice("b", "3")},
		[]discoveryv1.EndpointSlice{slice("a", "2", "4"), slice("c", "5")})
	if len(have) != 1 || !slices.Equal(have[0].Endpoints[0].Addresses, []string{"2"}) {
		t.Errorf("%+v", have)
	}
}

// TestNoAnswer reads the clock of an API server, and reports one that does not answer.
func TestNoAnswer(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
		if r.URL.Path == "/version" {
			_, _ = w.Write([]byte(`{"gitVersion": "v1.99.0"}`))
			return
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	c := gather(t.Context(), remote.New("x", &rest.Config{Host: server.URL}))
	if c.Version != "v1.99.0" || c.Ahead < 59*time.Minute || c.Ahead > 61*time.Minute || c.Fault != "" {
		t.Errorf("version %s, ahead %s, fault %s", c.Version, c.Ahead, c.Fault)
	}
	if c.Unread[Nodes] == "" || c.AgentsFault == "" {
		t.Errorf("kinds that may not be listed: %v, %s", c.Unread, c.AgentsFault)
	}
	server.Close()
	if c := gather(t.Context(), remote.New("x", &rest.Config{Host: server.URL})); !strings.Contains(c.Fault, "refused") {
		t.Errorf("fault %q", c.Fault)
	}
}

// eastOf returns the cluster east.
func eastOf(f *Facts) *Cluster { return &f.Clusters[1] }

// westAway takes cluster west down as east sees it: all ways are down, and nothing of west is known.
func westAway(f *Facts) {
	for _, node := range []string{"node-1", "node-2"} {
		for far := 1; far <= 2; far++ {
			setWay(eastOf(f), node, "west", address(2, far), silent)
			setWay(&f.Clusters[0], node, "west", address(2, far), silent)
		}
	}
	f.Clusters[2] = Cluster{Name: "west", Fault: "away"}
}

// TestOwnGatewaysOfAClusterThatIsAlone has one other cluster, which is away: no Gateway of the own cluster is to blame.
func TestOwnGatewaysOfAClusterThatIsAlone(t *testing.T) {
	f := healthy()
	westAway(&f)
	f.Clusters = f.Clusters[1:] // without north
	for i := range f.Clusters[0].Agents {
		a := &f.Clusters[0].Agents[i]
		a.Peers = slices.DeleteFunc(a.Peers, func(p api.Peer) bool { return p.Name == "north" })
	}
	for _, r := range Run(f) {
		if r.Code == "TD035" && r.Status == Fail && strings.Contains(r.Object, "east/") {
			t.Errorf("the own Gateway is blamed: %s: %s", r.Object, r.Detail)
		}
		if strings.Contains(r.Detail, "in both directions") {
			t.Errorf("%s knows a direction of an end that was not asked: %s", r.Code, r.Detail)
		}
	}
}

// TestPartly has agents and switches that are silent: checks of the others are not passed for them.
func TestPartly(t *testing.T) {
	f := healthy()
	a := eastOf(&f).agent("node-1")
	a.Fault, a.Status, a.Peers, a.Later = "timeout", nil, nil, nil
	for _, r := range Run(f) {
		if r.Status == Pass && slices.Contains([]string{"TD031", "TD032", "TD035", "TD036"}, r.Code) {
			t.Errorf("%s passes: %s", r.Code, r.Detail)
		}
	}
	// A switch that has died leaves its last states, which are old.
	f = healthy()
	eastOf(&f).agent("node-1").Status.OpenFlow.Connected = false
	setWay(&f.Clusters[2], "node-2", "east", address(1, 1), silent)
	for _, r := range Run(f) {
		if r.Code == "TD036" && strings.Contains(r.Detail, "the other direction works") {
			t.Errorf("a dead switch is a firewall: %s", r.Detail)
		}
	}
	// BFD cannot watch ways of a peer behind NAT.
	f = healthy()
	eastOf(&f).set().Annotations = map[string]string{multicluster.AnnotationTunnelSources + "west": "203.0.113.7"}
	cutNode(&f, 1, 1)
	for _, r := range Run(f) {
		if r.Status == Fail && strings.Contains(r.Object+strings.Join(r.Evidence, ""), "west/") && r.Code == "TD036" {
			t.Errorf("a way behind NAT fails: %s: %s", r.Object, r.Detail)
		}
	}
}
