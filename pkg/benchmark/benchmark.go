// Package benchmark measures throughput, round trips and new connections of Pods, between two Nodes of a cluster and
// between clusters. Each figure is compared with a reference that the same run measures. Temporary Pods run `tombolo
// probe`.
package benchmark

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	"github.com/tombolo-net/tombolo/pkg/benchmark/plan"
	"github.com/tombolo-net/tombolo/pkg/multicluster/verify/pods"
	"github.com/tombolo-net/tombolo/pkg/multicluster/verify/probe"
)

// LabelRefused on a Namespace, on a Node or, for the cluster, on the Namespace kube-system refuses benchmarks there.
const LabelRefused = "tombolo.io/no-benchmark"

// labelEnforced on a Namespace that the command tombolo benchmark makes with --hosts lets Pods use the network of their
// Nodes. Kubernetes reads it.
const labelEnforced = "pod-security.kubernetes.io/enforce"

// label marks the objects of benchmarks.
const label = "tombolo-benchmark"

// Bounds of a run.
const (
	Rounds    = 5
	LeastEach = 200 * time.Millisecond // that a figure is measured
	// margin is how much longer than its limits a Pod may exist, if the command was killed.
	margin = 5 * time.Minute
	// cleanLimit is how long objects may take to be gone.
	cleanLimit = time.Minute
)

// Cluster is a cluster to measure.
type Cluster struct {
	Name   string // as the user names it
	Client client.Client
}

// Options of a run.
type Options struct {
	Namespace   string // in all clusters; it is made, and removed, where it is missing
	Image       string // of the Pods; the agents' if empty
	Nodes       []string
	Hosts       bool // measure between hosts, too: with Pods in the network of their Nodes
	HostPort    int
	Time        time.Duration // of all loads together
	Rate        int64         // the most bits a second
	Connections int           // the most new ones a second
	Wait        time.Duration // for each Pod, import and first answer
	Progress    func(string)
}

// Report is the result of a run.
type Report struct {
	Clusters []string `json:"clusters"`
	Rounds   int      `json:"rounds"`
	// EachSeconds is how long each figure was measured in a round.
	EachSeconds float64  `json:"eachSeconds"`
	Rate        int64    `json:"rate"`
	Connections int      `json:"connections"`
	Rows        []Row    `json:"rows"`
	Warnings    []string `json:"warnings,omitempty"`
}

// run is one benchmark.
type run struct {
	Options
	suffix string // of the names of its objects
	sites  []*site
	each   time.Duration
}

// site is a cluster with what the run has chosen and made there.
type site struct {
	Cluster
	client, server corev1.Node // server is client if there is no second Node
	image          string
	made           bool // the Namespace
	near, far      string
}

// Run measures. At the end it removes the objects that it has made, even if ctx ends. If it returns an error, the
// report has the results up to then.
func Run(ctx context.Context, clusters []Cluster, o Options) (report Report, err error) {
	r := &run{Options: o, suffix: strings.ToLower(rand.Text()[:6])}
	for _, c := range clusters {
		r.sites = append(r.sites, &site{Cluster: c})
	}
	if err := r.all(func(s *site) error { return r.look(ctx, s) }); err != nil {
		return Report{}, err
	}
	if r.each, err = r.share(); err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, r.cleanUp(ctx)) }()
	if err := r.all(func(s *site) error { return r.servers(ctx, s) }); err != nil {
		return Report{}, err
	}
	report = Report{Rounds: Rounds, EachSeconds: r.each.Seconds(), Rate: o.Rate, Connections: o.Connections}
	defer func() { compare(report.Rows) }()
	for _, s := range r.sites {
		report.Clusters = append(report.Clusters, s.Name)
		for _, hosts := range []bool{false, true} {
			rows, warnings, err := r.measure(ctx, s, hosts)
			if err != nil {
				return report, err
			}
			report.Rows = append(report.Rows, rows...)
			report.Warnings = append(report.Warnings, warnings...)
		}
	}
	if !slices.ContainsFunc(report.Rows, func(r Row) bool { return len(r.Figures) > 0 }) {
		return report, errors.New("no way answers: see the warnings, and `tombolo diagnose`")
	}
	return report, nil
}

