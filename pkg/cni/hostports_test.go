package cni

import (
	"encoding/json"
	"slices"
	"testing"
)

// ports is a configuration with values of the capability portMappings.
func ports(list string) map[string]any {
	return map[string]any{"runtimeConfig": map[string]any{"portMappings": json.RawMessage("[" + list + "]")}}
}

// TestHostPorts reads what runtimes pass.
func TestHostPorts(t *testing.T) {
	for _, row := range []struct{ name, list, want string }{
		{"none", ``, ""},
		{"protocols", `{"hostPort":80,"containerPort":8080,"protocol":"TCP"},
			{"hostPort":80,"containerPort":53,"protocol":"udp"},
			{"hostPort":80,"containerPort":9,"protocol":"sctp"},
			{"hostPort":81,"containerPort":81}`,
			"80->8080/tcp 80->53/udp 80->9/sctp 81->81/tcp"},
		{"every address", `{"hostPort":80,"containerPort":80,"hostIP":"0.0.0.0"},
			{"hostPort":81,"containerPort":81,"hostIP":"::"}`,
			"80->80/tcp 81->81/tcp"},
		{"some addresses", `{"hostPort":80,"containerPort":80,"hostIP":"127.0.0.1"},
			{"hostPort":80,"containerPort":81,"hostIP":"192.0.2.1"},
			{"hostPort":80,"containerPort":82,"hostIP":"::ffff:192.0.2.2"},
			{"hostPort":80,"containerPort":83,"hostIP":"fd00::1"}`,
			"127.0.0.1:80->80/tcp 192.0.2.1:80->81/tcp 192.0.2.2:80->82/tcp [fd00::1]:80->83/tcp"},
		{"no hostPort", `{"hostPort":0,"containerPort":80},{"containerPort":81}`, ""},
		{"the same twice", `{"hostPort":80,"containerPort":80},
			{"hostPort":80,"containerPort":80,"protocol":"tcp"}`, "80->80/tcp"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var c netConf
			text, err := json.Marshal(ports(row.list))
			if err == nil {
				err = json.Unmarshal(text, &c)
			}
			if err != nil {
				t.Fatal(err)
			}
			have, failed := c.hostPorts()
			if failed != nil || have.String() != row.want {
				t.Fatalf("%q, %v; want %q", have, failed, row.want)
			}
			if back := parseHostPorts(have.String()); !slices.Equal(have, back) {
				t.Errorf("read back %q, want %q", back, have)
			}
		})
	}
	const damaged = "x 80 80->80 0->80/tcp 80->0/tcp 80->80/icmp 1.2.3:80->80/tcp 70000->80/tcp 443->8443/tcp"
	if have := parseHostPorts(damaged).String(); have != "443->8443/tcp" {
		t.Errorf("of a damaged record %q is left", have)
	}
}

// TestHostPortsMeet has pairs of Pods that ask for the same port of a Node.
func TestHostPortsMeet(t *testing.T) {
	for _, row := range []struct {
		one, other string
		meet       bool
	}{
		{"80->80/tcp", "80->81/tcp", true},
		{"80->80/tcp", "80->80/udp", false},
		{"80->80/tcp", "81->80/tcp", false},
		{"80->80/tcp", "127.0.0.1:80->80/tcp", true},
		{"127.0.0.1:80->80/tcp", "80->80/tcp", true},
		{"127.0.0.1:80->80/tcp", "192.0.2.1:80->80/tcp", false},
		{"1->1/tcp 80->80/tcp", "2->2/tcp 80->80/tcp", true},
		{"", "80->80/tcp", false},
	} {
		if _, _, meet := parseHostPorts(row.one).Meets(parseHostPorts(row.other)); meet != row.meet {
			t.Errorf("%q and %q: %v, want %v", row.one, row.other, meet, row.meet)
		}
	}
}
