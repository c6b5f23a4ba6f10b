package datapath

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// zone holds the answers of a DNS server: addresses, and aliases of names that end with a dot.
type zone map[string][]string

// answer returns the server's answer to a question, nil if the message is no question.
func (z zone) answer(query []byte) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil || h.Response {
		return nil
	}
	q, err := p.Question()
	if err != nil {
		return nil
	}
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: h.ID, Response: true, RecursionDesired: true},
		Questions: []dnsmessage.Question{q}}
	for name, next := q.Name, true; next; {
		next = false
		for _, value := range z[strings.ToLower(name.String())] {
			head := dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET, TTL: 30}
			switch ip, err := netip.ParseAddr(value); {
			case err == nil && ip.Is4() && q.Type == dnsmessage.TypeA:
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AResource{A: ip.As4()}})
				continue
			case err == nil && !ip.Is4() && q.Type == dnsmessage.TypeAAAA:
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AAAAResource{AAAA: ip.As16()}})
				continue
			case err == nil: // of the other type
				continue
			}
			alias := dnsmessage.MustNewName(value)
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.CNAMEResource{CNAME: alias}})
			name, next = alias, true
		}
	}
	if len(m.Answers) == 0 {
		m.RCode = dnsmessage.RCodeNameError
	}
	out, err := m.Pack()
	if err != nil {
		return nil
	}
	return out
}

// queryFor asks for the addresses of a name.
func queryFor(name string) []byte { return queryOf(dnsmessage.TypeA, name) }

// queryOf asks for records of a type.
func queryOf(kind dnsmessage.Type, name string) []byte {
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true}, Questions: []dnsmessage.Question{{
		Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET,
	}}}
	out, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return out
}

// framed returns a message of a DNS server to a Pod, by UDP or, with its length in front, by TCP.
func framed(to, server netip.Addr, protocol uint8, message []byte) []byte {
	p := packet{ethSrc: podMACTwo, ethDst: gwMAC, src: to, dst: server} // of the question
	if protocol == protoUDP {
		frame := p.reply(protocol, 8+len(message))
		copy(frame[len(frame)-len(message):], message)
		return frame
	}
	frame := p.reply(protocol, tcpLen+2+len(message))
	segment := frame[len(frame)-tcpLen-2-len(message):]
	segment[12], segment[tcpLen], segment[tcpLen+1] = 5<<4, byte(len(message)>>8), byte(len(message))
	copy(segment[tcpLen+2:], message)
	return frame
}

func TestAnswerOf(t *testing.T) {
	z := zone{
		"www.example.com.": {"cdn.example.net."}, "cdn.example.net.": {"edge.example.org."},
		"edge.example.org.":  {"192.0.2.2", "192.0.2.1", "192.0.2.1", "2001:db8::1"},
		"local.example.com.": {"127.0.0.1", "224.0.0.1", "0.0.0.0", "::1", "ff02::1", "::"},
		"round.example.com.": {"example.com."},
	}
	aaaa := func(name string) []byte { return z.answer(queryOf(dnsmessage.TypeAAAA, name)) }
	loop := dnsmessage.Message{Header: dnsmessage.Header{Response: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("a."), Type: dnsmessage.TypeA,
			Class: dnsmessage.ClassINET}}}
	for _, alias := range [][2]string{{"a.", "b."}, {"b.", "a."}} {
		loop.Answers = append(loop.Answers, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(alias[0]), Class: dnsmessage.ClassINET},
			Body:   &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(alias[1])}})
	}
	round, err := loop.Pack()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name    string
		message []byte
		want    string
	}{
		{"aliases", z.answer(queryFor("WWW.example.com.")), "www.example.com [192.0.2.1 192.0.2.2] 30s"},
		{"addresses that nobody may learn", z.answer(queryFor("local.example.com.")), "local.example.com [] 30s"},
		{"aliases in IPv6", aaaa("WWW.example.com."), "www.example.com [2001:db8::1] 30s"},
		{"addresses of IPv6 that nobody may learn", aaaa("local.example.com."), "local.example.com [] 30s"},
		{"an alias that leads nowhere", z.answer(queryFor("round.example.com.")), "round.example.com [] 30s"},
		{"a loop", round, "a [] 0s"},
		{"no such name", z.answer(queryFor("none.example.com.")), "code"},
		{"a question", queryFor("www.example.com."), "no answer"},
		{"noise", []byte("noise"), "unpacking header"},
	} {
		for i, protocol := range []uint8{protoUDP, protoTCP, protoUDP, protoTCP} {
			to, server := addrOf("10.11.0.3"), addrOf("10.11.0.2")
			if i > 1 {
				to, server = addrOf("fd11::3"), addrOf("fd11::2")
			}
			t.Run(fmt.Sprint(test.name, " ", protocol, " to ", to), func(t *testing.T) {
				a, err := AnswerOf(ofp.PacketIn2{Data: framed(to, server, protocol, test.message), Userdata: []byte("dns 77")})
				have := fmt.Sprint(a.Name, " ", a.Addrs, " ", a.TTL)
				if err != nil {
					have = err.Error()
				}
				if !strings.Contains(have, test.want) {
					t.Errorf("read %s, want %s", have, test.want)
				}
				if a.To != to || a.Identity != 77 {
					t.Errorf("to %s, identity %d", a.To, a.Identity)
				}
			})
		}
	}
}

