package follow

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/observe/hops"
)

// Question is a connection whose first packet is followed.
type Question struct {
	From, To       string // namespace/name of a Pod or a Service, node/NAME, or an address
	Port, Protocol string
	Family         string // empty for each that both ends have
	// FromCluster and ToCluster name the clusters of the ends, by context or ID. If FromCluster is empty, it is the
	// cluster that has the Pod. If ToCluster is empty, it is the client's cluster.
	FromCluster, ToCluster string
	Endpoint               string // Pod or address that a Service has to choose
	Node                   string // where packets of an address outside of the clusters come in
	// SrcPort and TTL are values of a packet that is sent. 0 stands for a random port, and for a TTL of 64. The identifier
	// of an echo request is its SrcPort.
	SrcPort uint16
	TTL     uint8
	// TCPFlags are of a TCP packet that is sent; 0 for SYN.
	TCPFlags uint8
	// Traceflow has errors name the fields of a Traceflow, and not flags.
	Traceflow bool
}

// part is how errors name a part of the question: a flag, or a field of a Traceflow.
func (q Question) part(flag string) string {
	switch field := map[string]string{"from": "source", "to": "destination", "protocol": "packet"}[flag]; {
	case q.Traceflow && field != "":
		return "spec." + field
	case q.Traceflow:
		return "spec"
	}
	return "--" + flag
}

// Answer has a path for each version of IP that is followed.
type Answer struct {
	Paths []hops.Path `json:"paths"`
	// Networks are the decisions of networks of tenants.
	Networks []string `json:"networks,omitempty"`
}

// Follow follows the first packet of a connection. Nothing is sent.
func Follow(ctx context.Context, all []Cluster, q Question) (Answer, error) {
	clusters, err := open(ctx, all)
	if err != nil {
		return Answer{}, err
	}
	f := follower{clusters: clusters, q: q}
	in, node, err := f.client(ctx)
	if err != nil {
		return Answer{}, err
	}
	query, err := f.query(ctx, in)
	if err != nil {
		return Answer{}, err
	}
	list, err := in.Ask(ctx, node, query)
	if err != nil {
		return Answer{}, err
	}
	var known []hops.Cluster
	for _, c := range clusters {
		known = append(known, c)
	}
	out := Answer{Networks: list.Networks}
	for _, first := range list.Hops {
		out.Paths = append(out.Paths, hops.Follow(ctx, known, in, first, query.Get("endpoint")))
	}
	return out, nil
}

// follower answers a question.
type follower struct {
	clusters []*cluster
	q        Question
}

// called returns the cluster with a context's name or an ID.
func (f *follower) called(flag, name string) (*cluster, error) {
	var known []string
	for _, c := range f.clusters {
		if c.Cluster.Name == name || c.id == name && name != "" {
			return c, nil
		}
		known = append(known, c.Cluster.Name)
		if c.id != "" && c.id != c.Cluster.Name {
			known = append(known, c.id)
		}
	}
	return nil, fmt.Errorf("--%s %s: it is none of the clusters that are asked, which are %s: add its context to "+
		"--context",
		flag, name, strings.Join(known, ", "))
}

