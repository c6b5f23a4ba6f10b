package member

import (
	"regexp"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/writes"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/services"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
)

func importOf(ns, name string) *mcv1alpha1.ResourceImport {
	return &mcv1alpha1.ResourceImport{
		ObjectMeta: meta("antrea-multicluster", ns+"-"+name+"-service"),
		Spec: mcv1alpha1.ResourceImportSpec{
			Kind: "ServiceImport", Namespace: ns, Name: name,
			ServiceImport: &mcsv1alpha1.ServiceImport{Spec: mcsv1alpha1.ServiceImportSpec{
				Type:  mcsv1alpha1.ClusterSetIP,
				Ports: []mcsv1alpha1.ServicePort{{Name: "db", Protocol: corev1.ProtocolTCP, Port: 5432}}}},
		},
	}
}

func endpointsOf(ns, name string, ips ...string) *mcv1alpha1.ResourceImport {
	s := services.Subset{Ports: []services.Port{{Name: "db", Protocol: corev1.ProtocolTCP, Port: 5432}}}
	for _, ip := range ips {
		s.Addresses = append(s.Addresses, services.Address{IP: ip})
	}
	return &mcv1alpha1.ResourceImport{
		ObjectMeta: meta("antrea-multicluster", ns+"-"+name+"-endpoints"),
		Spec: mcv1alpha1.ResourceImportSpec{
			Kind: "Endpoints", Namespace: ns, Name: name, Endpoints: &mcv1alpha1.EndpointsImport{Subsets: []services.Subset{s}},
		},
	}
}

func clusterInfoOf(id, serviceCIDR, gatewayIP string) *mcv1alpha1.ResourceImport {
	return &mcv1alpha1.ResourceImport{
		ObjectMeta: meta("antrea-multicluster", id+"-clusterinfo"),
		Spec: mcv1alpha1.ResourceImportSpec{
			Kind: "ClusterInfo", Namespace: "antrea-multicluster", Name: id + "-clusterinfo",
			ClusterInfo: &mcv1alpha1.ClusterInfo{ClusterID: id, ServiceCIDR: serviceCIDR,
				GatewayInfos: []mcv1alpha1.GatewayInfo{{GatewayIP: gatewayIP}}},
		},
	}
}

// sliceName matches a slice's name. The hash at its end is left out of the comparison.
var sliceName = regexp.MustCompile(`^(\w+ EndpointSlice .*)-[0-9a-f]{16}$`)

// writeTexts lists a change in words.
func writeTexts(c []writes.Write) []string {
	var s []string
	for _, w := range c {
		if w.Kind != "ClusterSet" {
			s = append(s, sliceName.ReplaceAllString(w.String(), "$1"))
		}
	}
	return s
}

