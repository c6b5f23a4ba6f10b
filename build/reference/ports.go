package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	agent "github.com/tombolo-net/tombolo/pkg/agent/config"
	controller "github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// port is a port or a protocol that is open.
type port struct {
	who, port, from, about string
}

// Ports of protocols, which the agent has too.
const (
	geneve, vxlan   = 6081, 4789
	bfd             = 3784
	nodeHealth      = 10256
	controllerProbe = 8080
)

// between are the ports that packets between machines use, for firewalls.
func between(a agent.Config) []port {
	tunnel := fmt.Sprintf("UDP %d (geneve, the default), UDP %d (vxlan), or IP protocol 47 (gre)", geneve, vxlan)
	return []port{
		{"all Nodes of a cluster", tunnel, "all Nodes of a cluster", "Packets of Pods. `tunnelPort` changes the ports."},
		{"all Nodes of a cluster",
			fmt.Sprintf("UDP %d (`wireGuard.port`) and %d", a.WireGuard.Port, a.NextNodeWireGuardPort()),
			"all Nodes of a cluster", "Packets of Pods with encryption. The second port is in use while a key changes."},
		{"Gateways of a cluster", "as between Nodes", "Gateways of other clusters",
			fmt.Sprintf("Packets between clusters, and BFD (UDP %d inside the tunnels).", bfd)},
		{"Gateways of a cluster", fmt.Sprintf("UDP %d (`multicluster.wireGuard.port`) and %d", a.Multicluster.WireGuard.Port,
			a.NextWireGuardPort()), "Gateways of other clusters; one direction is enough",
			"Packets between clusters with encryption. The second port is in use while a key changes."},
		{"the leader's API server", "TCP, mostly 6443", "Pods of members' controllers", "Joining, exports and imports."},
	}
}

// listeners are the listeners of the programs.
func listeners(a agent.Config, c controller.Config) []port {
	tcp := func(n int) string { return fmt.Sprintf("TCP %d", n) }
	return []port{
		{"agent", fmt.Sprintf("TCP 127.0.0.1:%d (`apiPort`)", a.APIPort), "the kubelet", "Probes: `/livez` and `/readyz`."},
		{"agent with `antreaProxy.proxyAll`", tcp(nodeHealth), "load balancers",
			"Health of the Node: `/healthz` and `/livez`."},
		{"agent with `antreaProxy.proxyAll`", "TCP `healthCheckNodePort` of Services", "load balancers",
			"Health of a Service."},
		{"agent", "unix socket", "root of the Node", "The agent's API and metrics, for `tombolo`."},
		{"agent", "unix socket", "the CNI plugin", "Attaching Pods."},
		{"each `tombolo-controller`", tcp(controllerProbe) + " of its Pod", "the kubelet",
			"Probes: `/healthz` and `/readyz`."},
		{"`tombolo-controller leader`, `member`, `policy`", tcp(c.Webhook.Port) + " of its Pod", "the API server",
			"Webhooks, with TLS."},
		{"`tombolo-controller observe`", tcp(api.RelayPort) + " of its Pod", "agents and readers",
			"The relay, with TLS and tokens."},
		{"`tombolo-controller leader`, `member`, `policy`", "TCP, off by default", "Prometheus",
			"`/metrics`, where `metrics.bindAddress` or the flag `--metrics` sets an address. With TLS and tokens, except " +
				"at a loopback address."},
	}
}

// ports writes the page of ports.
func ports(root string, p *page) error {
	a, c := agent.Default(), controller.Default()
	p.section(2, "Between machines")
	p.text("Firewalls have to pass these. The ports are the defaults.")
	open, own := between(a), listeners(a, c)
	p.ports(open, "to")
	p.section(2, "Listeners")
	p.text("The processes listen at these, in addition to tunnels.")
	p.ports(own, "process")
	return p.portsOfCharts(root, slices.Concat(open, own))
}

func (p *page) ports(list []port, who string) {
	rows := p.table(who, "port", "from", "purpose")
	for _, row := range list {
		rows.described(row.who, entry{row.who, row.port, row.from, row.about})
	}
}

var numberInChart = regexp.MustCompile(`(?:containerPort|hostPort|targetPort): (\d+)`)

// portsOfCharts refuses ports of the charts' containers that the page lacks.
func (p *page) portsOfCharts(root string, list []port) error {
	paths, err := filepath.Glob(filepath.Join(root, "deploy/charts/*/templates/*.yaml"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range numberInChart.FindAllStringSubmatch(string(text), -1) {
			if !slices.ContainsFunc(list, func(row port) bool { return strings.Contains(row.port, " "+m[1]) }) {
				p.bare = append(p.bare, "port "+strconv.Quote(m[1])+" of "+filepath.Base(path))
			}
		}
	}
	return nil
}
