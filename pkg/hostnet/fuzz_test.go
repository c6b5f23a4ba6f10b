package hostnet

import (
	"net/netip"
	"reflect"
	"testing"
)

// FuzzUplinkRecord plans from any record in the transport bridge's external_ids. A plan from the new record must be the
// same.
func FuzzUplinkRecord(f *testing.F) {
	f.Add(`["192.168.77.101/24"]`, `[{"dst":"0.0.0.0/0","gateway":"192.168.77.1"}]`, false)
	f.Add(`["192.168.77.101/24","fd00::1/64"]`, `[]`, true)
	f.Add(`null`, `null`, true)
	f.Add(`[""]`, `[{},{"dst":"","source":"fe80::1%eth0","metric":-1}]`, false)
	f.Add(`{"a":1}`, `"`, true)
	f.Fuzz(func(t *testing.T, addresses, routes string, configured bool) {
		found := Transport{Interface: "eth1", MAC: "0a:00:00:00:00:01", MTU: 1500}
		if configured {
			found.Addresses = []netip.Prefix{netip.MustParsePrefix("192.168.77.101/24")}
			found.Routes = []Route{{Dst: netip.MustParsePrefix("0.0.0.0/0"), Gateway: netip.MustParseAddr("192.168.77.1")}}
		}
		recorded := map[string]string{UplinkAddressesKey: addresses, UplinkRoutesKey: routes}
		u, err := PlanUplink("br-phy", recorded, found)
		if err != nil {
			return
		}
		for _, a := range u.Addresses {
			if !a.IsValid() {
				t.Errorf("address %v of %s", a, addresses)
			}
		}
		again, err := PlanUplink("br-phy", u.ExternalIDs, found)
		if err != nil {
			t.Fatalf("from its own record: %v", err)
		}
		if !reflect.DeepEqual(again, u) {
			t.Errorf("from its own record %+v, want %+v", again, u)
		}
	})
}
