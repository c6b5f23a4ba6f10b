package exportcheck

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// TestReadNamespaces has lists of isolated Namespaces, and the faults of refused lists.
func TestReadNamespaces(t *testing.T) {
	one := func(name string, uid types.UID, labels map[string]string) Namespaces {
		return Namespaces{ClusterID: "east", Families: "v4",
			Namespaces: []IsolatedNamespace{{Name: name, UID: uid, Labels: labels}}}
	}
	network := func(n VirtualNetwork) string {
		return string(Namespaces{ClusterID: "east", Namespaces: []IsolatedNamespace{{Name: "a", UID: "u",
			VirtualNetworks: []VirtualNetwork{n}}}}.JSON())
	}
	ranged := func(ranges ...string) string { return network(VirtualNetwork{Name: "blue", UID: "v", CIDRs: ranges}) }
	many, labels := Namespaces{}, map[string]string{}
	crowd, full := Namespaces{}, IsolatedNamespace{UID: "u"}
	for i := range tenant.MaxNetworks {
		full.VirtualNetworks = append(full.VirtualNetworks, VirtualNetwork{Name: fmt.Sprint("v", i), UID: "v"})
	}
	for i := range MaxVirtualNetworks/tenant.MaxNetworks + 1 {
		full.Name = fmt.Sprint("n", i)
		crowd.Namespaces = append(crowd.Namespaces, full)
	}
	full.VirtualNetworks = append(slices.Clone(full.VirtualNetworks), VirtualNetwork{Name: "more", UID: "v"})
	for i := range MaxNamespaces + 1 {
		many.Namespaces = append(many.Namespaces, IsolatedNamespace{Name: fmt.Sprint("n", i), UID: "u"})
		if i <= MaxNamespaceLabels {
			labels[fmt.Sprint("l", i)] = ""
		}
	}
	for _, row := range []struct{ name, text, want string }{
		{"a list", string(one("a", "u", map[string]string{"ns": "x"}).JSON()), ""},
		{"none", `{"clusterID":"east"}`, ""},
		{"no JSON", "{", "is not a list of Namespaces"},
		{"too long", strings.Repeat(" ", MaxNamespaceBytes+1), "expected at most 262144"},
		{"too many", string(many.JSON()), "has 501 Namespaces: expected at most 500"},
		{"a path as the name", string(one("../kube-system", "u", nil).JSON()), "namespaces[0].name"},
		{"no UID", string(one("a", "", nil).JSON()), "namespaces[0].uid"},
		{"a long UID", string(one("a", types.UID(strings.Repeat("u", 64)), nil).JSON()), "namespaces[0].uid"},
		{"a label's name", string(one("a", "u", map[string]string{"a b": ""}).JSON()), "namespaces[0].labels"},
		{"a label's value", string(one("a", "u", map[string]string{"a": "b c"}).JSON()), "namespaces[0].labels[a]"},
		{"too many labels", string(one("a", "u", labels).JSON()), "has 51 labels"},
		{"families", `{"families":"v5"}`, "families"},
		{"VirtualNetworks", string(Namespaces{Namespaces: crowd.Namespaces[1:]}.JSON()), ""},
		{"too many VirtualNetworks", string(crowd.JSON()), "namespaces[50].virtualNetworks: is more than 1000"},
		{"too many VirtualNetworks of a Namespace",
			string(Namespaces{Namespaces: []IsolatedNamespace{full}}.JSON()), "has 21 VirtualNetworks"},
		{"a VirtualNetwork", network(VirtualNetwork{Name: "blue.x", UID: "v", Labels: map[string]string{"a": "b"},
			CIDRs: []string{"10.50.0.0/24", "fd50::/64"}}), ""},
		{"the name of the Pods' network", network(VirtualNetwork{Name: "default-podnetwork", UID: "v"}),
			"virtualNetworks[0].name: default-podnetwork"},
		{"a path as a VirtualNetwork's name", network(VirtualNetwork{Name: "../x", UID: "v"}), "virtualNetworks[0].name"},
		{"a VirtualNetwork without UID", network(VirtualNetwork{Name: "blue"}), "virtualNetworks[0].uid"},
		{"a label of a VirtualNetwork", network(VirtualNetwork{Name: "blue", UID: "v",
			Labels: map[string]string{"a": "b c"}}), "virtualNetworks[0].labels[a]"},
		{"a VirtualNetwork twice", `{"namespaces":[{"name":"a","uid":"u","virtualNetworks":[{"name":"b","uid":"v"},` +
			`{"name":"b","uid":"w"}]}]}`, "virtualNetworks[1].name: b is given twice"},
		{"five ranges", ranged("10.1.0.0/24", "10.2.0.0/24", "10.3.0.0/24", "10.4.0.0/24", "10.5.0.0/24"), "has 5 ranges"},
		{"a range twice", ranged("10.1.0.0/24", "10.1.0.0/24"), "cidrs[1]: 10.1.0.0/24 is given twice"},
		{"an address in a range", ranged("10.1.0.1/24"), "cidrs[0]"},
		{"all addresses", ranged("0.0.0.0/0"), "cidrs[0]"},
		{"all addresses of IPv6", ranged("::/0"), "cidrs[0]"},
		{"half of all addresses", ranged("128.0.0.0/1"), "cidrs[0]"},
		{"IPv4 as IPv6", ranged("::ffff:10.1.0.0/112"), "cidrs[0]"},
		{"another form of a range", ranged("fd50:0::/64"), "cidrs[0]"},
		{"no range", ranged("blue"), "cidrs[0]"},
		{"twice", `{"namespaces":[{"name":"a","uid":"u"},{"name":"a","uid":"v"}]}`, "a is given twice"},
	} {
		have, err := ReadNamespaces([]byte(row.text))
		switch {
		case row.want == "" && err != nil, row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
			t.Errorf("%s: error %v, want %q", row.name, err, row.want)
		case err != nil && !reflect.DeepEqual(have, Namespaces{}):
			t.Errorf("%s: it has %v", row.name, have)
		}
	}
}