func TestPlanImports(t *testing.T) {
	importedService := func() *corev1.Service {
		return &corev1.Service{ObjectMeta: marked("default", "antrea-mc-db"), Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.97.0.9",
			Ports: []corev1.ServicePort{{Name: "db", Protocol: corev1.ProtocolTCP, Port: 5432}}}}
	}

	serviceImport := func() *mcsv1alpha1.ServiceImport {
		return &mcsv1alpha1.ServiceImport{ObjectMeta: marked("default", "db"), Spec: mcsv1alpha1.ServiceImportSpec{
			Type: mcsv1alpha1.ClusterSetIP, IPs: []string{"10.97.0.9"}, IPFamilies: []corev1.IPFamily{"IPv4"},
			Ports: importOf("default", "db").Spec.ServiceImport.Spec.Ports}}
	}
	importedEndpoints := func() *services.Endpoints {
		e := &services.Endpoints{ObjectMeta: marked("default", "antrea-mc-db"),
			Subsets: endpointsOf("default", "db", "10.98.0.7").Spec.Endpoints.Subsets}
		e.Labels = map[string]string{discoveryv1.LabelSkipMirror: "true"}
		return e
	}
	importedSlices := func() []*discoveryv1.EndpointSlice {
		v := joinedView()
		v.Leader.ResourceImports = []*mcv1alpha1.ResourceImport{importOf("default", "db"),
			endpointsOf("default", "db", "10.98.0.7")}
		d, _ := Plan(v)
		return d.EndpointSlices
	}
	for _, row := range []struct {
		name     string
		change   func(*View)
		writes   []string
		problems []string
	}{
		{name: "new import: the ServiceImport waits for the address",
			writes: []string{"create Service default/antrea-mc-db", "create Endpoints default/antrea-mc-db",
				"create EndpointSlice default/antrea-mc-db"}},
		{name: "the Service has its address", change: func(v *View) {
			v.Services = append(v.Services, importedService())
			v.Endpoints = append(v.Endpoints, importedEndpoints())
		}, writes: []string{"create EndpointSlice default/antrea-mc-db", "create ServiceImport default/db"}},
		{name: "the EndpointSlice is there", change: func(v *View) {
			v.Services = append(v.Services, importedService())
			v.Endpoints = append(v.Endpoints, importedEndpoints())
			v.EndpointSlices = append(v.EndpointSlices, importedSlices()...)
			v.ServiceImports = append(v.ServiceImports, serviceImport())
		}, writes: []string{"update the status of ServiceImport default/db"}},
		{name: "of an earlier version: Kubernetes' copies of the Endpoints go when ours are there", change: func(v *View) {
			v.Services = append(v.Services, importedService())
			v.Endpoints = append(v.Endpoints, importedEndpoints())
			v.Endpoints[0].Labels = nil
		}, writes: []string{"create EndpointSlice default/antrea-mc-db", "create ServiceImport default/db"}},
		{name: "and then", change: func(v *View) {
			v.Services = append(v.Services, importedService())
			v.Endpoints = append(v.Endpoints, importedEndpoints())
			v.Endpoints[0].Labels = nil
			v.EndpointSlices = append(v.EndpointSlices, importedSlices()...)
		}, writes: []string{"update Endpoints default/antrea-mc-db", "create ServiceImport default/db"}},
		{name: "a user's EndpointSlice is in the way", change: func(v *View) {
			v.Services = append(v.Services, importedService())
			v.Endpoints = append(v.Endpoints, importedEndpoints())
			v.EndpointSlices = append(v.EndpointSlices, importedSlices()...)
			v.EndpointSlices[0].Labels = nil
		}, writes: []string{"create ServiceImport default/db"},
			problems: []string{"EndpointSlice default/" + importedSlices()[0].Name + ": NotImported"}},
		{name: "the import is headless now: the Service is made anew", change: func(v *View) {
			v.Services = append(v.Services, importedService())
			v.Leader.ResourceImports[0].Spec.ServiceImport.Spec.Type = mcsv1alpha1.Headless
		}, writes: []string{"delete Service default/antrea-mc-db", "create Endpoints default/antrea-mc-db",
			"create EndpointSlice default/antrea-mc-db", "create ServiceImport default/db"}},
		{name: "another endpoint", change: func(v *View) {
			v.Services = append(v.Services, importedService())
			v.Endpoints = append(v.Endpoints, importedEndpoints())
			v.Leader.ResourceImports[1] = endpointsOf("default", "db", "10.98.0.7", "10.96.0.7")
		}, writes: []string{"update Endpoints default/antrea-mc-db", "create EndpointSlice default/antrea-mc-db",
			"create ServiceImport default/db"}},
		{name: "endpoints that nobody can use are left out", change: func(v *View) {
			v.Services = append(v.Services, importedService())
			v.Endpoints = append(v.Endpoints, importedEndpoints())
			v.ServiceImports = append(v.ServiceImports, serviceImport())
			v.Leader.ResourceImports[1] = endpointsOf("default", "db", "127.0.0.1", "10.98.0.7", "169.254.169.254", "nowhere")
		}, writes: []string{"create EndpointSlice default/antrea-mc-db", "update the status of ServiceImport default/db"},
			problems: []string{"ClusterSet kube-system/set: ResourceImportInvalid"}},
		{name: "a port that no Service can have is left out", change: func(v *View) {
			v.Services = append(v.Services, importedService())
			v.Endpoints = append(v.Endpoints, importedEndpoints())
			v.ServiceImports = append(v.ServiceImports, serviceImport())
			ports := &v.Leader.ResourceImports[0].Spec.ServiceImport.Spec.Ports
			*ports = append(*ports, mcsv1alpha1.ServicePort{Name: "none", Port: 0})
		}, writes: []string{"create EndpointSlice default/antrea-mc-db", "update the status of ServiceImport default/db"},
			problems: []string{"ClusterSet kube-system/set: ResourceImportInvalid"}},
		{name: "no port is left",
			change: func(v *View) { v.Leader.ResourceImports[0].Spec.ServiceImport.Spec.Ports[0].Port = -1 },
			problems: []string{"ClusterSet kube-system/set: ResourceImportInvalid",
				"ClusterSet kube-system/set: ResourceImportInvalid"}},
		{name: "somebody gave our Service a selector", change: func(v *View) {
			s := importedService()
			s.Spec.Selector = map[string]string{"app": "db"}
			v.Services = append(v.Services, s)
			v.Endpoints = append(v.Endpoints, importedEndpoints())
		}, writes: []string{"update Service default/antrea-mc-db", "create EndpointSlice default/antrea-mc-db",
			"create ServiceImport default/db"}},
		{name: "a name of 53 characters", change: func(v *View) {
			v.Leader.ResourceImports = []*mcv1alpha1.ResourceImport{importOf("default", strings.Repeat("n", 53))}
		}, writes: []string{"create Service default/antrea-mc-" + strings.Repeat("n", 53)}},
		{name: "a name that is too long for the Service", change: func(v *View) {
			v.Leader.ResourceImports = []*mcv1alpha1.ResourceImport{importOf("default", strings.Repeat("n", 54))}
		}, problems: []string{"ClusterSet kube-system/set: ResourceImportInvalid"}},
		{name: "Namespace missing", change: func(v *View) { v.Namespaces = nil },
			problems: []string{"ClusterSet kube-system/set: NamespaceNotFound"}},
		{name: "Namespace being deleted",
			change:   func(v *View) { v.Namespaces[0].DeletionTimestamp = &metav1.Time{Time: now} },
			problems: []string{"ClusterSet kube-system/set: NamespaceNotFound"}},
		{name: "a user's Service is in the way", change: func(v *View) {
			v.Services = append(v.Services, &corev1.Service{ObjectMeta: meta("default", "antrea-mc-db")})
		}, problems: []string{"Service default/antrea-mc-db: NotImported"}},
		{name: "a user's Endpoints are in the way", change: func(v *View) {
			v.Endpoints = append(v.Endpoints, &services.Endpoints{ObjectMeta: meta("default", "antrea-mc-db")})
		}, problems: []string{"Endpoints default/antrea-mc-db: NotImported"}},
		{name: "a user's ServiceImport is in the way", change: func(v *View) {
			v.Services = append(v.Services, importedService())
			v.Endpoints = append(v.Endpoints, importedEndpoints())
			v.ServiceImports = append(v.ServiceImports, &mcsv1alpha1.ServiceImport{ObjectMeta: meta("default", "db")})
		}, writes: []string{"create EndpointSlice default/antrea-mc-db"},
			problems: []string{"ServiceImport default/db: NotImported"}},
		{name: "a user's ServiceImport with an address of its own is in the way", change: func(v *View) {
			v.Services = append(v.Services, importedService())
			v.Endpoints = append(v.Endpoints, importedEndpoints())
			v.ServiceImports = append(v.ServiceImports, &mcsv1alpha1.ServiceImport{ObjectMeta: meta("default", "db"),
				Spec: mcsv1alpha1.ServiceImportSpec{IPs: []string{"10.97.0.8"}}})
		}, writes: []string{"create EndpointSlice default/antrea-mc-db"},
			problems: []string{"ServiceImport default/db: NotImported"}},
		{name: "a user's ServiceImport with a second address is in the way", change: func(v *View) {
			v.Services = append(v.Services, importedService())
			v.Endpoints = append(v.Endpoints, importedEndpoints())
			v.ServiceImports = append(v.ServiceImports, &mcsv1alpha1.ServiceImport{ObjectMeta: meta("default", "db"),
				Spec: mcsv1alpha1.ServiceImportSpec{IPs: []string{"10.97.0.9", "10.97.0.8"}}})
		}, writes: []string{"create EndpointSlice default/antrea-mc-db"},
			problems: []string{"ServiceImport default/db: NotImported"}},
		{name: "a user's ServiceImport without addresses is in the way of a headless one", change: func(v *View) {
			v.Leader.ResourceImports[0].Spec.ServiceImport.Spec.Type = mcsv1alpha1.Headless
			s := importedService()
			s.Spec.ClusterIP = corev1.ClusterIPNone
			v.Services = append(v.Services, s)
			v.Endpoints = append(v.Endpoints, importedEndpoints())
			v.ServiceImports = append(v.ServiceImports, &mcsv1alpha1.ServiceImport{ObjectMeta: meta("default", "db"),
				Spec: mcsv1alpha1.ServiceImportSpec{IPs: []string{"None"}}})
		}, writes: []string{"create EndpointSlice default/antrea-mc-db"},
			problems: []string{"ServiceImport default/db: NotImported"}},
		{name: "Antrea's member has left a ServiceImport: it is adopted", change: func(v *View) {
			v.Services = append(v.Services, importedService())
			v.Endpoints = append(v.Endpoints, importedEndpoints())
			si := serviceImport()
			si.Annotations = nil
			v.ServiceImports = append(v.ServiceImports, si)
		}, writes: []string{"create EndpointSlice default/antrea-mc-db", "update ServiceImport default/db"}},
		{name: "the import of what Antrea's member has left is gone: it goes", change: func(v *View) {
			v.Leader.ResourceImports = nil
			si := serviceImport()
			si.Annotations = nil
			v.Services, v.ServiceImports = append(v.Services, importedService()), append(v.ServiceImports, si)
		}, writes: []string{"delete Service default/antrea-mc-db", "delete ServiceImport default/db"}},
		{name: "the import is gone: all three go, the user's own stay", change: func(v *View) {
			v.Leader.ResourceImports = nil
			v.Services = append(v.Services, importedService(), &corev1.Service{ObjectMeta: meta("default", "antrea-mc-mine")})
			v.Endpoints = append(v.Endpoints, importedEndpoints())
			v.ServiceImports = append(v.ServiceImports, &mcsv1alpha1.ServiceImport{ObjectMeta: marked("default", "db")},
				&mcsv1alpha1.ServiceImport{ObjectMeta: meta("default", "mine")})
		}, writes: []string{"delete Service default/antrea-mc-db", "delete Endpoints default/antrea-mc-db",
			"delete ServiceImport default/db"}},
		{name: "the leader has not been read yet: nothing goes", change: func(v *View) {
			v.Leader.Synced, v.Leader.ResourceImports = false, nil
			v.Services = append(v.Services, importedService())
		}},
		{name: "another leader has not been read yet: nothing goes", change: func(v *View) {
			v.ClusterSets[0].Spec.Leaders[0].Server = "https://172.30.0.99:6443"
			v.Services = append(v.Services, importedService())
		}},
		{name: "the Secret is gone: nothing goes", change: func(v *View) {
			v.Secrets, v.Leader.ResourceImports = nil, nil
			v.Services = append(v.Services, importedService())
		}, problems: []string{"ClusterSet kube-system/set: LeaderNotConfigured"}},
		{name: "the ClusterSet is gone: all goes", change: func(v *View) {
			v.ClusterSets, v.Leader = nil, Leader{}
			v.Services = append(v.Services, importedService())
			v.Endpoints = append(v.Endpoints, importedEndpoints())
			v.ServiceImports = append(v.ServiceImports, &mcsv1alpha1.ServiceImport{ObjectMeta: marked("default", "db")})
			v.Gateways = []*mcv1alpha1.Gateway{{ObjectMeta: meta("kube-system", "node-1")}}
			v.ClusterInfoImports = []*mcv1alpha1.ClusterInfoImport{{ObjectMeta: meta("kube-system", "west-clusterinfo")}}
		}, writes: []string{"delete Gateway kube-system/node-1", "delete ClusterInfoImport kube-system/west-clusterinfo",
			"delete Service default/antrea-mc-db", "delete Endpoints default/antrea-mc-db", "delete ServiceImport default/db"}},
		{name: "other kinds are left alone", change: func(v *View) {
			v.Leader.ResourceImports = []*mcv1alpha1.ResourceImport{
				{ObjectMeta: meta("antrea-multicluster", "0123"), Spec: mcv1alpha1.ResourceImportSpec{Kind: "LabelIdentity"}},
				{ObjectMeta: meta("antrea-multicluster", "x"), Spec: mcv1alpha1.ResourceImportSpec{Kind: "ExternalEntity"}}}
		}},
		{name: "meant for other clusters",
			change: func(v *View) { v.Leader.ResourceImports[0].Spec.ClusterIDs = []string{"west"} }},
		{name: "meant for this cluster",
			change: func(v *View) { v.Leader.ResourceImports[0].Spec.ClusterIDs = []string{"west", "east"} },
			writes: []string{"create Service default/antrea-mc-db", "create Endpoints default/antrea-mc-db",
				"create EndpointSlice default/antrea-mc-db"}},
		{name: "garbage does not stop the others", change: func(v *View) {
			v.Leader.ResourceImports = append(v.Leader.ResourceImports, &mcv1alpha1.ResourceImport{
				ObjectMeta: meta("antrea-multicluster", "bad"), Spec: mcv1alpha1.ResourceImportSpec{Kind: "ServiceImport"}})
		}, writes: []string{"create Service default/antrea-mc-db", "create Endpoints default/antrea-mc-db",
			"create EndpointSlice default/antrea-mc-db"},
			problems: []string{"ClusterSet kube-system/set: ResourceImportInvalid"}},
		{name: "ClusterInfo of another cluster and of this one", change: func(v *View) {
			v.Leader.ResourceImports = []*mcv1alpha1.ResourceImport{
				clusterInfoOf("west", "10.98.0.0/16", "192.168.79.101"), clusterInfoOf("east", "10.97.0.0/16", "192.168.78.101")}
		}, writes: []string{"create ClusterInfoImport kube-system/west-clusterinfo"}},
		{name: "ClusterInfo with a Service range that overlaps ours", change: func(v *View) {
			v.Leader.ResourceImports = []*mcv1alpha1.ResourceImport{clusterInfoOf("west", "10.97.128.0/17", "192.168.79.101")}
		}, writes: []string{"create ClusterInfoImport kube-system/west-clusterinfo"},
			problems: []string{"ClusterInfoImport kube-system/west-clusterinfo: ServiceCIDROverlap"}},
		{name: "malformed ClusterInfo", change: func(v *View) {
			v.Leader.ResourceImports = []*mcv1alpha1.ResourceImport{clusterInfoOf("west", "ten", "nowhere")}
		}, problems: []string{"ClusterSet kube-system/set: ResourceImportInvalid",
			"ClusterSet kube-system/set: ResourceImportInvalid"}},
		{name: "ClusterInfo with a Pod range of our Nodes", change: func(v *View) {
			west := clusterInfoOf("west", "10.98.0.0/16", "192.168.79.101")
			west.Spec.ClusterInfo.PodCIDRs = []string{"10.0.0.0/24"}
			v.Nodes = []*corev1.Node{node("node-1", "10.0.0.1")}
			v.Nodes[0].Annotations = nil
			v.Leader.ResourceImports = []*mcv1alpha1.ResourceImport{west}
		}, writes: []string{"create ClusterInfoImport kube-system/west-clusterinfo"},
			problems: []string{"ClusterInfoImport kube-system/west-clusterinfo: ServiceCIDROverlap"}},
		{name: "ClusterInfo with a range that another cluster has here", change: func(v *View) {
			v.ClusterInfoImports = []*mcv1alpha1.ClusterInfoImport{{ObjectMeta: meta("kube-system", "west-clusterinfo"),
				Spec: *clusterInfoOf("west", "10.98.0.0/16", "192.168.79.101").Spec.ClusterInfo}}
			v.Leader.ResourceImports = []*mcv1alpha1.ResourceImport{
				clusterInfoOf("attacker", "10.98.0.0/24", "192.168.80.101"),
				clusterInfoOf("west", "10.98.0.0/16", "192.168.79.101")}
		}, problems: []string{"ClusterSet kube-system/set: ResourceImportInvalid"}},
		{name: "ClusterInfo of an old cluster that takes another's gateway", change: func(v *View) {
			for _, id := range []string{"old", "west"} {
				ip := map[string]string{"old": "192.168.80.101", "west": "192.168.79.101"}[id]
				v.ClusterInfoImports = append(v.ClusterInfoImports,
					&mcv1alpha1.ClusterInfoImport{ObjectMeta: meta("kube-system", id+"-clusterinfo"),
						Spec: *clusterInfoOf(id, map[string]string{"old": "10.99.0.0/16", "west": "10.98.0.0/16"}[id],
							ip).Spec.ClusterInfo})
			}
			v.Leader.ResourceImports = []*mcv1alpha1.ResourceImport{
				clusterInfoOf("old", "10.99.0.0/16", "192.168.79.101"), clusterInfoOf("west", "10.98.0.0/16", "192.168.79.101")}
		}, problems: []string{"ClusterInfoImport kube-system/old-clusterinfo: ResourceImportInvalid"}},
		{name: "an endpoint in no range that a cluster announces", change: func(v *View) {
			v.Leader.ResourceImports = append(v.Leader.ResourceImports, clusterInfoOf("west", "10.98.0.0/16", "192.168.79.101"))
			v.Leader.ResourceImports[1] = endpointsOf("default", "db", "10.98.0.7", "10.20.0.7")
		}, writes: []string{"create ClusterInfoImport kube-system/west-clusterinfo", "create Service default/antrea-mc-db",
			"create Endpoints default/antrea-mc-db", "create EndpointSlice default/antrea-mc-db",
			"create EndpointSlice default/antrea-mc-db"},
			problems: []string{"Service default/antrea-mc-db: EndpointsUnreachable"}},
		{name: "endpoints in the ranges that clusters announce, and one of this cluster's", change: func(v *View) {
			west := clusterInfoOf("west", "10.98.0.0/16", "192.168.79.101")
			west.Spec.ClusterInfo.PodCIDRs = []string{"10.20.0.0/16"}
			v.Leader.ResourceImports = append(v.Leader.ResourceImports, west)
			v.Leader.ResourceImports[1] = endpointsOf("default", "db", "10.98.0.7", "10.20.0.7", "10.97.0.3")
			v.Leader.ResourceImports[1].Annotations = map[string]string{
				multicluster.AnnotationSources: `[{"cluster":"west","subsets":1}]`}
		}, problems: []string{"ClusterSet kube-system/set: ResourceImportInvalid"},
			writes: []string{"create ClusterInfoImport kube-system/west-clusterinfo", "create Service default/antrea-mc-db",
				"create Endpoints default/antrea-mc-db", "create EndpointSlice default/antrea-mc-db"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := joinedView()
			v.Leader.ResourceImports = []*mcv1alpha1.ResourceImport{importOf("default", "db"),
				endpointsOf("default", "db", "10.98.0.7")}
			if row.change != nil {
				row.change(&v)
			}
			d, ps := Plan(v)
			expect(t, "writes", writeTexts(d.Change.Local), row.writes)
			expect(t, "problems", problems(ps), row.problems)
		})
	}
}

