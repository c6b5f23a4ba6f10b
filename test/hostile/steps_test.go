package hostile

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
)

// step is one request of a hostile member.
type step struct {
	text string
	aim  *aim // of the Service that the request exports, if it does
	do   func(context.Context) error
}

// generator makes steps. It depends on nothing but its seed, so that a run can be repeated.
type generator struct {
	*rand.Rand
	accounts []*account
	made     int
}

func newGenerator(seed uint64, accounts []*account) *generator {
	return &generator{Rand: rand.New(rand.NewPCG(seed, 0)), accounts: accounts}
}

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

type object = map[string]any

func list[T any](items ...T) []any {
	out := make([]any, len(items))
	for i, x := range items {
		out[i] = x
	}
	return out
}

// next makes a step. The first ones are well-behaved, so that the members are in the ClusterSet.
func (g *generator) next() step {
	g.made++
	if n := g.made - 1; n < 4*len(g.accounts) {
		a := g.accounts[n%len(g.accounts)]
		switch n / len(g.accounts) {
		case 0:
			return g.write(a, announces, announcement(a.id), "create", "")
		case 1:
			return g.write(a, exports, g.clusterInfo(a.id), "create", "")
		case 2:
			return g.write(a, exports, service(a.id, "default", "web", 80), "create", "")
		default:
			return g.write(a, exports, g.endpoints(a.id, "default", "web", 80), "create", "")
		}
	}
	a := pick(g, g.accounts...)
	switch p := g.IntN(100); {
	case p < 45:
		return g.ownExport(a)
	case p < 58:
		return g.othersObject(a)
	case p < 70:
		return g.announce(a)
	case p < 78:
		return g.importStep(a)
	case p < 84:
		return g.event(a)
	case p < 88:
		return g.collection(a)
	case p < 94:
		return g.write(a, exports, g.export(a.id), "delete", "")
	default:
		return g.outside(a)
	}
}

// ---- objects

func announcement(id string) object {
	return object{
		"apiVersion": groupAntrea + "/v1alpha1", "kind": "MemberClusterAnnounce",
		"metadata":  object{"namespace": area, "name": multicluster.AnnounceName(id)},
		"clusterID": id, "clusterSetID": clusterSet, "leaderClusterID": leaderID,
	}
}

func export(id, name, kind string, spec object) object {
	spec["clusterID"], spec["kind"] = id, kind
	return object{
		"apiVersion": groupAntrea + "/v1alpha1", "kind": "ResourceExport",
		"metadata": object{
			"namespace": area, "name": name, "finalizers": list(multicluster.ResourceExportFinalizer),
			"labels": object{multicluster.LabelSourceClusterID: id, multicluster.LabelSourceKind: kind},
		},
		"spec": spec,
	}
}

func ofService(o object, namespace, name string) object {
	labels := o["metadata"].(object)["labels"].(object)
	labels[multicluster.LabelSourceNamespace], labels[multicluster.LabelSourceName] = namespace, name
	spec := o["spec"].(object)
	spec["namespace"], spec["name"] = namespace, name
	return o
}

func ports(port int64) []any {
	return list[any](object{"name": "http", "protocol": "TCP", "port": port})
}

func service(id, namespace, name string, port int64) object {
	return ofService(export(id, multicluster.ResourceExportName(id, namespace, name, multicluster.ServiceSuffix),
		multicluster.ServiceKind,
		object{"service": object{"serviceSpec": object{"ports": ports(port)}}}), namespace, name)
}

// ranges returns the ranges that a hostile member has a right to.
func ranges(id string) (services, pods, gateway string) {
	if id == "aaa" {
		return "10.100.0.0/16", "10.40.0.0/16", "192.168.80.101"
	}
	return "10.101.0.0/16", "10.50.0.0/16", "192.168.81.101"
}

func (g *generator) endpoints(id, namespace, name string, port int64) object {
	within, _, _ := ranges(id)
	var addresses []any
	for range 1 + g.IntN(3) {
		addresses = append(addresses,
			object{"ip": strings.Replace(within, "0.0/16", fmt.Sprintf("%d.%d", g.IntN(256), 1+g.IntN(200)), 1)})
	}
	return ofService(export(id, multicluster.ResourceExportName(id, namespace, name, multicluster.EndpointsSuffix),
		multicluster.EndpointsKind,
		object{"endpoints": object{"subsets": list[any](object{"addresses": addresses, "ports": ports(port)})}}),
		namespace, name)
}

