package verify

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	"github.com/tombolo-net/tombolo/pkg/multicluster/setup"
	"github.com/tombolo-net/tombolo/pkg/multicluster/verify/pods"
	"github.com/tombolo-net/tombolo/pkg/multicluster/verify/probe"
)

// Scheme has the kinds that a verification reads and makes.
func Scheme() *runtime.Scheme {
	s := setup.Scheme()
	utilruntime.Must(mcsv1alpha1.Install(s))
	return s
}

// Cluster is a member to check.
type Cluster struct {
	Name   string // as the user names it
	Client client.Client
}

// Options of a run.
type Options struct {
	Namespace string        // of the members' controllers
	Image     string        // of the probes; that of the agents when empty
	Limit     time.Duration // for each thing that the clusters need time for
	// Disruptive restarts the switch of a Gateway of each cluster, to check that the other Gateways continue.
	Disruptive bool
	// Only lists names of checks, as in Kinds. If it is empty, all checks run. A failed check that is not listed is
	// reported if a listed one depends on it.
	Only   []string
	Report func(Result) // called with each result at once; may be nil
	// Agent reads the settings of agents from the text of antrea-agent.conf.
	Agent func(text []byte) (Agent, error)
}

// Results of a check.
const (
	Pass = "pass"
	Fail = "fail"
	Skip = "skip"
)

// Result is one check.
type Result struct {
	Check   string  `json:"check"`
	Status  string  `json:"status"`
	Detail  string  `json:"detail"`
	Remedy  string  `json:"remedy,omitempty"`
	Seconds float64 `json:"seconds"`
}

// run is one verification.
type run struct {
	Options
	clusters [2]Cluster
	states   [2]state
	name     string // of the temporary Namespace in both
	results  results
}

// results are the results of checks so far.
type results struct {
	list   []Result
	report func(Result)               // gets each of them; nil for no report
	wants  func(kinds ...string) bool // which checks are reported if they do not fail; nil for all
}

// Run checks two members. It removes the objects that it made, even if ctx ends. Its error names objects that it could
// not remove.
func Run(ctx context.Context, a, b Cluster, o Options) ([]Result, error) {
	r := &run{Options: o, clusters: [2]Cluster{a, b}, name: "tombolo-verify-" + strings.ToLower(rand.Text()[:8])}
	r.results = results{report: o.Report, wants: o.wants}
	if !r.objects(ctx) || !r.wants(packetKinds()...) {
		return r.results.list, nil
	}
	r.packets(ctx)
	return r.results.list, r.cleanUp(ctx)
}

// check runs one check and reports how it went.
func (r *results) check(name string, f func() (string, error)) {
	r.done(name, timed(f))
}

// outcome is how a check went.
type outcome struct {
	detail string
	err    error
	took   time.Duration
}

func timed(f func() (string, error)) outcome {
	start := time.Now()
	detail, err := f()
	return outcome{detail, err, time.Since(start)}
}

// both runs the same for each of the two at once.
func both(f func(i int) outcome) (results [2]outcome) {
	var all sync.WaitGroup
	for i := range results {
		all.Go(func() { results[i] = f(i) })
	}
	all.Wait()
	return results
}

func (r *results) done(name string, o outcome) bool {
	result := Result{Check: name, Status: Pass, Detail: o.detail, Seconds: o.took.Seconds()}
	err := o.err
	if err != nil {
		result.Status, result.Detail, result.Remedy = Fail, err.Error(), remedyOf(err)
	}
	r.add(result)
	return err == nil
}

func (r *results) skip(name, why string) { r.add(Result{Check: name, Status: Skip, Detail: why}) }

func (r *results) add(result Result) {
	if result.Status != Fail && r.wants != nil && !r.wants(kindOf(result.Check)) {
		return
	}
	r.list = append(r.list, result)
	if r.report != nil {
		r.report(result)
	}
}

// way names what goes from one of the two to the other.
func (r *run) way(name string, from int) string {
	return name + " " + r.clusters[from].Name + " to " + r.clusters[1-from].Name
}

// objects checks what the API servers say; without that packets need not be tried.
func (r *run) objects(ctx context.Context) bool {
	checks := r.settled(ctx)
	good := true
	for _, c := range checks {
		good = r.results.done(c.name, c.outcome) && good
	}
	if !good {
		if len(checks) > len(r.clusters) { // both API servers answered
			r.results.skip("packets", "not tried: mend the above first")
		}
		return false
	}
	if !r.wants(kindWays) {
		return true
	}
	for from, o := range both(func(from int) outcome {
		return timed(func() (string, error) { return r.ways(ctx, from) })
	}) {
		r.results.done(r.way("ways", from), o)
	}
	return true
}

