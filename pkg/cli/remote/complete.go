package remote

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// completeLimit is how long completion in a shell waits for an API server. Without an answer it completes nothing.
const completeLimit = 2 * time.Second

// completion returns the possible completions of a word. It returns no error, since a shell cannot show one.
type completion func(cmd *cobra.Command, word string) []string

// completions are the completions of flags, by name, in all commands.
var completions = map[string]completion{
	"context": Contexts, "node": nodeNames, "namespace": namespaceNames, "pod": podNames, "from": podNames,
	"to": podNames, "source": podNames, "destination": podNames,
}

// Complete adds completions of values to the flags of all commands below root that name contexts, Nodes, Namespaces or
// Pods.
func Complete(root *cobra.Command) {
	add := func(f *pflag.Flag) {
		if values := completions[f.Name]; values != nil && f.Value.Type() != "bool" {
			_ = root.RegisterFlagCompletionFunc(f.Name, func(cmd *cobra.Command, _ []string, word string) ([]string,
				cobra.ShellCompDirective) {
				return complete(values, cmd, word)
			})
		}
	}
	root.LocalFlags().VisitAll(add)
	for _, below := range root.Commands() {
		Complete(below)
	}
}

// complete returns the values that begin with the word. If the word is a list with commas, it completes the last
// element.
func complete(values completion, cmd *cobra.Command, word string) ([]string, cobra.ShellCompDirective) {
	before, last := "", word
	if i := strings.LastIndex(word, ","); i >= 0 {
		before, last = word[:i+1], word[i+1:]
	}
	directive := cobra.ShellCompDirectiveNoFileComp
	var all []string
	for _, v := range values(cmd, last) {
		if strings.HasPrefix(v, last) {
			all = append(all, before+v)
		}
		if strings.HasSuffix(v, "/") {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
	}
	slices.Sort(all)
	return all, directive
}

// ContextArgs completes arguments that are names of contexts.
func ContextArgs(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	all, _ := complete(Contexts, cmd, word)
	return all, cobra.ShellCompDirectiveDefault // or files
}

// Contexts returns the names of the contexts of the kubeconfig.
func Contexts(cmd *cobra.Command, _ string) (all []string) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = flagText(cmd, "kubeconfig")
	config, err := rules.Load()
	if err != nil {
		return nil
	}
	for name := range config.Contexts {
		all = append(all, name)
	}
	return all
}

// flagText returns the value of a flag of text, or the first of a list.
func flagText(cmd *cobra.Command, name string) string {
	f := cmd.Flag(name)
	if f == nil {
		return ""
	}
	if list, is := f.Value.(pflag.SliceValue); is {
		if all := list.GetSlice(); len(all) > 0 {
			return all[0]
		}
		return ""
	}
	return f.Value.String()
}

// asked runs a request to the cluster that the flags name, and returns names.
func asked(cmd *cobra.Command, list func(context.Context, corev1client.CoreV1Interface) ([]string, error)) []string {
	t := Target{Kubeconfig: flagText(cmd, "kubeconfig"), Context: flagText(cmd, "context"),
		Server: flagText(cmd, "server")}
	c, err := t.Open()
	if err != nil {
		return nil
	}
	core, err := c.core()
	if err != nil {
		return nil
	}
	parent := cmd.Context()
	if parent == nil {
		parent = context.Background()
	}
	ctx, cancel := context.WithTimeout(parent, completeLimit)
	defer cancel()
	all, err := list(ctx, core)
	if err != nil {
		return nil
	}
	return all
}

func nodeNames(cmd *cobra.Command, _ string) []string {
	return asked(cmd, func(ctx context.Context, core corev1client.CoreV1Interface) (all []string, _ error) {
		list, err := core.Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, n := range list.Items {
			all = append(all, n.Name)
		}
		return all, nil
	})
}

func namespaceNames(cmd *cobra.Command, _ string) []string {
	return asked(cmd, func(ctx context.Context, core corev1client.CoreV1Interface) (all []string, _ error) {
		list, err := core.Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, n := range list.Items {
			all = append(all, n.Name)
		}
		return all, nil
	})
}

// podNames completes the Namespace first, and then the Pod in it. With --namespace it completes only the Pod.
func podNames(cmd *cobra.Command, word string) []string {
	namespace, _, slash := strings.Cut(word, "/")
	prefix := namespace + "/"
	if given := flagText(cmd, "namespace"); !slash && given != "" {
		namespace, prefix, slash = given, "", true
	}
	if !slash {
		var all []string
		for _, n := range namespaceNames(cmd, word) {
			all = append(all, n+"/")
		}
		return all
	}
	return asked(cmd, func(ctx context.Context, core corev1client.CoreV1Interface) (all []string, _ error) {
		list, err := core.Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, p := range list.Items {
			all = append(all, prefix+p.Name)
		}
		return all, nil
	})
}
