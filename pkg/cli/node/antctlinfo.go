package node

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/version"
)

// read reads a list of objects of the cluster.
func (d *documented) readObjects(ctx context.Context, to ctrlclient.ObjectList) error {
	c, err := d.cluster()
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := crdv1beta1.AddToScheme(scheme); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, d.agents.timeout)
	defer cancel()
	objects, err := ctrlclient.New(c.Config, ctrlclient.Options{Scheme: scheme})
	if err == nil {
		err = objects.List(ctx, to)
	}
	switch {
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		return fmt.Errorf("cluster %s does not know the kind: apply the CustomResourceDefinitions of deploy/agent/"+
			"tombolo-crds.yml", c.Name)
	case err != nil:
		return fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	return nil
}

// agentInfo is `antctl get agentinfo`, in the documented columns.
func (d *documented) agentInfo() *cobra.Command {
	var out cli.Format
	cmd := &cobra.Command{
		Use: "agentinfo [NODE]", Aliases: []string{"agentinfos", "ai"}, Args: cobra.MaximumNArgs(1),
		Short:   "The state of agents: of this Node's in its Pod, of all elsewhere",
		Example: "  antctl get agentinfo\n  antctl get agentinfo worker-1 -o yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			var list crdv1beta1.AntreaAgentInfoList
			if d.inPod() {
				list.Items = make([]crdv1beta1.AntreaAgentInfo, 1)
				if err := d.agents.ask(cmd.Context(), api.PathAgentInfo, nil, &list.Items[0]); err != nil {
					return err
				}
			} else if err := d.readObjects(cmd.Context(), &list); err != nil {
				return err
			}
			if len(args) > 0 {
				list.Items = slices.DeleteFunc(list.Items,
					func(i crdv1beta1.AntreaAgentInfo) bool { return i.Name != args[0] })
				if len(list.Items) == 0 {
					return fmt.Errorf("no agent of a Node %s has written its state: `kubectl get antreaagentinfos` lists them",
						args[0])
				}
			}
			return out.Print(cmd.OutOrStdout(), list.Items, func() error {
				t := cli.Rows{{"POD", "NODE", "STATUS", "NODE-SUBNET", "NETWORK-POLICIES", "ADDRESS-GROUPS", "APPLIED-TO-GROUPS",
					"LOCAL-PODS"}}
				for _, i := range list.Items {
					n := i.NetworkPolicyControllerInfo
					t.Add(i.PodRef.Namespace+"/"+i.PodRef.Name, i.NodeRef.Name,
						healthy(i.AgentConditions, crdv1beta1.AgentHealthy), cli.Or(strings.Join(i.NodeSubnets, ","), "<NONE>"),
						number(n.NetworkPolicyNum), number(n.AddressGroupNum), number(n.AppliedToGroupNum), number(i.LocalPodNum))
				}
				return out.Narrow(cmd.OutOrStdout(), t)
			})
		},
	}
	out.Flag(cmd)
	return cmd
}

// controllerInfo is `antctl get controllerinfo`, in the documented columns.
func (d *documented) controllerInfo() *cobra.Command {
	var out cli.Format
	cmd := &cobra.Command{
		Use: "controllerinfo", Aliases: []string{"controllerinfos", "ci"}, Args: cobra.NoArgs,
		Short: "The state of the controller of policies",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list crdv1beta1.AntreaControllerInfoList
			if err := d.readObjects(cmd.Context(), &list); err != nil {
				return err
			}
			return out.Print(cmd.OutOrStdout(), list.Items, func() error {
				t := cli.Rows{{"POD", "NODE", "STATUS", "NETWORK-POLICIES", "ADDRESS-GROUPS", "APPLIED-TO-GROUPS",
					"CONNECTED-AGENTS"}}
				for _, i := range list.Items {
					n := i.NetworkPolicyControllerInfo
					t.Add(i.PodRef.Namespace+"/"+i.PodRef.Name, cli.Or(i.NodeRef.Name, "<NONE>"),
						healthy(i.ControllerConditions, crdv1beta1.ControllerHealthy), number(n.NetworkPolicyNum),
						number(n.AddressGroupNum), number(n.AppliedToGroupNum), number(i.ConnectedAgentNum))
				}
				return out.Narrow(cmd.OutOrStdout(), t)
			})
		},
	}
	out.Flag(cmd)
	return cmd
}