// TestPlanImportFamilies gives the derived Service the families that its exports and this cluster have in common.
func TestPlanImportFamilies(t *testing.T) {
	const v4, v6 = corev1.IPv4Protocol, corev1.IPv6Protocol
	type list = []corev1.IPFamily
	ranges := map[string]string{"v4": "10.97.0.0/16", "v6": "fd00:97::/112"}
	for _, row := range []struct {
		name           string
		served         string // "v4", "v6", "v4 v6", or empty for not known
		headless       bool
		exported, have list
		want           list
		verb           string // of the write for the Service with the families in have
		after          list   // its families
	}{
		{name: "IPv4 alone", served: "v4", exported: list{v4}, want: list{v4}, have: list{v4}, after: list{v4}},
		{name: "IPv6 alone", served: "v6", exported: list{v6}, want: list{v6}, have: list{v6}, after: list{v6}},
		{name: "both", served: "v4 v6", exported: list{v4, v6}, want: list{v4, v6}, have: list{v4, v6}, after: list{v4, v6}},
		{name: "in the order of the export", served: "v4 v6", exported: list{v6, v4}, want: list{v6, v4},
			have: list{v6, v4}, after: list{v6, v4}},
		{name: "the order cannot be changed", served: "v4 v6", exported: list{v6, v4}, want: list{v6, v4},
			have: list{v4, v6}, after: list{v4, v6}},
		{name: "of both the cluster serves one", served: "v6", exported: list{v4, v6}, want: list{v6}, have: list{v6},
			after: list{v6}},
		{name: "of none: its own", served: "v6", exported: list{v4}, want: list{v6}, have: list{v6}, after: list{v6}},
		{name: "exported by another implementation", served: "v4 v6", want: list{v4}, have: list{v4}, after: list{v4}},
		{name: "exported by another implementation, to a cluster of IPv6", served: "v6", want: list{v6}, have: list{v6},
			after: list{v6}},
		{name: "a second family is added", served: "v4 v6", exported: list{v4, v6}, want: list{v4, v6}, have: list{v6},
			verb: "update", after: list{v6, v4}},
		{name: "the second family is removed", served: "v4 v6", exported: list{v4}, want: list{v4}, have: list{v4, v6},
			verb: "update", after: list{v4, v6}}, // which the API server makes of it
		{name: "the first family cannot be removed", served: "v4 v6", exported: list{v6}, want: list{v6},
			have: list{v4, v6}, after: list{v4, v6}},
		{name: "the only family is replaced", served: "v4 v6", exported: list{v4}, want: list{v4}, have: list{v6},
			verb: "delete", after: list{v6}},
		{name: "the ranges are not known", exported: list{v4, v6}, have: list{v6}, after: list{v6}},
		{name: "a headless Service has the families of its endpoints", served: "v4 v6", headless: true,
			exported: list{v4}, have: list{v6}, after: list{v6}},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := joinedView()
			v.ServiceCIDR = ""
			for i, name := range strings.Fields(row.served) {
				if i == 0 {
					v.ServiceCIDR = ranges[name]
				}
				v.ServiceCIDRs = append(v.ServiceCIDRs, serviceCIDRs(ranges[name])...)
			}
			v.Leader.ResourceImports = []*mcv1alpha1.ResourceImport{importOf("default", "db")}
			spec := &v.Leader.ResourceImports[0].Spec.ServiceImport.Spec
			if spec.IPFamilies = row.exported; row.headless {
				spec.Type = mcsv1alpha1.Headless
			}
			d, _ := Plan(v)
			expect(t, "ipFamilies", d.Services[0].Spec.IPFamilies, row.want)
			expect(t, "dual stack", d.Services[0].Spec.IPFamilyPolicy != nil, len(row.want) == 2)
			have := d.Services[0].DeepCopy()
			have.Spec.IPFamilies, have.Spec.IPFamilyPolicy = row.have, nil
			if !row.headless {
				have.Spec.ClusterIP = "10.97.0.9"
			}
			v.Services = []*corev1.Service{have}
			d, _ = Plan(v)
			verb, after := "", row.have
			for _, w := range d.Change.Local {
				if o, ok := w.Object.(*corev1.Service); ok {
					verb, after = string(w.Verb), o.Spec.IPFamilies
					expect(t, "single stack", w.Verb == writes.Update &&
						*o.Spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack, row.name == "the second family is removed")
				}
			}
			expect(t, "write", verb, row.verb)
			expect(t, "ipFamilies afterwards", after, row.after)
		})
	}
}

