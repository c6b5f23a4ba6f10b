package agent

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/datapath"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// resolverTables hold the DNS servers whose answers are learned from.
type resolverTables struct {
	config     config.Config
	services   *service.Tables
	node       *derive.Source[derive.Name, []netip.Addr]                // the DNS servers of this Node
	clusterDNS *derive.Index[derive.Name, derive.Object, service.Facts] // under self
	list       *derive.Table[derive.Name, []netip.Prefix]
}

// add adds the tables to an engine.
func (t *resolverTables) add(e *derive.Engine, one derive.Keys[derive.Name]) {
	t.node = derive.NewSource[derive.Name, []netip.Addr](e, "node-resolvers")
	t.clusterDNS = derive.NewIndex(t.services.Services, "dns", clusterDNS)
	t.list = derive.NewTable(e, "resolvers", t.listOf, one)
}

// resolverFiles name the Node's DNS servers. The first one is the file that the kubelet gives to the agent's Pod. If
// the agent runs on the Node itself, the second one has the servers behind the stub of systemd-resolved.
var resolverFiles = []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"}

// readResolvers returns the DNS servers in files in the form of resolv.conf(5), sorted. It omits servers at loopback
// addresses, since these do not lead from a Pod to the Node.
func readResolvers(files []string) (out []netip.Addr) {
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it may be missing
		}
		for line := range strings.Lines(string(text)) {
			words := strings.Fields(line)
			if len(words) < 2 || words[0] != "nameserver" {
				continue
			}
			if a, err := netip.ParseAddr(words[1]); err == nil && !a.IsLoopback() {
				out = append(out, a.Unmap().WithZone(""))
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// clusterDNS indexes the Services that are the cluster's DNS.
func clusterDNS(_ derive.Object, f service.Facts) []derive.Name {
	if !f.DNS {
		return nil
	}
	return []derive.Name{self}
}

// listOf returns the DNS servers whose answers are learned. If no servers are configured, these are the cluster's DNS,
// with the addresses and endpoints of its Services, and the Node's servers.
func (t *resolverTables) listOf(_ derive.Name, r *derive.Reader) (out []netip.Prefix, _ []problem.Problem) {
	if out = t.config.Resolvers(); len(out) > 0 {
		return out, nil
	}
	list, _ := derive.Get(r, t.node, self)
	list = slices.Clone(list)
	for _, s := range derive.List(r, t.clusterDNS, self) {
		list = append(list, s.Value.VIPs...)
		for _, slice := range derive.List(r, t.services.ByService, s.Key) {
			for _, e := range slice.Value.Endpoints {
				list = append(list, e.Addr)
			}
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	for _, a := range slices.Compact(list) {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return out, nil
}

// Bounds of otherServers.
const (
	mostOtherServers = 16
	otherServersFor  = 10 * time.Minute // since their last answer
)

// otherServers are the DNS servers that Pods under rules with names ask, and whose answers are not learned.
type otherServers struct {
	log *slog.Logger

	mu   sync.Mutex
	seen map[netip.Addr]time.Time // when the last answer came
}

func newOtherServers(log *slog.Logger) *otherServers {
	return &otherServers{log: log, seen: map[netip.Addr]time.Time{}}
}

// take records the server whose answer a packet is.
func (o *otherServers) take(in ofp.PacketIn2) error {
	h, err := datapath.HeadersOf(in.Data)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.expire()
	_, known := o.seen[h.Src]
	if !known && len(o.seen) == mostOtherServers {
		return errQueueFull
	}
	if o.seen[h.Src] = time.Now(); !known {
		o.log.Warn("answers of a DNS server are not learned for rules with names", "server", h.Src, "to", h.Dst)
	}
	return nil
}

// expire forgets servers that have not answered for a while. o.mu is held.
func (o *otherServers) expire() {
	for a, at := range o.seen {
		if time.Since(at) > otherServersFor {
			delete(o.seen, a)
		}
	}
}

// problems names the servers.
func (o *otherServers) problems(node string) []problem.Problem {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.expire()
	if len(o.seen) == 0 {
		return nil
	}
	var list []string
	for a := range o.seen {
		list = append(list, a.String())
	}
	slices.Sort(list)
	return []problem.Problem{{
		Object: problem.Object{Kind: "Node", Name: node}, Field: "dnsServerOverride", Reason: reasonUnknownResolver,
		Message: fmt.Sprintf("Pods under rules with names ask %s, and the rules do not learn these answers: "+
			"have the Pods ask the cluster's DNS, or list all DNS servers that are trusted in dnsServerOverride of "+
			"antrea-agent.conf", strings.Join(list, ", ")),
	}}
}
