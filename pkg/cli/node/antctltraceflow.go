package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/cli/remote"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/follow"
)

// Times of a Traceflow that the command waits for.
const (
	traceflowTime   = 20 * time.Second // without --timeout
	traceflowMargin = 15 * time.Second // for the relay to take the object, and to write the status
)

// traceflowFlags are the flags of `antctl traceflow`.
type traceflowFlags struct {
	source, destination, flow string
	live, droppedOnly, noWait bool
}

// traceflow is `antctl traceflow`.
func (d *documented) traceflow() *cobra.Command {
	var f traceflowFlags
	out := cli.YAML()
	cmd := &cobra.Command{
		Use: "traceflow", Aliases: []string{"tf", "traceflows"}, Args: cobra.NoArgs,
		Short: "Send a packet, and follow it through the Nodes of the cluster",
		Long: "Send a packet, and follow it through the switches of the cluster's Nodes. The Pod at its end does not " +
			"get it.\n\n-S is a Pod, -D a Pod, a Service or an address; Pods and Services are namespace/name. Without -f the " +
			"packet is an echo request, or of the Service's protocol. `tombolo trace --packet` follows packets over " +
			"several clusters.\n\nWith --live-traffic nothing is sent: the command creates a Traceflow, for which the relay " +
			"waits for the first packet of Pods that fits, and deletes it. With --nowait the Traceflow stays.",
		Example: "  antctl traceflow -S shop/web-7d9f -D shop/db -f tcp,tcp_dst=5432\n" +
			"  antctl traceflow -D shop/db-0 --live-traffic --dropped-only --timeout 2m",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.source == "" && f.destination == "" || !f.live && (f.source == "" || f.destination == "") {
				return errors.New("traceflow takes both -S and -D, and with --live-traffic one of them: give the client and " +
					"the server")
			}
			query := url.Values{}
			if err := flowWords(f.flow, query); err != nil {
				return err
			}
			c, err := d.cluster()
			if err != nil {
				return err
			}
			if f.live || f.noWait {
				timeout := traceflowTime
				if cmd.Flags().Changed("timeout") {
					timeout = d.agents.timeout
				}
				return f.object(cmd, c, query, timeout, out)
			}
			return f.send(cmd, c, query, out)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.source, "source", "S", "", "the client: namespace/name of a Pod")
	flags.StringVarP(&f.destination, "destination", "D", "",
		"the server: namespace/name of a Pod or Service, or an address")
	flags.StringVarP(&f.flow, "flow", "f", "", "protocol and port in ovs-ofctl's text, such as tcp,tcp_dst=80")
	flags.BoolVarP(&f.live, "live-traffic", "L", false, "wait for the first packet of Pods that fits; needs the relay")
	flags.BoolVar(&f.droppedOnly, "dropped-only", false,
		"with --live-traffic a packet that is dropped; without, an error if the packet was not dropped")
	flags.BoolVar(&f.noWait, "nowait", false, "only create the Traceflow; needs the relay")
	flags.VarP(&yamlOrJSON{&out}, "output", "o", "yaml or json")
	return cmd
}

// send sends a packet by the agents, without an object.
func (f traceflowFlags) send(cmd *cobra.Command, c *remote.Cluster, query url.Values, out cli.Format) error {
	q := follow.Question{From: f.source, To: f.destination, Port: query.Get("port"), Protocol: query.Get("protocol"),
		Family: query.Get("family")}
	followed, err := remote.Followed(c)
	if err != nil {
		return err
	}
	answer, err := follow.SendTraceflow(cmd.Context(), followed, q)
	if err != nil {
		return err
	}
	end := answer.Path.End.Verdict
	if f.droppedOnly && end != api.HopDropped && end != api.HopRejected {
		return fmt.Errorf("--dropped-only: the packet was not dropped: it %s", answer.Path.End.Text)
	}
	return out.Print(cmd.OutOrStdout(), follow.TraceflowOf(answer, q), nil)
}

// object creates a Traceflow, waits until it has ended, prints it, and deletes it.
func (f traceflowFlags) object(cmd *cobra.Command, c *remote.Cluster, query url.Values, timeout time.Duration,
	out cli.Format) (err error) {
	if timeout < time.Second || timeout > captureLimit {
		return fmt.Errorf("--timeout=%s: a Traceflow takes from 1s to %s", timeout, captureLimit)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(crdv1beta1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return err
	}
	objects, err := ctrlclient.New(c.Config, ctrlclient.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	ctx := cmd.Context()
	name := (&captureFlags{source: f.source, destination: f.destination}).name()
	t := &crdv1beta1.Traceflow{ObjectMeta: metav1.ObjectMeta{GenerateName: name}}
	if t.Spec, err = f.spec(ctx, objects, query, timeout); err != nil {
		return err
	}
	switch err := objects.Create(ctx, t); {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return fmt.Errorf("cluster %s does not know the kind: apply the CustomResourceDefinitions of deploy/agent/"+
			"tombolo-crds.yml", c.Name)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("cluster %s: %w; the user needs the verbs create, get and delete for traceflows.crd.antrea.io",
			c.Name, err)
	case err != nil:
		return fmt.Errorf("cluster %s: create the Traceflow: %w", c.Name, err)
	}
	if f.noWait {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "Traceflow Name: %s\n", t.Name)
		return err
	}
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), captureDelete) // also after an interrupt
		defer cancel()
		if e := objects.Delete(clean, t); e != nil && !apierrors.IsNotFound(e) {
			err = errors.Join(err, fmt.Errorf("cluster %s: delete the Traceflow: %w; remove it with `kubectl delete traceflow "+
				"%s`", c.Name, e, t.Name))
		}
	}()
	if err := waitTraceflow(ctx, objects, t, timeout+traceflowMargin); err != nil {
		return fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	if t.Status.Phase == crdv1beta1.TraceflowFailed {
		return fmt.Errorf("the Traceflow has failed: %s", t.Status.Reason)
	}
	return out.Print(cmd.OutOrStdout(), follow.Traceflow{Name: t.Name, Phase: t.Status.Phase, Reason: t.Status.Reason,
		Source: f.source, Destination: f.destination, Results: t.Status.Results,
		CapturedPacket: t.Status.CapturedPacket}, nil)
}