// all calls f for all sites at the same time.
func (r *run) all(f func(*site) error) error {
	failures := make([]error, len(r.sites))
	var all sync.WaitGroup
	for i, s := range r.sites {
		all.Go(func() { failures[i] = f(s) })
	}
	all.Wait()
	return errors.Join(failures...)
}

func (r *run) progress(format string, args ...any) {
	if r.Progress != nil {
		r.Progress(fmt.Sprintf(format, args...))
	}
}

// look reads the facts that the run needs about a cluster. It refuses a cluster or a Namespace with the label
// LabelRefused. It makes nothing.
func (r *run) look(ctx context.Context, s *site) error {
	for _, name := range []string{metav1.NamespaceSystem, r.Namespace} {
		var n corev1.Namespace
		err := s.Client.Get(ctx, client.ObjectKey{Name: name}, &n)
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return fmt.Errorf("read Namespace %s of %s: %w; the user needs the verb get for it", name, s.Name, err)
		case has(n.Labels):
			return fmt.Errorf("namespace %s of %s has the label %s: benchmarks are refused there", name, s.Name, LabelRefused)
		case n.DeletionTimestamp != nil:
			return fmt.Errorf("namespace %s of %s is being deleted: wait, or name another with --namespace", name, s.Name)
		}
	}
	for kind, list := range map[string]client.ObjectList{"Pods": &corev1.PodList{}, "Services": &corev1.ServiceList{},
		"ServiceExports": &mcsv1alpha1.ServiceExportList{}} {
		err := s.Client.List(ctx, list, client.InNamespace(r.Namespace), client.MatchingLabels{"app": label})
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) { // the cluster does not have the kind
			continue
		}
		if err != nil {
			return fmt.Errorf("list %s of Namespace %s of %s: %w; the user needs the verb list for them", kind, r.Namespace,
				s.Name, err)
		}
		if meta.LenList(list) > 0 {
			return fmt.Errorf("a benchmark runs in Namespace %s of %s, or was killed: there are %s of it; wait, or remove it "+
				"with `kubectl delete pods,services,serviceexports -n %s -l app=%s`", r.Namespace, s.Name, kind, r.Namespace, label)
		}
	}
	var nodes corev1.NodeList
	if err := s.Client.List(ctx, &nodes); err != nil {
		return fmt.Errorf("list Nodes of %s: %w; the user needs the verb list for them", s.Name, err)
	}
	usable, err := choose(nodes.Items, r.Nodes)
	if err != nil {
		return fmt.Errorf("cluster %s: %w", s.Name, err)
	}
	s.client, s.server = usable[0], usable[min(1, len(usable)-1)]
	if r.Hosts && addressOf(s.server) == "" {
		return fmt.Errorf("node %s of %s has no InternalIP in status.addresses, at which its server would listen: set "+
			"--node-ip of its kubelet, name other Nodes with --node, or leave out --hosts", s.server.Name, s.Name)
	}
	s.image = r.Image
	if s.image == "" {
		if s.image, err = pods.AgentImage(ctx, s.Client); err != nil {
			return fmt.Errorf("cluster %s: %w; name an image that has the program tombolo with --image", s.Name, err)
		}
	}
	if s.image == "" {
		return fmt.Errorf("%s has no DaemonSet tombolo-agent: name an image that has the program tombolo with --image",
			s.Name)
	}
	return nil
}

// has reports whether labels refuse benchmarks.
func has(labels map[string]string) bool {
	value, found := labels[LabelRefused]
	return found && value != "false"
}