// named is a check and how it went.
type named struct {
	name string
	outcome
}

// passes returns whether some checks fail, all of them for reasons that pass with time.
func passes(checks []named) bool {
	some := false
	for _, c := range checks {
		var w *wrong
		switch {
		case c.err == nil:
		case errors.As(c.err, &w) && w.passes:
			some = true
		default:
			return false
		}
	}
	return some
}

// settled reads the objects until all checks pass, the limit has passed, or a check fails that needs an action. A
// member that has just joined gets time, and so does one whose leader was slow to answer.
func (r *run) settled(ctx context.Context) []named {
	checks := r.look(ctx)
	for end := time.Now().Add(r.Limit); time.Now().Before(end) && passes(checks); checks = r.look(ctx) {
		select {
		case <-ctx.Done():
			return checks
		case <-time.After(time.Second):
		}
	}
	return checks
}

// look reads the objects of both clusters and checks them. After a failed check it leaves out the checks that depend on
// it.
func (r *run) look(ctx context.Context) []named {
	var all []named
	good := true
	check := func(name string, f func() (string, error)) {
		o := timed(f)
		all = append(all, named{name, o})
		good = good && o.err == nil
	}
	for i, c := range r.clusters {
		check("API server "+c.Name, func() (string, error) {
			var err error
			if r.states[i], err = read(ctx, c, r.Options); err != nil {
				return "", &wrong{what: err.Error(),
					remedy: "is it the right kubeconfig or context, and is the cluster a member? (tombolo mc deploy membercluster)"}
			}
			return "answers", nil
		})
	}
	if !good {
		return all
	}
	a, b := r.states[0], r.states[1]
	for _, s := range r.states {
		check("member "+s.Name, s.member)
	}
	if good {
		check("ClusterSet", func() (string, error) { return together(a, b) })
	}
	for _, s := range r.states {
		check("gateways "+s.Name, s.gateways)
	}
	if !good {
		return all
	}
	for i, s := range r.states {
		check("import "+s.Name, func() (string, error) { return s.knows(r.states[1-i]) })
	}
	return all
}

// packets sends some both ways.
func (r *run) packets(ctx context.Context) {
	var servers [2][]netip.Addr
	running := true
	for i, o := range both(func(i int) outcome {
		return timed(func() (string, error) {
			var err error
			servers[i], err = r.server(ctx, i)
			return "Pod " + r.name + "/server runs", err
		})
	}) {
		running = r.results.done("probe "+r.clusters[i].Name, o) && running
	}
	if !running || !r.wants(kindServices, kindMTU, kindPods, kindFailover, kindPolicy) {
		return
	}
	noPods, noPolicies := podToPod(r.states[0], r.states[1]), stretched(r.states[0], r.states[1])
	var services [2][]netip.Addr
	var questions [2][]probe.Question
	var answers [2][]probe.Answer
	for from, o := range both(func(from int) outcome {
		return timed(func() (string, error) {
			var err error
			if services[from], err = r.imported(ctx, from, versions(servers)); err != nil {
				return "", err
			}
			for _, a := range services[from] {
				if !r.wants(kindServices, kindMTU) {
					break
				}
				questions[from] = append(questions[from],
					probe.Question{Name: over("Services", a), Address: endpoint(a), Want: service(1 - from), MTU: true})
			}
			for _, a := range servers[1-from] {
				if noPods == "" && r.wants(kindPods) && slices.ContainsFunc(services[from], sameVersion(a)) {
					questions[from] = append(questions[from],
						probe.Question{Name: over("Pods", a), Address: endpoint(a), Want: service(1 - from)})
				}
			}
			if len(questions[from]) > 0 {
				answers[from], err = r.ask(ctx, from, "client", questions[from])
			}
			return "", err
		})
	}) {
		if o.err != nil {
			r.results.done(r.way("Services", from), o)
			continue
		}
		for i, a := range answers[from] {
			o.detail, o.err = r.judge(from, a)
			if r.results.done(r.way(a.Name, from), o) && questions[from][i].MTU && r.wants(kindMTU) {
				name := strings.Replace(a.Name, "Services", "MTU", 1)
				r.results.check(r.way(name, from), func() (string, error) { return size(a) })
			}
		}
	}
	if noPods != "" {
		r.results.skip("Pods", noPods)
	}
	if r.Disruptive && r.wants(kindFailover) {
		r.failovers(ctx, services)
	}
	if !r.wants(kindPolicy) {
		return
	}
	if noPolicies != "" {
		r.results.skip("policy", noPolicies)
		return
	}
	if len(services[0]) == 0 || len(services[1]) == 0 {
		r.results.skip("policy", "not tried: mend the above first")
		return
	}
	for from, o := range both(func(from int) outcome {
		return timed(func() (string, error) { return r.policy(ctx, from, services[from]) })
	}) {
		r.results.done(r.way("policy", from), o)
	}
}

