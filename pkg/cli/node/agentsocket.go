package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/gather"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// agentSocket is the agent of this Node, behind its debug socket.
type agentSocket struct {
	socket  string
	timeout time.Duration

	// A bundle answers instead of the agent, if one is named.
	bundle, context, name string
	stderr                io.Writer
	dated                 bool // the time of the bundle was printed
}

// bundleFlags adds the flags that name a Node in a bundle.
func (a *agentSocket) bundleFlags(c *cobra.Command) {
	c.PersistentFlags().StringVar(&a.bundle, "bundle", "",
		"answer from this file, which tombolo gather wrote, and not from the agent")
	c.PersistentFlags().StringVar(&a.context, "context", "", "the cluster in the bundle, if it has several")
	c.PersistentFlags().StringVar(&a.name, "node", "", "the Node in the bundle, if it has several")
	run := c.PersistentPreRunE
	c.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
		if a.bundle == "" && a.context+a.name != "" {
			return errors.New("--context and --node name a Node in a bundle: name the file with --bundle")
		}
		a.stderr = cmd.ErrOrStderr()
		if run != nil {
			return run(cmd, args)
		}
		return nil
	}
}

// flags adds the flags that name the agent.
func (a *agentSocket) flags(c *cobra.Command) {
	c.PersistentFlags().StringVar(&a.socket, "socket", api.DefaultSocket, "the agent's debug socket on this Node")
	c.PersistentFlags().DurationVarP(&a.timeout, "timeout", "t", 10*time.Second, "how long to wait for the agent")
}

// ask reads one path of the debug API into v.
func (a *agentSocket) ask(ctx context.Context, path string, query url.Values, v any) error {
	code, body, err := a.read(ctx, path, query)
	if err != nil {
		return err
	}
	if code != http.StatusOK {
		return a.refused(code, body, path)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("understand the agent's answer for %s: %w; are this command and the agent of one version?",
			path, err)
	}
	return nil
}

// refused returns the error of an answer other than 200.
func (a *agentSocket) refused(code int, body []byte, path string) error {
	var e api.Error
	if json.Unmarshal(body, &e) != nil || e.Error == "" {
		return a.unexpected(code, path)
	}
	return errors.New(e.Error)
}

func (a *agentSocket) unexpected(code int, path string) error {
	return fmt.Errorf("the agent's debug socket %s answered %d %s for %s: are this command and the agent of one version?",
		a.socket, code, http.StatusText(code), path)
}

// read reads one path of the agent's socket, or of the bundle.
func (a *agentSocket) read(ctx context.Context, path string, query url.Values) (code int, body []byte, _ error) {
	if a.bundle != "" {
		b, err := gather.Open(a.bundle)
		if err != nil {
			return 0, nil, err
		}
		body, err = b.Answer(a.context, a.name, path, query)
		if err == nil && !a.dated {
			a.dated = true // a command may read several answers
			fmt.Fprintf(a.stderr, "as of %s, from %s\n", b.Manifest.Started.Format("2006-01-02 15:04:05 UTC"), a.bundle)
		}
		return http.StatusOK, body, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	response, err := a.open(ctx, path, query.Encode())
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	if err != nil {
		return 0, nil, a.silent(err)
	}
	return response.StatusCode, body, nil
}

// put changes what one path of the debug API answers, and reads the answer into v.
func (a *agentSocket) put(ctx context.Context, path string, query map[string]string, v any) error {
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	values := url.Values{}
	for name, value := range query {
		values.Set(name, value)
	}
	response, err := a.request(ctx, http.MethodPut, path, values.Encode())
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return a.silent(err)
	}
	if response.StatusCode != http.StatusOK {
		return a.refused(response.StatusCode, body, path)
	}
	return json.Unmarshal(body, v)
}

// open requests one path of the agent's socket. The caller reads the answer and closes it.
func (a *agentSocket) open(ctx context.Context, path, query string) (*http.Response, error) {
	return a.request(ctx, http.MethodGet, path, query)
}

func (a *agentSocket) request(ctx context.Context, method, path, query string) (*http.Response, error) {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", a.socket)
		},
	}}
	target := url.URL{Scheme: "http", Host: "agent", Path: path, RawQuery: query}
	request, err := http.NewRequestWithContext(ctx, method, target.String(), nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, a.silent(err)
	}
	return response, nil
}

// silent explains why there was no answer.
func (a *agentSocket) silent(err error) error {
	switch {
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf(
			"the agent's debug socket %s may only be opened by root: use sudo, or run this in the tombolo-agent Pod", a.socket)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf(
			"the agent's debug socket %s did not answer within %s: look at the log of tombolo-agent on this Node", a.socket,
			a.timeout)
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("the agent's debug socket %s does not answer: is tombolo-agent running on this Node?", a.socket)
	}
	return fmt.Errorf("the agent's debug socket %s does not answer: is tombolo-agent running on this Node? (%w)",
		a.socket, err)
}