// TestPlanUnservedFamilies imports the endpoints of the versions of IP that this cluster serves. The ServiceImport's
// condition names clusters without such endpoints.
func TestPlanUnservedFamilies(t *testing.T) {
	const v4, v6 = corev1.IPv4Protocol, corev1.IPv6Protocol
	const left = " are left out, since ClusterIPs of this cluster are of IPv6 alone: give the exported Services and " +
		"this cluster a version of IP in common"
	for _, row := range []struct {
		name     string
		exported []corev1.IPFamily
		west     []string // addresses of cluster west's endpoints; cluster south has 10.99.0.7
		want     []string // addresses in EndpointSlices and Endpoints
		ready    string
		message  string
	}{
		{name: "one cluster has both", exported: []corev1.IPFamily{v4, v6}, west: []string{"10.98.0.7", "fd00:98::7"},
			want: []string{"fd00:98::7"}, ready: "True Ready", message: "endpoints of clusters south" + left},
		{name: "no cluster has IPv6", exported: []corev1.IPFamily{v4}, west: []string{"10.98.0.7"},
			ready: "False IPFamilyNotSupported", message: "endpoints of clusters south, west" + left},
		{name: "no cluster has IPv6, and endpoints", exported: []corev1.IPFamily{v4}, ready: "False IPFamilyNotSupported",
			message: "the exported Services are of IPv4 alone, ClusterIPs of this cluster of IPv6: give the exported " +
				"Services and this cluster a version of IP in common"},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := joinedView()
			v.ServiceCIDR = "fd00:97::/112"
			v.Services = []*corev1.Service{{ObjectMeta: marked("default", "antrea-mc-db"), Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeClusterIP, ClusterIP: "fd00:97::9", ClusterIPs: []string{"fd00:97::9"}}}}
			v.Leader.ResourceImports = []*mcv1alpha1.ResourceImport{importOf("default", "db"),
				clusterInfoOf("west", "10.98.0.0/16", "192.168.79.102"), clusterInfoOf("south", "10.99.0.0/16", "192.168.79.103")}
			v.Leader.ResourceImports[0].Spec.ServiceImport.Spec.IPFamilies = row.exported
			if row.west != nil {
				v.Leader.ResourceImports[1].Spec.ClusterInfo.ServiceCIDRs = []string{"10.98.0.0/16", "fd00:98::/112"}
				endpoints := endpointsOf("default", "db", "10.99.0.7")
				endpoints.Spec.Endpoints.Subsets = append(endpoints.Spec.Endpoints.Subsets,
					endpointsOf("default", "db", row.west...).Spec.Endpoints.Subsets...)
				endpoints.Annotations = map[string]string{multicluster.AnnotationSources: `[{"cluster":"south","subsets":1},` +
					`{"cluster":"west","subsets":1}]`}
				v.Leader.ResourceImports = append(v.Leader.ResourceImports, endpoints)
			}
			d, ps := Plan(v)
			expect(t, "problems", len(ps), 0)
			var inSlices, inEndpoints []string
			for _, s := range d.EndpointSlices {
				for _, e := range s.Endpoints {
					inSlices = append(inSlices, e.Addresses...)
				}
			}
			for _, e := range d.Endpoints {
				for _, s := range e.Subsets {
					for _, a := range s.Addresses {
						inEndpoints = append(inEndpoints, a.IP)
					}
				}
			}
			expect(t, "EndpointSlices", inSlices, row.want)
			expect(t, "Endpoints", inEndpoints, row.want)
			c := d.ServiceImports[0].Status.Conditions[0]
			expect(t, "Ready", string(c.Status)+" "+c.Reason, row.ready)
			expect(t, "message", c.Message, row.message)
			expect(t, "ipFamilies", d.ServiceImports[0].Spec.IPFamilies, []corev1.IPFamily{v6})
		})
	}
}

