package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
)

// A container runs commands that arrive at a socket in its own file system: starting a process for each would cost more
// than most of them do. Each connection is one command. If the connection closes, the command ends.
type (
	// call is the command, a line of JSON. Package scenario has the same.
	call struct {
		Args []string `json:"args"`
	}
	// result is the answer.
	result struct {
		Out   string `json:"out"`
		Error string `json:"error"` // its standard error
		Code  int    `json:"code"`
	}
)

// serveCommands serves until ctx ends.
func serveCommands(ctx context.Context, socket string) error {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) { // of a container that was started again
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		calls.Go(func() { serveCall(ctx, conn) })
	}
}

func serveCall(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	var c call
	in := json.NewDecoder(conn)
	if in.Decode(&c) != nil {
		return
	}
	go func() {
		defer cancel()
		_ = in.Decode(&call{}) // no second one comes: this is the end of the connection
	}()
	var out, errs bytes.Buffer
	root := commands()
	root.SetArgs(c.Args)
	root.SetOut(&out)
	root.SetErr(&errs)
	var r result
	if err := root.ExecuteContext(ctx); err != nil {
		r.Code = 1
		if !errors.Is(err, errReported) {
			fmt.Fprintln(&errs, "echo:", err)
		}
	}
	r.Out, r.Error = out.String(), errs.String()
	_ = json.NewEncoder(conn).Encode(r) // a caller that is gone wants no answer
}
