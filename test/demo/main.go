// Command demo shows Tombolo's main function: it brings up three real clusters, joins them with `tombolo mc up`, and
// lets a Pod in one cluster send requests to a Service of another.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tombolo-net/tombolo/pkg/family"
	"github.com/tombolo-net/tombolo/test/lab"
	"github.com/tombolo-net/tombolo/test/scenario"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	d := &demo{name: "demo", encrypted: os.Getenv("WIREGUARD") == "1", withTenants: os.Getenv("TENANTS") == "1",
		start: started()}
	err := d.run(ctx)
	if err != nil {
		fmt.Fprintf(os.Stderr,
			"\ndemo: %v\nThe lab is left as it is; look into it with bin/tombolo-lab, remove it with: make demo-down\n", err)
		return 1
	}
	fmt.Printf("\ntotal time: %s\n", time.Since(d.start).Round(time.Second))
	if os.Getenv("MAP") == "1" {
		if err := d.serveMap(ctx); err != nil {
			fmt.Fprintf(os.Stderr, "\ndemo: serve the map: %v\n", err)
			return 1
		}
	}
	return 0
}

// started returns the time at which `make demo` began, including compiling and downloading. Without make it returns the
// present time.
func started() time.Time {
	if seconds, err := strconv.ParseInt(os.Getenv("TOMBOLO_START"), 10, 64); err == nil {
		return time.Unix(seconds, 0)
	}
	return time.Now()
}

type demo struct {
	name        string // of the lab
	encrypted   bool   // what goes between the clusters
	withTenants bool   // shows networks of tenants
	start       time.Time
	world       *scenario.Scenario
	up          []string // the arguments of `tombolo mc up`
}

// mapArguments are the arguments of bin/tombolo that serve the map of the demo's clusters.
func (d *demo) mapArguments() []string {
	var files []string
	for _, c := range d.world.Lab.Clusters() {
		files = append(files, c.Kubeconfig())
	}
	return []string{"ui", "--context", strings.Join(files, ",")}
}

