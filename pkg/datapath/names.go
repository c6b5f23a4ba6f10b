package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/service"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// Rules may name servers by their DNS names. The agent learns the addresses of these names from the answers to Pods
// under such rules. The switch sends each answer to the agent. The agent records the addresses, waits until their flows
// are in the switch, and passes the answer on (Answer.Release). So a Pod's first connection after the answer finds the
// rule.
//
// The agent reads only replies on connections that the Pod has opened to configured resolvers, to questions for names
// of the Pod's rules. Answers of other servers pass unread. Otherwise a tenant with such a server could map a name to
// any address.

// namedFor has the flows for Pods of one identity that are under rules with names, and these names.
type namedFor struct {
	patterns []string
	Entries  flow.Entries // exported, so that fmt prints them as text
}

// vipsOf are the addresses of a Service.
func vipsOf(_ derive.Object, list []service.Frontend) (out []policy.Addr) {
	for _, f := range list {
		if a := (policy.Addr{Addr: f.VIP.Addr()}); !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// namedSubjects returns the subjects of a rule with names.
func namedSubjects(k policy.RuleKey, r policy.Rule) (out []subject) {
	if k.Direction != policy.Egress || len(r.Names) == 0 {
		return nil
	}
	for _, n := range r.Applied {
		out = append(out, subject{n, policy.Egress})
	}
	return out
}

// answerFlows send DNS answers to some Pods to the agent. They cost other packets nothing, since the match has the
// Pods' identity before the ports. With packetInRate 0, answers pass and the agent learns nothing. The agent also gets
// copies of a few answers of servers that are not resolvers, so that it can report these servers.
func (p *Policies) answerFlows(s subject, r *derive.Reader) (out namedFor, _ []problem.Problem) {
	for _, row := range derive.List(r, p.naming, s) {
		out.patterns = append(out.patterns, row.Value.Names...)
	}
	slices.Sort(out.patterns)
	out.patterns = slices.Compact(out.patterns)
	rate, _ := derive.Get(r, p.base.rate, Self)
	if rate == 0 {
		return out, nil
	}
	share := shareOf(DNSAnswer, s.identity, rate)
	out.Entries.Meters = []flow.Meter{share}
	families := derived(r, p.base.outside).Families
	for _, protocol := range [][]flow.Cond{
		{flow.UDPSrc(dnsPort)},
		// A segment with PSH ends the data that the server has sent so far. The agent learns from the segment if it contains
		// the whole answer.
		{flow.TCPSrc(dnsPort), flow.Field(ofp.TCPFlags, []byte{0, tcpPSH}, []byte{0, tcpPSH})},
	} {
		match := func(more ...flow.Cond) flow.Match {
			to := []flow.Cond{receiver.Is(uint64(s.identity)), flow.CTState("-new+est+rpl+trk")}
			return flow.All(slices.Concat(to, protocol, more)...)
		}
		for _, server := range p.resolvers(r) {
			out.Entries.Flows = append(out.Entries.Flows, flow.Flow{
				Table: Ingress, Priority: never, Match: match(server),
				Actions: append(flow.Do(ofp.Meter{ID: share.ID}), ask(DNSAnswer, rate, fmt.Sprint(s.identity))...),
			})
		}
		for _, ip := range versions(families) {
			out.Entries.Flows = append(out.Entries.Flows, flow.Flow{
				Table: Ingress, Priority: never - 1, Match: match(ip, committed.Is(0)),
				Actions: append(report(DNSOther, DNSOther.meter()), flow.Goto(Commit)),
			})
		}
	}
	return out, nil
}

// resolvers returns a condition for each range of DNS servers whose answers are read.
func (p *Policies) resolvers(r *derive.Reader) (out []flow.Cond) {
	if p.base.Resolvers == nil {
		return nil
	}
	list, _ := derive.Get(r, p.base.Resolvers, Self)
	families := derived(r, p.base.outside).Families
	for i, server := range list {
		every := slices.IndexFunc(list, func(s netip.Prefix) bool {
			return s.Bits() == 0 && s.Addr().Is4() == server.Addr().Is4()
		})
		switch {
		case !families.Serve(server.Addr()):
		case every < 0:
			out = append(out, flow.IPSrc(server))
		case every == i: // the others are in it
			out = append(out, versionOf(server.Addr()))
		}
	}
	return out
}

// answersOwner owns the flows for answers to Pods of an identity.
func answersOwner(s subject) flow.Owner { return policyOwner("answers", s.identity) }

const (
	dnsPort = 53
	tcpPSH  = 1 << 3
)

// Answer is a reply of a DNS server to a Pod.
type Answer struct {
	Identity uint32     // of the Pod
	To       netip.Addr // the Pod
	Network  tenant.ID  // of tenants, as in Report
	Name     string     // that it asked for, in normal form (policy.NameOf)
	Addrs    []netip.Addr
	TTL      time.Duration // how long they hold
	frame    []byte
}

// maxAnswer bounds how many records of an answer are looked at.
const maxAnswer = 1000

// AnswerOf reads a packet of kind DNSAnswer. If it returns an error, its Answer has no addresses, but the caller still
// has to release it.
func AnswerOf(pkt ofp.PacketIn2) (a Answer, err error) {
	a.frame, a.Network = pkt.Data, NetworkOf(pkt)
	_, number, _ := strings.Cut(string(pkt.Userdata), " ")
	if _, err := fmt.Sscan(number, &a.Identity); err != nil {
		return a, fmt.Errorf("userdata %q names no identity", pkt.Userdata)
	}
	ip, payload, err := ipHeader(pkt.Data)
	if err != nil {
		return a, err
	}
	a.To = ip.dst
	switch {
	case ip.laterFragment || ip.length > len(pkt.Data)-ethLen:
		return a, errors.New("it is a part of a packet")
	case ip.protocol == protoUDP && len(payload) >= 8:
		payload = payload[8:]
	case ip.protocol == protoTCP && len(payload) >= tcpLen && len(payload) >= int(payload[12]>>4)*4+2:
		payload = payload[payload[12]>>4*4:]
		if n := int(binary.BigEndian.Uint16(payload)); n != len(payload)-2 {
			return a, fmt.Errorf("a message of %d bytes does not fill a segment with %d", n, len(payload)-2)
		}
		payload = payload[2:]
	default:
		return a, errors.New("it is too short, or neither UDP nor TCP")
	}
	return a, a.read(payload)
}

// read reads a message of DNS (RFC 1035): the addresses of the name in question, behind any CNAMEs.
func (a *Answer) read(message []byte) error {
	var p dnsmessage.Parser
	h, err := p.Start(message)
	if err != nil {
		return err
	}
	if !h.Response || h.RCode != dnsmessage.RCodeSuccess {
		return fmt.Errorf("it is no answer, or one with code %s", h.RCode)
	}
	q, err := p.Question()
	if err != nil {
		return err
	}
	if q.Class != dnsmessage.ClassINET || q.Type != dnsmessage.TypeA && q.Type != dnsmessage.TypeAAAA {
		return fmt.Errorf("the question is not for addresses: %s %s", q.Class, q.Type)
	}
	if err := p.SkipAllQuestions(); err != nil {
		return err
	}
	type record struct {
		ttl  uint32
		addr netip.Addr
	}
	aliases, records, ttls := map[string]string{}, map[string][]record{}, map[string]uint32{}
	for range maxAnswer {
		h, err := p.AnswerHeader()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			break
		}
		if err != nil {
			return err
		}
		owner := policy.NameOf(h.Name.String())
		switch h.Type {
		case dnsmessage.TypeA:
			r, err := p.AResource()
			if err != nil {
				return err
			}
			records[owner] = append(records[owner], record{h.TTL, netip.AddrFrom4(r.A)})
		case dnsmessage.TypeAAAA:
			r, err := p.AAAAResource()
			if err != nil {
				return err
			}
			records[owner] = append(records[owner], record{h.TTL, netip.AddrFrom16(r.AAAA).Unmap()})
		case dnsmessage.TypeCNAME:
			r, err := p.CNAMEResource()
			if err != nil {
				return err
			}
			aliases[owner], ttls[owner] = policy.NameOf(r.CNAME.String()), h.TTL
		default:
			if err := p.SkipAnswer(); err != nil {
				return err
			}
		}
	}
	a.Name = policy.NameOf(q.Name.String())
	ttl := ^uint32(0)
	name := a.Name
	for range len(aliases) + 1 { // no further round a circle
		for _, r := range records[name] {
			a.Addrs, ttl = append(a.Addrs, r.addr), min(ttl, r.ttl)
		}
		next, ok := aliases[name]
		if !ok {
			break
		}
		ttl, name = min(ttl, ttls[name]), next
	}
	slices.SortFunc(a.Addrs, netip.Addr.Compare)
	a.Addrs = slices.Compact(a.Addrs)
	a.Addrs = slices.DeleteFunc(a.Addrs, func(ip netip.Addr) bool {
		return ip.IsUnspecified() || ip.IsLoopback() || ip.IsMulticast() || ip == netip.AddrFrom4([4]byte{255, 255, 255, 255})
	})
	a.TTL = time.Duration(ttl) * time.Second
	return nil
}

// Release hands the answer on to the Pod, which is one of this Node.
func (a Answer) Release(n Node, pod Pod) ofp.PacketOut {
	return ofp.PacketOut{BufferID: ofp.NoBuffer, InPort: ofp.PortController,
		Actions: nodePod{node: n, pod: pod}.deliver(flow.Resubmit(Output)), Data: a.frame}
}

// Wanted reports whether a rule that is applied to the Pod names the domain that the Pod has asked for. Any goroutine
// may call it.
func (p *Policies) Wanted(a Answer) bool {
	f, _ := p.answers.Get(subject{a.Identity, policy.Egress})
	return slices.ContainsFunc(f.patterns, func(pattern string) bool { return policy.MatchesName(pattern, a.Name) })
}
