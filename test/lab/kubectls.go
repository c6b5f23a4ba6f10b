package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// mostCalls is how many commands one process runs. It is bounded since cobra keeps all commands in memory.
const mostCalls = 500

// call is a command for kubectls, and result is its answer. Program test/lab/kubernetes has the same.
type (
	call struct {
		ID     uint64   `json:"id"`
		Args   []string `json:"args,omitempty"`
		Input  string   `json:"input,omitempty"`
		Cancel bool     `json:"cancel,omitempty"`
	}
	result struct {
		ID    uint64 `json:"id"`
		Out   string `json:"out"`
		Error string `json:"error"`
		Code  int    `json:"code"`
	}
)

// calls is the process that runs kubectl for this process, or nil. Each Down ends it, and the next command starts it.
var (
	callsMu sync.Mutex
	calls   *caller
)

// caller is a process of kubectls.
type caller struct {
	cmd    *exec.Cmd
	errors bytes.Buffer // read it once the process has exited
	exited chan struct{}

	sending sync.Mutex // of stdin and lines; apart from mu, since a write may wait until results are read
	stdin   io.WriteCloser
	lines   *json.Encoder

	mu   sync.Mutex
	next uint64
	wait map[uint64]chan result // nil once the process has ended its output
}

// errCallerEnded is the error for a command whose process ended before it did.
var errCallerEnded = errors.New("kubectl's process ended")

// callKubectl runs a command of kubectl. An error means that it did not run to its end.
func callKubectl(ctx context.Context, kubernetes, input string, args []string) (r result, err error) {
	c, id, answer, err := callTo(kubernetes, input, args)
	if err != nil {
		return result{}, err
	}
	select {
	case r, ok := <-answer:
		if !ok {
			<-c.exited
			return result{}, fmt.Errorf("%w: %s", errCallerEnded, strings.TrimSpace(c.errors.String()))
		}
		return r, nil
	case <-ctx.Done():
		c.cancel(id)
		return result{}, ctx.Err()
	}
}

// callTo sends a command to the process. It starts one if no process runs, or if the process has run enough commands.
func callTo(kubernetes, input string, args []string) (*caller, uint64, <-chan result, error) {
	callsMu.Lock()
	defer callsMu.Unlock()
	program := filepath.Join(kubernetes, "kubectls")
	if calls != nil && (calls.cmd.Path != program || calls.done()) {
		calls.close()
		calls = nil
	}
	if calls == nil {
		var err error
		if calls, err = startCaller(program); err != nil {
			return nil, 0, nil, err
		}
	}
	id, answer, err := calls.send(input, args)
	return calls, id, answer, err
}

func startCaller(program string) (*caller, error) {
	c := &caller{cmd: exec.Command(program), exited: make(chan struct{}), wait: map[uint64]chan result{}}
	c.cmd.Stderr = &c.errors
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // an interrupt is for this process, which ends that one
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	c.stdin, c.lines = stdin, json.NewEncoder(stdin)
	go c.read(stdout)
	return c, nil
}

// read gives results to their callers, until the process ends.
func (c *caller) read(stdout io.Reader) {
	for lines := json.NewDecoder(stdout); ; {
		var r result
		if lines.Decode(&r) != nil {
			break
		}
		c.mu.Lock()
		if answer := c.wait[r.ID]; answer != nil {
			answer <- r
			delete(c.wait, r.ID)
		}
		c.mu.Unlock()
	}
	c.mu.Lock()
	for _, answer := range c.wait {
		close(answer)
	}
	c.wait = nil
	c.mu.Unlock()
	_ = c.cmd.Wait() // its output has ended, so it has
	close(c.exited)
}

// done reports whether another process has to run the next command.
func (c *caller) done() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wait == nil || c.next >= mostCalls
}

func (c *caller) send(input string, args []string) (uint64, <-chan result, error) {
	answer := make(chan result, 1)
	c.mu.Lock()
	if c.wait == nil {
		c.mu.Unlock()
		return 0, nil, errCallerEnded
	}
	c.next++
	id := c.next
	c.wait[id] = answer
	c.mu.Unlock()
	if err := c.write(call{ID: id, Args: args, Input: input}); err != nil {
		return 0, nil, fmt.Errorf("%w: %w", errCallerEnded, err)
	}
	return id, answer, nil
}

// write writes a line to the process.
func (c *caller) write(line call) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	return c.lines.Encode(line)
}

// cancel ends a command whose caller has given up.
func (c *caller) cancel(id uint64) {
	c.mu.Lock()
	delete(c.wait, id)
	c.mu.Unlock()
	_ = c.write(call{ID: id, Cancel: true}) // a process that has ended runs no command
}

// close lets the process end after the commands that it runs.
func (c *caller) close() {
	c.sending.Lock()
	defer c.sending.Unlock()
	_ = c.stdin.Close()
}

// endCalls ends the process that runs kubectl, and waits until it has exited.
func endCalls() {
	callsMu.Lock()
	defer callsMu.Unlock()
	if calls == nil {
		return
	}
	calls.close()
	select {
	case <-calls.exited:
	case <-time.After(2 * time.Second):
		_ = calls.cmd.Process.Kill()
		<-calls.exited
	}
	calls = nil
}
