// Command lender lends API servers to the tests of several packages, one test after the other. It listens at a given
// socket until it gets a signal or its standard input ends.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tombolo-net/tombolo/test/apiserver"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: lender SOCKET")
		os.Exit(2)
	}
	log.SetLogger(logr.Discard()) // of the library that installs definitions
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	if err := apiserver.Lend(ctx, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "lend API servers:", err)
		os.Exit(1)
	}
}
