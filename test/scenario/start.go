package scenario

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/test/lab"
)

// Setup describes the lab that a package's tests share.
type Setup struct {
	Name     string // the lab's name begins with it; the process ID follows
	Clusters []string
	Nodes    int
	// NodeGrace is how long a Node may be silent; the lab's default when zero.
	NodeGrace time.Duration
	// Charts are the clusters that get Tombolo by its charts, not by the manifests.
	Charts []string
	// These are as in lab.Config.
	Subnets        int
	Families       []family.Families
	ProxyAll       bool
	TrafficMode    string
	Encrypted      bool
	BFD            lab.BFD
	ActiveGateways int
	Tenants        bool
	// Prepare changes the lab before Tombolo is installed; may be nil.
	Prepare func(context.Context, *lab.Lab) error
}

// Run brings up a lab, installs Tombolo in it, calls f, takes the lab down, and compares the machine with its state
// before. It returns f's result, or 1 if anything else failed. With TOMBOLO_KEEP_LAB set the lab stays.
func (s Setup) Run(f func(*Scenario) int) (code int) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	start := time.Now()
	report := func(format string, args ...any) {
		fmt.Printf("%7.1fs  %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
	}
	name := fmt.Sprintf("%s%d", s.Name, os.Getpid())
	before, err := lab.Snapshot(name)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	l, err := lab.Up(ctx, lab.Config{
		Name: name, Clusters: s.Clusters, Nodes: s.Nodes, Subnets: s.Subnets, NodeGrace: s.NodeGrace,
		Charts: s.Charts, Families: s.Families, ProxyAll: s.ProxyAll, TrafficMode: s.TrafficMode, Encrypted: s.Encrypted,
		BFD: s.BFD, ActiveGateways: s.ActiveGateways, Tenants: s.Tenants, Progress: func(line string) { report("%s", line) },
	})
	if l == nil {
		fmt.Fprintln(os.Stderr, "bring up the lab:", err)
		return 1
	}
	defer func() {
		if os.Getenv("TOMBOLO_KEEP_LAB") != "" {
			fmt.Println("the lab stays up: TOMBOLO_KEEP_LAB is set")
			return
		}
		ctx := context.Background()
		err := l.Down(ctx)
		if err == nil {
			err = before.Compare(ctx)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "take the lab down:", err)
			code = 1
		}
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bring up the lab:", err)
		return 1
	}
	if s.Prepare != nil {
		if err := s.Prepare(ctx, l); err != nil {
			fmt.Fprintln(os.Stderr, "prepare the lab:", err)
			return 1
		}
	}
	if err := l.Install(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "install Tombolo:", err)
		return 1
	}
	report("Tombolo is installed in %d clusters", len(s.Clusters))
	return f(&Scenario{Lab: l, Progress: report})
}