func number(n int32) string { return strconv.Itoa(int(n)) }

// healthy is the status of one condition, in the documented words.
func healthy(conditions []crdv1beta1.InfoCondition, name string) string {
	for _, c := range conditions {
		if c.Type == name {
			return map[corev1.ConditionStatus]string{corev1.ConditionTrue: "Healthy",
				corev1.ConditionFalse: "Unhealthy"}[c.Status]
		}
	}
	return "Unknown"
}

// featureGates is `antctl get featuregates`.
func (d *documented) featureGates() *cobra.Command {
	var out cli.Format
	cmd := &cobra.Command{
		Use: "featuregates", Aliases: []string{"featuregate"}, Short: "Which features are on", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var list api.GateList
			if err := d.askNode(cmd.Context(), "", api.PathFeatureGates, nil, &list); err != nil {
				return err
			}
			return out.Print(cmd.OutOrStdout(), list.Gates, func() error {
				t := cli.Rows{{"FEATUREGATE", "STATUS", "VERSION"}}
				for _, g := range list.Gates {
					status := map[bool]string{true: "Enabled", false: "Disabled"}[g.On]
					if g.Absent {
						status = "Absent"
					}
					t.Add(g.Name, status, g.Stage)
				}
				return out.Rows(cmd.OutOrStdout(), t)
			})
		},
	}
	out.Flag(cmd)
	return cmd
}

// version is `antctl version`.
func (d *documented) version() *cobra.Command {
	out := cli.YAML()
	cmd := &cobra.Command{
		Use: "version", Short: "Versions of this program and of the agent, or of the controller", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			versions := map[string]string{"antctlVersion": version.String()}
			if d.inPod() {
				var s api.Status
				if err := d.agents.ask(cmd.Context(), api.PathStatus, nil, &s); err != nil {
					return err
				}
				versions["agentVersion"] = s.Version
			} else {
				var list crdv1beta1.AntreaControllerInfoList
				if err := d.readObjects(cmd.Context(), &list); err != nil {
					return err
				}
				for _, i := range list.Items {
					versions["controllerVersion"] = i.Version
				}
			}
			return out.Print(cmd.OutOrStdout(), versions, nil)
		},
	}
	cmd.Flags().VarP(&yamlOrJSON{&out}, "output", "o", "yaml or json")
	return cmd
}

// yamlOrJSON is a format that has no table.
type yamlOrJSON struct{ *cli.Format }

func (f yamlOrJSON) Set(s string) error {
	if s != "yaml" && s != "json" {
		return fmt.Errorf("want yaml or json")
	}
	return f.Format.Set(s)
}

// logLevel is `antctl log-level`.
func (d *documented) logLevel() *cobra.Command {
	return &cobra.Command{
		Use: "log-level [LEVEL]", Args: cobra.MaximumNArgs(1),
		Short: "The agent's level of the log: 0 logs changes, 1 to 9 also their reasons",
		Long: "Show the agent's level of the log, or change it until the agent restarts.\n\n" +
			"0 logs changes. 1 to 9 also log their reasons: there is one such level, and 1 is printed for it.",
		RunE: func(cmd *cobra.Command, args []string) error {
			var l api.LogLevel
			if len(args) == 0 {
				if err := d.agents.ask(cmd.Context(), api.PathLogLevel, nil, &l); err != nil {
					return err
				}
			} else if err := d.agents.put(cmd.Context(), api.PathLogLevel, map[string]string{"level": args[0]}, &l); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), l.Level)
			return err
		},
	}
}
