package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"
)

// client asks again and again, and counts.
type client struct {
	count             int
	interval, timeout time.Duration
}

// run prints a line for each failure as it happens, and at the end how many answers came
// from each server and in all:
//
//	12  test-cluster-west/node-1/nginx-5d4f
//	12 answered, 0 failed, slowest 0.004s
func (c *client) run(ctx context.Context, ask func(context.Context) (string, error)) error {
	by := map[string]int{}
	answered, failed := 0, 0
	var slowest time.Duration
	begin := time.Now()
	for i := range c.count {
		if wait := time.Until(begin.Add(time.Duration(i) * c.interval)); wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			break
		}
		start := time.Now()
		actx, cancel := context.WithTimeout(ctx, c.timeout)
		server, err := ask(actx)
		cancel()
		slowest = max(slowest, time.Since(start))
		if err != nil {
			failed++
			fmt.Printf("request %d, after %.1fs: %v\n", i+1, time.Since(begin).Seconds(), err)
			continue
		}
		answered++
		by[server]++
	}
	for _, server := range slices.Sorted(maps.Keys(by)) {
		fmt.Printf("%4d  %s\n", by[server], server)
	}
	fmt.Printf("%d answered, %d failed, slowest %.3fs\n", answered, failed, slowest.Seconds())
	if failed > 0 || answered < c.count {
		return errSaid
	}
	return nil
}

// askHTTP sends one request on a connection of its own.
func askHTTP(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s", resp.Status)
	}
	return firstLine(string(body)), nil
}

func askUDP(ctx context.Context, address string) (string, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return "", err
		}
	}
	if _, err := conn.Write([]byte("who?\n")); err != nil {
		return "", err
	}
	buf := make([]byte, 2048)
	n, err := conn.Read(buf)
	if err != nil {
		return "", err
	}
	return firstLine(string(buf[:n])), nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return strings.TrimSpace(line)
}

// download reads an answer of known length and fails when bytes are missing.
func download(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	start := time.Now()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	if err != nil {
		return fmt.Errorf("broken after %d of %d bytes and %.1fs: %w", n, resp.ContentLength, time.Since(start).Seconds(), err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", resp.Status)
	}
	fmt.Printf("%d bytes in %.1fs from %s\n", n, time.Since(start).Seconds(), resp.Header.Get("X-Server"))
	return nil
}
