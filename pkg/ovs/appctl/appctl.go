// Package appctl sends commands to a running ovs-vswitchd, as ovs-appctl(8) does: JSON-RPC over the daemon's unixctl
// socket.
package appctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
)

// DefaultRunDir is where ovs-vswitchd keeps its pidfile and sockets.
const DefaultRunDir = ofconn.DefaultRunDir

// Client sends commands to the ovs-vswitchd of one run directory. It looks the socket up for each command, so it finds
// a restarted ovs-vswitchd.
type Client struct {
	// RunDir is the daemon's OVS_RUNDIR; "" means DefaultRunDir.
	RunDir string
}

// Error is a command that ovs-vswitchd refused.
type Error struct {
	Command string // the command with its arguments
	Text    string // the daemon's answer
}

func (e *Error) Error() string {
	return fmt.Sprintf("ovs-vswitchd refuses %q: %s", e.Command, strings.TrimSpace(e.Text))
}

// Run sends one command and returns its output. If the answer reports that the command failed, the error is an *Error.
func (c Client) Run(ctx context.Context, command string, args ...string) (string, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return "", fmt.Errorf("run %q on ovs-vswitchd: %w", command, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()

	text, err := exchange(conn, command, args)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	var refused *Error
	if err != nil && !errors.As(err, &refused) {
		return "", fmt.Errorf("run %q on ovs-vswitchd: %w", command, err)
	}
	return text, err
}

// exchange sends a request and reads its reply: RFC 7047's JSON-RPC 1.0 framing, one object
// after the other without separators, and string arguments only (lib/unixctl.c).
func exchange(conn net.Conn, command string, args []string) (string, error) {
	if err := send(conn, command, args); err != nil {
		return "", err
	}
	var reply struct {
		Result *string `json:"result"`
		Error  *string `json:"error"`
	}
	if err := json.NewDecoder(conn).Decode(&reply); err != nil {
		return "", fmt.Errorf("read reply: %w", err)
	}
	switch {
	case reply.Error != nil:
		return "", &Error{Command: strings.Join(append([]string{command}, args...), " "), Text: *reply.Error}
	case reply.Result != nil:
		return *reply.Result, nil
	}
	return "", errors.New("reply has neither result nor error")
}

func send(conn net.Conn, command string, args []string) error {
	if args == nil {
		args = []string{}
	}
	request := struct {
		ID     int      `json:"id"`
		Method string   `json:"method"`
		Params []string `json:"params"`
	}{1, command, args}
	if err := json.NewEncoder(conn).Encode(request); err != nil {
		return fmt.Errorf("send request: %w", err)
	}
	return nil
}

// Trace returns ofproto/trace's report about a packet's path through a bridge's tables. The flow is in ovs-ofctl's
// syntax, such as "in_port=1,tcp,nw_dst=10.0.0.1"; options such as "--ct-next trk,est" may follow, each word as an
// argument.
func (c Client) Trace(ctx context.Context, bridge, flow string, options ...string) (string, error) {
	return c.Run(ctx, "ofproto/trace", append([]string{bridge, flow}, options...)...)
}

// Version returns the daemon's version, such as "3.1.0".
func (c Client) Version(ctx context.Context) (string, error) {
	text, err := c.Run(ctx, "version")
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(text, "\n")
	words := strings.Fields(line)
	if len(words) == 0 {
		return "", fmt.Errorf("read ovs-vswitchd's version: unexpected answer %q", text)
	}
	return words[len(words)-1], nil
}

// Upcalls are counters of a datapath since its creation: packets that a cached flow handled, packets that were passed
// to ovs-vswitchd, and packets that were dropped because its queues were full.
type Upcalls struct{ Hit, Missed, Lost uint64 }

// Upcalls returns the counters of the datapath named dp.
func (c Client) Upcalls(ctx context.Context, dp string) (u Upcalls, _ error) {
	text, err := c.Run(ctx, "dpctl/show", dp)
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(text) {
		if line, ok := strings.CutPrefix(strings.TrimSpace(line), "lookups: "); ok {
			_, err := fmt.Sscanf(line, "hit:%d missed:%d lost:%d", &u.Hit, &u.Missed, &u.Lost)
			if err != nil {
				return u, fmt.Errorf("read the lookups of %s from %q: %w", dp, line, err)
			}
			return u, nil
		}
	}
	return u, fmt.Errorf("read the lookups of %s: they are not in %q", dp, text)
}

// DumpConntrack returns the tracked connections of the datapath named dp ("netdev@ovs-netdev", "system@ovs-system").
func (c Client) DumpConntrack(ctx context.Context, dp string) (string, error) {
	return c.Run(ctx, "dpctl/dump-conntrack", "-m", "-s", dp)
}

// dial connects to the daemon that the pidfile names. If there is no pidfile, it connects to a daemon whose socket
// answers.
func (c Client) dial(ctx context.Context) (net.Conn, error) {
	dir := c.RunDir
	if dir == "" {
		dir = DefaultRunDir
	}
	sockets, err := sockets(dir)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, path := range sockets {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "unix", path)
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("%w (is it running?)", errors.Join(errs...))
}

// sockets returns the candidates in dir, best first.
func sockets(dir string) ([]string, error) {
	pidfile := filepath.Join(dir, "ovs-vswitchd.pid")
	text, err := os.ReadFile(pidfile)
	switch {
	case err == nil:
		pid, err := strconv.Atoi(string(bytes.TrimSpace(text)))
		if err != nil {
			return nil, fmt.Errorf("read %s: it should hold a process ID: %w", pidfile, err)
		}
		return []string{filepath.Join(dir, fmt.Sprintf("ovs-vswitchd.%d.ctl", pid))}, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	found, err := filepath.Glob(filepath.Join(dir, "ovs-vswitchd.*.ctl"))
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no ovs-vswitchd.pid and no ovs-vswitchd.*.ctl in %s: "+
			"ovs-vswitchd is not running, or its run directory is another", dir)
	}
	return found, nil
}
