// Package ipfix sends records of connections and drops to a collector, as IPFIX (RFC 7011).
package ipfix

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Protocols of collectors.
const (
	TLS = "tls"
	TCP = "tcp"
	UDP = "udp"
)

// Collector is the address of a collector.
type Collector struct {
	Namespace string // of a Service; else Host is an address or a name in DNS
	Host      string
	Port      uint16
	Protocol  string // TLS, TCP or UDP
}

// ParseCollector reads an address such as "192.0.2.7:4739:tls", "[2001:db8::7]:4739:tcp" or "flows/collector:4739:udp",
// which is a Service. Without a protocol it is TLS.
func ParseCollector(text string) (Collector, error) {
	refuse := func(format string, args ...any) (Collector, error) {
		return Collector{}, fmt.Errorf("has %q: %s; give HOST:PORT:PROTOCOL, such as 192.0.2.7:4739:tls", text,
			fmt.Sprintf(format, args...))
	}
	var host, rest string
	bracket := strings.HasPrefix(text, "[")
	if bracket {
		var ok bool
		if host, rest, ok = strings.Cut(text[1:], "]"); !ok || !strings.HasPrefix(rest, ":") {
			return refuse("the address of IPv6 does not end with a bracket and a port")
		}
		rest = rest[1:]
	} else {
		host, rest, _ = strings.Cut(text, ":")
	}
	port, protocol, given := strings.Cut(rest, ":")
	if !given {
		protocol = TLS
	}
	c := Collector{Host: host, Protocol: strings.ToLower(protocol)}
	n, err := strconv.ParseUint(port, 10, 16)
	ip, notIP := netip.ParseAddr(host)
	switch {
	case host == "":
		return refuse("the host is missing")
	case bracket && (notIP != nil || !ip.Is6()):
		return refuse("%s is no address of IPv6", host)
	case port == "":
		return refuse("the port is missing")
	case err != nil || n == 0:
		return refuse("%s is no port from 1 to 65535", port)
	case c.Protocol == "grpc":
		return refuse("grpc is not in this version, and IPFIX is: name the collector's port for IPFIX, with tls")
	case c.Protocol != TLS && c.Protocol != TCP && c.Protocol != UDP:
		return refuse("%q is not tls, tcp or udp", protocol)
	}
	c.Port = uint16(n)
	if namespace, name, ok := strings.Cut(host, "/"); ok {
		if namespace == "" || name == "" || strings.Contains(name, "/") {
			return refuse("%s is not NAMESPACE/NAME of a Service", host)
		}
		c.Namespace, c.Host = namespace, name
	}
	return c, nil
}

// String returns the address as ParseCollector reads it.
func (c Collector) String() string {
	host := c.Host
	if c.Namespace != "" {
		host = c.Namespace + "/" + host
	}
	return net.JoinHostPort(host, strconv.Itoa(int(c.Port))) + ":" + c.Protocol
}

// serverName is the name in the certificate of the collector.
func (c Collector) serverName() string {
	if c.Namespace != "" {
		return c.Host + "." + c.Namespace + ".svc"
	}
	return c.Host
}