func (g *generator) clusterInfo(id string) object {
	services, pods, gateway := ranges(id)
	return export(id, id+multicluster.ClusterInfoSuffix, multicluster.ClusterInfoKind, object{
		"namespace": area, "name": id + multicluster.ClusterInfoSuffix,
		"clusterInfo": object{"clusterID": id, "serviceCIDR": services, "podCIDRs": list(pods),
			"gatewayInfos": list[any](object{"gatewayIP": gateway})},
	})
}

// export is one that a member may write.
func (g *generator) export(id string) object {
	// Services that honest members export too, one whose derived name is another's, and unknown ones.
	namespace, name := "default", pick(g, "web", "web", "only-east", "only-west", "only-south", "only-harbour", "mine",
		"h1", "h2", "h3")
	switch g.IntN(8) {
	case 0:
		namespace, name = "default-only", "east"
	case 1:
		namespace, name = pick(g, "kube-system", "nowhere"), pick(g, "kubernetes", "kube-dns", "h1")
	}
	port := int64(pick(g, 80, 80, 80, 81, 443))
	switch g.IntN(14) {
	case 12, 13:
		_, pods, _ := ranges(id)
		return podAddresses(id, strings.Replace(pods, "0.0/16", fmt.Sprintf("%d.%d", g.IntN(4), 1+g.IntN(200)), 1))
	case 0, 1, 2, 3:
		return service(id, namespace, name, port)
	case 4, 5, 6, 7:
		return g.endpoints(id, namespace, name, port)
	case 8, 9, 10:
		return g.clusterInfo(id)
	default:
		label := "ns:kubernetes.io/metadata.name=default&pod:app=" + pick(g, "a", "b", "c")
		o := export(id, id+"-"+multicluster.LabelHash(label), multicluster.LabelIdentityKind,
			object{"labelIdentity": object{"normalizedLabel": label}})
		return o
	}
}

// podAddresses are Pods with one label in the block of the first of their addresses.
func podAddresses(id string, texts ...string) object {
	p := exportcheck.PodAddresses{ClusterID: id, Labels: map[string][]netip.Addr{}}
	hash := multicluster.LabelHash("ns:kubernetes.io/metadata.name=default&pod:app=a")
	for _, text := range texts {
		if ip, err := netip.ParseAddr(text); err == nil {
			if !p.Block.IsValid() {
				p.Block = exportcheck.BlockOf(ip)
			}
			p.Labels[hash] = append(p.Labels[hash], ip)
		}
	}
	return export(id, multicluster.PodAddressesName(id, p.Block), multicluster.PodAddressesKind,
		object{"raw": object{"data": base64.StdEncoding.EncodeToString(p.JSON())}})
}

// ---- what makes them absurd

// set changes a field at a path, if what is above it is there.
func set(o object, value any, path ...string) {
	for _, p := range path[:len(path)-1] {
		next, ok := o[p].(object)
		if !ok {
			return
		}
		o = next
	}
	o[path[len(path)-1]] = value
}

var badAddresses = []string{
	"127.0.0.1", "169.254.169.254", "nonsense", "", "::1", "fe80::1", "0.0.0.0", "224.0.0.1", "255.255.255.255",
	"10.101.0.5/24", "010.101.0.5",
	"::ffff:10.97.0.1", "10.97.0.1", "10.98.0.1", "10.96.0.1", "192.168.77.101", "192.168.79.101", "10.95.0.10",
	"10.99.0.10", "8.8.8.8", "172.30.0.10", "192.168.78.102", strings.Repeat("1", 3000),
}

var badRanges = []string{
	"10.97.0.0/16", "10.98.3.0/24", "10.96.0.0/12", "8.0.0.0/5", "0.0.0.0/0", "192.168.77.0/24", "10.20.0.0/16",
	"10.95.0.0/16", "10.95.0.0/24", "10.99.0.0/16", "10.70.0.0/16", "192.168.79.0/24", "127.0.0.0/8", "nonsense",
	"", "::/0",
	"10.101.0.0/40", "fd00::/64", "8.0.0.0/8", "203.0.113.0/24",
}

