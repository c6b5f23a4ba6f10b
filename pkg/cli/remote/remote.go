// Package remote reaches clusters by the names of contexts or kubeconfig files, and the agents of their Nodes through
// the API servers.
package remote

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Flags name clusters and Nodes.
type Flags struct {
	Contexts   []string // contexts of the kubeconfig, or kubeconfig files; the current context if empty
	Kubeconfig string
	Nodes      []string // all if empty
	Namespace  string   // of names without a Namespace; commands with AddNamespace have the flag
	// Timeout is the limit of each request to an API server, and of each question to an agent.
	Timeout time.Duration
}

// Add adds the flags to a command. A Timeout that is set is the default.
func (f *Flags) Add(flags *pflag.FlagSet) {
	flags.StringSliceVar(&f.Contexts, "context", nil,
		"contexts of the kubeconfig, or kubeconfig files, separated by commas; the current context when empty")
	flags.StringVarP(&f.Kubeconfig, "kubeconfig", "k", "", "kubeconfig file; $KUBECONFIG or ~/.kube/config when empty")
	flags.StringSliceVar(&f.Nodes, "node", nil, "only these Nodes, separated by commas")
	flags.DurationVarP(&f.Timeout, "timeout", "t", cmp.Or(f.Timeout, 10*time.Second),
		"how long to wait for each API server and agent")
}

// AddNamespace adds the flag --namespace to a command.
func (f *Flags) AddNamespace(flags *pflag.FlagSet, usage string) {
	flags.StringVarP(&f.Namespace, "namespace", "n", "", usage)
}

// ContextNamespace returns the Namespace of the first context, or "".
func (f Flags) ContextNamespace() string {
	t := Target{Kubeconfig: f.Kubeconfig}
	if len(f.Contexts) > 0 {
		t.Context = f.Contexts[0]
	}
	return t.Namespace()
}

// Clusters returns the clusters that the flags name. Each has a name of its own.
func (f Flags) Clusters() ([]*Cluster, error) {
	names := f.Contexts
	if len(names) == 0 {
		names = []string{""}
	}
	var all []*Cluster
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("--context names %s twice: name each cluster once", name)
		}
		c, err := Open(f.Kubeconfig, name)
		if err != nil {
			return nil, err
		}
		c.Timeout, c.Only, c.several = f.Timeout, f.Nodes, len(names) > 1
		all = append(all, c)
	}
	distinct(all, names)
	return all, nil
}

// distinct returns names for clusters of kubeconfig files. If several files have one name, the names have the folder
// too.
func distinct(all []*Cluster, names []string) {
	count := map[string]int{}
	for _, c := range all {
		count[c.Name]++
	}
	for i, c := range all {
		if count[c.Name] > 1 {
			c.Name = filepath.Join(filepath.Base(filepath.Dir(names[i])), c.Name)
		}
	}
}

// parallel is the number of questions to agents of one cluster at a time.
const parallel = 32

// Cluster is a cluster that is reached through its API server.
type Cluster struct {
	Name    string       // of the context, or of the kubeconfig file
	Config  *rest.Config // without a time limit
	Timeout time.Duration
	Only    []string // Nodes that Agents returns; all if empty

	several bool // other clusters are asked too

	core  func() (corev1client.CoreV1Interface, error)
	slots chan struct{} // taken by questions that are being asked
}

// Open returns a cluster by the name of a context of the kubeconfig, or by a kubeconfig file. An empty name is the
// current context. No request is made.
func Open(kubeconfig, name string) (*Cluster, error) { return Target{kubeconfig, name, ""}.Open() }

// Target names a cluster.
type Target struct {
	Kubeconfig string // $KUBECONFIG or ~/.kube/config if empty
	Context    string // of the kubeconfig, or a kubeconfig file; the current context if empty
	Server     string // address of the API server, instead of the kubeconfig's
}

// loader returns the configuration that the target names. It is read when it is needed.
func (t Target) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = t.Kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: t.Context}
	overrides.ClusterInfo.Server = t.Server
	if info, err := os.Stat(t.Context); err == nil && info.Mode().IsRegular() && !hasContext(rules, t.Context) {
		rules.ExplicitPath, overrides.CurrentContext = t.Context, ""
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
}

// Namespace returns the Namespace of the context, or "" if the context names none or cannot be read.
func (t Target) Namespace() string {
	raw, err := t.loader().RawConfig()
	if err != nil {
		return ""
	}
	name := raw.CurrentContext
	if raw.Contexts[t.Context] != nil {
		name = t.Context
	}
	if c := raw.Contexts[name]; c != nil {
		return c.Namespace
	}
	return ""
}

// Open returns the cluster. No request is made.
func (t Target) Open() (*Cluster, error) {
	name, loader := t.Context, t.loader()
	config, err := loader.ClientConfig()
	switch {
	case err != nil && name == "":
		return nil, fmt.Errorf("read the kubeconfig: %w; name one with --kubeconfig or $KUBECONFIG", err)
	case err != nil:
		return nil, fmt.Errorf("%s is neither a context of the kubeconfig nor a kubeconfig file: %w; "+
			"`kubectl config get-contexts` lists the contexts", name, err)
	case name == "":
		name = "this cluster" // in a Pod there is no context
		if raw, err := loader.RawConfig(); err == nil && raw.CurrentContext != "" {
			name = raw.CurrentContext
		}
	}
	return New(filepath.Base(name), config), nil
}

// hasContext reports whether the kubeconfig has a context of a name. A file of that name does not count then.
func hasContext(rules *clientcmd.ClientConfigLoadingRules, name string) bool {
	raw, err := rules.Load()
	return err == nil && raw.Contexts[name] != nil
}

// New returns a cluster by a client's configuration.
func New(name string, config *rest.Config) *Cluster {
	config = rest.CopyConfig(config)
	config.QPS, config.Timeout = -1, 0
	return &Cluster{
		Name: name, Config: config, Timeout: 10 * time.Second,
		core: sync.OnceValues(func() (corev1client.CoreV1Interface, error) {
			return corev1client.NewForConfig(config)
		}),
		slots: make(chan struct{}, parallel),
	}
}

// failed returns an error of a request to the API server, with the remedy.
func (c *Cluster) failed(doing string, err error) error {
	remedy := "is the API server up, and may this user do it?"
	if timedOut(err) {
		remedy = fmt.Sprintf("there was no answer within %s; is the API server up? --timeout waits longer", c.Timeout)
	}
	return fmt.Errorf("cluster %s: %s: %w; %s", c.Name, doing, err, remedy)
}

// Logs copies the log of a container to w, until the log or ctx ends.
func (c *Cluster) Logs(ctx context.Context, namespace, pod string, o corev1.PodLogOptions, w io.Writer) error {
	doing := fmt.Sprintf("read the log of Pod %s/%s", namespace, pod)
	core, err := c.core()
	if err != nil {
		return c.failed(doing, err)
	}
	log, err := core.Pods(namespace).GetLogs(pod, &o).Stream(ctx)
	if err != nil {
		return c.failed(doing, err)
	}
	defer log.Close()
	if _, err := io.Copy(w, log); err != nil {
		return c.failed(doing, err)
	}
	return nil
}

// join returns names as a text: "a, b".
func join(names []string) string { return strings.Join(names, ", ") }