// FuzzNamespaces reads any bytes as a list of isolated Namespaces. An accepted list has valid ranges, and is the same
// after it is written and read again.
func FuzzNamespaces(f *testing.F) {
	for _, text := range []string{
		`{"clusterID":"east","families":"v6,v4","namespaces":[{"name":"a","uid":"u","labels":{"ns":"x"},"virtualNetworks":` +
			`[{"name":"blue","uid":"v","labels":{"net":"blue"},"cidrs":["10.50.0.0/24","fd50::/64"]}]}]}`,
		`{"namespaces":[{"name":"a","uid":"u","virtualNetworks":[{"name":"b","uid":"v","cidrs":["0.0.0.0/0"]}]}]}`,
		`{"namespaces":[{"name":"a","uid":"u","virtualNetworks":[{"name":"b","uid":"v","cidrs":["::ffff:10.0.0.0/104"]}]}]}`,
		`{"namespaces":[{"name":"a","uid":"u","virtualNetworks":null}]}`, `{}`, `[]`, "",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := ReadNamespaces(data)
		if err != nil {
			if len(err.Error()) > 2000 || !strings.HasPrefix(err.Error(), "spec.raw.data") {
				t.Errorf("error %q", err)
			}
			return
		}
		for _, n := range list.Namespaces {
			for _, v := range n.VirtualNetworks {
				for _, text := range v.CIDRs {
					if p, ok := NetworkRange(text); !ok || p.Bits() == 0 || p.String() != text {
						t.Errorf("it has the range %q", text)
					}
				}
			}
		}
		again, err := ReadNamespaces(list.JSON())
		if err != nil && len(list.JSON()) <= MaxNamespaceBytes || err == nil && string(again.JSON()) != string(list.JSON()) {
			t.Errorf("read again: %v", err)
		}
	})
}

// TestCopiedLabels has labels that a copy in the central cluster has, and labels that steer programs there.
func TestCopiedLabels(t *testing.T) {
	for key, want := range map[string]bool{"ns": true, "example.com/team": true,
		"core.juniper.net/isolated-namespace": true,
		"kubernetes.io/metadata.name":         false, "pod-security.kubernetes.io/enforce": false, "tombolo.io/copy": false,
		"multicluster.tombolo.io/x": false, "notkubernetes.io/x": true, "x.k8s.io/y": false} {
		if Copied(key) != want {
			t.Errorf("label %s is copied: %t", key, !want)
		}
	}
}
