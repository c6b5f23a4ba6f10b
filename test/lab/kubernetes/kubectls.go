package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	kubectl "k8s.io/kubectl/pkg/cmd"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
)

// call is a command for kubectls, and result is its answer. Each is a line of JSON. Package lab has the same.
type (
	call struct {
		ID     uint64   `json:"id"`
		Args   []string `json:"args"`
		Input  string   `json:"input"`
		Cancel bool     `json:"cancel"` // end the command with this ID
	}
	result struct {
		ID    uint64 `json:"id"`
		Out   string `json:"out"`
		Error string `json:"error"` // its standard error
		Code  int    `json:"code"`
	}
)

// kubectlsCommand runs many commands of kubectl. Starting this program costs more than most of its commands, and a test
// runs thousands of them. It ends when its standard input has ended and all commands have.
func kubectlsCommand() *cobra.Command {
	return &cobra.Command{Use: "kubectls", Args: cobra.NoArgs, SilenceUsage: true,
		RunE: func(*cobra.Command, []string) error {
			in := os.Stdin
			os.Stdin = nil // no command may read the calls
			return serveCalls(in, os.Stdout)
		}}
}

func serveCalls(in io.Reader, out io.Writer) error {
	cmdutil.BehaviorOnFatal(func(message string, code int) { panic(fatal{message, code}) })
	var (
		calls   sync.WaitGroup
		mu      sync.Mutex // of cancels
		cancels = map[uint64]context.CancelFunc{}
		sending sync.Mutex // of answers; apart from mu, since calls are read while an answer waits
		answers = json.NewEncoder(out)
	)
	defer calls.Wait()
	for lines := json.NewDecoder(in); ; {
		var c call
		if err := lines.Decode(&c); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		mu.Lock()
		if c.Cancel {
			if cancel := cancels[c.ID]; cancel != nil {
				cancel()
			}
			mu.Unlock()
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancels[c.ID] = cancel
		mu.Unlock()
		calls.Go(func() {
			r := c.run(ctx)
			cancel()
			mu.Lock()
			delete(cancels, c.ID)
			mu.Unlock()
			sending.Lock()
			defer sending.Unlock()
			_ = answers.Encode(r) // an error: the caller is gone
		})
	}
}

// fatal is what kubectl panics with where it would exit.
type fatal struct {
	message string
	code    int
}

// making is held while a command is made, which writes to variables of cobra.
var making sync.Mutex

// run runs the command.
func (c call) run(ctx context.Context) (r result) {
	var out, errs output
	var file string // of the input
	r.ID = c.ID
	defer func() {
		switch f := recover().(type) {
		case nil:
		case fatal:
			r.Code = f.code
			if f.message != "" {
				fmt.Fprintln(&errs, strings.TrimSuffix(f.message, "\n"))
			}
		default:
			r.Code = 1
			fmt.Fprintln(&errs, "panic:", f)
		}
		r.Out, r.Error = out.String(), errs.String()
		if file != "" {
			_ = os.Remove(file) // it is in the folder for temporary files
			r.Out, r.Error = strings.ReplaceAll(r.Out, file, "STDIN"), strings.ReplaceAll(r.Error, file, "STDIN")
		}
	}()
	// kubectl reads "-f -" from the standard input of this process, whatever its streams are.
	if c.Input != "" {
		var err error
		if file, err = c.file(); err != nil {
			r.Code = 1
			fmt.Fprintln(&errs, "error:", err)
			return r
		}
	}
	making.Lock()
	streams := genericiooptions.IOStreams{In: strings.NewReader(c.Input), Out: &out, ErrOut: &errs}
	cmd := kubectl.NewKubectlCommand(kubectl.KubectlOptions{
		Arguments: append([]string{"kubectl"}, c.Args...),
		ConfigFlags: genericclioptions.NewConfigFlags(true).WithDiscoveryBurst(300).WithDiscoveryQPS(50).
			WithWarningPrinter(streams),
		IOStreams: streams,
	})
	making.Unlock()
	cmd.SetArgs(c.Args)
	cmd.SetIn(streams.In)
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	if err := cmd.ExecuteContext(ctx); err != nil {
		r.Code = 1
		fmt.Fprintln(&errs, "error:", err)
	}
	return r
}

// file writes the input to a file, and gives the command this file instead of "-".
func (c call) file() (string, error) {
	f, err := os.CreateTemp("", "kubectls-*.yml")
	if err != nil {
		return "", err
	}
	defer f.Close()
	for i, arg := range c.Args {
		if arg == "-" {
			c.Args[i] = f.Name()
		}
	}
	_, err = f.WriteString(c.Input)
	return f.Name(), err
}

// output is a buffer that several goroutines may write to.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
