package hostile

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
)

const (
	groupAntrea = "multicluster.crd.antrea.io"
	groupMCS    = "multicluster.x-k8s.io"
)

func resource(group, version, name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: name}
}

// Kinds that are compared in each cluster.
var (
	announces = resource(groupAntrea, "v1alpha1", "memberclusterannounces")
	exports   = resource(groupAntrea, "v1alpha1", "resourceexports")
	imports   = resource(groupAntrea, "v1alpha1", "resourceimports")
	sets      = resource(groupAntrea, "v1alpha2", "clustersets")
	services  = resource("", "v1", "services")
	endpoints = resource("", "v1", "endpoints")
	infos     = resource(groupAntrea, "v1alpha1", "clusterinfoimports")
	gateways  = resource(groupAntrea, "v1alpha1", "gateways")

	identities = resource(groupAntrea, "v1alpha1", "labelidentities")
	addresses  = resource(groupAntrea, "v1alpha1", "podaddressimports")

	inLeader = []schema.GroupVersionResource{
		announces, exports, imports, sets, resource(groupAntrea, "v1alpha2", "clusterclaims"),
		resource("", "v1", "serviceaccounts"), resource("", "v1", "configmaps"), resource("", "v1", "secrets"), services,
		resource("rbac.authorization.k8s.io", "v1", "roles"), resource("rbac.authorization.k8s.io", "v1", "rolebindings"),
		resource("apps", "v1", "deployments"),
	}
	inMember = []schema.GroupVersionResource{
		services, endpoints, infos, gateways, sets, identities, addresses,
		resource(groupMCS, "v1alpha1", "serviceexports"), resource(groupMCS, "v1alpha1", "serviceimports"),
		resource("", "v1", "secrets"), resource("", "v1", "namespaces"),
		resource("networking.k8s.io", "v1", "networkpolicies"),
	}
)

// state is what all clusters hold, by "cluster resource namespace/name".
type state struct {
	objects map[string]map[string]any
	// version of each object, in which a change that was undone shows too.
	version map[string]string
	// peers are what each honest member's Nodes derive from its imports: "member Node" and then by cluster ID. The
	// empty ID has the Node's own role.
	peers map[string]map[string]string
	// ranges are the ranges that the Nodes send to each cluster, by the same keys.
	ranges map[string]map[string][]netip.Prefix
}

func (w *world) state(ctx context.Context) (*state, error) {
	s := &state{
		objects: map[string]map[string]any{},
		version: map[string]string{},
		peers:   map[string]map[string]string{},
		ranges:  map[string]map[string][]netip.Prefix{},
	}
	if err := s.read(ctx, w.leader, area, inLeader); err != nil {
		return nil, err
	}
	for _, h := range w.honest {
		if err := s.read(ctx, h.cluster, "", inMember); err != nil {
			return nil, err
		}
		if err := s.derivePeers(ctx, h); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *state) read(ctx context.Context, c cluster, namespace string, resources []schema.GroupVersionResource) error {
	for _, r := range resources {
		list, err := c.dynamic.Resource(r).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list %s in %s: %w", r.Resource, c.name, err)
		}
		for _, o := range list.Items {
			if hostileAccount(o.GetName()) {
				continue // bound by what it announces, and deleted in the end
			}
			key := c.name + " " + r.Resource + " " + o.GetNamespace() + "/" + o.GetName()
			s.version[key] = o.GetResourceVersion()
			s.objects[key] = essence(r, &o)
		}
	}
	return nil
}

// essence is an object without what changes by itself.
func essence(r schema.GroupVersionResource, o *unstructured.Unstructured) map[string]any {
	unstructured.RemoveNestedField(o.Object, "metadata", "managedFields")
	unstructured.RemoveNestedField(o.Object, "metadata", "resourceVersion")
	unstructured.RemoveNestedField(o.Object, "metadata", "generation")
	unstructured.RemoveNestedField(o.Object, "metadata", "annotations", multicluster.AnnotationTouchTimestamp)
	unstructured.RemoveNestedField(o.Object, "metadata", "annotations", "endpoints.kubernetes.io/last-change-trigger-time")
	withoutTimes(o.Object)
	statuses, found, _ := unstructured.NestedSlice(o.Object, "status", "clusterStatuses")
	if found && (r == sets || r == imports) {
		// Hostile members come and go in the status of the ClusterSet and of imports that they export too.
		kept := slices.DeleteFunc(statuses, func(s any) bool {
			id, _, _ := unstructured.NestedString(s.(map[string]any), "clusterID")
			return !honestID(id) && id != leaderID
		})
		_ = unstructured.SetNestedSlice(o.Object, kept, "status", "clusterStatuses")
	}
	if r == sets && o.GetNamespace() == area { // so do the counts, and the condition of all members together
		for _, field := range []string{"readyClusters", "totalClusters", "conditions"} {
			unstructured.RemoveNestedField(o.Object, "status", field)
		}
	}
	return o.Object
}

