// Package follow follows a packet through the switches of Nodes, across clusters. It reaches their agents in the way
// that its caller provides: through API servers (cli/remote), or on their connections to the relay (observe/relay).
package follow

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// Agents asks the agents of a cluster's Nodes. The paths are of package observe/api.
type Agents interface {
	// Nodes returns the names of the Nodes that may be asked.
	Nodes(ctx context.Context) ([]string, error)
	// Ask returns an agent's answer.
	Ask(ctx context.Context, node, path string, query url.Values) ([]byte, error)
	// Stream copies an agent's answer to w, until the answer or ctx ends.
	Stream(ctx context.Context, node, path string, query url.Values, w io.Writer) error
}

// ErrNotConnected is in errors of Agents about a Node that can possibly be asked elsewhere, or later.
var ErrNotConnected = errors.New("the Node is not connected")

// ErrRefused is wrapped by errors of Agents about a question that the agent has refused.
var ErrRefused = errors.New("the agent refuses")

// Cluster is a cluster whose Nodes are asked.
type Cluster struct {
	Name    string        // for answers and errors; its ID in the ClusterSet if empty
	Objects client.Reader // of kinds of Scheme
	Agents  Agents
	Timeout time.Duration // of a request to the API server, and until an agent watches a packet
}

// Scheme has the kinds that are read.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, mcv1alpha1.AddToScheme, mcv1alpha2.AddToScheme} {
		utilruntime.Must(add(s))
	}
	return s
}

// cluster is a cluster with its part in the ClusterSet.
type cluster struct {
	Cluster
	id       string
	gateways []mcv1alpha1.Gateway
}

// open reads the parts of clusters in their ClusterSet.
func open(ctx context.Context, all []Cluster) ([]*cluster, error) {
	var out []*cluster
	for _, r := range all {
		c := &cluster{Cluster: r}
		if err := c.read(ctx); err != nil {
			return nil, err
		}
		c.Cluster.Name = cmp.Or(c.Cluster.Name, c.id, "local")
		out = append(out, c)
	}
	return out, nil
}

// list lists objects within the time limit.
func (c *cluster) list(ctx context.Context, what string, list client.ObjectList, o ...client.ListOption) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if err := c.Objects.List(ctx, list, o...); err != nil {
		return fmt.Errorf("cluster %s: list %s: %w; is the API server up, and may this user do it?", c.Cluster.Name, what,
			err)
	}
	return nil
}

// read reads the cluster's ID and Gateways. A cluster without the kinds is in no ClusterSet.
func (c *cluster) read(ctx context.Context) error {
	var sets mcv1alpha2.ClusterSetList
	var gateways mcv1alpha1.GatewayList
	absent := func(err error) bool { return meta.IsNoMatchError(unwrapped(err)) || apierrors.IsNotFound(err) }
	if err := c.list(ctx, "ClusterSets", &sets); err != nil && !absent(err) {
		return err
	}
	if err := c.list(ctx, "Gateways", &gateways); err != nil && !absent(err) {
		return err
	}
	c.gateways = gateways.Items
	for _, s := range sets.Items {
		if len(s.Spec.Leaders) > 0 && s.Spec.Leaders[0].Server != "" { // a leader has a second one in its Common Area
			c.id = s.Spec.ClusterID
		}
	}
	return nil
}

// unwrapped returns the error within an error of list.
func unwrapped(err error) error {
	for {
		inner, ok := err.(interface{ Unwrap() error })
		if !ok || meta.IsNoMatchError(err) {
			return err
		}
		err = inner.Unwrap()
	}
}

// Name and ID are for hops.Cluster.
func (c *cluster) Name() string { return c.Cluster.Name }

// ID returns the cluster's ID in its ClusterSet, empty if it is no member.
func (c *cluster) ID() string { return c.id }

// Ask asks the agent of a Node for the path of a packet through its switch.
func (c *cluster) Ask(ctx context.Context, node string, query url.Values) (list api.HopList, err error) {
	answer, err := c.Agents.Ask(ctx, node, api.PathHop, query)
	if err != nil {
		return list, err
	}
	if err := json.Unmarshal(answer, &list); err != nil {
		return list, fmt.Errorf("cluster %s: Node %s: understand the agent's answer: %w; are this command and the agent "+
			"of one "+
			"version?", c.Cluster.Name, node, err)
	}
	return list, nil
}

// GatewayNode returns the Node of the Gateway with an address. If the cluster has only one Gateway, it returns that one
// for any address, since other clusters may use the address of a NAT.
func (c *cluster) GatewayNode(address string) (string, error) {
	var known []string
	for _, g := range c.gateways {
		if g.GatewayIP == address || g.InternalIP == address {
			return g.Name, nil
		}
		known = append(known, g.Name+" "+g.GatewayIP)
	}
	switch len(known) {
	case 0:
		return "", fmt.Errorf("it goes to Gateway %s of cluster %s, which has no Gateway any more: look at `kubectl get "+
			"gateway "+
			"-A` there", address, c.id)
	case 1:
		return c.gateways[0].Name, nil
	}
	return "", fmt.Errorf("it goes to Gateway %s of cluster %s, which has no Gateway with this address; it has %s",
		address,
		c.id, strings.Join(known, ", "))
}

// podAt returns the Pod with an address. Pods of the hosts' network have the addresses of hosts, and are left out.
func (c *cluster) podAt(ctx context.Context, ip string) (*corev1.Pod, error) {
	var list corev1.PodList
	if err := c.list(ctx, "Pods", &list, client.MatchingFields{"status.podIP": ip}); err != nil {
		return nil, err
	}
	for i, p := range list.Items {
		if !p.Spec.HostNetwork && p.Status.Phase == corev1.PodRunning {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}

// get reads an object. If it does not exist, ok is false.
func (c *cluster) get(ctx context.Context, object client.Object, namespace, name string) (ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	err = c.Objects.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("cluster %s: read %s/%s: %w; is the API server up, and may this user do it?",
			c.Cluster.Name, namespace, name, err)
	}
	return true, nil
}

// maxNear is how many names an error suggests.
const maxNear = 3

// near returns the names of Pods and Services of a Namespace that are the most similar to a name.
func (c *cluster) near(ctx context.Context, namespace, name string) string {
	var pods corev1.PodList
	var services corev1.ServiceList
	if c.list(ctx, "Pods", &pods, client.InNamespace(namespace)) != nil ||
		c.list(ctx, "Services", &services, client.InNamespace(namespace)) != nil {
		return ""
	}
	var all []string
	for _, p := range pods.Items {
		all = append(all, p.Name)
	}
	for _, s := range services.Items {
		all = append(all, s.Name)
	}
	if len(all) == 0 {
		return fmt.Sprintf("; Namespace %s of cluster %s has no Pods and no Services", namespace, c.Cluster.Name)
	}
	slices.SortStableFunc(all, func(x, y string) int { return distance(name, x) - distance(name, y) })
	all = slices.Compact(all)
	for i, other := range all {
		all[i] = namespace + "/" + other
	}
	return "; did you mean " + strings.Join(all[:min(maxNear, len(all))], " or ") + "?"
}

// distance is how many letters two names do not have in common at their beginning.
func distance(x, y string) int {
	common := 0
	for common < min(len(x), len(y)) && x[common] == y[common] {
		common++
	}
	return len(x) + len(y) - 2*common
}
