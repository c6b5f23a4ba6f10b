package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	crdv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/cli/remote"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// Times of a capture that a command waits for.
const (
	captureTime   = time.Minute // without --timeout
	captureLimit  = 300 * time.Second
	captureMargin = 15 * time.Second // for the agent to write the last state
	capturePoll   = 500 * time.Millisecond
	captureFetch  = 2 * time.Minute
	captureDelete = 10 * time.Second
)

// captureFlags select packets.
type captureFlags struct {
	source, destination, flow, point, direction string
	number                                      int32
}

// packetCapture is `antctl packetcapture`.
func (d *documented) packetCapture() *cobra.Command {
	var f captureFlags
	var dir string
	var nowait bool
	cmd := &cobra.Command{
		Use: "packetcapture", Aliases: []string{"packetcaptures", "pc"}, Args: cobra.NoArgs,
		Short: "Capture packets of a Pod to a file",
		Long: "Capture packets at the interface of a Pod to a pcapng file. The command creates a PacketCapture, waits, " +
			"fetches the file from the agent, and deletes the PacketCapture.\n\n" +
			"A flow is a list of words: tcp, udp, icmp, ipv6, tcp_src=PORT, tcp_dst=PORT, udp_src=PORT, udp_dst=PORT, " +
			"tcp_flags=VALUE[/MASK], icmp_type=TYPE, icmp_code=CODE.",
		Example: "  antctl packetcapture -S shop/web -D shop/db -f tcp,tcp_dst=5432 -n 10\n" +
			"  antctl packetcapture -S shop/web -D 192.0.2.7 -n 100 --timeout 2m -d Both -o /tmp",
		RunE: func(cmd *cobra.Command, _ []string) error {
			timeout := captureTime
			if cmd.Flags().Changed("timeout") {
				timeout = d.agents.timeout
			}
			spec, err := f.spec(timeout)
			if err != nil {
				return err
			}
			if spec.CaptureConfig.FirstN == nil {
				return errors.New("--number is missing: how many packets are captured, such as -n 100")
			}
			if d.inPod() {
				return errors.New("packetcapture creates an object: run it on a machine with a kubeconfig")
			}
			cluster, err := remote.Open(d.kubeconfig, "")
			if err != nil {
				return err
			}
			c, err := newCaptureClient(cluster)
			if err != nil {
				return err
			}
			p := &crdv1alpha1.PacketCapture{ObjectMeta: metav1.ObjectMeta{GenerateName: f.name()}, Spec: *spec}
			return c.capture(cmd, p, dir, nowait)
		},
	}
	f.add(cmd)
	cmd.Flags().Int32VarP(&f.number, "number", "n", 0, "how many packets are captured")
	cmd.Flags().BoolVar(&nowait, "nowait", false, "only create the PacketCapture; tombolo capture fetch fetches the file")
	cmd.Flags().StringVarP(&dir, "output-dir", "o", ".", "folder for the file")
	return cmd
}

// add adds the flags to a command.
func (f *captureFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&f.source, "source", "S", "", "source of the packets: [namespace/]name of a Pod, or an address")
	flags.StringVarP(&f.destination, "destination", "D", "",
		"destination of the packets: [namespace/]name of a Pod, or an address")
	flags.StringVarP(&f.flow, "flow", "f", "", "what packets have, such as tcp,tcp_dst=80")
	flags.StringVarP(&f.point, "capture-point", "p", "", "the end whose Pod has the interface: Source or Destination")
	flags.StringVarP(&f.direction, "direction", "d", string(crdv1alpha1.SourceToDestination),
		"SourceToDestination, DestinationToSource or Both")
}

// spec returns the spec that the flags ask for.
func (f *captureFlags) spec(timeout time.Duration) (*crdv1alpha1.PacketCaptureSpec, error) {
	out := &crdv1alpha1.PacketCaptureSpec{
		Source: endOf(f.source), Destination: endOf(f.destination),
		Direction:    crdv1alpha1.PacketCaptureDirection(f.direction),
		CapturePoint: crdv1alpha1.PacketCapturePoint(f.point),
	}
	isPod := func(e *crdv1alpha1.PacketCaptureEnd) bool { return e != nil && e.Pod != nil }
	switch {
	case !isPod(out.Source) && !isPod(out.Destination):
		return nil, errors.New("neither --source nor --destination is a Pod: name the Pod at whose interface packets are " +
			"captured, as namespace/name")
	case timeout < time.Second || timeout > captureLimit:
		return nil, fmt.Errorf("--timeout=%s: a capture takes from 1s to %s", timeout, captureLimit)
	case f.number < 0:
		return nil, fmt.Errorf("--number=%d: want a positive number of packets", f.number)
	}
	seconds := int32((timeout + time.Second - 1) / time.Second)
	out.Timeout = &seconds
	if f.number > 0 {
		out.CaptureConfig.FirstN = &crdv1alpha1.PacketCaptureFirstNConfig{Number: f.number}
	}
	var err error
	out.Packet, err = packetOf(f.flow)
	return out, err
}

