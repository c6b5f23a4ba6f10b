package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/test/echo/loaded"
)

// loader asks as fast as it is answered, for some time.
type loader struct {
	lasts, timeout time.Duration
	parallel       int
	fresh          bool
}

func loadCommand() *cobra.Command {
	var l loader
	cmd := &cobra.Command{
		Use: "load URL", Short: "Ask a URL as often as it is answered, and print how often that was, as JSON",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return l.run(cmd.Context(), cmd.OutOrStdout(), args[0]) },
	}
	cmd.Flags().DurationVar(&l.lasts, "time", 5*time.Second, "how long")
	cmd.Flags().DurationVar(&l.timeout, "timeout", 5*time.Second, "time that connecting may take")
	cmd.Flags().IntVar(&l.parallel, "parallel", 1, "connections at a time")
	cmd.Flags().BoolVar(&l.fresh, "fresh", false, "a new connection for each request")
	return cmd
}

func (l *loader) run(ctx context.Context, out io.Writer, target string) error {
	u, err := url.Parse(target)
	if err != nil {
		return err
	}
	if u.Port() == "" {
		u.Host += ":80"
	}
	var mu sync.Mutex
	var took []time.Duration
	var failed error
	r := loaded.Result{}
	start := time.Now()
	var all sync.WaitGroup
	for range l.parallel {
		all.Go(func() {
			mine, bytes, err := l.one(ctx, u, start.Add(l.lasts))
			mu.Lock()
			defer mu.Unlock()
			took, r.Bytes = append(took, mine...), r.Bytes+bytes
			if failed == nil {
				failed = err
			}
		})
	}
	all.Wait()
	r.Seconds, r.Requests = time.Since(start).Seconds(), len(took)
	if failed != nil {
		return fmt.Errorf("after %d requests: %w", r.Requests, failed)
	}
	slices.Sort(took)
	r.P50, r.P99 = took[len(took)/2].Seconds(), took[len(took)*99/100].Seconds()
	return json.NewEncoder(out).Encode(r)
}

// one asks on one connection at a time until the end, but once at least.
func (l *loader) one(ctx context.Context, u *url.URL, end time.Time) (took []time.Duration, bytes int64, err error) {
	var c *connection
	defer func() {
		if c != nil {
			c.Close()
		}
	}()
	for len(took) == 0 || time.Now().Before(end) && ctx.Err() == nil {
		start := time.Now()
		if c == nil || l.fresh {
			if c != nil {
				c.Close()
			}
			if c, err = dial(ctx, u.Host, l.timeout); err != nil {
				return took, bytes, err
			}
			c.in = bufio.NewReaderSize(c.Conn, 64<<10)
		}
		n, err := c.read(u.RequestURI(), end)
		if err != nil {
			return took, bytes, err
		}
		took, bytes = append(took, time.Since(start)), bytes+n
	}
	return took, bytes, nil
}

// read sends a request and counts the bytes of the answer; of a long one those until the end.
func (c *connection) read(path string, end time.Time) (int64, error) {
	req, err := http.NewRequest(http.MethodGet, "http://"+c.RemoteAddr().String()+path, nil)
	if err != nil {
		return 0, err
	}
	if err := req.Write(c); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(c.in, req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s", resp.Status)
	}
	n := int64(0)
	for b := make([]byte, 64<<10); ; {
		m, err := resp.Body.Read(b)
		n += int64(m)
		switch {
		case err == io.EOF:
			return n, nil
		case err != nil:
			return n, err
		case time.Now().After(end):
			return n, c.Close() // else closing the answer would read the rest of it
		}
	}
}
