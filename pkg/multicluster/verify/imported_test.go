package verify

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// importing is an API server in which an imported Service gets its addresses one after the other.
type importing struct {
	client.Client
	began time.Time
	at    []time.Duration // when each of the two addresses is there
}

func (s importing) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	service, ok := o.(*corev1.Service)
	if !ok {
		return errors.New("not found")
	}
	service.Spec.ClusterIPs = nil
	for i, at := range s.at {
		if time.Since(s.began) >= at {
			service.Spec.ClusterIPs = append(service.Spec.ClusterIPs, []string{"10.97.0.1", "fd00:97::1"}[i])
		}
	}
	return nil
}

// TestImported waits for the addresses of all versions of IP that both clusters have, and not for long.
func TestImported(t *testing.T) {
	v4, v6 := netip.MustParseAddr("10.11.0.2"), netip.MustParseAddr("fd11::2")
	for _, row := range []struct {
		name      string
		servers   [2][]netip.Addr
		at        []time.Duration
		addresses int
		most      time.Duration
	}{
		{"both at once", [2][]netip.Addr{{v4, v6}, {v4, v6}}, []time.Duration{0, 0}, 2, 0},
		{"one after the other", [2][]netip.Addr{{v4, v6}, {v4, v6}}, []time.Duration{time.Second, 3 * time.Second}, 2,
			3 * time.Second},
		{"a cluster has one", [2][]netip.Addr{{v4, v6}, {v4}}, []time.Duration{0, 3 * time.Second}, 1, 0},
		{"Services of one", [2][]netip.Addr{{v4, v6}, {v4, v6}}, []time.Duration{0}, 1, versionsWait},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				r := &run{Options: Options{Limit: time.Minute}, name: "tombolo-verify-x",
					clusters: [2]Cluster{{Name: "east", Client: importing{began: began, at: row.at}}, {Name: "west"}}}
				have, err := r.imported(t.Context(), 0, versions(row.servers))
				if took := time.Since(began); err != nil || len(have) != row.addresses || took > row.most+time.Second ||
					slices.ContainsFunc(have, func(a netip.Addr) bool { return !a.IsValid() }) {
					t.Errorf("it has %v after %s: %v", have, took, err)
				}
			})
		})
	}
}