// waitTraceflow waits until a Traceflow has ended.
func waitTraceflow(ctx context.Context, objects ctrlclient.Client, t *crdv1beta1.Traceflow,
	limit time.Duration) error {
	for begin := time.Now(); ; {
		if err := objects.Get(ctx, ctrlclient.ObjectKeyFromObject(t), t); err != nil {
			return fmt.Errorf("read the Traceflow: %w", err)
		}
		switch phase := t.Status.Phase; {
		case phase == crdv1beta1.TraceflowSucceeded, phase == crdv1beta1.TraceflowFailed:
			return nil
		case time.Since(begin) > limit && phase == "":
			return fmt.Errorf("no replica of the relay has taken the Traceflow within %s: install the relay "+
				"(docs/relay.md), and see `kubectl get pods -n %s`", limit, api.RelayNamespace)
		case time.Since(begin) > limit:
			return fmt.Errorf("the Traceflow is %s after %s: see `kubectl logs -n %s deployment/%s`", phase, limit,
				api.RelayNamespace, api.RelayService)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(capturePoll):
		}
	}
}

// spec returns the spec that the flags ask for.
func (f traceflowFlags) spec(ctx context.Context, objects ctrlclient.Reader, query url.Values,
	timeout time.Duration) (s crdv1beta1.TraceflowSpec, err error) {
	s.LiveTraffic, s.DroppedOnly, s.Timeout = f.live, f.droppedOnly, int32((timeout+time.Second-1)/time.Second)
	if f.droppedOnly && !f.live {
		return s, errors.New("--dropped-only with --nowait is for --live-traffic: leave one out")
	}
	split := func(word string) (namespace, name string) {
		namespace, name, found := strings.Cut(word, "/")
		if !found {
			return metav1.NamespaceDefault, word
		}
		return namespace, name
	}
	if _, failed := netip.ParseAddr(f.source); failed == nil {
		s.Source.IP = f.source
	} else if f.source != "" {
		s.Source.Namespace, s.Source.Pod = split(strings.TrimPrefix(f.source, "pod/"))
	}
	word, isService := strings.CutPrefix(f.destination, "service/")
	word, isPod := strings.CutPrefix(word, "pod/")
	if _, failed := netip.ParseAddr(word); failed == nil {
		s.Destination.IP = word
	} else if word != "" {
		namespace, name := split(word)
		if !isService && !isPod {
			// A name of both is the Pod, as for all commands.
			err := objects.Get(ctx, ctrlclient.ObjectKey{Namespace: namespace, Name: name}, &corev1.Pod{})
			if err != nil && !apierrors.IsNotFound(err) {
				return s, fmt.Errorf("--destination %s: read the Pod: %w; pod/%s or service/%s needs no right to read it",
					f.destination, err, f.destination, f.destination)
			}
			isService = err != nil
		}
		if s.Destination.Namespace, s.Destination.Pod = namespace, name; isService {
			s.Destination.Pod, s.Destination.Service = "", name
		}
	}
	return s, f.packet(query, &s.Packet)
}

// packet sets what a packet has, by the words of a flow.
func (f traceflowFlags) packet(query url.Values, p *crdv1beta1.TraceflowPacket) error {
	number := map[string]int32{"icmp": 1, "tcp": 6, "udp": 17}[query.Get("protocol")]
	if query.Get("protocol") != "" && number == 0 {
		return fmt.Errorf("-f %s: packets of tcp, udp and icmp can be followed: give one of them", f.flow)
	}
	if query.Get("family") == "ipv6" {
		if number == 1 {
			number = 58
		}
		p.IPv6Header = &crdv1beta1.IPv6Header{}
		if number != 0 {
			p.IPv6Header.NextHeader = &number
		}
	} else if number != 0 && !f.live { // live packets may have either version
		p.IPHeader = &crdv1beta1.IPHeader{Protocol: number}
	}
	port := int32(0)
	if text := query.Get("port"); text != "" {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || n == 0 {
			return fmt.Errorf("-f %s: %q is no port: give a number from 1 to 65535", f.flow, text)
		}
		port = int32(n)
	}
	switch query.Get("protocol") {
	case "tcp":
		p.TransportHeader.TCP = &crdv1beta1.TCPHeader{DstPort: port}
	case "udp":
		p.TransportHeader.UDP = &crdv1beta1.UDPHeader{DstPort: port}
	case "icmp":
		p.TransportHeader.ICMP = &crdv1beta1.ICMPEchoRequestHeader{}
	default:
		if port != 0 {
			return fmt.Errorf("-f %s: a port needs its protocol, such as tcp,tcp_dst=80", f.flow)
		}
	}
	return nil
}
