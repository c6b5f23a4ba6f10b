package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"strings"
	"syscall"
)

// commandsSocket is where a container of the test image takes commands (build/images).
const commandsSocket = "commands.sock"

// Exec runs a command in a Pod, whose name has the form of ClientPod's. A Pod of the test image runs commands of its
// own program without a new process. All other commands run with kubectl exec.
func (s *Scenario) Exec(ctx context.Context, cluster, pod string, command ...string) (string, error) {
	namespace, name := split(pod)
	if command[0] == "/echo" {
		out, err := s.command(ctx, cluster, namespace, name, command[1:])
		if !errors.Is(err, errNoSocket) {
			return out, err
		}
	}
	return s.Kubectl(ctx, cluster, append([]string{"exec", "-n", namespace, name, "--"}, command...)...)
}

// errNoSocket is the error for a Pod that takes no commands itself.
var errNoSocket = errors.New("the Pod takes no commands")

// command sends a command to a Pod, and returns its output. Program test/echo has the same messages.
func (s *Scenario) command(ctx context.Context, cluster, namespace, pod string, args []string) (string, error) {
	place, err := s.Kubectl(ctx, cluster, "get", "pod", pod, "-n", namespace, "-o",
		"jsonpath={.spec.nodeName} {.status.containerStatuses[0].containerID}")
	if err != nil {
		return "", err
	}
	node, id, _ := strings.Cut(place, " containerd://")
	if id == "" {
		return "", errNoSocket
	}
	root, err := s.Lab.Cluster(cluster).Node(node).ContainerRoot(id)
	if err != nil {
		return "", err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", filepath.Join(root, commandsSocket))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return "", errNoSocket
	}
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var r struct {
		Out   string `json:"out"`
		Error string `json:"error"`
		Code  int    `json:"code"`
	}
	if err = json.NewEncoder(conn).Encode(map[string]any{"args": args}); err == nil {
		err = json.NewDecoder(conn).Decode(&r)
	}
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("command terminated with exit code %d: %s", r.Code, r.Error)
	}
	if err != nil {
		err = fmt.Errorf("/echo %s in Pod %s/%s of cluster %s: %w", strings.Join(args, " "), namespace, pod, cluster,
			errors.Join(err, ctx.Err()))
	}
	return r.Out, err
}