// client returns the Node whose switch the client's packets come into.
func (f *follower) client(ctx context.Context) (*cluster, string, error) {
	clusters := f.clusters
	if f.q.FromCluster != "" {
		c, err := f.called("from-cluster", f.q.FromCluster)
		if err != nil {
			return nil, "", err
		}
		clusters = []*cluster{c}
	}
	if f.q.Node != "" {
		return f.atNode(ctx, clusters, f.q.Node, "--node")
	}
	if node, ok := strings.CutPrefix(f.q.From, "node/"); ok {
		return f.atNode(ctx, clusters, node, "--from")
	}
	var found *cluster
	from, node := f.q.part("from"), ""
	for _, c := range clusters {
		p, err := c.pod(ctx, f.q.From)
		switch {
		case err != nil:
			return nil, "", fmt.Errorf("%s: %w", from, err)
		case p == nil:
			continue
		case found != nil:
			return nil, "", fmt.Errorf("%s %s: clusters %s and %s have such a Pod: choose one with --from-cluster", from,
				f.q.From, found.Cluster.Name, c.Cluster.Name)
		case p.Spec.HostNetwork:
			return nil, "", fmt.Errorf("%s %s: the Pod uses the network of its host: give node/%s", from, f.q.From,
				p.Spec.NodeName)
		case p.Spec.NodeName == "" || p.Status.PodIP == "":
			return nil, "", fmt.Errorf("%s %s: the Pod has no Node and no address yet: wait until it runs", from, f.q.From)
		}
		found, node = c, p.Spec.NodeName
	}
	if found != nil {
		return found, node, nil
	}
	if _, err := netip.ParseAddr(f.q.From); err == nil {
		if node, ok := strings.CutPrefix(f.q.To, "node/"); ok { // a node port: its packets come to that Node
			return f.atNode(ctx, clusters, node, f.q.part("to"))
		}
		return nil, "", fmt.Errorf("%s %s: no Pod has this address: give the Node that its packets come to with %s", from,
			f.q.From, f.q.part("node"))
	}
	return nil, "", fmt.Errorf("%s %s: there is no such Pod%s", from, f.q.From, near(ctx, clusters, f.q.From))
}

// near suggests names of the first cluster.
func near(ctx context.Context, clusters []*cluster, text string) string {
	namespace, name, err := split(text)
	if err != nil || len(clusters) == 0 {
		return ""
	}
	return clusters[0].near(ctx, namespace, name)
}

// atNode returns the cluster that has a Node.
func (f *follower) atNode(ctx context.Context, clusters []*cluster, node, flag string) (*cluster, string, error) {
	var found *cluster
	for _, c := range clusters {
		ok, err := c.get(ctx, &corev1.Node{}, "", node)
		switch {
		case err != nil:
			return nil, "", err
		case ok && found != nil:
			return nil, "", fmt.Errorf("%s: clusters %s and %s have a Node %s: choose one with --from-cluster", flag,
				found.Cluster.Name, c.Cluster.Name, node)
		case ok:
			found = c
		}
	}
	if found == nil {
		return nil, "", fmt.Errorf("%s: no cluster has a Node %s: `kubectl get nodes` lists them", flag, node)
	}
	return found, node, nil
}

// split returns Namespace and name of a Pod or a Service. The VirtualNetwork of a further interface may follow the
// name, after an @.
func split(text string) (namespace, name string, err error) {
	for _, kind := range []string{"pod/", "service/"} {
		text = strings.TrimPrefix(text, kind)
	}
	namespace, name, ok := strings.Cut(text, "/")
	name, _, _ = strings.Cut(name, "@")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("%q is neither namespace/name nor an address", text)
	}
	return namespace, name, nil
}

// pod returns the Pod with a name or an address, nil if it does not exist.
func (c *cluster) pod(ctx context.Context, text string) (*corev1.Pod, error) {
	if _, err := netip.ParseAddr(text); err == nil {
		return c.podAt(ctx, text)
	}
	namespace, name, err := split(text)
	if err != nil {
		return nil, err
	}
	var p corev1.Pod
	ok, err := c.get(ctx, &p, namespace, name)
	if err != nil || !ok {
		return nil, err
	}
	return &p, nil
}

// query returns the question for the agent of the client's Node.
func (f *follower) query(ctx context.Context, in *cluster) (url.Values, error) {
	query := url.Values{}
	query.Set("from", f.q.From)
	for name, value := range map[string]string{"port": f.q.Port, "protocol": f.q.Protocol, "family": f.q.Family} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if err := f.server(ctx, in, query); err != nil {
		return nil, fmt.Errorf("%s %s: %w", f.q.part("to"), f.q.To, err)
	}
	endpoint, err := f.endpoint(ctx)
	if err != nil {
		return nil, fmt.Errorf("--endpoint %s: %w", f.q.Endpoint, err)
	}
	if endpoint != "" {
		query.Set("endpoint", endpoint)
	}
	return query, nil
}

