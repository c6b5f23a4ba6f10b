package exportcheck

import (
	"bytes"
	"strings"
	"testing"
)

// FuzzPodAddresses reads any bytes as addresses of Pods. Accepted addresses are within their block, and the same after
// they are written and read again.
func FuzzPodAddresses(f *testing.F) {
	for _, text := range []string{
		`{"clusterID":"east","block":"10.10.3.0/24","labels":{"0123456789abcdef":["10.10.3.5","10.10.3.6"],` +
			`"fedcba9876543210":["10.10.3.7"]}}`,
		`{"clusterID":"east","block":"fd00:10::/120","labels":{"0123456789abcdef":["fd00:10::5"]}}`,
		`{"block":"fe80::/120","labels":{"0123456789abcdef":["fe80::1%eth0"]}}`, `{"block":"::ffff:10.0.0.0/120"}`,
		`{"block":""}`, `{}`, `[]`, "",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ReadPodAddresses(data)
		if err != nil {
			if len(err.Error()) > 2000 || !strings.HasPrefix(err.Error(), "spec.raw.data") {
				t.Errorf("error %q", err)
			}
			return
		}
		for _, list := range p.Labels {
			for _, a := range list {
				if BlockOf(a) != p.Block {
					t.Errorf("%s is not in %s", a, p.Block)
				}
			}
		}
		again, err := ReadPodAddresses(p.JSON())
		if err != nil && len(p.JSON()) <= maxAddressBytes || err == nil && !bytes.Equal(again.JSON(), p.JSON()) {
			t.Errorf("read again: %v", err)
		}
	})
}
