package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	crdv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/cli/remote"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// liveCapture has the flags of `tombolo capture`.
type liveCapture struct {
	captureFlags
	pod, file           string
	kubeconfig, context string
	namespace           captureNamespace
}

// capture is `tombolo capture`.
func (n *node) capture() *cobra.Command {
	o := liveCapture{}
	cmd := &cobra.Command{
		Use: "capture --pod NAMESPACE/NAME -w FILE", Args: cobra.NoArgs, Short: "Capture packets of a Pod as they come",
		Long: "Write packets of a Pod to a file or a pipe as they come, until an interrupt, for an hour at most. No " +
			"object is created. Flows are as of `antctl packetcapture`.\n\nThe user needs the right to get the Pod, and " +
			"pods/exec in the Namespace of the agents. The agents need the feature gate PacketCapture.",
		Example: "  tombolo capture --pod shop/web -w web.pcapng\n" +
			"  tombolo capture --pod shop/web -w - | wireshark -k -i -\n" +
			"  tombolo capture -n shop -S web -D db --flow tcp,tcp_dst=5432 --number 100 -w db.pcapng",
		RunE: func(cmd *cobra.Command, _ []string) error { return n.captureLive(cmd, o) },
	}
	o.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.pod, "pod", "", "[namespace/]name of the Pod: the same as -S")
	flags.Int32Var(&o.number, "number", 0, "end after so many packets; 0 for no such end")
	o.namespace.number, o.namespace.notes = &o.number, cmd.ErrOrStderr
	flags.VarP(&o.namespace, "namespace", "n", "Namespace of Pods whose names have no other; the context's when empty")
	cli.HideShorthands(flags, "flow", "capture-point")
	flags.StringVarP(&o.file, "write", "w", "", "file to write, or - for stdout")
	o.direction = string(crdv1alpha1.Both)
	flags.Lookup("direction").DefValue = o.direction
	flags.StringVar(&n.agents.socket, "socket", api.DefaultSocket, "the agent's debug socket on this Node")
	clusterFlags(cmd, &o.kubeconfig, &o.context)
	cmd.AddCommand(n.captureFetch())
	return cmd
}

// captureNamespace is the flag --namespace of capture. In older versions -n was the number of packets, so a value of
// only digits still is, with a note.
type captureNamespace struct {
	name   string
	number *int32
	notes  func() io.Writer
}

// String is for pflag.
func (c *captureNamespace) String() string { return c.name }

// Type is for pflag.
func (c *captureNamespace) Type() string { return "string" }

// Set is for pflag.
func (c *captureNamespace) Set(s string) error {
	if n, err := strconv.ParseInt(s, 10, 32); err == nil && n >= 0 {
		fmt.Fprintf(c.notes(), "-n %s is taken as --number %s: -n names a Namespace now\n", s, s)
		*c.number = int32(n)
		return nil
	}
	c.name = s
	return nil
}

// clusterFlags adds the flags that name one cluster.
func clusterFlags(cmd *cobra.Command, kubeconfig, context *string) {
	cmd.Flags().StringVarP(kubeconfig, "kubeconfig", "k", "", "kubeconfig file; $KUBECONFIG or ~/.kube/config when empty")
	cmd.Flags().StringVar(context, "context", "", "context of the kubeconfig, or a kubeconfig file; the current context "+
		"when empty")
}

