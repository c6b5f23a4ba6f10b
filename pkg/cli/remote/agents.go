package remote

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"
)

// AgentLabels select the Pods of agents.
const AgentLabels = "app=tombolo,component=tombolo-agent"

// container is the agent's container in its Pod.
const container = "tombolo-agent"

// Agent is the agent of a Node.
type Agent struct {
	Node string
	Pod  *corev1.Pod // nil if the Node has no agent

	cluster *Cluster
}

// Agents returns an Agent for each Node, by name. For a Node without an agent, the result has no Pod.
func (c *Cluster) Agents(ctx context.Context) ([]Agent, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	core, err := c.core()
	if err != nil {
		return nil, c.failed("list Nodes", err)
	}
	nodes, err := core.Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, c.failed("list Nodes", err)
	}
	pods, err := agentPods(ctx, core, "")
	if err != nil {
		return nil, c.failed("list the Pods of agents", err)
	}
	var all []Agent
	for _, node := range nodes.Items {
		if len(c.Only) == 0 || slices.Contains(c.Only, node.Name) {
			all = append(all, Agent{Node: node.Name, Pod: pods[node.Name], cluster: c})
		}
	}
	for _, name := range c.Only {
		if c.several {
			break // the Node may be of another cluster
		}
		if !slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return n.Name == name }) {
			return nil, fmt.Errorf("cluster %s has no Node %s; it has %s", c.Name, name, names(nodes.Items))
		}
	}
	slices.SortFunc(all, func(a, b Agent) int { return cmp.Compare(a.Node, b.Node) })
	return all, nil
}

// names returns the names of the first Nodes.
func names(nodes []corev1.Node) string {
	const most = 10
	var all []string
	for _, n := range nodes {
		all = append(all, n.Name)
	}
	slices.Sort(all)
	if len(all) > most {
		return fmt.Sprintf("%s and %d more", join(all[:most]), len(all)-most)
	}
	return join(all)
}

// agentPods returns the Pods of agents by Node: of one Node, or of all Nodes if node is empty. If a Node has several,
// it returns the newest that is not being deleted.
func agentPods(ctx context.Context, core corev1client.CoreV1Interface, node string) (map[string]*corev1.Pod, error) {
	o := metav1.ListOptions{LabelSelector: AgentLabels}
	if node != "" {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
	}
	list, err := core.Pods("").List(ctx, o)
	if err != nil {
		return nil, err
	}
	pods := map[string]*corev1.Pod{}
	for i := range list.Items {
		p := &list.Items[i]
		if old := pods[p.Spec.NodeName]; p.Spec.NodeName != "" && (old == nil || newer(p, old)) {
			pods[p.Spec.NodeName] = p
		}
	}
	return pods, nil
}

// newer reports whether p takes the place of old.
func newer(p, old *corev1.Pod) bool {
	if ends, oldEnds := p.DeletionTimestamp != nil, old.DeletionTimestamp != nil; ends != oldEnds {
		return oldEnds
	}
	return old.CreationTimestamp.Before(&p.CreationTimestamp)
}

// NodeOf returns the Node of a Pod, namespace/name, or "" if there is no such Pod.
func (c *Cluster) NodeOf(ctx context.Context, pod string) string {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	namespace, name, ok := strings.Cut(pod, "/")
	core, err := c.core()
	if !ok || err != nil {
		return ""
	}
	found, err := core.Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return found.Spec.NodeName
}

// Ask asks the agent of a Node for a path of its debug API, such as api.PathStatus, and returns the answer.
func (c *Cluster) Ask(ctx context.Context, node, path string, query url.Values) ([]byte, error) {
	a, err := c.agent(ctx, node)
	if err != nil {
		return nil, err
	}
	return a.Ask(ctx, path, query)
}

// Stream copies the answer of the agent of a Node to w, until the answer or ctx ends.
func (c *Cluster) Stream(ctx context.Context, node, path string, query url.Values, w io.Writer) error {
	a, err := c.agent(ctx, node)
	if err != nil {
		return err
	}
	return a.Stream(ctx, path, query, w)
}

// agent finds the agent of a Node.
func (c *Cluster) agent(ctx context.Context, node string) (Agent, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	doing := "find the agent of Node " + node
	core, err := c.core()
	if err != nil {
		return Agent{}, c.failed(doing, err)
	}
	pods, err := agentPods(ctx, core, node)
	if err != nil {
		return Agent{}, c.failed(doing, err)
	}
	return Agent{Node: node, Pod: pods[node], cluster: c}, nil
}

