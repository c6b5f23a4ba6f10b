package hostnet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// These functions examine nftables of other programs, which may drop packets that the host forwards for Pods, or need a
// sysctl. iptables writes nftables as well, except for its variant legacy. They read the tables from the kernel, and
// never change them.

// foreignChain is a chain of nftables of another program.
type foreignChain struct {
	family       byte
	table, name  string
	dropsForward bool // it sees forwarded packets, and drops what no rule accepts
}

// String is the chain as nft names it.
func (c foreignChain) String() string {
	family := map[byte]string{unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_INET: "inet"}[c.family]
	return fmt.Sprintf("%s %s %s", family, c.table, c.name)
}

// sees reports whether packets of a version of IP pass the chain.
func (c foreignChain) sees(ip version) bool {
	return c.family == unix.NFPROTO_INET || c.family == numberOf[ip.family]
}

// foreignChains lists the chains of other programs that packets of IP pass.
func foreignChains() (out []foreignChain, err error) {
	err = listNFT(unix.NFT_MSG_GETCHAIN, unix.NFPROTO_UNSPEC, nil, func(family byte, msg []byte) {
		text := func(kind uint16) string { return strings.TrimRight(string(attribute(msg, kind)), "\x00") }
		number := func(value []byte) int {
			if len(value) < 4 {
				return -1
			}
			return int(binary.BigEndian.Uint32(value))
		}
		c := foreignChain{family: family, table: text(unix.NFTA_CHAIN_TABLE), name: text(unix.NFTA_CHAIN_NAME)}
		const forward, drop = 2, 0 // NF_INET_FORWARD, NF_DROP
		c.dropsForward = number(nested(msg, unix.NFTA_CHAIN_HOOK, unix.NFTA_HOOK_HOOKNUM)) == forward &&
			number(attribute(msg, unix.NFTA_CHAIN_POLICY)) == drop
		ofIP := slices.ContainsFunc(slices.Collect(maps.Values(versions)), c.sees)
		if ofIP && !strings.HasPrefix(c.table, tableName) {
			out = append(out, c)
		}
	})
	return out, err
}

// names reports whether a rule in the chain's table names a link. It examines the whole table, since the chain may call
// another one with the rule.
func (c foreignChain) names(link string) (found bool, err error) {
	request := []nl.NetlinkRequestData{nl.NewRtAttr(unix.NFTA_RULE_TABLE, nl.ZeroTerminated(c.table))}
	err = listNFT(unix.NFT_MSG_GETRULE, c.family, request, func(family byte, msg []byte) {
		table := strings.TrimRight(string(attribute(msg, unix.NFTA_RULE_TABLE)), "\x00")
		found = found || family == c.family && table == c.table && bytes.Contains(msg, []byte(link))
	})
	return found, err
}

// listNFT calls each for every object of nftables that a request lists. A request that names a table has to name its
// family: without one, Linux stops at the first table of that name.
func listNFT(kind int, family byte, with []nl.NetlinkRequestData, each func(family byte, msg []byte)) error {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|kind, unix.NLM_F_DUMP)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	for _, a := range with {
		req.AddData(a)
	}
	return req.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(msg []byte) bool {
		if len(msg) >= nl.SizeofNfgenmsg {
			each(msg[0], msg[nl.SizeofNfgenmsg:])
		}
		return true
	})
}

// forwarding reports chains of other programs that drop packets which the host forwards for Pods. It does not evaluate
// their rules: if a rule in the chain's table names the gateway port, the chain counts as letting Pods' packets pass.
// If the chains cannot be listed, the problems of the previous comparison stay.
func (a *applier) forwarding(before []problem.Problem) {
	link := a.want.Masquerade.ExceptLink
	if link == "" {
		return
	}
	chains, err := foreignChains()
	if err != nil {
		// A kernel without nftables is reported elsewhere. If another program wrote nftables meanwhile, the list is not
		// complete.
		for _, p := range before {
			if p.Reason == reasonForwardDrop {
				a.noted = append(a.noted, p)
			}
		}
		return
	}
	for _, c := range chains {
		if !c.dropsForward || !slices.ContainsFunc(a.versionsOf(link), c.sees) {
			continue
		}
		iptables := "iptables"
		if c.family == unix.NFPROTO_IPV6 {
			iptables = "ip6tables"
		}
		if named, err := c.names(link); named || err != nil {
			continue
		}
		a.noted = append(a.noted, problem.Problem{
			Object: problem.Object{Kind: "nftables chain", Name: c.String()}, Field: "policy", Reason: reasonForwardDrop,
			Message: fmt.Sprintf("the host drops forwarded packets that no rule accepts, and no rule of the table names link "+
				"%[1]s, so Pods of this Node may reach no other machine, and no other machine their ports: accept packets of the "+
				"link (%[2]s -I FORWARD -i %[1]s -j ACCEPT, and the same with -o; with Docker in chain DOCKER-USER)", link,
				iptables)})
	}
}

// versionsOf returns the versions of IP of the addresses that a link should have. A link that keeps its addresses
// counts as one with IPv4.
func (a *applier) versionsOf(link string) (out []version) {
	for _, ip := range versions {
		if slices.ContainsFunc(a.want.Links, func(l Link) bool {
			return l.Name == link && slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return ip.has(p.Addr()) })
		}) {
			out = append(out, ip)
		}
	}
	if len(out) == 0 {
		out = append(out, versions[knftables.IPv4Family])
	}
	return out
}

// othersMapPorts reports whether the plugin portmap has opened ports of the Node, which may need route_localnet. It
// also returns true if the chains cannot be read: portmap would not set the sysctl again until it adds a Pod.
func othersMapPorts() bool {
	chains, err := foreignChains()
	if err != nil {
		return true
	}
	for _, c := range chains {
		if !c.sees(versions[knftables.IPv4Family]) {
			continue
		}
		if c.name == "CNI-HOSTPORT-DNAT" || c.table == "cni_hostport" {
			return true
		}
	}
	return false
}
