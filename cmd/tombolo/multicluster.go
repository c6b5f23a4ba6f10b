package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
)

// cluster is an API server, as the flags name it.
type cluster struct {
	kubeconfig string
	server     string
	timeout    time.Duration
}

// multicluster is the group `mc`.
func multicluster() *cobra.Command {
	c := &cluster{}
	mc := &cobra.Command{
		Use:     "mc",
		Aliases: []string{"multicluster"},
		Short:   "ClusterSets, from a cluster's API server",
		Args:    noCommand,
		RunE:    help,
	}
	mc.PersistentFlags().StringVarP(&c.kubeconfig, "kubeconfig", "k", "", "kubeconfig file; $KUBECONFIG or ~/.kube/config when empty")
	mc.PersistentFlags().StringVarP(&c.server, "server", "s", "", "address of the API server, instead of the kubeconfig's")
	mc.PersistentFlags().DurationVarP(&c.timeout, "timeout", "t", 30*time.Second, "how long to wait for the API server")
	get := &cobra.Command{Use: "get", Short: "Show multi-cluster objects", Args: noCommand, RunE: help}
	get.AddCommand(c.clusterSets())
	mc.AddCommand(get)
	return mc
}

// client returns a client, or an error that names the remedy.
func (c *cluster) client() (dynamic.Interface, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	overrides := &clientcmd.ConfigOverrides{}
	overrides.ClusterInfo.Server = c.server
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w; name one with --kubeconfig or $KUBECONFIG", err)
	}
	config.Timeout = c.timeout
	return dynamic.NewForConfig(config)
}

func (c *cluster) clusterSets() *cobra.Command {
	var (
		namespace string
		all       bool
		out       format
	)
	cmd := &cobra.Command{
		Use:     "clusterset [NAME]",
		Aliases: []string{"clustersets"},
		Short:   "ClusterSets and the state of their clusters",
		Example: "  tombolo mc get clusterset -A\n  tombolo mc get clusterset my-clusterset -n antrea-multicluster",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if all && len(args) > 0 {
				return errors.New("a resource cannot be retrieved by name across all Namespaces; use -n")
			}
			if all {
				namespace = metav1.NamespaceAll
			}
			client, err := c.client()
			if err != nil {
				return err
			}
			var name string
			if len(args) > 0 {
				name = args[0]
			}
			list, err := readClusterSets(cmd.Context(), client, namespace, name)
			if err != nil {
				return explain(err, namespace, name)
			}
			if len(list.Items) == 0 && out == "table" { // a program wants its empty list
				where := ""
				if !all {
					where = " in Namespace " + namespace
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "No ClusterSet found%s\n", where)
				return err
			}
			var printed any = list
			if name != "" {
				printed = list.Items[0]
			}
			return out.print(cmd.OutOrStdout(), printed, func() error {
				return clusterSetRows(list.Items).write(cmd.OutOrStdout(), " ", true)
			})
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", metav1.NamespaceDefault, "Namespace of the ClusterSet")
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "ClusterSets of all Namespaces")
	out.flag(cmd)
	return cmd
}

// readClusterSets reads one ClusterSet by name, or all of a Namespace.
func readClusterSets(ctx context.Context, client dynamic.Interface, namespace, name string) (*mcv1alpha2.ClusterSetList, error) {
	resource := client.Resource(mcv1alpha2.GroupVersion.WithResource("clustersets")).Namespace(namespace)
	list := &mcv1alpha2.ClusterSetList{
		TypeMeta: metav1.TypeMeta{APIVersion: mcv1alpha2.GroupVersion.String(), Kind: "ClusterSetList"},
		Items:    []mcv1alpha2.ClusterSet{},
	}
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
		var set mcv1alpha2.ClusterSet
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &set); err != nil {
			return nil, fmt.Errorf("ClusterSet %s/%s: %w", u.GetNamespace(), u.GetName(), err)
		}
		set.ManagedFields = nil
		list.Items = append(list.Items, set)
	}
	return list, nil
}

// explain adds to an API server's error what to do about it.
func explain(err error, namespace, name string) error {
	var unreachable *url.Error
	switch {
	case errors.As(err, &unreachable):
		return fmt.Errorf("reach the API server: %w; is --kubeconfig the right one?", err)
	case apierrors.IsNotFound(err) && name != "" && isAboutObject(err):
		return fmt.Errorf("ClusterSet %q is not in Namespace %s; see `tombolo mc get clusterset -A`", name, namespace)
	case apierrors.IsNotFound(err):
		return errors.New("this cluster does not know ClusterSets: apply the multi-cluster manifest for a leader or a member first")
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return fmt.Errorf("read ClusterSets: %w; use a kubeconfig that may get and list clustersets.multicluster.crd.antrea.io", err)
	}
	return fmt.Errorf("read ClusterSets: %w", err)
}

// isAboutObject distinguishes a missing object from a missing kind.
func isAboutObject(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	d := status.Status().Details
	return d != nil && d.Name != "" && !slices.ContainsFunc(d.Causes, func(c metav1.StatusCause) bool { return c.Type == metav1.CauseTypeUnexpectedServerResponse })
}

// clusterSetRows has one row per condition of each cluster.
func clusterSetRows(sets []mcv1alpha2.ClusterSet) rows {
	const none = "<NONE>"
	var body rows
	for _, set := range sets {
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
				body.add(or(cluster.ClusterID, none), or(set.Namespace, none), or(set.Name, none),
					or(string(c.Type), none), or(string(c.Status), none), or(c.Reason, none))
			}
		}
	}
	slices.SortFunc(body, slices.Compare[[]string])
	return append(rows{{"CLUSTER-ID", "NAMESPACE", "CLUSTERSET-ID", "TYPE", "STATUS", "REASON"}}, body...)
}
