package diagnose

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/util/cert"
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
)

// again is the time after which ways that are not up are read once more. BFD sends one packet a second on such ways.
const again = 2500 * time.Millisecond

// Gather reads the facts of clusters, all at the same time. If a fact cannot be read, the result has the reason
// instead. Nothing is written.
func Gather(ctx context.Context, clusters []*remote.Cluster) Facts {
	f := Facts{Clusters: make([]Cluster, len(clusters))}
	var all sync.WaitGroup
	for i, c := range clusters {
		all.Go(func() { f.Clusters[i] = gather(ctx, c) })
	}
	all.Wait()
	f.settle(ctx, clusters)
	return f
}

// settle reads EndpointSlices that look stale a second time. A member removes slices when their import is gone, and
// there is no time stamp of a removed import.
func (f *Facts) settle(ctx context.Context, clusters []*remote.Cluster) {
	stale := map[string]bool{}
	for _, k := range checks {
		if k.Code != codeStale {
			continue
		}
		for _, r := range k.run(f, limit) {
			stale[r.Cluster] = stale[r.Cluster] || r.Status == Fail
		}
	}
	if !slices.Contains(slices.Collect(maps.Values(stale)), true) {
		return
	}
	select {
	case <-time.After(again):
	case <-ctx.Done():
	}
	var all sync.WaitGroup
	for i, from := range clusters {
		if c := &f.Clusters[i]; stale[c.Name] {
			all.Go(func() { c.settle(ctx, from) })
		}
	}
	all.Wait()
}

// settle reads the EndpointSlices of imported Services again.
func (c *Cluster) settle(ctx context.Context, from *remote.Cluster) {
	ctx, cancel := context.WithTimeout(ctx, from.Timeout)
	defer cancel()
	var now discoveryv1.EndpointSliceList
	k, err := client.New(from.Config, client.Options{Scheme: scheme()})
	if err == nil {
		err = k.List(ctx, &now, ofImports)
	}
	if err != nil {
		c.Unread[ImportedSlices] = err.Error()
		return
	}
	c.ImportedSlices = staying(c.ImportedSlices, now.Items)
}

// staying returns what EndpointSlices have kept of their addresses.
func staying(before, now []discoveryv1.EndpointSlice) (out []discoveryv1.EndpointSlice) {
	for _, s := range before {
		i := slices.IndexFunc(now, func(n discoveryv1.EndpointSlice) bool {
			return n.Namespace == s.Namespace && n.Name == s.Name
		})
		if i < 0 {
			continue
		}
		kept := map[string]bool{}
		for _, e := range now[i].Endpoints {
			for _, a := range e.Addresses {
				kept[a] = true
			}
		}
		s.Endpoints = slices.Clone(s.Endpoints)
		for j, e := range s.Endpoints {
			s.Endpoints[j].Addresses = slices.DeleteFunc(slices.Clone(e.Addresses), func(a string) bool { return !kept[a] })
		}
		out = append(out, s)
	}
	return out
}

// ofImports selects the EndpointSlices of imported Services.
var ofImports = client.MatchingLabels{discoveryv1.LabelManagedBy: multicluster.EndpointSliceManager}

// scheme has the kinds that a diagnosis reads.
func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{admissionv1.AddToScheme, appsv1.AddToScheme,
		coordinationv1.AddToScheme, corev1.AddToScheme, discoveryv1.AddToScheme, mcv1alpha1.AddToScheme,
		mcv1alpha2.AddToScheme, mcsv1beta1.Install, crdv1alpha1.AddToScheme, crdv1beta1.AddToScheme, npv1alpha2.Install} {
		utilruntime.Must(add(s))
	}
	return s
}

// gather reads the facts of one cluster.
func gather(ctx context.Context, from *remote.Cluster) Cluster {
	c := Cluster{Name: from.Name, Unread: map[Kind]string{}, Absent: map[Kind]bool{}}
	if err := c.ping(ctx, from); err != nil {
		c.Fault = err.Error()
		return c
	}
	var both sync.WaitGroup
	both.Go(func() { c.agents(ctx, from) })
	c.objects(ctx, from)
	both.Wait()
	return c
}

// ping asks the API server for its version, and reads its clock.
func (c *Cluster) ping(ctx context.Context, from *remote.Cluster) error {
	v, err := from.Version(ctx)
	c.Version, c.Now, c.Ahead = v.Kubernetes, v.Now, v.Ahead
	return err
}

