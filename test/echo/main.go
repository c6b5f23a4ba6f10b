// Command echo is the tests' server and client in one: answers name the server, and the client
// counts answers by server.
//
//	echo serve [--http :8080] [--udp :8080] [--commands SOCKET]
//	echo get URL [--count N] [--interval D] [--timeout D] [--port N]
//	echo udp HOST:PORT [--count N] [--interval D] [--timeout D] [--port N]
//	echo watch URL [--fresh] [--servers] [--begun] [--streams N] [--interval D] [--timeout D]
//	echo download URL
//	echo load URL [--time D] [--parallel N] [--fresh]
//	echo resolve NAME [--srv|--aaaa] [--server IP]
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	root := commands()
	root.AddCommand(serveCommand())
	if err := root.ExecuteContext(ctx); err != nil {
		if !errors.Is(err, errReported) {
			fmt.Fprintln(os.Stderr, "echo:", err)
		}
		return 1
	}
	return 0
}

// commands returns the program without its server.
func commands() *cobra.Command {
	root := &cobra.Command{Use: "echo", Short: "Server and client for tests of a network", SilenceUsage: true,
		SilenceErrors: true}
	root.AddCommand(getCommand(), udpCommand(), watchCommand(), downloadCommand(), loadCommand(), resolveCommand())
	return root
}

// errReported is an error whose details are in the output already.
var errReported = errors.New("not all was answered")

func serveCommand() *cobra.Command {
	var s server
	cmd := &cobra.Command{
		Use: "serve", Short: "Answer HTTP and UDP with this server's name", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd.Context()) },
	}
	cmd.Flags().StringVar(&s.http, "http", ":8080", "address to serve HTTP on")
	cmd.Flags().StringVar(&s.udp, "udp", ":8080", "address to serve UDP on")
	cmd.Flags().StringVar(&s.commands, "commands", os.Getenv("ECHO_COMMANDS"),
		"Unix socket to serve commands on (default: that of the environment's ECHO_COMMANDS)")
	return cmd
}

func (c *client) flags(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().IntVar(&c.count, "count", 1, "how many requests")
	cmd.Flags().DurationVar(&c.interval, "interval", 0, "time from one request to the next")
	cmd.Flags().DurationVar(&c.timeout, "timeout", 5*time.Second, "time that one request may take")
	cmd.Flags().IntVar(&c.port, "port", 0, "ask from this port, from the next one after it, and so on (0: from any)")
	return cmd
}

func getCommand() *cobra.Command {
	var c client
	cmd := c.flags(&cobra.Command{
		Use: "get URL", Short: "Ask a URL, each time on a new connection, and count the answers by server",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), cmd.OutOrStdout(),
				func(ctx context.Context, port int) (answer, error) { return askHTTP(ctx, args[0], port) })
		},
	})
	cmd.Flags().BoolVar(&c.clients, "clients", false, "count by server and client's address, as the server saw it")
	return cmd
}

func udpCommand() *cobra.Command {
	var c client
	return c.flags(&cobra.Command{
		Use: "udp HOST:PORT", Short: "The same with one datagram from a new port each time", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), cmd.OutOrStdout(),
				func(ctx context.Context, port int) (answer, error) { return askUDP(ctx, args[0], port) })
		},
	})
}

func watchCommand() *cobra.Command {
	var w watcher
	var stdin bool
	cmd := &cobra.Command{
		Use: "watch URL", Short: "Ask a URL on one connection until interrupted, with a line for each request",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			if stdin {
				go func() {
					defer cancel()
					_, _ = io.Copy(io.Discard, os.Stdin) // an error is an end, too
				}()
			}
			w.out = cmd.OutOrStdout()
			return w.run(ctx, args[0])
		},
	}
	cmd.Flags().BoolVar(&stdin, "stdin", false, "until standard input ends: with kubectl exec -i, as long as kubectl runs")
	cmd.Flags().DurationVar(&w.interval, "interval", 200*time.Millisecond, "time from one request to the next")
	cmd.Flags().DurationVar(&w.timeout, "timeout", 10*time.Second,
		"time that connecting, and with --fresh a whole request, may take")
	cmd.Flags().BoolVar(&w.fresh, "fresh", false, "a new connection for each request")
	cmd.Flags().BoolVar(&w.begun, "begun", false, "print a line when a request begins, too")
	cmd.Flags().BoolVar(&w.servers, "servers", false, "say which server has answered")
	cmd.Flags().IntVar(&w.streams, "streams", 1, "the same so often at a time")
	return cmd
}

func downloadCommand() *cobra.Command {
	return &cobra.Command{
		Use: "download URL", Short: "Read all of one answer, and check that nothing is missing", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return download(cmd.Context(), cmd.OutOrStdout(), args[0])
		},
	}
}

func resolveCommand() *cobra.Command {
	var q question
	cmd := &cobra.Command{
		Use: "resolve NAME", Short: "Ask the Pod's DNS server for the addresses of a whole name, a line each",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), 5*time.Second)
			defer cancel()
			lines, err := q.resolve(ctx, args[0])
			for _, line := range lines {
				fmt.Fprintln(cmd.OutOrStdout(), line)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&q.srv, "srv", false, "ask for its SRV records: port and target")
	cmd.Flags().BoolVar(&q.aaaa, "aaaa", false, "ask for its IPv6 addresses")
	cmd.Flags().StringVar(&q.server, "server", "", "ask the server with this IP address")
	return cmd
}