func withoutTimes(v any) {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "lastTransitionTime")
		for _, x := range v {
			withoutTimes(x)
		}
	case []any:
		for _, x := range v {
			withoutTimes(x)
		}
	}
}

func hostileAccount(name string) bool { return name == "member-aaa" || name == "member-mallory" }

func honestID(id string) bool { return id == "east" || id == "west" || id == south || id == harbour }

// derivePeers asks the agents' own function what traffic goes where, on the Gateway and on another Node.
func (s *state) derivePeers(ctx context.Context, h *honest) error {
	var gatewayList mcv1alpha1.GatewayList
	var infoList mcv1alpha1.ClusterInfoImportList
	if err := h.client.List(ctx, &gatewayList); err != nil {
		return err
	}
	if err := h.client.List(ctx, &infoList); err != nil {
		return err
	}
	view := peering.View{PodToPod: true, Own: peering.Own{
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix(h.serviceCIDR)},
		PodCIDRs:     []netip.Prefix{netip.MustParsePrefix(h.podCIDR)},
	}}
	for i := range gatewayList.Items {
		view.Gateways = append(view.Gateways, &gatewayList.Items[i])
	}
	for i := range infoList.Items {
		view.ClusterInfoImports = append(view.ClusterInfoImports, &infoList.Items[i])
	}
	for _, view.NodeName = range []string{"node-1", "node-2"} {
		p, _ := peering.Plan(view)
		node, to := map[string]string{}, map[string][]netip.Prefix{}
		for _, peer := range p.Peers {
			node[peer.ClusterID] = fmt.Sprintf("%+v", peer)
			to[peer.ClusterID] = peer.CIDRs
		}
		node[""] = fmt.Sprintf("%+v", p.Part)
		s.peers[h.id+" "+view.NodeName], s.ranges[h.id+" "+view.NodeName] = node, to
	}
	return nil
}

// pair is an address and port of Endpoints.
type pair struct{ ip, port string }

// pairs takes the endpoints out of Endpoints or of an import of Endpoints.
func pairs(object map[string]any) (map[pair]bool, map[string]any) {
	rest := runtime.DeepCopyJSON(object)
	path := []string{"subsets"}
	if object["kind"] == "ResourceImport" {
		path = []string{"spec", "endpoints", "subsets"}
	}
	subsets, _, _ := unstructured.NestedSlice(rest, path...)
	unstructured.RemoveNestedField(rest, path...)
	out := map[pair]bool{}
	for _, s := range subsets {
		var ports []string
		list, _, _ := unstructured.NestedSlice(s.(map[string]any), "ports")
		for _, p := range list {
			p := p.(map[string]any)
			ports = append(ports, fmt.Sprintf("%v/%v/%v", p["name"], p["protocol"], p["port"]))
		}
		for _, kind := range []string{"addresses", "notReadyAddresses"} {
			addresses, _, _ := unstructured.NestedSlice(s.(map[string]any), kind)
			for _, a := range addresses {
				for _, port := range ports {
					out[pair{fmt.Sprint(a.(map[string]any)["ip"]), kind + " " + port}] = true
				}
			}
		}
	}
	return out, rest
}

// isEndpoints reports whether an object holds endpoints that several clusters may contribute to.
func isEndpoints(object map[string]any) bool {
	kind, _, _ := unstructured.NestedString(object, "spec", "kind")
	return object["kind"] == "Endpoints" || object["kind"] == "ResourceImport" && kind == multicluster.EndpointsKind
}

// changing is what the honest members themselves change; that it arrives is checked apart.
func changing(key string) bool {
	return strings.Contains(key, "marker-") || strings.Contains(key, "beat-") ||
		strings.HasSuffix(key, "/"+harbour+multicluster.ClusterInfoSuffix)
}

