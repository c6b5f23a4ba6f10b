package openflow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// targetHelp describes the names of switches.
const targetHelp = "TARGET is a bridge of this machine (br-int, by its socket below OVS_RUNDIR), unix:PATH,\n" +
	"tcp:HOST[:PORT] or ssl:HOST[:PORT] (port 6653, with -p, -c and -C). The bridge has to speak\n" +
	"OpenFlow 1.5, as it does unless its protocols leave it out."

// target is how to reach a switch.
type target struct {
	files   ofconn.TLS
	timeout time.Duration
}

func (t *target) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&t.files.PrivateKey, "private-key", "p", "", "our private key, for ssl:")
	f.StringVarP(&t.files.Certificate, "certificate", "c", "", "our certificate, for ssl:")
	f.StringVarP(&t.files.CA, "ca-cert", "C", "",
		"the certificate of the CA that signed the switch's, for ssl: (none trusts every switch)")
	f.DurationVarP(&t.timeout, "timeout", "t", 30*time.Second, "how long the switch may take to answer")
}

// connect connects to a switch. The context ends with the time for its answers.
func (t *target) connect(ctx context.Context, name string, handler ofconn.Handler) (*ofconn.Conn, context.Context,
	context.CancelFunc, error) {
	dial, err := ofconn.TargetDialer(name, t.files)
	if err != nil {
		return nil, nil, nil, err
	}
	if t.timeout <= 0 {
		return nil, nil, nil, fmt.Errorf("--timeout %s: want more than nothing, such as 30s", t.timeout)
	}
	within, cancel := context.WithTimeout(ctx, t.timeout)
	conn, err := ofconn.Connect(within, dial, nil, handler)
	if err != nil {
		cancel()
		return nil, nil, nil, explainSwitch(name, t.timeout, err)
	}
	return conn, within, cancel, nil
}

// explainSwitch adds what to do to an error of a switch.
func explainSwitch(name string, timeout time.Duration, err error) error {
	var version *ofconn.VersionError
	switch {
	case errors.As(err, &version):
		bridge := "BRIDGE"
		if !strings.Contains(name, ":") && !strings.Contains(name, "/") {
			bridge = name
		}
		return fmt.Errorf("%s: %w, as in `ovs-vsctl set bridge %s protocols=OpenFlow10,OpenFlow13,OpenFlow15`", name,
			err, bridge)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE):
		hint := "that is no bridge's OpenFlow socket, RUNDIR/BRIDGE.mgmt, or ovs-vswitchd has just ended"
		switch {
		case strings.HasPrefix(name, "tcp:"):
			hint = "no OpenFlow is spoken there, or only with TLS: ssl: instead of tcp:"
		case strings.HasPrefix(name, "ssl:"): // with TLS 1.3 the other side may close before its complaint was read
			hint = "no OpenFlow is spoken there, or it does not take our certificate: the CA has to have signed it that the " +
				"switch trusts (`ovs-vsctl get-ssl`)"
		}
		return fmt.Errorf("%s has closed the connection at once: %s: %w", name, hint, err)
	case strings.Contains(err.Error(), "remote error: tls: "): // Go has no type for what the other side complains of
		return fmt.Errorf(
			"%s does not take our certificate: the CA has to have signed it that the switch trusts (`ovs-vsctl get-ssl`): %w",
			name, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s did not answer within %s: %w", name, timeout, err)
	}
	return err
}

// ask sends a multipart request and calls f with the parts of the answer.
func ask[Reply ofp.Message](ctx context.Context, conn *ofconn.Conn, what string, request ofp.Message,
	f func(Reply)) error {
	parts, err := conn.Request(ctx, request)
	if err != nil {
		return fmt.Errorf("read the switch's %s: %w", what, err)
	}
	for _, p := range parts {
		reply, ok := p.(Reply)
		if !ok {
			return fmt.Errorf("read the switch's %s: it answers with %s", what, p.Type())
		}
		f(reply)
	}
	return nil
}

// readFlows reads the flows of a table, ofp.TableAll for all.
func readFlows(ctx context.Context, conn *ofconn.Conn, table ofp.Table) ([]ofp.FlowDesc, error) {
	var out []ofp.FlowDesc
	err := ask(ctx, conn, "flows", ofp.FlowDescRequest{FlowFilter: ofp.FlowFilter{
		Table: table, OutPort: ofp.PortAny, OutGroup: ofp.GroupAny,
	}}, func(r ofp.FlowDescReply) { out = append(out, r.Flows...) })
	return out, err
}

func readGroups(ctx context.Context, conn *ofconn.Conn) ([]flow.Group, error) {
	var out []flow.Group
	err := ask(ctx, conn, "groups", ofp.GroupDescRequest{ID: ofp.GroupAll}, func(r ofp.GroupDescReply) {
		for _, d := range r.Groups {
			out = append(out, flow.FromGroupDesc(d))
		}
	})
	return out, err
}

func readMeters(ctx context.Context, conn *ofconn.Conn) ([]flow.Meter, error) {
	var out []flow.Meter
	err := ask(ctx, conn, "meters", ofp.MeterDescRequest{ID: ofp.MeterAll}, func(r ofp.MeterDescReply) {
		for _, d := range r.Meters {
			out = append(out, flow.FromMeterDesc(d))
		}
	})
	return out, err
}

// readNames reads what a switch calls its ports and tables.
func readNames(ctx context.Context, conn *ofconn.Conn) (*flow.Names, error) {
	ports, tables := map[ofp.Port]string{}, map[ofp.Table]string{}
	err := ask(ctx, conn, "names of ports", ofp.PortDescRequest{Port: ofp.PortAny}, func(r ofp.PortDescReply) {
		for _, d := range r.Ports {
			ports[d.Number] = d.Name
		}
	})
	if err != nil {
		return nil, err
	}
	err = ask(ctx, conn, "names of tables", ofp.TableFeaturesRequest{}, func(r ofp.TableFeaturesReply) {
		for _, t := range r.Tables {
			tables[t.Table] = t.Name
		}
	})
	return flow.NewNames(ports, tables), err
}