// choose returns the Nodes that Pods of a benchmark may use. If the user names Nodes, it returns only these. Gateways
// come last, since they carry the traffic of others.
func choose(nodes []corev1.Node, only []string) ([]corev1.Node, error) {
	var out []corev1.Node
	var why []string
	for _, n := range nodes {
		ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		named := slices.Contains(only, n.Name)
		taint := slices.IndexFunc(n.Spec.Taints, func(t corev1.Taint) bool {
			return t.Effect != corev1.TaintEffectPreferNoSchedule
		})
		switch {
		case len(only) > 0 && !named:
		case has(n.Labels):
			why = append(why, n.Name+" has the label "+LabelRefused)
		case !ready:
			why = append(why, n.Name+" is not Ready")
		case n.Spec.Unschedulable:
			why = append(why, n.Name+" is cordoned")
		case taint >= 0:
			why = append(why, n.Name+" has the taint "+n.Spec.Taints[taint].Key)
		default:
			out = append(out, n)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no Node is usable: %s", cmp.Or(strings.Join(why, ", "), "--node names none of them"))
	}
	gateway := func(n corev1.Node) int {
		if n.Annotations[multicluster.AnnotationGateway] == "true" {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(out, func(a, b corev1.Node) int {
		return cmp.Or(cmp.Compare(gateway(a), gateway(b)), cmp.Compare(a.Name, b.Name))
	})
	return out, nil
}

// share divides the time of the run between all measurements.
func (r *run) share() (time.Duration, error) {
	targets := 0
	for _, s := range r.sites {
		targets += len(r.targets(s, false)) + len(r.targets(s, true))
	}
	loads := targets * Rounds * plan.Loads
	each := r.Time / time.Duration(loads)
	if each < LeastEach {
		return 0, fmt.Errorf("--time %s is %s for each of %d measurements: set it to %s at least, or name fewer clusters",
			r.Time, each.Round(time.Millisecond), loads, (LeastEach * time.Duration(loads)).Round(time.Second))
	}
	return each, nil
}

// target is a way to measure.
type target struct {
	way  string
	to   *site
	node string // of the server
	name string // of the server
}

// targets are the ways that a client of a cluster measures: of Pods, or of hosts.
func (r *run) targets(s *site, hosts bool) (out []target) {
	if hosts && !r.Hosts {
		return nil
	}
	near, other, far := SameNode, OtherNode, OtherCluster
	if hosts {
		near, other, far = "", HostsNode, HostsCluster
	}
	if near != "" {
		out = append(out, target{near, s, s.client.Name, r.name("near")})
	}
	if s.server.Name != s.client.Name {
		out = append(out, target{other, s, s.server.Name, r.name("far")})
	}
	for _, to := range r.sites {
		if to != s {
			out = append(out, target{far, to, to.server.Name, r.name("far")})
		}
	}
	if hosts {
		for i := range out {
			out[i].name = r.name("host")
		}
	}
	return out
}

// name returns the name of an object of this run.
func (r *run) name(role string) string { return "benchmark-" + role + "-" + r.suffix }

// service returns the name of the exported Service of a cluster.
func (r *run) service(s *site) string {
	return "benchmark-" + strconv.Itoa(slices.Index(r.sites, s)) + "-" + r.suffix
}

func (r *run) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: r.Namespace, Name: name, Labels: map[string]string{"app": label, "run": r.suffix}}
}

// create makes an object.
func (r *run) create(ctx context.Context, s *site, o client.Object) error {
	err := s.Client.Create(ctx, o)
	kind := fmt.Sprintf("%T", o)
	kind = kind[strings.LastIndex(kind, ".")+1:]
	switch {
	case err == nil:
		return nil
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "PodSecurity"):
		return fmt.Errorf("create %s %s in %s: %w; --hosts needs a Namespace that admits Pods in the host's network", kind,
			o.GetName(), s.Name, err)
	}
	return fmt.Errorf("create %s %s in %s: %w; the user needs the verbs create, get and delete for Pods, Services and "+
		"ServiceExports in Namespace %s, and for the Namespace if it does not exist", kind, o.GetName(), s.Name, err,
		r.Namespace)
}

