package datapath

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/service"
)

// TestManyEndpoints gives a Service more endpoints than a message has room for: those that fit
// serve, and what is left out is reported.
func TestManyEndpoints(t *testing.T) {
	f := service.Frontend{Namespace: "default", Service: "web", Protocol: corev1.ProtocolTCP, VIP: netip.MustParseAddrPort("10.96.0.10:80")}
	for i := range 1000 {
		f.Endpoints = append(f.Endpoints, service.Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 10, byte(i >> 8), byte(i)}), 8080), Weight: 3})
	}
	owners, problems := Plan(State{Node: Node{Name: "node-1", GatewayPort: 2, TunnelPort: 1}, Frontends: []service.Frontend{f}})
	groups := owners[ServiceOwner("default", "web")].Groups
	if len(groups) != 1 || len(groups[0].Buckets) != maxBuckets {
		t.Fatalf("want one group with %d buckets, have %d groups", maxBuckets, len(groups))
	}
	add, err := ofp.AppendMessage(nil, 1, ofp.BundleAdd{ID: 1, Message: groups[0].Mod(ofp.GroupAdd)})
	if err != nil || len(add) > 65535 {
		t.Errorf("the group as part of a bundle: %d bytes, %v", len(add), err)
	}
	if len(problems) != 1 || problems[0].Object.String() != "Service default/web" || problems[0].Reason != "TooManyEndpoints" || !strings.Contains(problems[0].Message, "1000 endpoints") {
		t.Errorf("want one problem that tells of 1000 endpoints, have %v", problems)
	}
}
