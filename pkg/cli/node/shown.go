package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/cli/remote"
)

// question is a question to agents, whose answers are printed.
type question[T any] struct {
	kind  string // of an answer in JSON and YAML
	path  string // of the debug API
	query url.Values
	keep  func(*T)                 // leaves out parts of an answer; may be nil
	check func(*T) error           // refuses an answer; of several agents, if it refuses all of them; may be nil
	rows  func(T) cli.Rows         // the answer as a table
	text  func(io.Writer, T) error // instead of rows
}

// answer is the answer of an agent, or the reason why it is missing.
type answer[T any] struct {
	Cluster string `json:"cluster,omitempty"`
	Node    string `json:"node"`
	Error   string `json:"error,omitempty"`
	Answer  any    `json:"answer,omitempty"` // with its kind

	got *T
}

// asker is an agent to ask. This Node's has no names.
type asker struct {
	cluster, node string
	ask           func(ctx context.Context, path string, query url.Values) ([]byte, error)
}

// show asks the agents that the flags name, and prints their answers. The answer of one agent is printed as it is, and
// answers of several with their Nodes.
func (q question[T]) show(cmd *cobra.Command, n *node, out cli.Format) error {
	targets, err := n.agents.targets(cmd)
	if err != nil {
		return err
	}
	all := q.ask(cmd.Context(), targets)
	if len(targets) == 1 && !n.agents.several() {
		if all[0].err != nil {
			return all[0].err
		}
		if q.check != nil {
			if err := q.check(all[0].got); err != nil {
				return err
			}
		}
		return out.Print(cmd.OutOrStdout(), all[0].Answer, func() error {
			return q.print(cmd.OutOrStdout(), *all[0].got, out, n.agents.antctl)
		})
	}
	answers := make([]answer[T], len(all))
	absent, refused := 0, 0
	var failed error
	for i, a := range all {
		answers[i] = a.answer
		switch {
		case a.err != nil:
			absent++
			answers[i].Error = a.err.Error()
			fmt.Fprintln(cmd.ErrOrStderr(), a.err)
		case q.check != nil:
			if err := q.check(a.got); err != nil {
				refused++
				failed = err
			}
		}
	}
	switch answered := len(all) - absent; {
	case answered == 0:
	case refused == answered:
		failed = fmt.Errorf("each of %d Nodes: %w", answered, failed)
	default:
		failed = out.Print(cmd.OutOrStdout(), cli.Object("AnswerList", answers), func() error {
			return q.printAll(cmd.OutOrStdout(), answers, out)
		})
	}
	if absent > 0 && failed == nil {
		failed = fmt.Errorf("%d of %d Nodes have not answered", absent, len(all))
	}
	return failed
}

// asked is an answer with the error as it is.
type asked[T any] struct {
	answer[T]
	err error
}

// ask asks all targets at once. Clusters bound the number of questions at a time.
func (q question[T]) ask(ctx context.Context, targets []asker) []asked[T] {
	all := make([]asked[T], len(targets))
	var asking sync.WaitGroup
	for i, t := range targets {
		all[i].Cluster, all[i].Node = t.cluster, t.node
		asking.Go(func() {
			body, err := t.ask(ctx, q.path, q.query)
			got := new(T)
			if err == nil {
				err = understand(body, got, t.node, q.path)
			}
			if all[i].err = err; err != nil {
				return
			}
			if q.keep != nil {
				q.keep(got)
			}
			all[i].got, all[i].Answer = got, cli.Object(q.kind, *got)
		})
	}
	asking.Wait()
	return all
}

// understand reads the answer of an agent into v.
func understand(body []byte, v any, node, path string) error {
	if err := json.Unmarshal(body, v); err != nil {
		of := "the agent's answer"
		if node != "" {
			of = "the answer of Node " + node
		}
		return fmt.Errorf("understand %s for %s: %w; are this command and the agent of one version?", of, path, err)
	}
	return nil
}

// print prints an answer as text.
func (q question[T]) print(w io.Writer, a T, out cli.Format, antctl bool) error {
	if q.text != nil {
		return q.text(w, a)
	}
	t := q.rows(a)
	if antctl {
		t.Fill(cli.DocumentedEmpty)
		return out.Narrow(w, t)
	}
	t.Fill(cli.Empty)
	return out.Rows(w, t)
}

// printAll prints answers as text, with the Nodes and, of several clusters, the clusters.
func (q question[T]) printAll(w io.Writer, answers []answer[T], out cli.Format) error {
	several := slices.ContainsFunc(answers, func(a answer[T]) bool { return a.Cluster != answers[0].Cluster })
	names := func(a answer[T]) []string {
		if several {
			return []string{a.Cluster, a.Node}
		}
		return []string{a.Node}
	}
	var all cli.Rows
	for _, a := range answers {
		switch {
		case a.got == nil:
		case q.text != nil:
			at := a.Node
			if several {
				at = a.Cluster + "/" + at
			}
			if _, err := fmt.Fprintf(w, "--- %s\n", at); err != nil {
				return err
			}
			if err := q.text(w, *a.got); err != nil {
				return err
			}
		default:
			rows := q.rows(*a.got)
			rows.Fill(cli.Empty)
			if all == nil {
				head := []string{"CLUSTER", "NODE"}
				if !several {
					head = head[1:]
				}
				all.Add(append(head, rows[0]...)...)
			}
			for _, row := range rows[1:] {
				all.Add(append(names(a), row...)...)
			}
		}
	}
	if q.text != nil {
		return nil
	}
	return out.Rows(w, all)
}

