// Package multicluster has the commands that read, make, undo and check ClusterSets through API servers.
package multicluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	kubeclient "sigs.k8s.io/controller-runtime/pkg/client"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/cli/remote"
	"github.com/tombolo-net/tombolo/pkg/multicluster/setup"
)

// cluster is an API server, as the flags name it.
type cluster struct {
	kubeconfig string
	context    string
	server     string
	timeout    time.Duration
	verbose    bool
	log        *log.Logger // of verbose
	antctl     bool        // tables are as documented of antctl
}

// several has the commands that are given several clusters. The flags are for each cluster.
type several struct{ flags *cluster }

// Command returns the group mc: the documented commands, verify, up and down.
func Command() *cobra.Command {
	c := &cluster{}
	mc := c.documented()
	all := &several{flags: c}
	mc.AddCommand(all.verify(), all.up(), all.down())
	return mc
}

// Documented returns the group mc of antctl: the documented commands.
func Documented() *cobra.Command { return (&cluster{antctl: true}).documented() }

func (c *cluster) documented() *cobra.Command {
	mc := cli.Group("mc", "ClusterSets, from a cluster's API server",
		cli.Group("get", "Show multi-cluster objects",
			c.clusterSets(), c.resourceImports(), c.resourceExports(), c.memberTokens(), c.joinConfig()),
		cli.Group("create", "Make multi-cluster objects", c.createToken()),
		cli.Group("delete", "Delete multi-cluster objects", c.deleteToken()),
		cli.Group("deploy", "Install the multi-cluster controller", c.deploy("leader"), c.deploy("member")),
		c.init(), c.join(), c.leave(), c.destroy())
	mc.Aliases = []string{"multicluster"}
	mc.PersistentPreRun = func(cmd *cobra.Command, _ []string) { c.log = log.New(cmd.ErrOrStderr(), "", 0) }
	mc.PersistentFlags().StringVar(&c.context, "context", "",
		"context of the kubeconfig, or a kubeconfig file; the current context when empty")
	mc.PersistentFlags().StringVarP(&c.kubeconfig, "kubeconfig", "k", "",
		"kubeconfig file; $KUBECONFIG or ~/.kube/config when empty")
	mc.PersistentFlags().StringVarP(&c.server, "server", "s", "", "address of the API server, instead of the kubeconfig's")
	mc.PersistentFlags().DurationVarP(&c.timeout, "timeout", "t", 30*time.Second, "how long to wait for the API server")
	mc.PersistentFlags().BoolVarP(&c.verbose, "verbose", "v", false,
		"print each request to an API server, and how it was answered")
	return mc
}

// target returns the cluster that the flags name.
func (c *cluster) target() remote.Target {
	return remote.Target{Kubeconfig: c.kubeconfig, Context: c.context, Server: c.server}
}

// config returns the configuration for the API server, or an error with the remedy.
func (c *cluster) config() (*rest.Config, error) {
	found, err := c.target().Open()
	if err != nil {
		return nil, err
	}
	found.Config.QPS = 0 // the client's default
	c.configure(found.Config)
	return found.Config, nil
}

// configure applies the flags to a client's configuration.
func (c *cluster) configure(config *rest.Config) {
	config.Timeout = c.timeout
	if c.verbose {
		config.Wrap(c.logged)
	}
}

