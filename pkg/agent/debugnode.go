package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/pprof"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
	"github.com/tombolo-net/tombolo/pkg/rtnetlink"
)

// Limits of the lists of connections and routes.
const (
	// stallingConnections is the largest number of connections that the userspace datapath is asked to list. It forwards
	// nothing meanwhile: for 10 ms at this number.
	stallingConnections = 2000
	maxEntries          = 50000 // of connections, and of routes
)

// nodeAnswers answers requests about the Node itself, and about the parts of the switch that no command shows. Its
// answers change nothing.
func (d debugAPI) nodeAnswers() map[string]func(*http.Request) (any, error) {
	return map[string]func(*http.Request) (any, error){
		api.PathMeters:      d.agent.answers.dump.serveMeters,
		api.PathOVSDB:       d.agent.answers.dump.serveOVSDB,
		api.PathLinks:       serveLinks,
		api.PathRoutes:      serveRoutes,
		api.PathNFTables:    serveNFTables,
		api.PathGoroutines:  serveGoroutines,
		api.PathConnections: d.serveConnections,
	}
}

// serveMeters lists the meters of the switch.
func (a *switchAnswers) serveMeters(r *http.Request) (any, error) {
	meters, err := a.flows.DumpMeters(r.Context())
	if err != nil {
		return nil, fmt.Errorf("read the switch's meters: %w", err)
	}
	list := api.MeterList{Meters: []api.Meter{}}
	for _, m := range meters {
		out := api.Meter{ID: m.Meter.ID, Text: m.Meter.String()}
		if m.Owner != (flow.Owner{}) {
			out.Owner = ownerText(m.Owner, nil)
		}
		list.Meters = append(list.Meters, out)
	}
	slices.SortFunc(list.Meters, func(x, y api.Meter) int { return cmp.Compare(x.ID, y.ID) })
	return list, nil
}

// serveOVSDB answers with the rows of the OVSDB about our bridge.
func (a *switchAnswers) serveOVSDB(*http.Request) (any, error) {
	state := a.switchPorts.State()
	if !state.Connected {
		return nil, errors.New("no connection to the OVSDB: is the tombolo-ovs Pod of this Node running?")
	}
	ours := map[string]bridge.Found{}
	for _, name := range []string{a.tables.config.OVSBridge, uplinkBridge(a.tables.config.TransportInterface)} {
		if found, ok := state.Bridges[name]; ok {
			ours[name] = found
		}
	}
	state.Bridges = ours // a copy: the agent reads the other one
	return state, nil
}

// serveLinks lists the Node's links.
func serveLinks(*http.Request) (any, error) {
	links, err := rtnetlink.List(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list the Node's links: %w", err)
	}
	addresses, err := rtnetlink.List(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list the Node's addresses: %w", err)
	}
	list := api.LinkList{Links: []api.Link{}}
	for _, l := range links {
		at := l.Attrs()
		out := api.Link{Index: at.Index, Name: at.Name, Type: l.Type(), MTU: at.MTU, MAC: at.HardwareAddr.String(),
			State: at.OperState.String(), Flags: at.Flags.String(), Master: at.MasterIndex}
		if s := at.Statistics; s != nil {
			out.RxPackets, out.TxPackets, out.RxDropped, out.TxDropped = s.RxPackets, s.TxPackets, s.RxDropped, s.TxDropped
			out.RxErrors, out.TxErrors = s.RxErrors, s.TxErrors
		}
		for _, x := range addresses {
			if x.LinkIndex == at.Index {
				out.Addresses = append(out.Addresses, x.IPNet.String())
			}
		}
		list.Links = append(list.Links, out)
	}
	slices.SortFunc(list.Links, func(x, y api.Link) int { return cmp.Compare(x.Index, y.Index) })
	return list, nil
}

// serveRoutes lists the routes of all tables and the rules.
func serveRoutes(*http.Request) (any, error) {
	rules, err := rtnetlink.List(func() ([]netlink.Rule, error) { return netlink.RuleList(netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list the Node's rules of routing: %w", err)
	}
	// Without a table the library lists the main one alone.
	routes, err := rtnetlink.List(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return nil, fmt.Errorf("list the Node's routes: %w", err)
	}
	list := api.RouteList{Rules: []string{}, Routes: []string{}}
	for _, r := range rules {
		list.Rules = append(list.Rules, r.String())
	}
	addRoutes(&list, routes, maxEntries)
	return list, nil
}

// addRoutes lists at most so many routes.
func addRoutes(list *api.RouteList, routes []netlink.Route, most int) {
	list.LeftOut = max(0, len(routes)-most)
	for _, r := range routes[:len(routes)-list.LeftOut] {
		list.Routes = append(list.Routes, r.String())
	}
}

// serveNFTables answers with our nftables tables.
func serveNFTables(r *http.Request) (any, error) {
	text, err := hostnet.OwnTables(r.Context())
	return api.Text{Text: text}, err
}

// serveGoroutines answers with the stacks of the agent's goroutines. They have addresses of memory and no contents.
func serveGoroutines(*http.Request) (any, error) {
	var out bytes.Buffer
	err := pprof.Lookup("goroutine").WriteTo(&out, 1)
	return api.Text{Text: out.String()}, err
}

// serveConnections counts the tracked connections, and lists them if that is requested.
func (d debugAPI) serveConnections(r *http.Request) (any, error) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	tracked, limit, err := countConnections(ctx, d.agent.tracer, d.agent.config)
	if err != nil {
		return nil, fmt.Errorf("count the tracked connections: %w", err)
	}
	list := api.ConnectionList{Tracked: tracked, Limit: limit}
	if r.URL.Query().Get("entries") != "true" {
		return list, nil
	}
	if d.agent.config.OVSDatapathType == "netdev" && tracked > stallingConnections {
		return nil, fmt.Errorf("%d connections are tracked; the userspace datapath forwards nothing while it lists "+
			"them, so at "+
			"most %d are listed; `ovs-appctl dpctl/dump-conntrack` lists them all the same", tracked, stallingConnections)
	}
	err = d.agent.tracer.Lines(ctx, func(line string) { addConnection(&list, line, maxEntries) },
		"dpctl/dump-conntrack", conntrackDump(d.agent.config, d.agent.connections.zones.any())...)
	if err != nil {
		return nil, fmt.Errorf("list the tracked connections: %w", err)
	}
	return list, nil
}

// addConnection adds a line of dpctl/dump-conntrack to a list of at most so many. It leaves out lines of other
// programs. The kernel lists these lines with ours if the list has several zones.
func addConnection(list *api.ConnectionList, line string, most int) {
	_, network := datapath.TrackedZone(line)
	main := fmt.Sprintf(",zone=%d,", datapath.ServiceZone)
	switch {
	case !network && !strings.Contains(strings.TrimSpace(line)+",", main):
	case len(list.Entries) == most:
		list.LeftOut++
	default:
		list.Entries = append(list.Entries, line)
	}
}