func endpoint(a netip.Addr) string { return netip.AddrPortFrom(a, probe.Port).String() }

// over returns the name of a check, with the version of IP where that is not IPv4.
func over(check string, a netip.Addr) string {
	if a.Is4() {
		return check
	}
	return check + " over IPv6"
}

// sameVersion returns whether addresses have the version of IP of a.
func sameVersion(a netip.Addr) func(netip.Addr) bool {
	return func(b netip.Addr) bool { return a.Is4() == b.Is4() }
}

// parsed returns addresses of an object, IPv4 first. It leaves out texts that are no addresses.
func parsed(addresses []string) []netip.Addr {
	var all []netip.Addr
	for _, text := range addresses {
		if a, err := netip.ParseAddr(text); err == nil {
			all = append(all, a)
		}
	}
	slices.SortStableFunc(all, netip.Addr.Compare)
	return all
}

// service is the name of the Service of one of the two, and of its server.
func service(i int) string { return "verify-" + string(rune('a'+i)) }

// tunnelPorts are what firewalls have to let through, by default.
const tunnelPorts = "UDP 6081 for geneve, 4789 for vxlan, 51821 and 51822 for WireGuard; GRE is IP protocol 47"

// judge describes the result of requests.
func (r *run) judge(from int, a probe.Answer) (string, error) {
	remedy := fmt.Sprintf(
		"let tunnels through between the Gateways %s and %s (%s); `tombolo get peers` on their Nodes shows the ways, "+
			"`tombolo get status` what is wrong",
		strings.Join(r.states[from].addresses(), ", "), strings.Join(r.states[1-from].addresses(), ", "), tunnelPorts)
	switch {
	case a.Answered == 0:
		return "", &wrong{what: "no answer: " + a.Error, remedy: remedy}
	case a.Failed > 0:
		return "", &wrong{what: fmt.Sprintf("%d of %d requests failed, the last: %s", a.Failed, a.Failed+a.Answered, a.Error),
			remedy: remedy}
	}
	return fmt.Sprintf("%d answers, the first after %s, slowest of the others %s, client seen as %s", a.Answered,
		a.First.Round(time.Millisecond), a.Slowest.Round(time.Millisecond), a.Client), nil
}

// size describes the result of large packets.
func size(a probe.Answer) (string, error) {
	const remedy = "set defaultMTU of the agents to what the network between the clusters carries less the tunnel's " +
		"header, or raise the MTU of that network"
	switch {
	case a.BulkError != "":
		return "", &wrong{
			what: fmt.Sprintf(
				"small requests pass and a large one does not: %s; the largest packet that passes has %d of %d bytes", a.BulkError,
				a.Largest, a.LinkMTU), remedy: remedy}
	case a.Largest < a.LinkMTU:
		return "", &wrong{what: fmt.Sprintf("the largest packet that passes has %d bytes, Pods send up to %d", a.Largest,
			a.LinkMTU), remedy: remedy}
	}
	return fmt.Sprintf("packets of %d bytes pass unfragmented, the Pods' MTU, and 1 MiB each way", a.Largest), nil
}

// server runs a server, exports its Service, and returns the Pod's addresses.
func (r *run) server(ctx context.Context, i int) ([]netip.Addr, error) {
	c := r.clusters[i].Client
	for _, made := range []struct {
		kind   string
		object client.Object
	}{
		{"Namespace", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.name,
			Labels: map[string]string{"app": "tombolo-verify"}}}},
		{"Service", &corev1.Service{ObjectMeta: r.meta(service(i)), Spec: corev1.ServiceSpec{
			IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyPreferDualStack),
			Selector:       map[string]string{"app": "tombolo-verify-server"},
			Ports: []corev1.ServicePort{
				{Name: "http", Port: probe.Port, TargetPort: intstr.FromInt32(probe.Port), Protocol: corev1.ProtocolTCP},
				{Name: "datagrams", Port: probe.Port, TargetPort: intstr.FromInt32(probe.Port), Protocol: corev1.ProtocolUDP},
			},
		}}},
		{"ServiceExport", &mcsv1alpha1.ServiceExport{ObjectMeta: r.meta(service(i))}},
	} {
		if err := c.Create(ctx, made.object); err != nil {
			return nil, r.notMade(i, made.kind, made.object.GetName(), err)
		}
	}
	pod, err := r.pod(ctx, i, "server", []string{"serve", "--name", service(i)}, pods.Serving)
	if err != nil {
		return nil, err
	}
	var addresses []string
	for _, a := range pod.Status.PodIPs {
		addresses = append(addresses, a.IP)
	}
	return parsed(addresses), nil
}

