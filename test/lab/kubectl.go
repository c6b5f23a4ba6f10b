package lab

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	kubectlLimit = time.Minute // for all tries of a command that fails because the machine is short of processor time
	kubectlPause = time.Second
)

// Kubectl runs kubectl as the cluster's administrator and returns what it printed.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.KubectlInput(ctx, "", args...)
}

// KubectlInput runs kubectl like Kubectl, with text on its standard input. It retries a command that cannot have run,
// and a repeatable one after its connection broke (tryAgain), and reports each retry. A caller that sets
// --request-timeout expects these errors, and gets the first one.
func (c *Cluster) KubectlInput(ctx context.Context, input string, args ...string) (string, error) {
	expected := slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--request-timeout") })
	for began := time.Now(); ; {
		out, err := c.call(ctx, input, args)
		if err == nil {
			return out, nil
		}
		err = fmt.Errorf("kubectl %s in cluster %s: %w", strings.Join(args, " "), c.name, err)
		if expected || time.Since(began) > kubectlLimit || !tryAgain(args, err.Error()) {
			return out, err
		}
		select {
		case <-ctx.Done():
			return out, err
		case <-time.After(kubectlPause):
		}
		c.lab.report("tried again: %v", err)
	}
}

// call runs a command of kubectl and returns what it printed.
func (c *Cluster) call(ctx context.Context, input string, args []string) (string, error) {
	r, err := callKubectl(ctx, c.lab.bin.Kubernetes, input, append([]string{"--kubeconfig=" + c.Kubeconfig()}, args...))
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("exit status %d: %s", r.Code, shortened(r.Error))
	}
	return r.Out, err
}

// KubectlCommand returns the command, for callers that want its streams.
func (c *Cluster) KubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	args = append([]string{"--kubeconfig=" + c.Kubeconfig()}, args...)
	return exec.CommandContext(ctx, filepath.Join(c.lab.bin.Kubernetes, "kubectl"), args...)
}

// tryAgain reports whether to retry a kubectl that failed. A program that has run in a Pod is never run again, since
// its exit code is the result.
func tryAgain(args []string, message string) bool {
	has := func(texts []string) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(message, text) })
	}
	if strings.Contains(message, "command terminated with exit code") {
		return false
	}
	return has(notRun) || repeatable(args) && has(broken)
}

// notRun are texts of kubectl's errors after which nothing in the cluster has changed, and no program has run in a Pod.
var notRun = []string{
	"connection refused", "was refused - did you specify the right host or port", "TLS handshake timeout",
	"error dialing backend", "no endpoints available for service", "failed calling webhook",
	"failed to start exec", "failed to create exec", "the server is currently unable to handle the request",
}

// broken are errors of kubectl after which the API server may have done what it was asked.
var broken = []string{
	"Unable to connect to the server", "connection reset by peer", "unexpected EOF", "http2: client connection lost",
	"etcdserver: ", "(Timeout)", "(ServerTimeout)", "(TooManyRequests)", "watch closed before", errCallerEnded.Error(),
}

// repeatable reports whether a command has the same result if it has been carried out once already.
func repeatable(args []string) bool {
	if len(args) > 1 && args[0] == "rollout" {
		return args[1] == "status"
	}
	return len(args) > 0 && slices.Contains([]string{"annotate", "apply", "describe", "get", "label", "logs", "patch",
		"scale", "set", "wait"}, args[0])
}