// FuzzAnswerOf reads damaged answers. An answer that can be read has a receiver, and can be released.
func FuzzAnswerOf(f *testing.F) {
	z := zone{"www.example.com.": {"cdn.example.net."}, "cdn.example.net.": {"192.0.2.2"}}
	for _, protocol := range []uint8{protoUDP, protoTCP} {
		whole := framed(addrOf("10.11.0.3"), addrOf("10.11.0.2"), protocol, z.answer(queryFor("www.example.com.")))
		f.Add(framed(addrOf("fd11::3"), addrOf("fd11::2"), protocol, z.answer(queryFor("www.example.com."))))
		f.Add(whole)
		f.Add(whole[:len(whole)-3])
		f.Add(whole[:ethLen+ipv4Len+4])
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		a, err := AnswerOf(ofp.PacketIn2{Data: frame, Userdata: []byte("dns 77")})
		if err == nil &&
			(a.Name != policy.NameOf(a.Name) || !a.To.IsValid() || !slices.IsSortedFunc(a.Addrs, netip.Addr.Compare)) {
			t.Errorf("%x is %+v", frame, a)
		}
		a.Release(Node{}, Pod{})
	})
}

// serveDNS answers from a zone, by UDP, from the socket that it returns, and TCP.
func serveDNS(t *testing.T, ns namespace, z zone) (c net.PacketConn) {
	t.Helper()
	err := ns.do(func() (err error) {
		if c, err = net.ListenPacket("udp", ":53"); err != nil {
			return err
		}
		t.Cleanup(func() { c.Close() })
		go func() {
			for buf := make([]byte, 1500); ; {
				n, from, err := c.ReadFrom(buf)
				if err != nil {
					return
				}
				_, _ = c.WriteTo(z.answer(buf[:n]), from)
			}
		}()
		l, err := net.Listen("tcp", ":53")
		if err != nil {
			return err
		}
		accept(t, l, func(c net.Conn) {
			buf := make([]byte, 1500)
			if n, err := c.Read(buf); err == nil && n > 2 {
				out := z.answer(buf[2:n])
				_, _ = c.Write(append([]byte{byte(len(out) >> 8), byte(len(out))}, out...))
			}
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// lookup asks a DNS server for addresses of its own version of IP, as a resolver does.
func lookup(from namespace, network, server, name string) error {
	kind := dnsmessage.TypeA
	if !addrOf(server).Is4() {
		network, kind = network+"6", dnsmessage.TypeAAAA
	}
	c, err := from.dial(network, net.JoinHostPort(server, "53"))
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(replyTimeout())); err != nil {
		return err
	}
	q := queryOf(kind, name)
	if strings.HasPrefix(network, "tcp") {
		q = append([]byte{byte(len(q) >> 8), byte(len(q))}, q...)
	}
	if _, err := c.Write(q); err != nil {
		return err
	}
	buf := make([]byte, 1500)
	n, err := c.Read(buf)
	if err == nil && n < len(q) {
		err = errors.New("the answer is short")
	}
	return err
}

// TestNames lets a Pod under a rule with names reach the addresses that it has asked DNS for, at once, and no others.
// Answers to questions that it did not ask, or for other names, open nothing.
func TestNames(t *testing.T) {
	withOthers(t)
	n := newPacketNode(t)
	n.b.serve(t, "tcp", ":8080", "b")
	n.server.serve(t, "tcp", ":8080", "server")
	n.b.serve(t, "tcp6", ":8080", "b")
	n.resolvers.Set(Self, []netip.Prefix{rangeOf("10.11.0.2/32"), rangeOf("fd11::2/128")})
	server := serveDNS(t, n.server, zone{
		"www.example.com.": {"10.11.0.4"}, "six.example.com.": {"fd11::4", "10.11.0.2"},
		"alias.example.com.": {"www.other.org."}, "www.other.org.": {"10.11.0.2"},
		"tcp.example.com.":     {"10.11.0.2"},
		"service.example.com.": {"10.97.0.11"},
	})
	serveDNS(t, n.b, zone{"evil.example.com.": {"10.11.0.2"}}) // it is no resolver
	held, others := make(chan Answer, 100), make(chan netip.Addr, 100)
	send := n.packetsIn(t, func(in ofp.PacketIn2) {
		if KindOf(in) == DNSOther {
			if h, err := HeadersOf(in.Data); err == nil {
				others <- h.Src
			}
		}
		if KindOf(in) == DNSAnswer {
			a, err := AnswerOf(in)
			if err != nil {
				a.Addrs = nil
			}
			held <- a
		}
	})
	n.policy.Tiers.Set(derive.Object{Name: "application"}, 251)
	dns := policy.RuleFacts{Action: policy.Allow, AnyPeer: true,
		Ports: []policy.PortRange{{Protocol: "TCP", From: 53, To: 53}, {Protocol: "UDP", From: 53, To: 53}}}
	n.policy.Policies[policy.AntreaClusterNetworkPolicy].Replace(map[derive.Object]policy.Facts{{Name: "names"}: {
		Tier: "application", Priority: 5, AppliedTo: []policy.Selector{{Namespace: "default", Pods: "app=a"}},
		Egress: &policy.DirectionFacts{Rules: []policy.RuleFacts{
			dns, {Action: policy.Allow, Names: []string{"*.example.com"}, AnyPort: true},
			{Action: policy.Drop, AnyPeer: true, AnyPort: true},
		}},
	}})
	n.sync(t)
	reachesWithin := func(limit time.Duration, address string) bool {
		c, err := n.a.dialWithin(limit, over("tcp", address), address)
		if err == nil {
			c.Close()
		}
		return err == nil
	}
	reaches := func(address string) bool { return reachesWithin(replyTimeout(), address) }
	reached := func(address string) bool { return reachesWithin(silence(), address) } // where it should not be
	// resolve asks for a name and does the agent's work before the answer arrives.
	resolver := "10.11.0.2"
	resolve := func(network, name string) (learned bool) {
		t.Helper()
		answered := make(chan error, 1)
		go func() { answered <- lookup(n.a, network, resolver, name) }()
		select {
		case a := <-held:
			if len(a.Addrs) > 0 && n.tables.Policies.Wanted(a) {
				learned = true
				n.policy.Learned.Set(derive.Name(a.Name), a.Addrs)
				n.sync(t)
			}
			send(a.Release(n.Node, n.Pods[1]))
		case <-time.After(replyTimeout()):
			t.Fatal("no answer comes to the agent")
		}
		if err := <-answered; err != nil {
			t.Errorf("%s by %s is not answered: %v", name, network, err)
		}
		return learned
	}
	if reached("10.11.0.4:8080") {
		t.Error("what was not asked for is reached")
	}
	for _, test := range []struct {
		network, name, server string
		learned               bool
	}{
		{"udp", "www.other.org.", "10.11.0.2:8080", false},
		{"udp", "none.example.com.", "10.11.0.2:8080", false},
		{"udp", "www.example.com.", "10.11.0.4:8080", true},
		{"udp", "alias.example.com.", "10.11.0.2:8080", true},
	} {
		if learned := resolve(test.network, test.name); learned != test.learned {
			t.Errorf("%s: learned: %v", test.name, learned)
		}
		look := reached
		if test.learned {
			look = reaches
		}
		if have := look(test.server); have != test.learned {
			t.Errorf("%s: reached after the answer: %v", test.name, have)
		}
	}
	n.policy.Learned.Delete("alias.example.com")
	n.sync(t)
	if reached("10.11.0.2:8080") {
		t.Error("what was forgotten is reached")
	}
	if !resolve("tcp", "tcp.example.com.") || !reaches("10.11.0.2:8080") {
		t.Error("an answer by TCP is not learned")
	}
	// A resolver with IPv6 answers with addresses of IPv6.
	for len(held) > 0 {
		<-held
	}
	resolver = "fd11::2"
	for _, network := range []string{"udp", "tcp"} {
		n.policy.Learned.Delete("six.example.com")
		n.sync(t)
		if network == "udp" && reached("[fd11::4]:8080") {
			t.Error("an address of IPv6 that was not asked for is reached")
		}
		if !resolve(network, "six.example.com.") || !reaches("[fd11::4]:8080") {
			t.Errorf("an answer over IPv6 by %s is not learned", network)
		}
	}
	resolver = "10.11.0.2"
	// A name of a Service means the connections to its address, whichever its endpoint.
	for len(held) > 0 {
		<-held // segments after the answer by TCP
	}
	const service = "10.97.0.11:80"
	n.policy.Learned.Delete("tcp.example.com")
	n.sync(t)
	if reached(service) {
		t.Error("a Service is reached whose name was not asked for")
	}
	if !resolve("udp", "service.example.com.") || !reaches(service) || reached("10.11.0.2:8080") {
		t.Error("the name of a Service does not allow its address, or allows its endpoint")
	}
	all := policy.RuleFacts{Action: policy.Allow, AnyPeer: true, AnyPort: true}
	denied := policy.RuleFacts{Action: policy.Drop, Names: []string{"service.example.com"}, AnyPort: true}
	for rule, want := range map[*policy.RuleFacts]bool{&all: true, &denied: false} {
		n.policy.Policies[policy.AntreaClusterNetworkPolicy].Set(derive.Object{Name: "first"}, policy.Facts{
			Tier: "application", Priority: 1, AppliedTo: []policy.Selector{{Namespace: "default", Pods: "app=a"}},
			Egress: &policy.DirectionFacts{Rules: []policy.RuleFacts{*rule, all}},
		})
		n.sync(t)
		look := reached
		if want {
			look = reaches
		}
		if have := look(service); have != want {
			t.Errorf("%+v: the Service is reached: %v", rule, have)
		}
		if !reaches("10.11.0.2:8080") {
			t.Errorf("%+v: the endpoint is not reached", rule)
		}
	}
	n.policy.Policies[policy.AntreaClusterNetworkPolicy].Delete(derive.Object{Name: "first"})
	n.sync(t)
	// An answer that was not asked for is no reply.
	for len(held) > 0 {
		<-held
	}
	unasked := zone{"evil.example.com.": {"10.11.0.2"}}.answer(queryFor("evil.example.com."))
	if _, err := server.WriteTo(unasked, &net.UDPAddr{IP: net.IPv4(10, 11, 0, 3), Port: 5000}); err != nil {
		t.Fatal(err)
	}
	// The agent learns nothing from a server that is no resolver, and its answers pass. The agent can name the server.
	for _, network := range []string{"udp", "tcp"} {
		if err := lookup(n.a, network, "10.11.0.4", "evil.example.com."); err != nil {
			t.Errorf("an answer by %s of a server that is no resolver does not pass: %v", network, err)
		}
		select {
		case server := <-others:
			if server != addrOf("10.11.0.4") {
				t.Errorf("by %s the server is %s", network, server)
			}
		case <-time.After(replyTimeout()):
			t.Errorf("the agent is not told of a server by %s that is no resolver", network)
		}
	}
	// Another Pod's answers do not pass the agent.
	if err := lookup(n.b, "udp", "10.11.0.2", "www.example.com."); err != nil {
		t.Error(err)
	}
	if len(held) > 0 {
		t.Errorf("the agent gets %+v", <-held)
	}
}