// objects lists the objects, all kinds at the same time.
func (c *Cluster) objects(ctx context.Context, from *remote.Cluster) {
	ctx, cancel := context.WithTimeout(ctx, from.Timeout)
	defer cancel()
	var (
		mu              sync.Mutex
		nodes           corev1.NodeList
		deployments     appsv1.DeploymentList
		daemonSets      appsv1.DaemonSetList
		leases          coordinationv1.LeaseList
		webhooks        admissionv1.ValidatingWebhookConfigurationList
		sets            mcv1alpha2.ClusterSetList
		gateways        mcv1alpha1.GatewayList
		infos           mcv1alpha1.ClusterInfoImportList
		exports         mcv1alpha1.ResourceExportList
		serviceExports  mcsv1beta1.ServiceExportList
		serviceImports  mcsv1beta1.ServiceImportList
		clusterPolicies crdv1beta1.ClusterNetworkPolicyList
		policies        crdv1beta1.NetworkPolicyList
		standard        npv1alpha2.ClusterNetworkPolicyList
		monitors        crdv1alpha1.NodeLatencyMonitorList
		resourceImports mcv1alpha1.ResourceImportList
		importedSlices  discoveryv1.EndpointSliceList
	)
	lists := map[Kind]client.ObjectList{Nodes: &nodes, Deployments: &deployments, DaemonSets: &daemonSets, Leases: &leases,
		Webhooks: &webhooks, ClusterSets: &sets, Gateways: &gateways, Infos: &infos,
		ResourceExports: &exports, ServiceExports: &serviceExports, ServiceImports: &serviceImports,
		ClusterPolicies: &clusterPolicies, Policies: &policies, StandardPolicies: &standard, Monitors: &monitors,
		ResourceImports: &resourceImports, ImportedSlices: &importedSlices}
	only := map[Kind][]client.ListOption{ImportedSlices: {ofImports}}
	k, err := client.New(from.Config, client.Options{Scheme: scheme()})
	if err != nil {
		for kind := range lists {
			c.Unread[kind] = err.Error()
		}
		return
	}
	var all sync.WaitGroup
	for kind, list := range lists {
		all.Go(func() {
			err := k.List(ctx, list, only[kind]...)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
				c.Absent[kind] = true
			case err != nil:
				c.Unread[kind] = err.Error()
			}
		})
	}
	all.Wait()
	c.Nodes, c.Deployments, c.DaemonSets, c.Leases = nodes.Items, deployments.Items, daemonSets.Items, leases.Items
	c.Webhooks, c.Sets, c.Gateways = webhooks.Items, sets.Items, gateways.Items
	c.Infos, c.ResourceExports = infos.Items, exports.Items
	c.ServiceExports, c.ServiceImports = serviceExports.Items, serviceImports.Items
	c.ClusterPolicies, c.Policies, c.StandardPolicies = clusterPolicies.Items, policies.Items, standard.Items
	c.Monitors = monitors.Items
	c.ResourceImports, c.ImportedSlices = resourceImports.Items, importedSlices.Items
	c.token(ctx, k)
	c.slices(ctx, k)
	listQuotas(ctx, k, c)
	resolveNames(ctx, from, k, c)
}

// listQuotas lists the ResourceQuotas of Common Areas.
func listQuotas(ctx context.Context, k client.Client, c *Cluster) {
	for _, area := range c.areas() {
		var list corev1.ResourceQuotaList
		if err := k.List(ctx, &list, client.InNamespace(area.Namespace)); err != nil {
			c.Unread[Quotas] = err.Error()
			return
		}
		c.Quotas = append(c.Quotas, list.Items...)
	}
}

// slices lists the EndpointSlices in Namespaces that export Services. A list of all would be too large in some
// clusters.
func (c *Cluster) slices(ctx context.Context, k client.Client) {
	namespaces := map[string]bool{}
	for _, e := range c.ServiceExports {
		namespaces[e.Namespace] = true
	}
	for namespace := range namespaces {
		var list discoveryv1.EndpointSliceList
		if err := k.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			c.Unread[EndpointSlices] = err.Error()
			return
		}
		c.EndpointSlices = append(c.EndpointSlices, list.Items...)
	}
}

// token reads the Secret of the member.
func (c *Cluster) token(ctx context.Context, k client.Client) {
	set := c.set()
	if set == nil || set.Spec.Leaders[0].Secret == "" {
		return
	}
	key := client.ObjectKey{Namespace: set.Namespace, Name: set.Spec.Leaders[0].Secret}
	var secret corev1.Secret
	switch err := k.Get(ctx, key, &secret); {
	case apierrors.IsNotFound(err):
		c.Token = &Token{Namespace: key.Namespace, Name: key.Name, Missing: true}
	case err != nil:
		c.Unread[Secrets] = err.Error()
	default:
		c.Token = tokenOf(&secret)
	}
}

// tokenOf returns the facts of a member's Secret, without its content.
func tokenOf(secret *corev1.Secret) *Token {
	t := &Token{Namespace: secret.Namespace, Name: secret.Name, Keys: slices.Sorted(maps.Keys(secret.Data))}
	if list, err := cert.ParseCertsPEM(secret.Data["ca.crt"]); err == nil {
		t.CAEnds = list[0].NotAfter
		for _, ca := range list { // the API server's certificate is signed by one of them
			if ca.NotAfter.After(t.CAEnds) {
				t.CAEnds = ca.NotAfter
			}
		}
	}
	var err error
	t.Subject, t.Expires, err = claims(string(secret.Data["token"]))
	if err != nil {
		t.Malformed = err.Error()
	}
	return t
}