// captureLive writes packets as they come.
func (n *node) captureLive(cmd *cobra.Command, o liveCapture) (err error) {
	if o.pod != "" && o.source != "" {
		return errors.New("--pod is the same as --source: leave out the one or the other")
	}
	if o.pod != "" {
		o.source = o.pod
	}
	namespace := o.namespace.name
	if namespace == "" && !n.agents.here(cmd, remote.Flags{Kubeconfig: o.kubeconfig + o.context}) {
		namespace = remote.Target{Kubeconfig: o.kubeconfig, Context: o.context}.Namespace()
	}
	o.source, o.destination = qualified(o.source, namespace), qualified(o.destination, namespace)
	spec, err := o.spec(captureTime)
	if err != nil {
		return err
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	out, err := o.open(cmd)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	ctx, query := cmd.Context(), url.Values{"spec": {string(text)}}
	if n.agents.here(cmd, remote.Flags{Kubeconfig: o.kubeconfig + o.context}) {
		err = n.agents.copy(ctx, api.PathLiveCapture, query.Encode(), out)
	} else {
		err = o.elsewhere(ctx, spec, query, out)
	}
	if ctx.Err() != nil {
		return nil // an interrupt is the usual end
	}
	return err
}

// open opens the file to write.
func (o *liveCapture) open(cmd *cobra.Command) (io.WriteCloser, error) {
	switch o.file {
	case "":
		return nil, errors.New("--write is missing: name a file, or - for stdout")
	case "-":
		if f, ok := cmd.OutOrStdout().(*os.File); ok {
			if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
				return nil, errors.New("--write=-: a terminal does not show packets: use a pipe, such as | wireshark -k -i -")
			}
		}
		return unclosed{cmd.OutOrStdout()}, nil
	}
	f, err := os.OpenFile(o.file, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("keep the packets: %w", err)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "writing to %s until an interrupt\n", o.file)
	return f, nil
}

// unclosed is a writer that stays open.
type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }

// elsewhere asks the agent of the Pod's Node through the API server.
func (o *liveCapture) elsewhere(ctx context.Context, spec *crdv1alpha1.PacketCaptureSpec, query url.Values,
	out io.Writer) error {
	cluster, err := remote.Open(o.kubeconfig, o.context)
	if err != nil {
		return err
	}
	c, err := newCaptureClient(cluster)
	if err != nil {
		return err
	}
	end := spec.Source
	if end == nil || end.Pod == nil || spec.CapturePoint == crdv1alpha1.AtDestination {
		end = spec.Destination
	}
	if end == nil || end.Pod == nil {
		return errors.New("--capture-point names an end that is no Pod")
	}
	pod := &corev1.Pod{}
	if err := c.objects.Get(ctx, ctrlclient.ObjectKey{Namespace: end.Pod.Namespace, Name: end.Pod.Name}, pod); err != nil {
		return fmt.Errorf("cluster %s: find Pod %s/%s: %w", cluster.Name, end.Pod.Namespace, end.Pod.Name, err)
	}
	if pod.Spec.NodeName == "" {
		return fmt.Errorf("cluster %s: Pod %s/%s is on no Node yet", cluster.Name, end.Pod.Namespace, end.Pod.Name)
	}
	return cluster.Stream(ctx, pod.Spec.NodeName, api.PathLiveCapture, query, out)
}

// captureFetch is `tombolo capture fetch`.
func (n *node) captureFetch() *cobra.Command {
	var kubeconfig, clusterContext, dir string
	cmd := &cobra.Command{
		Use: "fetch NAME", Short: "Fetch the file of a PacketCapture from its Node",
		Example: "  tombolo capture fetch web --output-dir /tmp",
		Args:    cli.Words("fetch", "NAME of a PacketCapture, as `kubectl get packetcaptures` lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cluster, err := remote.Open(kubeconfig, clusterContext)
			if err != nil {
				return err
			}
			c, err := newCaptureClient(cluster)
			if err != nil {
				return err
			}
			p := &crdv1alpha1.PacketCapture{}
			if err := c.objects.Get(cmd.Context(), ctrlclient.ObjectKey{Name: args[0]}, p); err != nil {
				return c.failed("read", err)
			}
			return c.fetch(cmd.Context(), p, dir, cmd.OutOrStdout())
		},
	}
	clusterFlags(cmd, &kubeconfig, &clusterContext)
	cmd.Flags().StringVarP(&dir, "output-dir", "o", ".", "folder for the file")
	cli.HideShorthands(cmd.Flags(), "output-dir")
	return cmd
}