// servers makes the Namespace and the servers of a cluster, and waits for them.
func (r *run) servers(ctx context.Context, s *site) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.Namespace,
		Labels: map[string]string{"app": label}}}
	if r.Hosts {
		namespace.Labels[labelEnforced] = "privileged"
	}
	var there corev1.Namespace
	err := s.Client.Get(ctx, client.ObjectKey{Name: r.Namespace}, &there)
	switch {
	case err == nil:
		s.made = there.Labels["app"] == label // by an earlier run that was killed
	case apierrors.IsNotFound(err):
		if err = r.create(ctx, s, namespace); err == nil {
			s.made = true
		} else if !apierrors.IsAlreadyExists(err) {
			return err
		}
	default:
		return fmt.Errorf("read Namespace %s of %s: %w", r.Namespace, s.Name, err)
	}
	servers := map[string]pods.Pod{"near": {Node: s.client.Name}, "far": {Node: s.server.Name}}
	if r.Hosts {
		servers["host"] = pods.Pod{Node: s.server.Name, HostNetwork: true,
			Args: []string{"--address", net.JoinHostPort(addressOf(s.server), strconv.Itoa(r.HostPort))}}
	}
	var waits []*corev1.Pod
	for role, p := range servers {
		p.ObjectMeta, p.Image, p.Deadline = r.meta(r.name(role)), s.image, r.Time+r.Wait*time.Duration(4*len(r.sites))+margin
		p.Labels["server"] = role
		p.Args = append([]string{"serve", "--name", p.Name, "--rate", strconv.FormatInt(r.Rate, 10), "--no-udp"}, p.Args...)
		pod := p.Object()
		if err := r.create(ctx, s, pod); err != nil {
			return err
		}
		waits = append(waits, pod)
	}
	if len(r.sites) > 1 {
		if err := r.export(ctx, s); err != nil {
			return err
		}
	}
	for _, pod := range waits {
		if err := pods.Await(ctx, s.Client, pod, r.Wait, pods.Serving); err != nil {
			return fmt.Errorf("pod %s in %s: %w; Pods of image %s have to be able to run on Node %s", pod.Name, s.Name, err,
				s.image, servers[pod.Labels["server"]].Node)
		}
		switch pod.Labels["server"] {
		case "near":
			s.near = pod.Status.PodIP
		case "far":
			s.far = pod.Status.PodIP
		}
	}
	return nil
}

// addressOf returns the internal address of a Node.
func addressOf(n corev1.Node) string {
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}

// export offers the server on the second Node to the other clusters.
func (r *run) export(ctx context.Context, s *site) error {
	service := &corev1.Service{ObjectMeta: r.meta(r.service(s)), Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": label, "run": r.suffix, "server": "far"},
		Ports: []corev1.ServicePort{{Name: "http", Port: probe.Port, TargetPort: intstr.FromInt32(probe.Port),
			Protocol: corev1.ProtocolTCP}}}}
	return errors.Join(r.create(ctx, s, service),
		r.create(ctx, s, &mcsv1alpha1.ServiceExport{ObjectMeta: r.meta(r.service(s))}))
}

// imported waits until a cluster has the Service of another one, and returns its address there.
func (r *run) imported(ctx context.Context, at, from *site) (string, error) {
	service := &corev1.Service{}
	key := client.ObjectKey{Namespace: r.Namespace, Name: multicluster.ImportedPrefix + r.service(from)}
	err := pods.Until(ctx, r.Wait, func(ctx context.Context) (bool, error) {
		err := at.Client.Get(ctx, key, service)
		return err == nil && service.Spec.ClusterIP != "", client.IgnoreNotFound(err)
	})
	if err != nil {
		return "", fmt.Errorf("service %s of %s is not imported in %s: %w; are both in one ClusterSet? see `tombolo "+
			"diagnose`", key.Name, from.Name, at.Name, err)
	}
	return service.Spec.ClusterIP, nil
}

// address returns where a client of a cluster reaches a target.
func (r *run) address(ctx context.Context, at *site, t target) (string, error) {
	port := probe.Port
	var host string
	var err error
	switch t.way {
	case SameNode:
		host = at.near
	case OtherNode:
		host = at.far
	case OtherCluster:
		host, err = r.imported(ctx, at, t.to)
	default:
		host, port = addressOf(t.to.server), r.HostPort
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), err
}