// notMade is the error of an object that an API server did not create.
func (r *run) notMade(i int, kind, name string, err error) error {
	remedy := ""
	switch {
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		remedy = "use a kubeconfig that may create Namespaces, Pods, Services, ServiceExports and policies there"
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		remedy = "the definitions of the cluster are incomplete: apply tombolo-crds.yml, and the member's manifest " +
			"(tombolo mc deploy membercluster)"
	}
	return &wrong{what: fmt.Sprintf("create %s %s in %s: %v", kind, name, r.clusters[i].Name, err), remedy: remedy}
}

func (r *run) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: r.name, Name: name}
}

// pod runs `tombolo probe` in a Pod and waits until it is as wanted.
func (r *run) pod(ctx context.Context, i int, name string, args []string, wanted func(*corev1.Pod) bool) (*corev1.Pod,
	error) {
	image := r.Image
	if image == "" {
		image = r.states[i].Image
	}
	if image == "" {
		return nil, wrongf("name one with --image: it has to have the program tombolo",
			"%s has no DaemonSet tombolo-agent, whose image the probes use", r.clusters[i].Name)
	}
	role, _, _ := strings.Cut(name, "-")
	meta := r.meta(name)
	meta.Labels = map[string]string{"app": "tombolo-verify-" + role}
	pod := pods.Pod{ObjectMeta: meta, Image: image, Args: args}.Object()
	c := r.clusters[i].Client
	if err := c.Create(ctx, pod); err != nil {
		return nil, r.notMade(i, "Pod", r.name+"/"+name, err)
	}
	err := pods.Await(ctx, c, pod, r.Limit, wanted)
	var failed *pods.Failed
	if errors.As(err, &failed) {
		return nil, &wrong{
			what:   fmt.Sprintf("Pod %s in %s: %v", name, r.clusters[i].Name, err),
			remedy: "Pods of image " + image + " have to be able to run there; name another with --image",
		}
	}
	if err != nil {
		return nil, err
	}
	return pod, nil
}

// wait waits until something is so, up to the limit.
func (r *run) wait(ctx context.Context, f func(context.Context) (bool, error)) error {
	return pods.Until(ctx, r.Limit, f)
}

// versions returns how many versions of IP the servers of both clusters have.
func versions(servers [2][]netip.Addr) (n int) {
	for _, a := range servers[0] {
		if slices.ContainsFunc(servers[1], sameVersion(a)) {
			n++
		}
	}
	return n
}

// versionsWait is how long an imported Service may lack an address of a version of IP that both clusters have. Its
// endpoints of one version arrive before the others.
const versionsWait = 10 * time.Second

