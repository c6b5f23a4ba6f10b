package agent

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/peering"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// bfdMAC is the destination MAC of BFD's packets, within tunnels. No Pod has it. Pods do not choose the MACs of packets
// in tunnels. So the switch does not take Pods' packets to the port of BFD for packets of BFD.
const bfdMAC = "aa:bb:cc:dd:ee:0f"

// bfdEvery is the share of BFD's interval for each far end: the interval is this time multiplied by the number of far
// ends. So a Gateway handles at most a thousand packets a second in each direction.
const bfdEvery = time.Millisecond

// wayTables hold which ways BFD watches, and their ports.
type wayTables struct {
	config   config.Config
	nodeName string
	peering  *derive.Table[derive.Name, peering.Peering]
	clusters peering.Tables                            // the same, by cluster
	node     *derive.Table[derive.Name, datapath.Node] // this one
	remotes  *derive.Table[derive.Name, datapath.RemoteNode]

	watched *derive.Table[derive.Name, []datapath.WayEnd]
	numbers *derive.Numbers[datapath.WayEnd]      // of their ports
	lost    *derive.Source[datapath.WayEnd, bool] // ways that have been down for long, as downWays finds them
}

// add adds the tables to an engine.
func (t *wayTables) add(e *derive.Engine, one derive.Keys[derive.Name]) {
	t.lost = derive.NewSource[datapath.WayEnd, bool](e, "lost-ways")
	t.watched = derive.NewTable(e, "watched-ends", t.watchedOf, one)
	byEnd := derive.NewIndex(t.watched, "end", func(_ derive.Name, ends []datapath.WayEnd) []datapath.WayEnd {
		return ends
	})
	t.numbers = derive.NewNumbers(e, "ways", firstWay, lastWay, derive.KeysOfIndex(byEnd))
}

// watchedOf returns the far ends that BFD watches.
func (t *wayTables) watchedOf(_ derive.Name, r *derive.Reader) ([]datapath.WayEnd, []problem.Problem) {
	p, _ := derive.Get(r, t.clusters.Part, self)
	ends, nodes := p.Watched(values(derive.All(r, t.clusters.Peers)))
	if nodes {
		for _, n := range derive.All(r, t.remotes) {
			ends = append(ends, n.Value.Address)
		}
	}
	slices.SortFunc(ends, netip.Addr.Compare)
	var out []datapath.WayEnd
	var ps problems
	names := map[string]netip.Addr{}
	for _, end := range slices.Compact(ends) {
		name := wayPort(end)
		switch other, taken := names[name]; {
		case !carriesTunnels(end):
		case taken:
			ps.report(problem.Object{Kind: "Node", Name: t.nodeName}, "status.addresses", reasonWayNotWatched,
				"the loss of the way to %s is not detected, since the port %s belongs to the way to %s: give one of the two Nodes "+
					"another address", end, name, other)
		default:
			names[name] = end
			out = append(out, datapath.WayEnd{Addr: end})
		}
	}
	return out, ps
}

// onlyEnd returns the address where all tunnels of this Node end: its transport address. The result is the zero address
// if there is no transport address, or if tunnels to other clusters are over the other version of IP.
func (t *wayTables) onlyEnd(transport netip.Addr, r *derive.Reader) netip.Addr {
	p, _ := derive.Get(r, t.clusters.Part, self)
	if p.Role == peering.Gateway && p.End.Is4() != transport.Is4() {
		return netip.Addr{}
	}
	return transport
}

// bfdPorts returns the ports with BFD. transport is this Node's transport address, if there is one.
func (t *wayTables) bfdPorts(transport netip.Addr, r *derive.Reader) []bridge.Port {
	watched, _ := derive.Get(r, t.watched, self)
	if len(watched) == 0 {
		return nil
	}
	node, _ := derive.Get(r, t.node, self)
	p, _ := derive.Get(r, t.clusters.Part, self)
	peers := derive.All(r, t.clusters.Peers)
	bfd := t.bfd(len(watched))
	var out []bridge.Port
	for _, end := range watched {
		number, ok := derive.Get(r, t.numbers, end)
		if !ok {
			continue // the table of numbers reports it
		}
		options := tunnelOptions(t.config, transport)
		options["remote_ip"] = end.String()
		if !transport.IsValid() || transport.Is4() != end.Is4() || options["local_ip"] == "flow" {
			from := node.Tunnels.Source
			for _, peer := range peers {
				isEnd := func(w peering.Way) bool { return w.End() == end.Addr }
				if slices.ContainsFunc(p.Ways(peer.Value), isEnd) {
					from = node.Tunnels.PeerSource
				}
			}
			if delete(options, "local_ip"); from.IsValid() && from.Is4() == end.Is4() {
				options["local_ip"] = from.String()
			}
		}
		out = append(out, bridge.Port{
			// The type is the tunnel port's, which carries the packets: BFD must not be up where these do not pass.
			Name: wayPort(end.Addr), Type: tunnelType(t.config, over6(node)), OFPort: number, Options: options,
			BFD: maps.Clone(bfd), ExternalIDs: map[string]string{externalIDType: typeWay},
		})
	}
	return out
}

// wayPort returns the name of the port with BFD to a far end. A name has at most 15 characters. So for an address of
// IPv6 it has a hash.
func wayPort(end netip.Addr) string {
	if end.Is4() {
		return fmt.Sprintf("bfd-%x", end.AsSlice())
	}
	hash := sha256.Sum256(end.AsSlice())
	return fmt.Sprintf("bfd6-%x", hash[:5])
}

// bfd returns the settings of BFD for each port, given the number of ports. The interval grows in steps, so that a new
// Node does not change all ports.
func (t *wayTables) bfd(ports int) map[string]string {
	const step = 50 * time.Millisecond
	b := t.config.Multicluster.BFD
	interval := b.Interval
	if least := time.Duration(ports) * bfdEvery; interval < least {
		interval = (least + step - 1) / step * step
	}
	ms := itoa(int(interval.Milliseconds()))
	return map[string]string{
		"enable": "true", "min_tx": ms, "min_rx": ms, "mult": itoa(b.Multiplier),
		"bfd_local_dst_mac": bfdMAC, "bfd_remote_dst_mac": bfdMAC,
	}
}