// serveMap serves the map until ctx ends.
func (d *demo) serveMap(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, filepath.Join(d.world.Lab.Repo(), "bin", "tombolo"), d.mapArguments()...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	if err := cmd.Run(); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// progress prints one line of progress with the time since the start.
func (d *demo) progress(format string, args ...any) {
	fmt.Printf("%7.1fs  %s\n", time.Since(d.start).Seconds(), fmt.Sprintf(format, args...))
}

func (d *demo) run(ctx context.Context) error {
	// A demo that was stopped half way is no reason to fail.
	if old, err := lab.Open(d.name); err == nil {
		repo, err := lab.Repo()
		if err != nil {
			return err
		}
		if old.Repo() != repo {
			return fmt.Errorf("a demo of another copy of this repository runs: remove it with: make -C %s demo-down", old.Repo())
		}
		d.progress("removing the lab of an earlier demo")
		if err := old.Down(ctx); err != nil {
			return err
		}
	}
	l, err := lab.Up(ctx, lab.Config{
		Name:     d.name,
		Clusters: []string{"north", "east", "west"},
		Nodes:    2,
		Progress: func(s string) { d.progress("%s", s) },

		Encrypted:      d.encrypted,
		Tenants:        d.withTenants,
		Families:       []family.Families{family.Dual},
		ProxyAll:       true,
		ActiveGateways: 2,
		BFD:            lab.BFD{Interval: 100 * time.Millisecond, Multiplier: 3},
	})
	if err != nil {
		return err
	}
	d.world = &scenario.Scenario{Lab: l, Progress: d.progress}
	if err := d.setUp(ctx); err != nil {
		return err
	}
	d.progress("west: Deployment and Service nginx, ServiceExport default/nginx")
	if err := d.world.Nginx(ctx, "west", 2); err != nil {
		return err
	}
	if err := d.world.Export(ctx, "west"); err != nil {
		return err
	}
	d.progress("east: a client Pod on node-2, which is not the Gateway")
	if err := d.world.ClientPod(ctx, "east", "client", "node-2"); err != nil {
		return err
	}
	ip, err := d.world.ImportedIP(ctx, "east", "antrea-mc-nginx", 1, 3*time.Minute)
	if err != nil {
		return err
	}
	url := "http://" + ip + "/"
	var out string
	if err := scenario.Eventually(ctx, 2*time.Minute, func(ctx context.Context) error {
		_, err := d.world.Exec(ctx, "east", "client", "/echo", "get", url, "--count", "1", "--timeout", "2s")
		return err
	}); err != nil {
		return err
	}
	d.progress("20 requests from default/client in east to %s (default/antrea-mc-nginx)", url)
	if out, err = d.world.Exec(ctx, "east", "client", "/echo", "get", url, "--count", "20"); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	d.progress("done")
	return d.report(ctx, ip, out)
}

func section(title string) { fmt.Printf("\n== %s\n", title) }

// report shows what happened, in tables.
func (d *demo) report(ctx context.Context, ip, answers string) error {
	show := func(cluster string, args ...string) error {
		out, err := d.world.Kubectl(ctx, cluster, args...)
		fmt.Printf("-- %s\n%s", cluster, out)
		return err
	}
	section("Clusters")
	if out, err := d.world.Lab.Tool(ctx, "north", "tombolo", "mc", "get", "clusterset", scenario.ClusterSet, "-n",
		scenario.LeaderNamespace); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	} else {
		fmt.Print(out)
	}
	for _, table := range []struct{ title, kind, namespace string }{
		{"Gateways", "gateway", scenario.MemberNamespace},
		{"ClusterInfoImports", "clusterinfoimport", scenario.MemberNamespace},
		{"ServiceImports", "serviceimport", "default"},
	} {
		section(table.title)
		for _, cluster := range d.world.Members() {
			if err := show(cluster, "get", table.kind, "-n", table.namespace); err != nil {
				return err
			}
		}
	}
	section("20 requests, by the server that answered (cluster/Node/Pod)")
	fmt.Print(answers)
	section("The packet's way (from the Open vSwitch of each Node)")
	if err := d.way(ctx, ip); err != nil {
		return err
	}
	if err := d.nodePorts(ctx); err != nil {
		return err
	}
	ips, err := d.families(ctx)
	if err != nil {
		return err
	}
	if err := d.policy(ctx, ips); err != nil {
		return err
	}
	if d.withTenants {
		if err := d.tenants(ctx); err != nil {
			return err
		}
	}
	if err := d.gateways(ctx); err != nil {
		return err
	}
	section("What to try next")
	fmt.Printf(`bin/tombolo-lab --lab %[1]s kubectl east get pods -A -o wide
bin/tombolo-lab --lab %[1]s kubectl east exec client -- /echo get http://%[2]s/ --count 5
bin/tombolo-lab --lab %[1]s exec east/node-1 -- ovs-ofctl -O OpenFlow15 dump-flows br-int
bin/tombolo-lab --lab %[1]s kubectl east exec -n kube-system ds/tombolo-agent -- tombolo get peers
bin/tombolo %[3]s   # the map
make demo-down
`, d.name, ip, strings.Join(d.mapArguments(), " "))
	return nil
}

// way shows the flows that requests hit on each of the four Nodes that they pass. These are the flows whose packet
// counters have changed between two dumps around some requests.
func (d *demo) way(ctx context.Context, ip string) error {
	server, err := d.world.Kubectl(ctx, "west", "get", "pods", "-n", "default", "-l", "app=nginx",
		"-o", `jsonpath={.items[?(@.spec.nodeName=="node-2")].metadata.name}`)
	if err != nil {
		return err
	}
	fmt.Printf("default/client on east/node-2 -> east/node-1 (Gateway) -> west/node-1 (Gateway) -> %s on west/node-2\n",
		strings.TrimSpace(server))
	hops := []struct{ cluster, node string }{{"east", "node-2"}, {"east", "node-1"}, {"west", "node-1"},
		{"west", "node-2"}}
	before := make([]map[string]uint64, len(hops))
	for i, h := range hops {
		if before[i], err = d.tables(ctx, h.cluster, h.node); err != nil {
			return err
		}
	}
	if out, err := d.world.Exec(ctx, "east", "client", "/echo", "get", "http://"+ip+"/", "--count", "20"); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	for i, h := range hops {
		h := h
		var met []string
		err := scenario.Eventually(ctx, time.Minute, func(ctx context.Context) error {
			after, err := d.tables(ctx, h.cluster, h.node)
			if err != nil {
				return err
			}
			met = met[:0]
			for _, t := range order {
				if after[t] > before[i][t] {
					met = append(met, t)
				}
			}
			if len(met) < 4 {
				return fmt.Errorf("%s/%s: counters of Open vSwitch have not moved yet", h.cluster, h.node)
			}
			return nil
		})
		if err != nil {
			return err
		}
		fmt.Printf("  %-12s  %s\n", h.cluster+"/"+h.node, strings.Join(met, " -> "))
	}
	return nil
}