// measure runs the client of a cluster and returns its rows.
func (r *run) measure(ctx context.Context, s *site, hosts bool) (rows []Row, warnings []string, _ error) {
	targets := r.targets(s, hosts)
	if len(targets) == 0 {
		return nil, nil, nil
	}
	p := plan.Plan{Rounds: Rounds, Each: r.each, Rate: r.Rate, Connections: r.Connections, Wait: r.Wait}
	faults := map[target]string{}
	for _, t := range targets {
		address, err := r.address(ctx, s, t)
		switch {
		case ctx.Err() != nil:
			return nil, nil, err
		case err != nil:
			faults[t] = err.Error()
		default:
			p.Targets = append(p.Targets, plan.Target{Address: address, Name: t.name})
		}
	}
	where := s.Name + "/" + s.client.Name
	var measured []plan.Measured
	if len(p.Targets) > 0 {
		var err error
		if measured, err = r.load(ctx, s, hosts, p); err != nil {
			return nil, nil, err
		}
	}
	for _, t := range targets {
		m := plan.Measured{Fault: faults[t]}
		if m.Fault == "" {
			m, measured = measured[0], measured[1:]
		}
		row, more := rowOf(Row{From: where, To: t.to.Name + "/" + t.node, Way: t.way}, m, r.Options)
		rows, warnings = append(rows, row), append(warnings, more...)
	}
	return rows, warnings, nil
}

// load runs a plan in a Pod of the client's Node, and returns the result of each target.
func (r *run) load(ctx context.Context, s *site, hosts bool, p plan.Plan) (measured []plan.Measured, _ error) {
	work := r.each * time.Duration(len(p.Targets)*Rounds*plan.Loads)
	r.progress("%s/%s measures %d ways for %s", s.Name, s.client.Name, len(p.Targets), work.Round(time.Second))
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	name := r.name("client")
	if hosts {
		name = r.name("host-client")
	}
	// Loads take longer than their time if machines are slow, so the limit is generous.
	limit := 2*work + r.Wait*time.Duration(1+len(p.Targets)) + time.Minute
	pod := pods.Pod{ObjectMeta: r.meta(name), Image: s.image, Args: []string{"load", string(text)}, Node: s.client.Name,
		HostNetwork: hosts, Deadline: limit + margin}.Object()
	if err := r.create(ctx, s, pod); err != nil {
		return nil, err
	}
	if err := pods.Await(ctx, s.Client, pod, limit, pods.Ended); err != nil {
		return nil, fmt.Errorf("pod %s in %s: %w", name, s.Name, err)
	}
	answer := pods.Message(pod)
	if err := json.Unmarshal([]byte(answer), &measured); err != nil || len(measured) != len(p.Targets) ||
		slices.ContainsFunc(measured, func(m plan.Measured) bool { return m.Fault == "" && len(m.Rounds) != Rounds }) {
		return nil, fmt.Errorf("the result of Pod %s in %s cannot be read: its termination message is %q; use the "+
			"`tombolo` of the version that the agents' image has, or give --image one of this version", name, s.Name, answer)
	}
	return measured, nil
}

// cleanUp removes the run's objects, and waits until they are gone. It continues if a request fails.
func (r *run) cleanUp(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	return r.all(func(s *site) error {
		err := pods.Until(ctx, cleanLimit, func(ctx context.Context) (bool, error) { return r.remove(ctx, s) })
		if err != nil {
			return fmt.Errorf("remove the benchmark from Namespace %s of %s: %w; remove it with `kubectl delete "+
				"pods,services,serviceexports -n %s -l app=%s`", r.Namespace, s.Name, err, r.Namespace, label)
		}
		return nil
	})
}

// remove deletes the run's objects, and reports whether all are gone. It tries all of them before it returns an error.
// If one error may pass, it returns that one, so that the caller tries again.
func (r *run) remove(ctx context.Context, s *site) (gone bool, _ error) {
	var passing, lasting error
	gone = true
	remove := func(o client.Object, options ...client.DeleteOption) {
		err := s.Client.Delete(ctx, o, options...)
		switch {
		case err == nil:
			gone = false
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		case pods.MayPass(err):
			passing = err
		default:
			lasting = errors.Join(lasting, err)
		}
	}
	for _, role := range []string{"near", "far", "host", "client", "host-client"} {
		remove(&corev1.Pod{ObjectMeta: r.meta(r.name(role))}, &client.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	}
	if len(r.sites) > 1 {
		remove(&mcsv1alpha1.ServiceExport{ObjectMeta: r.meta(r.service(s))})
		remove(&corev1.Service{ObjectMeta: r.meta(r.service(s))})
	}
	if s.made {
		remove(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.Namespace}})
	}
	switch {
	case passing != nil:
		return false, passing
	case !gone:
		return false, nil
	}
	return true, lasting
}
