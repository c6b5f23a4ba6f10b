package datapath

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/policy"
)

// TestPartOf holds partOf against the parts of rules.
func TestPartOf(t *testing.T) {
	for _, anyPeer := range []bool{false, true} {
		for _, anyPort := range []bool{false, true} {
			rule := policy.Rule{Applied: []uint32{1, 2}, AnyPeer: anyPeer, AnyPort: anyPort}
			if !anyPeer {
				rule.Peers, rule.Services = []uint32{1, 3}, []derive.Object{{Namespace: "default", Name: "web"}}
				rule.Blocks = []netip.Prefix{rangeOf("0.0.0.0/0"), rangeOf("10.0.0.0/8")}
			}
			if !anyPort {
				port := policy.PortRange{Protocol: corev1.ProtocolTCP, From: 80, To: 90}
				rule.Ports, rule.ICMP = []policy.PortRange{port}, []policy.ICMP{{Type: 8, Code: policy.Any}}
				rule.Targets = []policy.Target{{PortRange: port, Ends: []policy.FurtherAddr{{Addr: addrOf("10.11.0.2")}}}}
			}
			list := parts(policy.RuleKey{}, rule)
			for i, part := range list {
				for _, c := range part {
					if n, of := c.kind.partOf(anyPeer, anyPort); int(n) != i+1 || int(of) != len(list) {
						t.Errorf("any peer %v, any port %v: clause %q is part %d of %d, want %d of %d", anyPeer, anyPort, c, n, of, i+1,
							len(list))
					}
				}
			}
			if len(list) < 2 {
				t.Errorf("any peer %v, any port %v: %d parts", anyPeer, anyPort, len(list))
			}
		}
	}
}