// TestPlanImportOfTwoFamilies imports as many addresses as families, in the order of the derived Service.
func TestPlanImportOfTwoFamilies(t *testing.T) {
	for _, row := range []struct {
		ips  []string
		want []corev1.IPFamily
	}{
		{[]string{"10.97.0.9", "fd00::9"}, []corev1.IPFamily{"IPv4", "IPv6"}},
		{[]string{"fd00::9", "10.97.0.9"}, []corev1.IPFamily{"IPv6", "IPv4"}},
	} {
		v := joinedView()
		v.Leader.ResourceImports = []*mcv1alpha1.ResourceImport{importOf("default", "db")}
		v.Services = []*corev1.Service{{ObjectMeta: marked("default", "antrea-mc-db"), Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: row.ips[0], ClusterIPs: row.ips}}}
		d, _ := Plan(v)
		expect(t, "ips", d.ServiceImports[0].Spec.IPs, row.ips)
		expect(t, "ipFamilies", d.ServiceImports[0].Spec.IPFamilies, row.want)
	}
}

// TestPlanClusterInfoComplete writes all gateways and features of a peer, in the leader's order.
func TestPlanClusterInfoComplete(t *testing.T) {
	v := joinedView()
	west := clusterInfoOf("west", "10.98.0.0/16", "192.168.79.102")
	info := west.Spec.ClusterInfo
	info.GatewayInfos = append(info.GatewayInfos, mcv1alpha1.GatewayInfo{GatewayIP: "192.168.79.101"})
	info.Features = []string{"Tomorrow", mcv1alpha1.FeatureActiveGateways}
	v.Leader.ResourceImports = []*mcv1alpha1.ResourceImport{west}
	d, ps := Plan(v)
	if len(ps) != 0 || len(d.ClusterInfoImports) != 1 {
		t.Fatalf("ClusterInfoImports %v, problems %v", d.ClusterInfoImports, ps)
	}
	expect(t, "spec", d.ClusterInfoImports[0].Spec, *info)
}