// logged prints each request of a client. It is what --verbose does.
func (c *cluster) logged(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		start := time.Now()
		answer, err := next.RoundTrip(r)
		var result any = err
		if err == nil {
			result = answer.Status
		}
		c.log.Printf("%s %s: %v in %s", r.Method, r.URL, result, time.Since(start).Round(time.Millisecond))
		return answer, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// client is for objects of any kind.
func (c *cluster) client() (dynamic.Interface, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	return dynamic.NewForConfig(config)
}

// setup is for what makes and undoes ClusterSets.
func (c *cluster) setup(cmd *cobra.Command) (setup.Cluster, error) {
	config, err := c.config()
	if err != nil {
		return setup.Cluster{}, err
	}
	k, err := kubeclient.New(config, kubeclient.Options{Scheme: setup.Scheme()})
	if err != nil {
		return setup.Cluster{}, fmt.Errorf("reach the API server: %w; are --context and --kubeconfig the right ones?", err)
	}
	to := setup.Cluster{Client: k, Out: cmd.OutOrStdout()}
	if c.verbose {
		to.WrapLeader = c.logged
	}
	return to, nil
}

func (c *cluster) clusterSets() *cobra.Command {
	return listing[mcv1alpha2.ClusterSet]{
		kind: "ClusterSet", resource: mcv1alpha2.GroupVersion.WithResource("clustersets"),
		short:   "ClusterSets and the state of their clusters",
		example: "  tombolo mc get clusterset -A\n  tombolo mc get clusterset my-clusterset -n antrea-multicluster",
		head:    []string{"CLUSTER-ID", "NAMESPACE", "CLUSTERSET-ID", "TYPE", "STATUS", "REASON"},
		rows:    clusterSetRows,
	}.command(c)
}

func (c *cluster) resourceImports() *cobra.Command {
	return listing[mcv1alpha1.ResourceImport]{
		kind: "ResourceImport", resource: mcv1alpha1.GroupVersion.WithResource("resourceimports"), aliases: []string{"ri"},
		short: "What a leader gives its members",
		head:  []string{"NAMESPACE", "NAME", "KIND"},
		rows: func(i mcv1alpha1.ResourceImport) cli.Rows {
			return cli.Rows{{i.Namespace, i.Name, i.Spec.Kind}}
		},
	}.command(c)
}

func (c *cluster) resourceExports() *cobra.Command {
	var of string
	cmd := listing[mcv1alpha1.ResourceExport]{
		kind: "ResourceExport", resource: mcv1alpha1.GroupVersion.WithResource("resourceexports"), aliases: []string{"re"},
		short: "What members have given the leader",
		head:  []string{"CLUSTER-ID", "NAMESPACE", "NAME", "KIND"},
		keep:  func(e mcv1alpha1.ResourceExport) bool { return of == "" || e.Spec.ClusterID == of },
		rows: func(e mcv1alpha1.ResourceExport) cli.Rows {
			return cli.Rows{{e.Spec.ClusterID, e.Namespace, e.Name, e.Spec.Kind}}
		},
	}.command(c)
	cmd.Flags().StringVar(&of, "cluster-id", "", "only exports of this member")
	cmd.Flags().StringVar(&of, "clusterid", "", "the name of --cluster-id in some documents")
	_ = cmd.Flags().MarkHidden("clusterid")
	return cmd
}

func (c *cluster) memberTokens() *cobra.Command {
	return listing[corev1.Secret]{
		kind: "Secret", called: "membertoken", resource: corev1.SchemeGroupVersion.WithResource("secrets"),
		short: "Tokens for members that `mc create membertoken` made, in the leader cluster",
		head:  []string{"NAMESPACE", "NAME"},
		must:  true,
		keep:  func(s corev1.Secret) bool { return setup.IsToken(&s) },
		rows: func(s corev1.Secret) cli.Rows {
			return cli.Rows{{s.Namespace, s.Name}}
		},
		hide: func(s *corev1.Secret) {
			s.Data = nil
			delete(s.Annotations, corev1.LastAppliedConfigAnnotation) // it may have the data, too
		},
	}.command(c)
}

// listing is a command that shows objects of a kind, by name, of a Namespace, or all.
type listing[T any] struct {
	kind           string
	called         string // the command, where it is not the kind's name
	aliases        []string
	short, example string
	resource       schema.GroupVersionResource
	head           []string
	keep           func(T) bool
	hide           func(*T) // what is not to be printed
	rows           func(T) cli.Rows
	must           bool // a Namespace has to be given, or that all are meant
}

// list is how a program gets several.
type list[T any] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []T `json:"items"`
}

func (l listing[T]) command(c *cluster) *cobra.Command {
	var (
		namespace string
		all       bool
		out       cli.Format
	)
	called := cli.Or(l.called, strings.ToLower(l.kind))
	cmd := &cobra.Command{
		Use:     called + " [NAME]",
		Aliases: append([]string{called + "s"}, l.aliases...),
		Short:   l.short, Example: l.example,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return l.names(cmd.Context(), c, namespace, word), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch c.orContext(&namespace); {
			case all && len(args) > 0:
				return errors.New("a resource cannot be retrieved by name across all Namespaces; use -n")
			case l.must && !all && namespace == "":
				return errors.New(needNamespace + ", or -A for all") //nolint:staticcheck // as documented: a kind's name
			case all:
				namespace = metav1.NamespaceAll
			default:
				namespace = cli.Or(namespace, metav1.NamespaceDefault)
			}
			client, err := c.client()
			if err != nil {
				return err
			}
			name := strings.Join(args, "")
			found, err := l.read(cmd.Context(), client, namespace, name)
			if err != nil {
				return l.explain(err, called, namespace, name)
			}
			if len(found.Items) == 0 && out.Table() { // a program wants its empty list
				where := ""
				if !all {
					where = " in Namespace " + namespace
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "No %s found%s\n", cli.Or(l.called, l.kind), where)
				return err
			}
			var printed any = found
			if name != "" {
				printed = found.Items[0]
			}
			return out.Print(cmd.OutOrStdout(), printed, func() error {
				var body cli.Rows
				for _, o := range found.Items {
					body = append(body, l.rows(o)...)
				}
				slices.SortFunc(body, slices.Compare[[]string])
				return c.table(cmd.OutOrStdout(), out, append(cli.Rows{l.head}, body...))
			})
		},
	}
	of, usual := "the "+cli.Or(l.called, l.kind), ", or default"
	if l.must {
		usual = ", or -A is required"
	}
	namespaceFlag(cmd, &namespace, "", of+"; the context's when empty"+usual)
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "objects of all Namespaces")
	out.Flag(cmd)
	return cmd
}