// endOf returns the end that a word names.
func endOf(word string) *crdv1alpha1.PacketCaptureEnd {
	if word == "" {
		return nil
	}
	if _, err := netip.ParseAddr(word); err == nil {
		return &crdv1alpha1.PacketCaptureEnd{IP: word}
	}
	namespace, name, found := strings.Cut(word, "/")
	if !found {
		namespace, name = "default", word
	}
	return &crdv1alpha1.PacketCaptureEnd{Pod: &crdv1alpha1.PodReference{Namespace: namespace, Name: name}}
}

// notInNames are the characters that no name of an object has.
var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// name returns the beginning of the name of a capture.
func (f *captureFlags) name() string {
	const most = 200
	text := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(f.source+"-"+f.destination), "-"), "-")
	return strings.Trim(text[:min(len(text), most)], "-") + "-"
}

// packetOf returns the packet that a flow names; nil for an empty one.
func packetOf(flow string) (*crdv1alpha1.Packet, error) {
	if flow = strings.ReplaceAll(flow, " ", ""); flow == "" {
		return nil, nil
	}
	p := &crdv1alpha1.Packet{}
	for word := range strings.SplitSeq(flow, ",") {
		if err := addWord(p, word); err != nil {
			return nil, fmt.Errorf("--flow=%s: %w", flow, err)
		}
	}
	return p, nil
}

// addWord adds a word of a flow to a packet.
func addWord(p *crdv1alpha1.Packet, word string) error {
	key, value, _ := strings.Cut(word, "=")
	h := &p.TransportHeader
	number := func(to **int32, most uint64) error {
		n, err := strconv.ParseUint(value, 0, 32)
		if err != nil || n > most {
			return fmt.Errorf("%s: want a number from 0 to %d", word, most)
		}
		*to = new(int32(n))
		return nil
	}
	switch {
	case strings.HasPrefix(key, "tcp") && h.TCP == nil:
		h.TCP = &crdv1alpha1.TCPHeader{}
	case strings.HasPrefix(key, "udp") && h.UDP == nil:
		h.UDP = &crdv1alpha1.UDPHeader{}
	case strings.HasPrefix(key, "icmp_"):
		if h.ICMP == nil {
			h.ICMP = &crdv1alpha1.ICMPHeader{Messages: []crdv1alpha1.ICMPMsgMatcher{{}}}
		}
	}
	switch key {
	case "tcp", "udp", "icmp":
		p.Protocol = new(intstr.FromString(strings.ToUpper(key)))
	case "ipv6":
		p.IPFamily = corev1.IPv6Protocol
	case "ip", "ipv4":
		p.IPFamily = corev1.IPv4Protocol
	case "tcp_src":
		return number(&h.TCP.SrcPort, 65535)
	case "tcp_dst":
		return number(&h.TCP.DstPort, 65535)
	case "udp_src":
		return number(&h.UDP.SrcPort, 65535)
	case "udp_dst":
		return number(&h.UDP.DstPort, 65535)
	case "tcp_flags":
		flags, mask, masked := strings.Cut(value, "/")
		m := crdv1alpha1.TCPFlagsMatcher{}
		n, err := strconv.ParseUint(flags, 0, 8)
		m.Value = int32(n)
		if masked && err == nil {
			n, err = strconv.ParseUint(mask, 0, 8)
			m.Mask = new(int32(n))
		}
		if err != nil {
			return fmt.Errorf("%s: want a number to 255, or two with / between them, such as tcp_flags=0x02/0x12", word)
		}
		h.TCP.Flags = append(h.TCP.Flags, m)
	case "icmp_type":
		h.ICMP.Messages[0].Type = intstr.Parse(value)
	case "icmp_code":
		return number(&h.ICMP.Messages[0].Code, 255)
	default:
		return fmt.Errorf("%s is no word of a flow: want tcp, udp, icmp, ipv6, tcp_src, tcp_dst, udp_src, udp_dst, "+
			"tcp_flags, icmp_type or icmp_code", word)
	}
	return nil
}

// captureClient reaches the PacketCaptures of a cluster.
type captureClient struct {
	cluster *remote.Cluster
	objects ctrlclient.Client
}

