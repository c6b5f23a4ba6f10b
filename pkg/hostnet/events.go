package hostnet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/knftables"

	"github.com/tombolo-net/tombolo/pkg/desired"
)

// events are signals that the kernel's configuration has changed.
type events struct {
	log        *slog.Logger
	translated []*translatedTable
	ended      atomic.Bool   // an event socket has ended: compare everything at each resync
	stack      chan struct{} // links, addresses, routes or neighbours have changed
	tables     chan struct{} // one of our nftables tables without translations has changed
	all        chan struct{} // compare everything else
	changed    chan struct{} // links, addresses or routes may have changed, for Manager.Changed
}

func newEvents(translated []*translatedTable, log *slog.Logger) *events {
	return &events{
		log: log, translated: translated, stack: make(chan struct{}, 1), tables: make(chan struct{}, 1),
		all: make(chan struct{}, 1), changed: make(chan struct{}, 1),
	}
}

// subscription is a socket with the kernel's events, and what is done with each.
type subscription struct {
	socket  *nl.NetlinkSocket
	message func(syscallMessage)
	lost    func() // the socket's buffer was full
}

// syscallMessage is a netlink message: its type, and what comes after struct nlmsghdr.
type syscallMessage struct {
	kind uint16
	data []byte
}

// subscribe opens the sockets for the events that make a Manager compare: about the links, addresses and routes that it
// configures, and about its nftables tables.
func (e *events) subscribe() ([]subscription, error) {
	stack, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH,
		unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV4_RULE,
		unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV6_RULE)
	if err != nil {
		return nil, fmt.Errorf("subscribe to the kernel's network events: %w", err)
	}
	tables, err := nl.Subscribe(unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES)
	if err != nil {
		stack.Close()
		return nil, fmt.Errorf("subscribe to the kernel's nftables events: %w", err)
	}
	return []subscription{
		{stack, e.stackEvent, func() { desired.Signal(e.all); desired.Signal(e.changed) }},
		{tables, e.tableEvent, e.tableEventsLost},
	}, nil
}

func (e *events) stackEvent(msg syscallMessage) {
	switch msg.kind {
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		// struct ndmsg: the state is at byte 8. Only permanent entries are ours.
		if len(msg.data) >= 10 && nl.NativeEndian().Uint16(msg.data[8:])&netlink.NUD_PERMANENT != 0 ||
			msg.kind == unix.RTM_DELNEIGH {
			desired.Signal(e.stack)
		}
	default:
		desired.Signal(e.stack)
		desired.Signal(e.changed)
	}
}

// numberOf is the kernel's numbers of families.
var numberOf = map[knftables.Family]byte{
	knftables.InetFamily: unix.NFPROTO_INET, knftables.IPv4Family: unix.NFPROTO_IPV4,
	knftables.IPv6Family: unix.NFPROTO_IPV6,
}

func (e *events) tableEvent(msg syscallMessage) {
	if ourTable(msg, tableName, unix.NFPROTO_IPV4, unix.NFPROTO_IPV6, unix.NFPROTO_NETDEV) {
		desired.Signal(e.tables)
		return
	}
	for _, t := range e.translated {
		if !isElement(msg) && ourTable(msg, t.name, numberOf[t.family]) {
			desired.Signal(t.changed)
		}
	}
}

// tableEventsLost has every table compared.
func (e *events) tableEventsLost() {
	desired.Signal(e.tables)
	for _, t := range e.translated {
		desired.Signal(t.changed)
	}
}

// isElement reports whether an nftables event is about elements of a set or map.
func isElement(msg syscallMessage) bool {
	kind := msg.kind & 0xff
	return kind == unix.NFT_MSG_NEWSETELEM || kind == unix.NFT_MSG_DELSETELEM
}

// ourTable reports whether an nftables event is about a table of this name, in one of some families. The first
// attribute of every kind of object is the name of its table (NFTA_*_TABLE and NFTA_TABLE_NAME are all 1,
// linux/netfilter/nf_tables.h). The first attribute of a new generation is a number.
func ourTable(msg syscallMessage, name string, families ...byte) bool {
	const nfgenmsg = 4 // struct nfgenmsg: family, version, resource
	if msg.kind>>8 != unix.NFNL_SUBSYS_NFTABLES || msg.kind&0xff == unix.NFT_MSG_NEWGEN || len(msg.data) < nfgenmsg ||
		!slices.Contains(families, msg.data[0]) {
		return false
	}
	attributes, err := nl.ParseRouteAttr(msg.data[nfgenmsg:])
	if err != nil {
		return true // better one comparison too many
	}
	for _, a := range attributes {
		if a.Attr.Type&nl.NLA_TYPE_MASK == unix.NFTA_TABLE_NAME {
			return string(a.Value) == name+"\x00"
		}
	}
	return false
}

// listen handles the events of a socket until ctx ends or the socket is closed.
func (e *events) listen(ctx context.Context, s subscription) {
	// Receive has to return now and then to see that the socket is closed.
	_ = s.socket.SetReceiveTimeout(&unix.Timeval{Sec: 1})
	for ctx.Err() == nil {
		messages, _, err := s.socket.Receive()
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOBUFS):
			s.lost()
			continue
		case err != nil:
			if ctx.Err() == nil {
				e.ended.Store(true)
				e.log.Error("kernel events have ended, only the periodic comparison is left", "error", err)
			}
			return
		}
		for _, msg := range messages {
			s.message(syscallMessage{msg.Header.Type, msg.Data})
		}
	}
}