// onGatewayChange is what follows a member's Gateway.
func onGatewayChange(key string) bool {
	return strings.Contains(key, " gateways ") || strings.Contains(key, "/east-clusterinfo") ||
		strings.Contains(key, "/west-clusterinfo")
}

// quiet are objects that nothing but forgery is aimed at: not even a change that is undone may happen to them.
func quiet(key string) bool {
	return strings.Contains(key, "quiet-") && !strings.Contains(key, " endpoints ")
}

// rules has the changes that a hostile member may make.
type rules struct {
	before *state
	// aims are the Services that hostile members have tried to export: they may have become new imports.
	aims map[aim]bool
}

// announceable are the private ranges of which hostile members announce parts. All their endpoints must be within these
// ranges, and nothing else may be sent to them.
var announceable = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.168.0.0/16")}

// keptRanges are the honest members' Services, Pods and Nodes, without the member that announces no ranges.
var keptRanges = []netip.Prefix{
	netip.MustParsePrefix("10.97.0.0/16"), netip.MustParsePrefix("10.98.0.0/16"), netip.MustParsePrefix("10.20.0.0/16"),
	netip.MustParsePrefix("10.30.0.0/16"), netip.MustParsePrefix("192.168.77.0/24"),
	netip.MustParsePrefix("192.168.78.0/24"), netip.MustParsePrefix("10.99.0.0/16"), netip.MustParsePrefix("10.70.0.0/16"),
}

// aim is a Service that an export is of.
type aim struct{ namespace, name string }