func newCaptureClient(c *remote.Cluster) (*captureClient, error) {
	c.Timeout = captureFetch
	scheme := runtime.NewScheme()
	if err := errors.Join(crdv1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	objects, err := ctrlclient.New(c.Config, ctrlclient.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", c.Name, err)
	}
	return &captureClient{c, objects}, nil
}

// failed returns the error of a request, with the remedy.
func (c *captureClient) failed(doing string, err error) error {
	switch {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err) && doing == "create":
		return fmt.Errorf("cluster %s does not know the kind: apply the CustomResourceDefinitions of deploy/agent/"+
			"tombolo-crds.yml", c.cluster.Name)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("cluster %s: %w; the user needs the verbs create, get and delete for packetcaptures.crd.antrea.io",
			c.cluster.Name, err)
	}
	return fmt.Errorf("cluster %s: %s the PacketCapture: %w", c.cluster.Name, doing, err)
}

// capture creates a capture, waits for it, fetches its file, and deletes it.
func (c *captureClient) capture(cmd *cobra.Command, p *crdv1alpha1.PacketCapture, dir string, nowait bool) (err error) {
	ctx := cmd.Context()
	if err := c.objects.Create(ctx, p); err != nil {
		return c.failed("create", err)
	}
	if nowait {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "PacketCapture Name: %s\n", p.Name)
		return err
	}
	defer func() {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), captureDelete) // also after an interrupt
		defer cancel()
		if e := c.objects.Delete(clean, p); e != nil && !apierrors.IsNotFound(e) {
			err = errors.Join(err, fmt.Errorf("%w; remove it with `kubectl delete packetcapture %s`", c.failed("delete", e),
				p.Name))
		}
	}()
	if err := c.wait(ctx, p, cmd.ErrOrStderr()); err != nil {
		return err
	}
	done := p.Status.Condition(crdv1alpha1.PacketCaptureComplete)
	if p.Status.FilePath == "" || done.Reason == crdv1alpha1.ReasonTimeout && p.Status.NumberCaptured == 0 {
		return fmt.Errorf("no packet was captured: %s", cmp.Or(done.Message, done.Reason))
	}
	if err := c.fetch(ctx, p, dir, cmd.OutOrStdout()); err != nil {
		return err
	}
	switch done.Reason {
	case crdv1alpha1.ReasonFailed:
		return fmt.Errorf("the capture has failed, the file has the first %d packets: %s", p.Status.NumberCaptured,
			done.Message)
	case crdv1alpha1.ReasonTimeout:
		_, err = fmt.Fprintln(cmd.ErrOrStderr(), done.Message)
	}
	return err
}

// wait waits until a capture is complete. It reports what the capture waits for.
func (c *captureClient) wait(ctx context.Context, p *crdv1alpha1.PacketCapture, log io.Writer) error {
	limit := time.Duration(*p.Spec.Timeout)*time.Second + captureMargin
	begin, reported := time.Now(), ""
	for {
		if err := c.objects.Get(ctx, ctrlclient.ObjectKeyFromObject(p), p); err != nil {
			return c.failed("read", err)
		}
		if done := p.Status.Condition(crdv1alpha1.PacketCaptureComplete); done != nil && done.Status == metav1.ConditionTrue {
			return nil
		}
		started := p.Status.Condition(crdv1alpha1.PacketCaptureStarted)
		if started != nil && started.Status != metav1.ConditionTrue && started.Message != reported {
			reported = started.Message
			fmt.Fprintf(log, "waiting: %s\n", reported)
		}
		if started != nil && started.Reason == crdv1alpha1.ReasonPending {
			begin = time.Now() // its time has not begun
		}
		if time.Since(begin) > limit {
			if started == nil {
				return fmt.Errorf("no agent serves PacketCapture %s: set the feature gate PacketCapture to true in featureGates "+
					"of antrea-agent.conf, and see that the agent of the Pod's Node runs", p.Name)
			}
			return fmt.Errorf("PacketCapture %s is not complete after %s: see that the agent of Node %s runs", p.Name, limit,
				nodeOfFile(p.Status.FilePath))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(capturePoll):
		}
	}
}

// nodeOfFile returns the Node in the path of a capture's file.
func nodeOfFile(path string) string { return filepath.Base(filepath.Dir(path)) }

// fetch writes the file of a capture into a folder.
func (c *captureClient) fetch(ctx context.Context, p *crdv1alpha1.PacketCapture, dir string, out io.Writer) error {
	done := p.Status.Condition(crdv1alpha1.PacketCaptureComplete)
	if p.Status.FilePath == "" {
		text := "it has not begun"
		if done != nil {
			text = cmp.Or(done.Message, done.Reason)
		}
		return fmt.Errorf("PacketCapture %s has no file: %s", p.Name, text)
	}
	body, err := c.cluster.Ask(ctx, nodeOfFile(p.Status.FilePath), api.PathCapture, url.Values{"name": {p.Name}})
	if err != nil {
		return err
	}
	path := filepath.Join(dir, p.Name+".pcapng")
	if err := os.WriteFile(path, body, 0o600); err != nil {
		return fmt.Errorf("keep the file: %w", err)
	}
	_, err = fmt.Fprintf(out, "Packet File: %s\n", path)
	return err
}
