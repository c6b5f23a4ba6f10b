// Package wire is the protocol between the tombolo-cni plugin and the agent: one HTTP request with JSON on a unix
// socket per CNI command. It is separate from package cni, so that the plugin stays small, since it starts once per
// Pod. net/http would double its size and delay its start.
package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/types"
)

// DefaultRunDir is the directory of the agent's sockets, unless the agent is started with another directory.
const DefaultRunDir = "/var/run/tombolo"

// Socket is the name of the socket on which the agent serves CNI requests.
const Socket = "cni.sock"

// DefaultSocket is the path of the socket. The key "socket" of the network configuration names another one.
const DefaultSocket = DefaultRunDir + "/" + Socket

// InstalledVersion is the version in the installed network configuration. The plugin supports 1.1.0 too, but 1.1.0 has
// the command STATUS, with which a runtime reports the Node's network as down while the agent restarts. Then the Node
// becomes NotReady, and its Pods drop out of their Services, although the switch continues to forward.
const InstalledVersion = "1.0.0"

// InstalledNetwork is the name of the network in the installed configuration.
const InstalledNetwork = "tombolo"

// PluginCN2 is the name of the plugin in NetworkAttachmentDefinitions of Contrail CN2. Tombolo's plugin is installed
// under this name too. Multus calls it for VirtualNetworks.
const PluginCN2 = "contrail-k8s-cni"

// SupportedVersions are the versions of the CNI specification that plugin and agent speak.
var SupportedVersions = []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// Paths of the commands, all by POST with a Request.
const (
	PathAdd    = "/v1/add"    // answers with the CNI result in the version of Config
	PathDel    = "/v1/del"    // answers with an empty body
	PathCheck  = "/v1/check"  // answers with an empty body
	PathStatus = "/v1/status" // answers with an empty body
	PathGC     = "/v1/gc"     // answers with an empty body
)

// These are codes of errors. Codes below 100 are the specification's (section "Error"). Antrea documents the codes
// above 100, and users' tools may depend on them.
const (
	CodeIncompatibleVersion = types.ErrIncompatibleCNIVersion      // 1
	CodeUnsupportedField    = types.ErrUnsupportedField            // 2
	CodeUnknownContainer    = types.ErrUnknownContainer            // 3
	CodeEnvironment         = types.ErrInvalidEnvironmentVariables // 4
	CodeIO                  = types.ErrIOFailure                   // 5
	CodeDecoding            = types.ErrDecodingFailure             // 6
	CodeNetworkConfig       = types.ErrInvalidNetworkConfig        // 7
	CodeTryAgainLater       = types.ErrTryAgainLater               // 11
	CodeNotAvailable        = uint(50)                             // STATUS: cannot serve ADD
	CodeIPAM                = uint(101)
	CodeConfigureInterface  = uint(102)
	CodeCheckInterface      = uint(103)
)

// Request is one CNI command as the runtime gave it to the plugin.
type Request struct {
	ContainerID string          `json:"containerID,omitempty"`
	Netns       string          `json:"netns,omitempty"`
	IfName      string          `json:"ifname,omitempty"`
	Args        string          `json:"args,omitempty"` // CNI_ARGS: "K=V;K=V"
	Path        string          `json:"path,omitempty"` // CNI_PATH
	Config      json.RawMessage `json:"config"`         // content of standard input
}

// limit bounds the messages that either side reads. Results and configurations have a few hundred bytes.
const limit = 1 << 20

// Decode reads a Request.
func Decode(r io.Reader) (Request, error) {
	var q Request
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return q, err
	}
	if len(b) > limit {
		return q, fmt.Errorf("request is larger than %d bytes", limit)
	}
	return q, json.Unmarshal(b, &q)
}

// Call sends a Request to the agent and returns its answer. Every error is a *types.Error
// with code and remedy.
func Call(ctx context.Context, socket, path string, q Request) ([]byte, error) {
	body, err := json.Marshal(q)
	if err != nil {
		return nil, types.NewError(CodeDecoding, "network configuration is not JSON", err.Error())
	}
	started := time.Now()
	raw, err := exchange(ctx, socket, path, body)
	if err != nil {
		return nil, unanswered(socket, time.Since(started), err)
	}
	status, answer, err := parseResponse(raw)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, unanswered(socket, time.Since(started), err)
	}
	if err == nil && strings.HasPrefix(status, "200 ") {
		return answer, nil
	}
	e := &types.Error{}
	if err != nil || json.Unmarshal(answer, e) != nil || e.Msg == "" {
		return nil, types.NewError(CodeIO, fmt.Sprintf("the agent's socket %s answered %q", socket, status),
			"what listens there is not a Tombolo agent of this version; look at the Pod tombolo-agent on this Node")
	}
	return nil, e
}

// exchange sends a request over HTTP/1.0, whose answer ends with the connection, and returns the answer.
func exchange(ctx context.Context, socket, path string, body []byte) ([]byte, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	request := fmt.Appendf(nil,
		"POST %s HTTP/1.0\r\nHost: tombolo\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", path, len(body))
	if _, err := conn.Write(append(request, body...)); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(conn, limit))
}

// parseResponse splits an HTTP response into "200 OK" and the body. If the response ends early, the error is
// io.ErrUnexpectedEOF.
func parseResponse(raw []byte) (status string, body []byte, err error) {
	head, body, whole := bytes.Cut(raw, []byte("\r\n\r\n"))
	lines := strings.Split(string(head), "\r\n")
	protocol, status, _ := strings.Cut(lines[0], " ")
	switch {
	case len(raw) > 0 && !strings.HasPrefix("HTTP/1", protocol[:min(len(protocol), 6)]):
		return lines[0], nil, errors.New("not an HTTP response")
	case !whole:
		return status, nil, io.ErrUnexpectedEOF
	}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ":")
		if !strings.EqualFold(name, "Content-Length") {
			continue
		}
		n, err := strconv.Atoi(strings.TrimSpace(value))
		if err != nil || n > len(body) {
			return status, nil, io.ErrUnexpectedEOF
		}
	}
	return status, body, nil
}

// unanswered turns a failed call into an error. It distinguishes an agent that does not run from one that ended during
// the call. Runtimes retry in both cases.
func unanswered(socket string, after time.Duration, err error) error {
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
		return types.NewError(CodeTryAgainLater, fmt.Sprintf("the Tombolo agent does not answer at %s", socket),
			"it may be starting: look at the Pod tombolo-agent on this Node")
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		return types.NewError(CodeTryAgainLater, fmt.Sprintf("no answer from the Tombolo agent at %s within %s", socket,
			after.Round(time.Second)),
			"look at its log, and at `tombolo get status` on this Node")
	}
	return types.NewError(CodeTryAgainLater, fmt.Sprintf("the Tombolo agent at %s ended before it answered", socket),
		err.Error())
}