// Ask asks the agent for a path of its debug API, and returns the answer. It waits while too many other requests are
// open in the agent's cluster.
func (a Agent) Ask(ctx context.Context, path string, query url.Values) ([]byte, error) {
	select {
	case a.cluster.slots <- struct{}{}:
		defer func() { <-a.cluster.slots }()
	case <-ctx.Done():
		return nil, a.failed(path, ctx.Err())
	}
	ctx, cancel := context.WithTimeout(ctx, a.cluster.Timeout)
	defer cancel()
	answer := bounded{most: maxAnswer}
	err := a.exec(ctx, []string{"--timeout", a.cluster.Timeout.String(), target(path, query)}, nil, &answer)
	if answer.full {
		err = fmt.Errorf("the answer has more than %d MiB", maxAnswer>>20)
	}
	if err != nil {
		return nil, a.failed(path, err)
	}
	return answer.Bytes(), nil
}

// maxAnswer is the largest answer that is read. An agent on a hostile Node must not fill the memory of the machine that
// asks.
const maxAnswer = 256 << 20

// bounded is a buffer that takes no more than a number of bytes.
type bounded struct {
	bytes.Buffer
	most int
	full bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.most {
		b.full = true
		return 0, io.ErrShortWrite
	}
	return b.Buffer.Write(p)
}

// Stream copies the agent's answer to w, until the answer or ctx ends.
func (a Agent) Stream(ctx context.Context, path string, query url.Values, w io.Writer) error {
	// The command in the Pod ends with its stdin, which the end of the connection closes.
	stdin, end := io.Pipe()
	defer func() { _ = end.Close() }()
	if err := a.exec(ctx, []string{"--follow", target(path, query)}, stdin, w); err != nil {
		return a.failed(path, err)
	}
	return nil
}

// timedOut reports whether a time limit has caused an error.
func timedOut(err error) bool {
	var e net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &e) && e.Timeout()
}

func target(path string, query url.Values) string {
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
}

// failed returns the error of a question, with the remedy.
func (a Agent) failed(path string, err error) error {
	remedy := ""
	var reported agentError
	switch {
	case errors.As(err, &reported): // the agent's error has its own
	case a.Pod == nil:
		remedy = "; look at `kubectl get pods --all-namespaces -l " + AgentLabels + "`"
	case timedOut(err):
		remedy = fmt.Sprintf("; there was no answer within %s: look at the Node and at `kubectl logs -n %s %s -c %s`",
			a.cluster.Timeout, a.Pod.Namespace, a.Pod.Name, container)
	default:
		remedy = fmt.Sprintf("; look at `kubectl describe pod -n %s %s`; the user needs the verbs get and create for "+
			"pods/exec there", a.Pod.Namespace, a.Pod.Name)
	}
	return fmt.Errorf("cluster %s: Node %s: ask the agent for %s: %w%s", a.cluster.Name, a.Node, path, err, remedy)
}

// agentError is what the command in the Pod wrote to stderr.
type agentError string

func (e agentError) Error() string { return string(e) }

// exec runs `tombolo ask` in the agent's container.
func (a Agent) exec(ctx context.Context, args []string, stdin io.Reader, stdout io.Writer) error {
	if a.Pod == nil {
		return errors.New("the Node has no Pod of tombolo-agent")
	}
	core, err := a.cluster.core()
	if err != nil {
		return err
	}
	request := core.RESTClient().Post().Resource("pods").Namespace(a.Pod.Namespace).Name(a.Pod.Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: container, Command: append([]string{"tombolo", "ask"}, args...),
			Stdin: stdin != nil, Stdout: true, Stderr: true,
		}, scheme.ParameterCodec)
	// API servers support WebSockets since Kubernetes 1.31. SPDY is for older ones, and for proxies that do not pass
	// WebSockets.
	socket, err := remotecommand.NewWebSocketExecutor(a.cluster.Config, "GET", request.URL().String())
	if err != nil {
		return err
	}
	spdy, err := remotecommand.NewSPDYExecutor(a.cluster.Config, "POST", request.URL())
	if err != nil {
		return err
	}
	executor, err := remotecommand.NewFallbackExecutor(socket, spdy, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	})
	if err != nil {
		return err
	}
	var stderr bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: stdout, Stderr: &stderr})
	if ctx.Err() != nil {
		return err // stderr may still be written to
	}
	var exit exec.CodeExitError
	switch text := strings.TrimSpace(strings.TrimPrefix(stderr.String(), "tombolo: ")); {
	case errors.As(err, &exit) && strings.Contains(text, `does not know "ask"`):
		return agentError("the agent is of a version that cannot be asked through the API server: upgrade it")
	case errors.As(err, &exit) && text != "":
		return agentError(text)
	}
	return err
}