// several reports whether the flags may name several agents.
func (n *agents) several() bool {
	return n.bundle == "" && (len(n.to.Nodes) != 1 || len(n.to.Contexts) > 1) && n.away
}

// inPod is an environment variable that Pods have. A command in a Pod asks the agent at the socket.
const inPod = "KUBERNETES_SERVICE_HOST"

// targets returns the agents that the flags name: the agent of this Node, the agents in a bundle, or the agents of
// clusters.
func (n *agents) targets(cmd *cobra.Command) ([]asker, error) {
	if !n.elsewhere(cmd) {
		return []asker{{ask: n.answer}}, nil
	}
	n.away = true
	clusters, err := n.to.Clusters()
	if err != nil {
		if named(n.to) {
			return nil, err
		}
		return nil, fmt.Errorf("there is no agent on this machine (%s), and no cluster is named: %w; on a Node, run this in "+
			"the tombolo-agent Pod or name the socket with --socket", n.socket, err)
	}
	var all []asker
	for _, c := range clusters {
		agents, err := c.Agents(cmd.Context())
		if err != nil {
			return nil, err
		}
		for _, a := range agents {
			all = append(all, asker{c.Name, a.Node, a.Ask})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no cluster has a Node %s: `kubectl get nodes` lists them",
			cmp.Or(strings.Join(n.to.Nodes, ", "), "at all"))
	}
	return all, nil
}

// one returns the one agent for a question that any Node can answer. That is the agent of this Node, or of the Node
// that --node names. Otherwise it is the agent on the Node of the first of the Pods that exists, or of any Node.
func (n *agents) one(cmd *cobra.Command, pods ...string) (asker, error) {
	if !n.elsewhere(cmd) {
		return asker{ask: n.answer}, nil
	}
	n.away = true
	if len(n.to.Contexts) > 1 || len(n.to.Nodes) > 1 {
		return asker{}, errors.New("one agent answers this: give --context and --node one name each")
	}
	clusters, err := n.to.Clusters()
	if err != nil {
		return asker{}, err
	}
	c, name := clusters[0], ""
	if len(n.to.Nodes) == 1 {
		name = n.to.Nodes[0]
	}
	for _, pod := range pods {
		if name == "" {
			pod, _, _ := strings.Cut(pod, "@") // the VirtualNetwork of a further interface
			name = c.NodeOf(cmd.Context(), pod)
		}
	}
	if name == "" {
		if name, err = anyNode(cmd.Context(), c); err != nil {
			return asker{}, err
		}
	}
	return asker{c.Name, name, func(ctx context.Context, path string, query url.Values) ([]byte, error) {
		return c.Ask(ctx, name, path, query)
	}}, nil
}

// named reports whether flags name clusters or Nodes.
func named(f remote.Flags) bool { return len(f.Contexts) > 0 || f.Kubeconfig != "" || len(f.Nodes) > 0 }

// elsewhere reports whether the command asks agents through API servers. It does if flags name clusters or Nodes, or if
// this machine has no agent. In a Pod without such flags it asks the agent of this Node.
func (n *agents) elsewhere(cmd *cobra.Command) bool {
	if n.antctl || n.local || n.bundle != "" || n.here(cmd, n.to) {
		return false
	}
	return named(n.to) || os.Getenv(inPod) == ""
}

// answer returns the answer of this Node's agent, or of the bundle.
func (n *agents) answer(ctx context.Context, path string, query url.Values) ([]byte, error) {
	code, body, err := n.read(ctx, path, query)
	if err == nil && code != http.StatusOK {
		err = n.refused(code, body, path)
	}
	return body, err
}

// qualify adds a Namespace to names without a Namespace. It is the value of --namespace, or the context's Namespace if
// the command asks agents through API servers. Addresses and names of Nodes stay as they are.
func (n *agents) qualify(cmd *cobra.Command, f remote.Flags, names ...*string) {
	namespace := f.Namespace
	if namespace == "" && n.elsewhere(cmd) {
		namespace = f.ContextNamespace()
	}
	for _, name := range names {
		*name = qualified(*name, namespace)
	}
}

// qualified returns a name with a Namespace.
func qualified(name, namespace string) string {
	_, err := netip.ParseAddr(name)
	if name == "" || namespace == "" || err == nil || strings.Contains(name, "/") {
		return name
	}
	return namespace + "/" + name
}