// claims returns the ServiceAccount of a token, and the time at which the token expires. The errors contain nothing of
// the token.
func claims(token string) (subject string, expires time.Time, _ error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", expires, errors.New("it is no ServiceAccount's token: such a token has three parts")
	}
	body, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", expires, errors.New("it is no ServiceAccount's token: its second part is not base64")
	}
	var c struct {
		Sub string `json:"sub"`
		Exp int64  `json:"exp"`
	}
	if json.Unmarshal(body, &c) != nil || c.Sub == "" {
		return "", expires, errors.New("it is no ServiceAccount's token: it does not name an account")
	}
	if c.Exp > 0 {
		expires = time.Unix(c.Exp, 0)
	}
	return c.Sub, expires, nil
}

// agents asks the agents of all Nodes.
func (c *Cluster) agents(ctx context.Context, from *remote.Cluster) {
	found, err := from.Agents(ctx)
	if err != nil {
		c.AgentsFault = err.Error()
		return
	}
	c.Agents = make([]Agent, len(found))
	var all sync.WaitGroup
	for i, a := range found {
		all.Go(func() { c.Agents[i] = askAgent(ctx, a, c.Name) })
	}
	all.Wait()
	for _, a := range c.Agents {
		if a.Pod != nil && strings.Contains(strings.ToLower(a.Fault), "forbidden") { // a right is missing, no agent
			c.AgentsFault = "the agents may not be asked: " + a.Fault
		}
	}
}

// asker answers for paths, as a remote.Agent does.
type asker interface {
	Ask(ctx context.Context, path string, query url.Values) ([]byte, error)
}

// askAgent asks one agent of a cluster.
func askAgent(ctx context.Context, from remote.Agent, cluster string) Agent {
	a := Agent{Node: from.Node, Pod: from.Pod}
	if from.Pod == nil || from.Pod.Status.Phase != corev1.PodRunning {
		a.Fault = "no Pod of tombolo-agent runs there"
		return a
	}
	a.ask(ctx, from)
	for _, text := range []*string{&a.Fault, &a.UpcallsFault, &a.PortsFault} {
		*text = strings.TrimPrefix(*text, fmt.Sprintf("cluster %s: Node %s: ", cluster, a.Node))
	}
	return a
}

// ask asks the agent, and asks a second time for what may be over after a moment.
func (a *Agent) ask(ctx context.Context, from asker) {
	peers := func() ([]api.Peer, error) {
		var list api.PeerList
		err := answer(ctx, from, api.PathPeers, &list)
		return list.Peers, err
	}
	var status api.Status
	err := answer(ctx, from, api.PathStatus, &status)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil { // a busy machine
		err = answer(ctx, from, api.PathStatus, &status)
	}
	if err == nil {
		a.Status, a.Upcalls = &status, status.Upcalls
		a.Peers, err = peers()
		var probes api.Probes
		asked := time.Now()
		if answer(ctx, from, api.PathProbes, &probes) == nil { // older versions do not know the path
			a.Probes = &probes
			a.Took = time.Since(asked)
			a.Ahead = probes.At.Sub(asked.Add(a.Took / 2))
		}
	}
	if err != nil {
		a.Fault = err.Error()
		a.PortsFault = "its agent does not answer"
		return
	}
	a.BadPorts, err = badPorts(ctx, from)
	if err != nil {
		a.PortsFault = err.Error()
	}
	notUp := slices.ContainsFunc(a.Peers, func(p api.Peer) bool {
		return slices.ContainsFunc(p.Ways, func(w api.Way) bool { return w.State != "" && w.State != up })
	})
	lost := status.Upcalls != nil && status.Upcalls.Lost > 0
	moment := !status.Ready || !status.OpenFlow.Connected || len(status.OpenFlow.Refused) > 0
	if !notUp && !lost && !moment && len(a.BadPorts) == 0 {
		return
	}
	select {
	case <-time.After(again):
	case <-ctx.Done():
	}
	// Without an answer the first one counts.
	if notUp {
		a.Later, _ = peers()
	}
	if lost || moment {
		var later api.Status
		switch err := answer(ctx, from, api.PathStatus, &later); {
		case err != nil:
			a.UpcallsFault = err.Error()
		case moment:
			a.Status = &later
			fallthrough
		default:
			a.UpcallsLater = later.Upcalls
		}
	}
	if len(a.BadPorts) > 0 {
		now, err := badPorts(ctx, from)
		if err != nil {
			a.BadPorts, a.PortsFault = nil, err.Error()
			return
		}
		a.BadPorts = slices.DeleteFunc(a.BadPorts, func(p api.Port) bool {
			return !slices.ContainsFunc(now, func(q api.Port) bool { return q.Name == p.Name })
		})
	}
}

// badPorts returns the ports that the switch of an agent cannot use.
func badPorts(ctx context.Context, from asker) ([]api.Port, error) {
	var list api.PortList
	if err := answer(ctx, from, api.PathPorts, &list); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Ports, func(p api.Port) bool { return p.Error == "" }), nil
}

// answer asks an agent for a path, and decodes the answer.
func answer(ctx context.Context, from asker, path string, to any) error {
	body, err := from.Ask(ctx, path, nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, to); err != nil {
		return fmt.Errorf("understand the agent's answer for %s: %w; are this command and the agent of one version?", path,
			err)
	}
	return nil
}