func (g *generator) text(n int) string {
	return strings.Repeat(pick(g, "x", "\u202e", "é", "%s", "\\"), n)
}

// spoil changes an object in one of many ways, and says in which.
func (g *generator) spoil(a *account, o object) string {
	victim := pick(g, "east", "west", south, harbour)
	meta := o["metadata"].(object)
	_, isExport := o["spec"]
	type change struct {
		text string
		do   func()
	}
	foreign := pick(g, "east", "west", south, harbour, "north", "", "EAST", "east-default", "mallory-2",
		strings.Repeat("a", 64), "../east", "zzz")
	address, cidr := pick(g, badAddresses...), pick(g, badRanges...)
	other := pick(g, "default", "kube-system", "nowhere", "")
	size := pick(g, 1_000, 30_000, 200_000, 900_000, 1_600_000)
	count := pick(g, 999, 1_001, 20_000)
	number := pick[any](g, int64(0), int64(-1), int64(65_536), int64(1)<<40, "80", 1.5, nil)
	stamp := pick(g, "2099-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "tomorrow", "", "9999-12-31T23:59:59Z")
	changes := []change{
		{"of cluster " + short(foreign), func() {
			set(o, foreign, "spec", "clusterID")
			if !isExport {
				o["clusterID"] = foreign
			}
		}},
		{"named as " + victim + "'s", func() { meta["name"] = strings.Replace(fmt.Sprint(meta["name"]), a.id, victim, 1) }},
		{"with any name", func() {
			meta["name"] = pick(g, "x", "east-default-web-service", "default-web-service", "Ü", "", g.text(300))
		}},
		{"in Namespace " + other, func() { meta["namespace"] = other }},
		{"labelled as " + victim + "'s", func() { set(meta, victim, "labels", multicluster.LabelSourceClusterID) }},
		{"without labels", func() { delete(meta, "labels") }},
		{"with a foreign finalizer",
			func() { meta["finalizers"] = list(multicluster.ResourceExportFinalizer, "example.com/for-ever") }},
		{"with finalizer foregroundDeletion",
			func() { meta["finalizers"] = list("foregroundDeletion", multicluster.ResourceExportFinalizer) }},
		{"without finalizers", func() { delete(meta, "finalizers") }},
		{"with an announcement's finalizer",
			func() { meta["finalizers"] = list(multicluster.MemberClusterAnnounceFinalizerPrefix + victim) }},
		{"with an owner", func() {
			meta["ownerReferences"] = list[any](object{"apiVersion": groupAntrea + "/v1alpha1", "kind": "MemberClusterAnnounce",
				"name": multicluster.AnnounceName(victim), "uid": "11111111-2222-3333-4444-555555555555",
				"blockOwnerDeletion": true, "controller": true})
		}},
		{fmt.Sprintf("with an annotation of %d bytes", size), func() { meta["annotations"] = object{"x": g.text(size)} }},
		{"with annotations of the API's", func() {
			meta["annotations"] = object{multicluster.AnnotationAnnouncedBy: "member-" + victim,
				multicluster.AnnotationClusterID:      victim,
				multicluster.AnnotationTouchTimestamp: stamp}
		}},
		{"touched at " + short(stamp), func() { meta["annotations"] = object{multicluster.AnnotationTouchTimestamp: stamp} }},
		{"with the API server's own metadata", func() {
			meta["creationTimestamp"], meta["uid"], meta["resourceVersion"], meta["generation"] = "1970-01-01T00:00:00Z",
				"forged", "1", int64(99)
			meta["deletionTimestamp"], meta["selfLink"] = "1970-01-01T00:00:00Z", "/x"
		}},
		{"with a status", func() {
			o["status"] = object{"conditions": list[any](object{"type": "Succeeded", "status": "True", "message": g.text(size)})}
		}},
		{"of ClusterSet other", func() { o["clusterSetID"], o["leaderClusterID"] = "other", "other" }},
	}
	if isExport {
		spec := o["spec"].(object)
		add := func(payload string, more ...change) {
			if payload == "" || spec[payload] != nil {
				changes = append(changes, more...)
			}
		}
		add("",
			change{"of kind " + "AntreaClusterNetworkPolicy", func() {
				set(o, "AntreaClusterNetworkPolicy", "spec", "kind")
				set(o, object{"priority": int64(1), "tier": "securityops",
					"appliedTo": list[any](object{"namespaceSelector": object{}}), "ingress": list[any](object{"action": "Drop"})},
					"spec", "clusterNetworkPolicy")
			}},
			change{"of another kind", func() {
				set(o, pick(g, "", "Secret", "ExternalEntity", "service", "ClusterInfo", "Endpoints"), "spec", "kind")
			}},
			change{"without payload", func() {
				for _, field := range []string{"service", "endpoints", "clusterInfo", "labelIdentity", "raw"} {
					delete(spec, field)
				}
			}},
			change{"with every payload", func() {
				spec["service"], spec["endpoints"] = object{}, object{}
				spec["clusterInfo"], spec["labelIdentity"] = object{"clusterID": victim}, object{}
				spec["externalEntity"], spec["raw"] = object{"a": g.text(100)}, object{"data": "AAAA"}
			}},
			change{"of Service " + "A/../b",
				func() { set(o, pick(g, "A", "../b", "", g.text(300)), "spec", pick(g, "name", "namespace")) }},
		)
		add("service",
			change{"with another kind of Service", func() {
				set(o, object{"ports": ports(80), "type": "LoadBalancer", "clusterIP": "10.97.0.1", "externalIPs": list("8.8.8.8"),
					"externalName": "example.com", "selector": object{"a": "b"}}, "spec", "service", "serviceSpec")
			}},
		)
		add("endpoints",
			change{"with endpoint " + short(address), func() {
				set(o, list[any](object{"addresses": list[any](object{"ip": address}), "ports": ports(80)}), "spec", "endpoints",
					"subsets")
			}},
			change{"with an honest endpoint and " + short(address), func() {
				set(o, list[any](object{"addresses": list[any](object{"ip": "10.101.0.9"},
					object{"ip": address, "hostname": "Not A Host", "nodeName": "x"}), "ports": ports(80)}), "spec", "endpoints",
					"subsets")
			}},
			change{fmt.Sprintf("with %d endpoints", count), func() {
				addresses := make([]any, count)
				for i := range addresses {
					addresses[i] = object{"ip": fmt.Sprintf("10.101.%d.%d", i/250%250, 1+i%250)}
				}
				set(o, list[any](object{"addresses": addresses, "ports": ports(80)}), "spec", "endpoints", "subsets")
			}},
			change{"with subsets of nothing",
				func() { set(o, list[any](object{}, object{"ports": ports(80)}, nil), "spec", "endpoints", "subsets") }},
		)
		portChanges := []change{
			{fmt.Sprintf("with port %v", number), func() {
				set(o, list[any](object{"port": number}), "spec", "service", "serviceSpec", "ports")
				set(o, list[any](object{"addresses": list[any](object{"ip": "10.101.0.9"}),
					"ports": list[any](object{"port": number, "protocol": "XXX"})}), "spec", "endpoints", "subsets")
			}},
			{"with ports twice", func() {
				twice := list[any](object{"name": "http", "port": int64(80)}, object{"name": "http", "port": int64(80)})
				set(o, twice, "spec", "service", "serviceSpec", "ports")
				set(o, list[any](object{"addresses": list[any](object{"ip": "10.101.0.9"}), "ports": twice}), "spec", "endpoints",
					"subsets")
			}},
		}
		add("service", portChanges...)
		add("service",
			change{"claimed to be of 1970",
				func() { meta["annotations"] = object{multicluster.AnnotationService: `{"created":1}`} }},
			change{"claimed to be headless and of 1970",
				func() { meta["annotations"] = object{multicluster.AnnotationService: `{"created":1,"headless":true}`} }},
		)
		add("endpoints", portChanges...)
		add("clusterInfo",
			change{"with Service range " + short(cidr), func() { set(o, cidr, "spec", "clusterInfo", "serviceCIDR") }},
			change{"with Pod range " + short(cidr),
				func() { set(o, list(cidr, "10.60.0.0/16", cidr), "spec", "clusterInfo", "podCIDRs") }},
			change{"without Pod ranges", func() { set(o, list[string](), "spec", "clusterInfo", "podCIDRs") }},
			change{"with gateway " + short(address), func() {
				set(o, list[any](object{"gatewayIP": address}, object{"gatewayIP": "192.168.77.101"}), "spec", "clusterInfo",
					"gatewayInfos")
			}},
			change{"with " + victim + "'s gateway", func() {
				set(o, list[any](object{"gatewayIP": pick(g, "192.168.77.101", "192.168.78.102")}), "spec", "clusterInfo",
					"gatewayInfos")
			}},
			change{"with ten thousand ranges", func() {
				many := make([]any, 10_000)
				for i := range many {
					many[i] = fmt.Sprintf("10.%d.%d.0/24", 110+i/250%100, i%250)
				}
				set(o, many, "spec", "clusterInfo", "podCIDRs")
			}},
			change{"with ClusterInfo of " + victim, func() { set(o, victim, "spec", "clusterInfo", "clusterID") }},
			change{"with a WireGuard key",
				func() { set(o, object{"publicKey": g.text(50)}, "spec", "clusterInfo", "wireGuard") }},
		)
		publish := func(of string, texts ...string) {
			p := podAddresses(of, texts...)
			spec["raw"], meta["name"] = p["spec"].(object)["raw"], p["metadata"].(object)["name"]
		}
		add("raw",
			change{"with address " + short(address) + " of a Pod", func() { publish(a.id, address) }},
			change{"with a Pod of " + victim,
				func() { publish(a.id, pick(g, "10.20.0.7", "10.30.0.7", "10.70.0.7", "10.99.0.7")) }},
			change{"with Pods of " + victim + " beside its own", func() {
				publish(a.id, "10.40.0.7", "10.20.0.7")
				meta["name"] = multicluster.PodAddressesName(a.id, netip.MustParsePrefix("10.40.0.0/24"))
			}},
			change{"with addresses as " + victim, func() { publish(victim, "10.50.0.7") }},
			change{"with garbage for addresses",
				func() { set(o, base64.StdEncoding.EncodeToString([]byte(g.text(size))), "spec", "raw", "data") }},
		)
		add("labelIdentity",
			change{"with a long label", func() { set(o, g.text(size), "spec", "labelIdentity", "normalizedLabel") }},
		)
	}
	c := changes[g.IntN(len(changes))]
	c.do()
	return c.text
}

func short(s string) string {
	if len(s) > 40 {
		return fmt.Sprintf("%q... (%d bytes)", s[:20], len(s))
	}
	return s
}

// ---- requests

// verbs write an object.
var verbs = []string{"create", "create", "update", "update", "update", "merge", "json", "strategic", "apply",
	"apply --force", "status", "status merge", "dry run", "delete"}

func (g *generator) ownExport(a *account) step {
	o, spoilt := g.export(a.id), ""
	if g.chance(65) {
		spoilt = g.spoil(a, o)
		if g.chance(15) {
			spoilt += " " + g.spoil(a, o)
		}
	}
	return g.write(a, exports, o, pick(g, "create", "update", "update", "update", "update", "update", "apply --force",
		"apply --force", "apply", "merge", "json",
		"strategic", "status", "status merge", "dry run"), spoilt)
}

func (g *generator) announce(a *account) step {
	id := a.id
	if g.chance(25) {
		id = pick(g, "east", "west", south, harbour, "mallory-2", "aaa", "mallory", "north", "zzz")
	}
	o, spoilt := announcement(id), ""
	if g.chance(60) {
		spoilt = g.spoil(a, o)
	}
	return g.write(a, announces, o, pick(g, append(verbs, "merge", "merge", "merge", "apply --force")...), spoilt)
}

// othersObject is aimed at what belongs to an honest member.
func (g *generator) othersObject(a *account) step {
	victim := pick(g, "east", "west", south, harbour)
	name := pick(g, "web", "only-"+victim, "quiet-"+victim, "marker-"+victim)
	var o object
	gvr := exports
	switch g.IntN(4) {
	case 0:
		o = service(victim, "default", name, int64(pick(g, 80, 81)))
	case 1:
		o = g.endpoints(victim, "default", name, 80)
	case 2:
		o = g.clusterInfo(victim)
	default:
		o, gvr = announcement(victim), announces
	}
	spoilt := ""
	if g.chance(40) {
		spoilt = g.spoil(a, o)
	}
	return g.write(a, gvr, o, pick(g, verbs...), spoilt)
}

func (g *generator) importStep(a *account) step {
	name := pick(g, "default-web-service", "default-web-endpoints", "default-quiet-east-service",
		"default-quiet-west-endpoints", "east-clusterinfo", "west-clusterinfo",
		"default-h1-service", "aaa-clusterinfo", "forged")
	o := object{
		"apiVersion": groupAntrea + "/v1alpha1", "kind": "ResourceImport",
		"metadata": object{"namespace": area, "name": name},
		"spec": object{"namespace": "default", "name": "web", "kind": "Endpoints",
			"endpoints": object{"subsets": list[any](object{"addresses": list[any](object{"ip": "10.101.0.66"}),
				"ports": ports(80)})}},
		"status": object{"clusterStatuses": list[any](object{"clusterID": "east",
			"conditions": list[any](object{"type": "Succeeded", "status": "False", "message": g.text(pick(g, 10, 900_000))})})},
	}
	return g.write(a, imports, o, pick(g, verbs...), "")
}

func (g *generator) event(a *account) step {
	size := pick(g, 10, 1000, 1025, 900_000)
	where := pick(g, area, area, "default", "kube-system")
	o := object{
		"apiVersion": "v1", "kind": "Event", "metadata": object{"namespace": where, "name": fmt.Sprintf("event-%d", g.made)},
		"involvedObject": object{"kind": "ResourceImport", "namespace": where, "name": "default-web-service"},
		"reason":         "Forged", "message": g.text(size), "type": "Warning", "count": int64(1) << 30,
		"firstTimestamp": "1970-01-01T00:00:00Z", "lastTimestamp": "9999-12-31T23:59:59Z",
	}
	return g.write(a, resource("", "v1", "events"), o, pick(g, "create", "create", "update", "merge", "delete", "apply"),
		fmt.Sprintf("of %d letters", size))
}

func (g *generator) collection(a *account) step {
	gvr := pick(g, exports, announces, imports, sets, resource("", "v1", "events"))
	selector := pick(g, "", multicluster.LabelSourceClusterID+"=east", multicluster.LabelSourceClusterID+"="+a.id)
	return step{
		text: fmt.Sprintf("%s: delete all %s with labels %q", a.name, gvr.Resource, selector),
		do: func(ctx context.Context) error {
			return a.api.Resource(gvr).Namespace(area).DeleteCollection(ctx, metav1.DeleteOptions{},
				metav1.ListOptions{LabelSelector: selector})
		},
	}
}

// outside is what no member's Role allows.
func (g *generator) outside(a *account) step {
	type target struct {
		gvr       schema.GroupVersionResource
		kind      string
		name      string
		namespace string
	}
	t := pick(g,
		target{sets, "ClusterSet", clusterSet, area},
		target{resource("", "v1", "serviceaccounts"), "ServiceAccount", "member-east", area},
		target{resource("", "v1", "secrets"), "Secret", "token", area},
		target{resource("", "v1", "configmaps"), "ConfigMap", "antrea-mc-ca", area},
		target{resource("rbac.authorization.k8s.io", "v1", "roles"), "Role", multicluster.MemberRole, area},
		target{resource("rbac.authorization.k8s.io", "v1", "rolebindings"), "RoleBinding", a.name, area},
		target{resource("coordination.k8s.io", "v1", "leases"), "Lease", "antrea-mc-controller", area},
		target{resource("", "v1", "resourcequotas"), "ResourceQuota", "x", area},
		target{services, "Service", "antrea-mc-webhook-service", area},
		target{resource("apps", "v1", "deployments"), "Deployment", "antrea-mc-controller", area},
		target{exports, "ResourceExport", "x", "default"},
	)
	o := object{"apiVersion": t.gvr.GroupVersion().String(), "kind": t.kind,
		"metadata": object{"namespace": t.namespace, "name": t.name,
			"annotations": object{multicluster.AnnotationClusterID: a.id}}}
	return g.write(a, t.gvr, o, pick(g, "create", "update", "merge", "apply --force", "delete", "dry run"), "")
}

// write makes a step that writes an object with a verb.
func (g *generator) write(a *account, gvr schema.GroupVersionResource, o object, verb, spoilt string) step {
	meta := o["metadata"].(object)
	name, _ := meta["name"].(string)
	namespace, _ := meta["namespace"].(string)
	s := step{text: strings.TrimSpace(fmt.Sprintf("%s: %s %s %s/%s %s", a.name, verb, gvr.Resource, namespace, short(name),
		spoilt))}
	if spec, ok := o["spec"].(object); ok && gvr == exports {
		of := aim{fmt.Sprint(spec["namespace"]), fmt.Sprint(spec["name"])}
		s.aim = &of
	}
	if verb == "json" {
		s.text += " (patch)"
	}
	if strings.HasPrefix(verb, "status") {
		switch gvr {
		case exports:
			o["status"] = object{"conditions": list[any](object{"type": "Failure", "status": "False", "reason": "Forged",
				"message": g.text(pick(g, 10, 900_000))})}
		case announces:
			o["status"] = object{"x": "y"}
		}
	}
	operations := g.jsonPatch()
	s.do = func(ctx context.Context) error {
		api := a.api.Resource(gvr).Namespace(namespace)
		body, err := json.Marshal(o)
		if err != nil {
			return err
		}
		u := &unstructured.Unstructured{Object: o}
		const manager = "hostile"
		force := true
		switch verb {
		case "create":
			_, err = api.Create(ctx, u, metav1.CreateOptions{})
		case "dry run":
			_, err = api.Create(ctx, u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		case "update":
			return update(ctx, api, u, "")
		case "status":
			return update(ctx, api, u, "status")
		case "merge":
			_, err = api.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
		case "status merge":
			_, err = api.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{}, "status")
		case "json":
			_, err = api.Patch(ctx, name, types.JSONPatchType, operations, metav1.PatchOptions{})
		case "strategic":
			_, err = api.Patch(ctx, name, types.StrategicMergePatchType, body, metav1.PatchOptions{})
		case "apply":
			_, err = api.Patch(ctx, name, types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: manager})
		case "apply --force":
			_, err = api.Patch(ctx, name, types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: manager, Force: &force})
		case "delete":
			err = api.Delete(ctx, name, metav1.DeleteOptions{})
		default:
			err = errors.New("no such verb: " + verb)
		}
		return err
	}
	return s
}