// server sets the destination. A Pod of another cluster is named by its address.
func (f *follower) server(ctx context.Context, in *cluster, query url.Values) error {
	query.Set("to", f.q.To)
	namespace, name, err := split(f.q.To)
	if _, is := netip.ParseAddr(f.q.To); is == nil || strings.HasPrefix(f.q.To, "node/") {
		return nil
	}
	if err != nil {
		return err
	}
	others := f.clusters
	if f.q.ToCluster != "" {
		c, err := f.called("to-cluster", f.q.ToCluster)
		if err != nil {
			return err
		}
		others = []*cluster{c}
	}
	if f.q.ToCluster == "" || others[0] == in {
		for _, object := range []string{name, imported + name} {
			known, err := in.has(ctx, namespace, object, f.q.To)
			if known && object != name {
				query.Set("to", "service/"+namespace+"/"+object)
			}
			if known || err != nil {
				return err
			}
		}
	}
	for _, c := range others {
		if c == in {
			continue
		}
		if p, err := c.pod(ctx, f.q.To); err != nil {
			return err
		} else if p != nil && strings.Contains(f.q.To, "@") {
			return fmt.Errorf("the Pod is in cluster %s, and VirtualNetworks are in one cluster: give the Pod without its "+
				"network", c.Cluster.Name)
		} else if p != nil && !strings.HasPrefix(f.q.To, "service/") {
			ip, err := addressOf(p, f.q.Family)
			query.Set("to", ip)
			return err
		}
		if f.q.ToCluster != "" { // an imported Service
			query.Set("cluster", c.id)
			return f.imports(ctx, in, c, namespace, name)
		}
	}
	if f.q.ToCluster == "" {
		others = []*cluster{in}
	}
	return errors.New("there is no such Pod and no such Service" + near(ctx, others, f.q.To))
}

// imported begins the names of Services that stand for Services of the ClusterSet.
const imported = "antrea-mc-"

// imports returns an error if the client's cluster does not import a Service.
func (f *follower) imports(ctx context.Context, in, from *cluster, namespace, name string) error {
	if ok, err := in.get(ctx, &corev1.Service{}, namespace, imported+name); ok || err != nil {
		return err
	}
	if ok, err := from.get(ctx, &corev1.Service{}, namespace, name); !ok || err != nil {
		if err == nil {
			err = fmt.Errorf("cluster %s has no such Pod and no such Service%s", from.Cluster.Name, from.near(ctx, namespace,
				name))
		}
		return err
	}
	return fmt.Errorf("cluster %s has no Service %s/antrea-mc-%s: export the Service in %s, see `kubectl get "+
		"serviceexport -n "+
		"%s` there", in.Cluster.Name, namespace, name, from.Cluster.Name, namespace)
}

// has reports whether the cluster has a Pod or a Service.
func (c *cluster) has(ctx context.Context, namespace, name, text string) (bool, error) {
	if !strings.HasPrefix(text, "service/") {
		if ok, err := c.get(ctx, &corev1.Pod{}, namespace, name); ok || err != nil {
			return ok, err
		}
	}
	if strings.HasPrefix(text, "pod/") {
		return false, nil
	}
	return c.get(ctx, &corev1.Service{}, namespace, name)
}

// addressOf returns an address of a Pod, of a version of IP if one is asked for.
func addressOf(p *corev1.Pod, family string) (string, error) {
	for _, a := range p.Status.PodIPs {
		ip, err := netip.ParseAddr(a.IP)
		if err == nil && (family == "" || strings.EqualFold(family, "ipv6") == ip.Is6()) {
			return ip.String(), nil
		}
	}
	return "", fmt.Errorf("the Pod %s/%s has no address of the version of IP that is asked for: wait until it runs, or "+
		"give "+
		"another --family", p.Namespace, p.Name)
}

// endpoint returns the address of the endpoint that a Service has to choose.
func (f *follower) endpoint(ctx context.Context) (string, error) {
	if f.q.Endpoint == "" {
		return "", nil
	}
	if ip, err := netip.ParseAddr(f.q.Endpoint); err == nil {
		return ip.String(), nil
	}
	for _, c := range f.clusters {
		p, err := c.pod(ctx, f.q.Endpoint)
		if err != nil {
			return "", err
		}
		if p != nil {
			return addressOf(p, f.q.Family)
		}
	}
	return "", errors.New("there is no such Pod" + near(ctx, f.clusters, f.q.Endpoint))
}