// violations compares two states. The objects of an honest member or the administrator stay as they are, except for:
//
//   - endpoints that a hostile member adds, under its own name, to the endpoints of a Service that it exports with the
//     same ports, that it is named among the exporters, and that all exporters receive its differences (KEP-1645:
//     Conflict);
//   - new imports of Services, of label identities and of Pods' addresses, and new peers, under names and with ranges
//     that no other member has.
func (r rules) violations(now *state) []string {
	var out []string
	for key, was := range r.before.objects {
		is, exists := now.objects[key]
		if exists && !quiet(key) {
			was, is = ofHonest(was), ofHonest(is)
		}
		switch {
		case changing(key):
		case !exists:
			out = append(out, key+" is gone")
		case isEndpoints(was):
			out = append(out, endpointsViolations(key, was, is)...)
		default:
			if d := cmp.Diff(was, is); d != "" {
				out = append(out, fmt.Sprintf("%s has changed (-was +is):\n%s", key, d))
			} else if quiet(key) && r.before.version[key] != now.version[key] {
				out = append(out, fmt.Sprintf("%s was written, although it is as before", key))
			}
		}
	}
	for key, is := range now.objects {
		if r.before.objects[key] == nil && !changing(key) && !r.mayAppear(key, is) {
			text, _ := json.Marshal(is)
			out = append(out, fmt.Sprintf("%s has appeared: %.2000s", key, text))
		}
		if r.before.objects[key] == nil && !changing(key) && isEndpoints(is) {
			have, _ := pairs(is)
			for p := range have {
				if wrong := wrongEndpoint(p.ip); wrong != "" {
					out = append(out, fmt.Sprintf("%s has appeared with %v, %s", key, p, wrong))
				}
			}
		}
	}
	for node, was := range r.before.peers {
		for id, peer := range was {
			if is := now.peers[node][id]; is != peer && id != harbour {
				out = append(out, fmt.Sprintf("%s has other traffic to %q: was %s, is %s", node, id, peer, is))
			}
		}
		for id, is := range now.peers[node] {
			if _, known := was[id]; !known && honestID(id) {
				out = append(out, fmt.Sprintf("%s has a new peer %q: %s", node, id, is))
			}
			for _, to := range now.ranges[node][id] {
				if honestID(id) {
					continue
				}
				if !slices.ContainsFunc(announceable, func(p netip.Prefix) bool {
					return p.Bits() <= to.Bits() && p.Contains(to.Addr())
				}) {
					out = append(out, fmt.Sprintf("%s sends %s to %q, although it is not private", node, to, id))
				}
				for _, kept := range keptRanges {
					if to.Overlaps(kept) {
						out = append(out, fmt.Sprintf("%s sends %s to %q, although %s is another's", node, to, id, kept))
					}
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// ofHonest returns an import without the hostile members among its source clusters, and an export without its reports
// about other exporters.
func ofHonest(object map[string]any) map[string]any {
	out := runtime.DeepCopyJSON(object)
	if conditions, found, _ := unstructured.NestedSlice(out, "status", "conditions"); found {
		conditions = slices.DeleteFunc(conditions, func(one any) bool {
			c := one.(map[string]any)
			if out["kind"] == "ServiceExport" && c["type"] == string(mcsv1beta1.ServiceExportConditionConflict) {
				delete(c, "status")
				delete(c, "reason")
				delete(c, "message")
			}
			// An export that is imported as a whole may have no condition.
			return out["kind"] == "ResourceExport" && c["type"] == string(mcv1alpha1.ResourceExportSucceeded) &&
				c["status"] == "True"
		})
		_ = unstructured.SetNestedSlice(out, conditions, "status", "conditions") // it was one
		if len(conditions) == 0 {
			delete(out, "status")
		}
	}
	clusters, found, _ := unstructured.NestedSlice(out, "status", "clusters")
	if found && out["kind"] == "ServiceImport" {
		clusters = slices.DeleteFunc(clusters,
			func(c any) bool { return !honestID(fmt.Sprint(c.(map[string]any)["cluster"])) })
		_ = unstructured.SetNestedSlice(out, clusters, "status", "clusters") // it was one
	}
	path := []string{"metadata", "annotations", multicluster.AnnotationSources}
	if text, found, _ := unstructured.NestedString(out, path...); found {
		var sources []map[string]any
		if json.Unmarshal([]byte(text), &sources) == nil {
			sources = slices.DeleteFunc(sources, func(s map[string]any) bool { return !honestID(fmt.Sprint(s["cluster"])) })
			kept, _ := json.Marshal(sources)
			_ = unstructured.SetNestedField(out, string(kept), path...) // it was there
		}
	}
	return out
}

func endpointsViolations(key string, was, is map[string]any) (out []string) {
	had, rest := pairs(was)
	have, restNow := pairs(is)
	if d := cmp.Diff(rest, restNow); d != "" {
		out = append(out, fmt.Sprintf("%s has changed (-was +is):\n%s", key, d))
	}
	for p := range had {
		if !have[p] {
			out = append(out, fmt.Sprintf("%s has lost %v", key, p))
		}
	}
	for p := range have {
		if had[p] {
			continue
		}
		if wrong := wrongEndpoint(p.ip); wrong != "" {
			out = append(out, fmt.Sprintf("%s has got %v, %s", key, p, wrong))
		}
		if strings.Contains(key, "quiet-") {
			out = append(out, fmt.Sprintf("%s has got %v, although no hostile member exports that Service", key, p))
		}
	}
	return out
}

// wrongEndpoint returns why an endpoint of a hostile member may not be imported; empty if it may.
func wrongEndpoint(text string) string {
	ip, err := netip.ParseAddr(text)
	contains := func(p netip.Prefix) bool { return p.Contains(ip) }
	switch {
	case err != nil || ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified():
		return "which is no endpoint's address"
	case slices.ContainsFunc(keptRanges, contains):
		return "which is an honest member's Service, Pod, Node or gateway"
	case !slices.ContainsFunc(announceable, contains):
		return "which is in no range that a hostile member can announce"
	}
	return ""
}

// mayAppear reports whether an object may have been made for hostile members.
func (r rules) mayAppear(key string, o map[string]any) bool {
	parts := strings.Fields(key)
	where, kind := parts[0], parts[1]
	namespace, name, _ := strings.Cut(parts[2], "/")
	id, _, _ := unstructured.NestedString(o, "clusterID")
	specID, _, _ := unstructured.NestedString(o, "spec", "clusterID")
	if where == "leader" {
		switch kind {
		case announces.Resource:
			return !honestID(id) && name == multicluster.AnnounceName(id)
		case exports.Resource:
			return !honestID(specID) && strings.HasPrefix(name, specID+"-")
		case imports.Resource:
			if id, ok := strings.CutSuffix(name, multicluster.ClusterInfoSuffix); ok && !honestID(id) {
				return true
			}
			label, ok, _ := unstructured.NestedString(o, "spec", "labelIdentity", "label")
			if ok && name == multicluster.LabelHash(label) {
				return true // its member can number any labels; the numbers of others stay
			}
			if data, ok, _ := unstructured.NestedString(o, "spec", "raw", "data"); ok {
				decoded, err := base64.StdEncoding.DecodeString(data)
				p, wrong := exportcheck.ReadPodAddresses(decoded)
				return err == nil && wrong == nil && name == multicluster.PodAddressesName(p.ClusterID, p.Block) &&
					mayHave(p.ClusterID, p.Labels)
			}
			for a := range r.aims {
				if name == multicluster.ResourceImportName(a.namespace, a.name, multicluster.ServiceSuffix) ||
					name == multicluster.ResourceImportName(a.namespace, a.name, multicluster.EndpointsSuffix) {
					return true
				}
			}
		}
		return false
	}
	switch kind {
	case services.Resource, endpoints.Resource:
		name, ok := strings.CutPrefix(name, multicluster.ImportedPrefix)
		return ok && r.aims[aim{namespace, name}]
	case "serviceimports":
		return r.aims[aim{namespace, name}]
	case infos.Resource:
		return !honestID(specID) && name == specID+multicluster.ClusterInfoSuffix
	case addresses.Resource:
		pods, _, _ := unstructured.NestedSlice(o, "spec", "pods")
		has := map[string][]netip.Addr{}
		for _, one := range pods {
			list, _, _ := unstructured.NestedStringSlice(one.(map[string]any), "addresses")
			for _, text := range list {
				ip, err := netip.ParseAddr(text)
				if err != nil {
					return false
				}
				has[""] = append(has[""], ip)
			}
		}
		return strings.HasPrefix(name, specID+"-") && mayHave(specID, has)
	case identities.Resource:
		label, _, _ := unstructured.NestedString(o, "spec", "label")
		return name == multicluster.LabelHash(label)
	}
	return false
}

// mayHave reports whether addresses of Pods may belong to a cluster: to a hostile one, and in no range that honest ones
// keep.
func mayHave(id string, pods map[string][]netip.Addr) bool {
	for _, list := range pods {
		for _, ip := range list {
			if slices.ContainsFunc(keptRanges, func(kept netip.Prefix) bool { return kept.Contains(ip) }) {
				return false
			}
		}
	}
	return !honestID(id)
}

// withoutSuccess returns an export without a condition that reports nothing. An export that once contradicted another
// one has that condition. Other exports do not have it.
func withoutSuccess(object map[string]any) map[string]any {
	conditions, _, _ := unstructured.NestedSlice(object, "status", "conditions")
	nothing := map[string]any{"type": string(mcv1alpha1.ResourceExportSucceeded), "status": "True"}
	if len(conditions) != 1 || !cmp.Equal(conditions[0], any(nothing)) {
		return object
	}
	out := runtime.DeepCopyJSON(object)
	delete(out, "status")
	return out
}

// left returns the objects of hostile members that are still there after they were expelled.
func (r rules) left(now *state) []string {
	var out []string
	for key, o := range now.objects {
		if r.before.objects[key] == nil && !changing(key) {
			text, _ := json.Marshal(o)
			out = append(out, fmt.Sprintf("%s is still there: %.2000s", key, text))
		}
	}
	for key, was := range r.before.objects {
		if !changing(key) {
			if d := cmp.Diff(withoutSuccess(was), withoutSuccess(now.objects[key])); d != "" {
				out = append(out, fmt.Sprintf("%s is not as before (-was +is):\n%s", key, d))
			}
		}
	}
	for node := range now.peers {
		delete(now.peers[node], harbour)
		delete(r.before.peers[node], harbour)
	}
	if d := cmp.Diff(r.before.peers, now.peers); d != "" {
		out = append(out, "the Nodes' peers are not as before (-was +is):\n"+d)
	}
	slices.Sort(out)
	return out
}

// follow takes over what honest members have changed themselves: their Gateways.
func (r *rules) follow(now *state) {
	for key, o := range now.objects {
		if _, known := r.before.objects[key]; known && onGatewayChange(key) {
			r.before.objects[key] = o
		}
	}
	for node, peers := range now.peers {
		for id := range r.before.peers[node] {
			r.before.peers[node][id] = peers[id]
		}
	}
}