// names returns the names of objects that begin with a word, for completion in a shell. It returns no error, since a
// shell cannot show one.
func (l listing[T]) names(ctx context.Context, c *cluster, namespace, word string) (all []string) {
	const limit = 2 * time.Second
	c.timeout, c.verbose = limit, false
	c.orContext(&namespace)
	client, err := c.client()
	if err != nil {
		return nil
	}
	if ctx == nil {
		ctx = context.Background()
	}
	found, err := l.read(ctx, client, cli.Or(namespace, metav1.NamespaceDefault), "")
	if err != nil {
		return nil
	}
	for i := range found.Items {
		o, err := meta.Accessor(&found.Items[i])
		if err == nil && strings.HasPrefix(o.GetName(), word) {
			all = append(all, o.GetName())
		}
	}
	return all
}

// read reads one object by name, or all of a Namespace.
func (l listing[T]) read(ctx context.Context, client dynamic.Interface, namespace, name string) (*list[T], error) {
	resource := client.Resource(l.resource).Namespace(namespace)
	out := &list[T]{TypeMeta: metav1.TypeMeta{APIVersion: l.resource.GroupVersion().String(), Kind: l.kind + "List"},
		Items: []T{}}
	var found []unstructured.Unstructured
	if name != "" {
		one, err := resource.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		found = append(found, *one)
	} else {
		many, err := resource.List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		found = many.Items
	}
	for _, u := range found {
		u.SetManagedFields(nil)
		var o T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &o); err != nil {
			return nil, fmt.Errorf("%s %s/%s: %w", l.kind, u.GetNamespace(), u.GetName(), err)
		}
		if l.keep != nil && !l.keep(o) {
			continue
		}
		if l.hide != nil {
			l.hide(&o)
		}
		out.Items = append(out.Items, o)
	}
	if name != "" && len(out.Items) == 0 {
		return nil, apierrors.NewNotFound(l.resource.GroupResource(), name)
	}
	return out, nil
}

// explain adds to an API server's error what to do about it.
func (l listing[T]) explain(err error, called, namespace, name string) error {
	var unreachable *url.Error
	switch {
	case errors.As(err, &unreachable):
		return fmt.Errorf("reach the API server: %w; are --context and --kubeconfig the right ones?", err)
	case apierrors.IsNotFound(err) && name != "" && isAboutObject(err):
		return fmt.Errorf("%s %q is not in Namespace %s; see `tombolo mc get %s -A`", cli.Or(l.called, l.kind), name,
			namespace, called)
	case apierrors.IsNotFound(err):
		return fmt.Errorf(
			"this cluster does not know %ss: apply the multi-cluster manifest for a leader or a member first", l.kind)
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return fmt.Errorf("read %ss: %w; use a kubeconfig that may get and list %s", l.kind, err, l.resource.GroupResource())
	}
	return fmt.Errorf("read %ss: %w", l.kind, err)
}

// isAboutObject distinguishes a missing object from a missing kind.
func isAboutObject(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	d := status.Status().Details
	return d != nil && d.Name != "" &&
		!slices.ContainsFunc(d.Causes,
			func(c metav1.StatusCause) bool { return c.Type == metav1.CauseTypeUnexpectedServerResponse })
}

// table writes a table in the form of the program tombolo. antctl pads the last column too, and marks empty cells
// differently.
func (c *cluster) table(w io.Writer, out cli.Format, t cli.Rows) error {
	if c.antctl {
		t.Fill(cli.DocumentedEmpty)
		return out.Padded(w, t)
	}
	t.Fill(cli.Empty)
	return out.Rows(w, t)
}

// orContext sets an empty Namespace to the context's, if that has one.
func (c *cluster) orContext(namespace *string) {
	if *namespace == "" {
		*namespace = c.target().Namespace()
	}
}

// clusterSetRows has one row per condition of each cluster.
func clusterSetRows(set mcv1alpha2.ClusterSet) cli.Rows {
	var body cli.Rows
	statuses := set.Status.ClusterStatuses
	if len(statuses) == 0 {
		statuses = []mcv1alpha2.ClusterStatus{{}}
	}
	for _, cluster := range statuses {
		conditions := cluster.Conditions
		if len(conditions) == 0 {
			conditions = []mcv1alpha2.ClusterCondition{{}}
		}
		for _, c := range conditions {
			body.Add(cluster.ClusterID, set.Namespace, set.Name, string(c.Type), string(c.Status), c.Reason)
		}
	}
	return body
}