// update replaces an object, or makes a missing one, as controllers do.
func update(ctx context.Context, api dynamic.ResourceInterface, u *unstructured.Unstructured,
	subresource string) error {
	have, err := api.Get(ctx, u.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) && subresource == "" {
		_, err := api.Create(ctx, u, metav1.CreateOptions{})
		return err
	}
	if err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	if err == nil && u.GetResourceVersion() == "" {
		u.SetResourceVersion(have.GetResourceVersion())
	}
	if subresource != "" {
		_, err = api.Update(ctx, u, metav1.UpdateOptions{}, subresource)
	} else {
		_, err = api.Update(ctx, u, metav1.UpdateOptions{})
	}
	return err
}

// jsonPatch is a patch in operations that mean something for many objects.
func (g *generator) jsonPatch() []byte {
	operations := []string{
		`{"op":"remove","path":"/metadata/finalizers"}`,
		`{"op":"remove","path":"/metadata/labels"}`,
		`{"op":"remove","path":"/spec"}`,
		`{"op":"replace","path":"/spec/clusterID","value":"east"}`,
		`{"op":"replace","path":"/clusterID","value":"east"}`,
		`{"op":"replace","path":"/spec/kind","value":"ClusterInfo"}`,
		`{"op":"add","path":"/metadata/finalizers/-","value":"example.com/for-ever"}`,
		`{"op":"replace","path":"/metadata/name","value":"other"}`,
		`{"op":"add","path":"/metadata/annotations",` +
			`"value":{"multicluster.antrea.io/announced-by":"member-east","touch-ts":"9999-12-31T23:59:59Z"}}`,
		`{"op":"replace","path":"/spec/endpoints/subsets/0/addresses/0/ip","value":"127.0.0.1"}`,
		`{"op":"copy","from":"/spec","path":"/status"}`,
		`{"op":"test","path":"/metadata/name","value":"x"}`,
	}
	return []byte("[" + strings.Join(
		slices.Sorted(slices.Values([]string{pick(g, operations...), pick(g, operations...)})), ",") + "]")
}