// imported waits until one of the two clusters has imported the other's Service, and a short time until it has
// addresses of so many versions of IP. It returns the Service's addresses in the importing cluster.
func (r *run) imported(ctx context.Context, at, versions int) ([]netip.Addr, error) {
	from := 1 - at
	imported := &corev1.Service{ObjectMeta: r.meta(multicluster.ImportedPrefix + service(from))}
	has := func(addresses int) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			err := r.clusters[at].Client.Get(ctx, client.ObjectKeyFromObject(imported), imported)
			return err == nil && len(imported.Spec.ClusterIPs) >= addresses, client.IgnoreNotFound(err)
		}
	}
	err := r.wait(ctx, has(1))
	if err == nil {
		short, cancel := context.WithTimeout(ctx, versionsWait)
		defer cancel()
		_ = r.wait(short, has(versions)) // the cluster may serve Services of one version
		return parsed(imported.Spec.ClusterIPs), ctx.Err()
	}
	if ctx.Err() != nil {
		return nil, err
	}
	why := "its ServiceExport has no condition: does its controller run?"
	export := &mcsv1alpha1.ServiceExport{ObjectMeta: r.meta(service(from))}
	if err := r.clusters[from].Client.Get(context.WithoutCancel(ctx), client.ObjectKeyFromObject(export),
		export); err == nil {
		for _, c := range export.Status.Conditions {
			why = fmt.Sprintf("its ServiceExport has %s=%s: %s %s", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	return nil, &wrong{
		what: fmt.Sprintf("Service %s of %s is not imported in %s: %v; %s", service(from), r.clusters[from].Name,
			r.clusters[at].Name, err, why),
		remedy: "see `tombolo mc get resourceexport` and `resourceimport` in the leader, and the log of " +
			"antrea-mc-controller in both",
	}
}

// ask runs a client and returns what it found.
func (r *run) ask(ctx context.Context, at int, name string, questions []probe.Question) ([]probe.Answer, error) {
	text, err := json.Marshal(questions)
	if err != nil {
		return nil, err
	}
	limit := *r
	limit.Limit = 2*r.Limit + time.Minute // for a client's work in addition to waiting
	pod, err := limit.pod(ctx, at, name, []string{"ask", "--limit", r.Limit.String(), string(text)}, pods.Ended)
	if err != nil {
		return nil, err
	}
	answer := pods.Message(pod)
	var answers []probe.Answer
	if err := json.Unmarshal([]byte(answer), &answers); err != nil || len(answers) != len(questions) {
		return nil, wrongf("use the `tombolo` of the version that the agents' image has, or give --image one of this version",
			"the result of Pod %s/%s in %s cannot be read: its termination message is %q, expected %d answers", r.name, name,
			r.clusters[at].Name, answer, len(questions))
	}
	return answers, nil
}

// policy applies a policy to the server that drops a client's requests, over the two clusters. It expects that requests
// to each address of the server's Service are refused with the policy, and answered again without it.
func (r *run) policy(ctx context.Context, from int, addresses []netip.Addr) (string, error) {
	drop := &unstructured.Unstructured{}
	drop.SetGroupVersionKind(schema.GroupVersionKind{Group: "crd.antrea.io", Version: "v1beta1", Kind: "NetworkPolicy"})
	drop.SetNamespace(r.name)
	drop.SetName("verify")
	drop.Object["spec"] = map[string]any{
		"priority": int64(1), "tier": "application",
		"appliedTo": []any{map[string]any{"podSelector": map[string]any{}}},
		"ingress": []any{map[string]any{"action": "Drop", "from": []any{map[string]any{
			"scope": "ClusterSet", "podSelector": map[string]any{"matchLabels": map[string]any{"app": "tombolo-verify-client"}},
		}}}},
	}
	server := r.clusters[1-from].Client
	if err := server.Create(ctx, drop); err != nil {
		return "", r.notMade(1-from, "NetworkPolicy of crd.antrea.io", drop.GetName(), err)
	}
	const remedy = "see the status of policies and `tombolo policy why` on the server's Node; both controllers need " +
		"enableStretchedNetworkPolicy too"
	var took [2]time.Duration
	for i, refused := range []bool{true, false} {
		var questions []probe.Question
		for _, a := range addresses {
			questions = append(questions,
				probe.Question{Name: over("policy", a), Address: endpoint(a), Want: service(1 - from), Refused: refused})
		}
		answers, err := r.ask(ctx, from, fmt.Sprintf("client-policy-%d", i), questions)
		if err != nil {
			return "", err
		}
		for i, a := range answers {
			address := questions[i].Address
			if refused && a.Error != "" {
				return "", &wrong{what: "a policy with scope ClusterSet drops the client in " + r.clusters[from].Name +
					" that asks " + address + ", and yet " + a.Error, remedy: remedy}
			} else if !refused && a.Answered == 0 {
				return "", &wrong{what: "the policy is deleted, and yet " + address + " gives no answer: " + a.Error,
					remedy: remedy}
			}
		}
		took[i] = answers[0].First.Round(time.Millisecond)
		if refused {
			if err := server.Delete(ctx, drop); err != nil {
				return "", fmt.Errorf("delete the NetworkPolicy in %s: %w", r.clusters[1-from].Name, err)
			}
		}
	}
	return fmt.Sprintf("a client is dropped by its labels %s after its start, and answered again after %s", took[0],
		took[1]), nil
}

// cleanLimit is how long Namespaces may take to be gone.
const cleanLimit = time.Minute

// cleanUp deletes the Namespaces and waits until they are gone.
func (r *run) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanLimit)
	defer cancel()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.name}}
	var failed error
	for _, c := range r.clusters {
		if err := c.Client.Delete(ctx, namespace.DeepCopy()); client.IgnoreNotFound(err) != nil {
			failed = errors.Join(failed, fmt.Errorf("delete Namespace %s in %s: %w; delete it with kubectl", r.name,
				c.Name, err))
		}
	}
	for _, c := range r.clusters {
		err := wait.PollUntilContextCancel(ctx, 500*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			err := c.Client.Get(ctx, client.ObjectKeyFromObject(namespace), namespace.DeepCopy())
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("namespace %s in %s is not gone: %w; see `kubectl describe namespace`",
				r.name, c.Name, err))
		}
	}
	return failed
}