// TestPlanConfigured reports keys of the configuration that cannot have their effect.
func TestPlanConfigured(t *testing.T) {
	for _, row := range []struct {
		name     string
		config   config.Config
		problems []string
	}{
		{name: "Pods' addresses without a range", config: config.Config{EndpointIPType: config.EndpointIPTypePodIP},
			problems: []string{"ClusterSet kube-system/set: PodCIDRsMissing"}},
		{name: "Pods' addresses with a range",
			config: config.Config{EndpointIPType: config.EndpointIPTypePodIP, PodCIDRs: []string{"10.20.0.0/16"}}},
	} {
		t.Run(row.name, func(t *testing.T) {
			v := joinedView()
			v.Config = row.config
			_, ps := Plan(v)
			expect(t, "problems", problems(ps), row.problems)
		})
	}
}

// TestPlanClusterInfoRefused passes the leader's verdict on this cluster's ranges on.
func TestPlanClusterInfoRefused(t *testing.T) {
	v := joinedView()
	v.Nodes = []*corev1.Node{node("node-1", "10.0.0.1")}
	d, _ := Plan(v)
	for _, re := range d.ResourceExports {
		if re.Spec.Kind == "ClusterInfo" {
			re.Status.Conditions = []mcv1alpha1.ResourceExportCondition{{Type: mcv1alpha1.ResourceExportFailure,
				Status: corev1.ConditionFalse, Reason: "ConvergeFailure", Message: "overlaps cluster west"}}
			v.Leader.ResourceExports = append(v.Leader.ResourceExports, re)
		}
	}
	_, ps := Plan(v)
	if len(ps) != 1 || ps[0].Reason.String() != "ConvergeFailure" || ps[0].Kind != "ClusterSet" ||
		!strings.Contains(ps[0].Message, "overlaps cluster west") {
		t.Errorf("problems %v", ps)
	}
}
