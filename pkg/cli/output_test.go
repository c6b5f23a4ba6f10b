package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// list is an answer of a program of our own.
type list struct {
	Note  string `json:"note,omitempty"`
	Ports []port `json:"ports"`
}

type port struct {
	Name string `json:"name"`
	Pod  string `json:"pod,omitempty"`
}

// TestFormats prints answers in each format.
func TestFormats(t *testing.T) {
	ports := list{"two", []port{{"eth0", ""}, {"web", "shop/web"}}}
	type meta struct {
		Name string `json:"name"`
	}
	type set struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   meta   `json:"metadata"`
	}
	type sets struct {
		Items []set `json:"items"`
	}
	objects := sets{[]set{{"multicluster.crd.antrea.io/v1alpha2", "ClusterSet", meta{"a"}}, {"v1", "Secret", meta{"b"}}}}
	nodes := []map[string]string{{"cluster": "east", "node": "n1"}, {"node": "n2"}}
	for _, row := range []struct {
		words string
		v     any
		want  string
	}{
		{"", ports, "NAME  POD\neth0  -\nweb   shop/web\n"},
		{"-o wide --no-headers", ports, "eth0  -\nweb   shop/web\n"},
		{"-o json", Object("PortList", list{Ports: []port{}}),
			"{\n  \"apiVersion\": \"cli.tombolo.net/v1\",\n  \"kind\": \"PortList\",\n  \"ports\": []\n}\n"},
		{"-o yaml", Object("NodeList", nodes), "apiVersion: cli.tombolo.net/v1\nitems:\n- cluster: east\n  node: n1\n" +
			"- node: n2\nkind: NodeList\n"},
		{"-o yaml", Object("NodeList", []string(nil)), "apiVersion: cli.tombolo.net/v1\nitems: []\nkind: NodeList\n"},
		{"-o yaml", Object("None", struct{}{}), "apiVersion: cli.tombolo.net/v1\nkind: None\n"},
		{"-o name", Object("PortList", ports), "eth0\nweb\n"},
		{"-o name", Object("PortList", list{Ports: []port{}}), ""},
		{"-o name", objects, "clusterset.multicluster.crd.antrea.io/a\nsecret/b\n"},
		{"-o name", objects.Items[1], "secret/b\n"},
		{"-o name", Object("NodeList", nodes), "east/n1\nn2\n"},
		{"-o name", []map[string]string{{"kind": "NetworkPolicy", "namespace": "shop", "name": "web"}},
			"networkpolicy/shop/web\n"},
		{"-o name", Object("Verdict", map[string]bool{"allowed": true}), "--output name: this answer has no names"},
		{"-o jsonpath={.ports[*].name}", Object("PortList", ports), "eth0 web\n"},
		{"-o jsonpath=ports[1].pod", ports, "shop/web\n"},
		{"-o jsonpath=.kind", Object("PortList", ports), "PortList\n"},
		{"-o jsonpath={.none}", ports, "\n"},
		{"-o jsonpath={.items[*]}", Object("CountList", []any{123456789, 9007199254740993, 0.5}),
			"123456789 9007199254740993 0.5\n"},
		{"-o jsonpath={.items[?(@.n>2)].n}", Object("CountList", []map[string]int{{"n": 2}, {"n": 30000000}}), "30000000\n"},
		{"-o jsonpath={.ports[", ports, `invalid argument "jsonpath={.ports[" for "-o, --output" flag: `},
		{"-o jsonpath", ports, "jsonpath needs a template, such as jsonpath={.items[*].metadata.name}"},
		{"-o json=x", ports, "want table, wide, json, yaml, name or jsonpath=TEMPLATE"},
		{"-o text --no-headers", ports, "eth0  -\nweb   shop/web\n"},
		{"-o xml", ports, "want table, wide, json, yaml, name or jsonpath=TEMPLATE"},
	} {
		t.Run(fmt.Sprintf("%s %T", row.words, row.v), func(t *testing.T) {
			var out, stderr bytes.Buffer
			var f Format
			cmd := Root("x", "")
			cmd.RunE = func(cmd *cobra.Command, _ []string) error {
				return f.Print(&out, row.v, func() error {
					rows := Rows{{"NAME", "POD"}}
					for _, p := range ports.Ports {
						rows.Add(p.Name, p.Pod)
					}
					rows.Fill(Empty)
					return f.Rows(&out, rows)
				})
			}
			f.Flag(cmd)
			code := Run(t.Context(), cmd, strings.Fields(row.words), &out, &stderr)
			if code == 0 && out.String() != row.want || code != 0 && !strings.Contains(stderr.String(), row.want) {
				t.Errorf("code %d, %q, %q\nwant %q", code, out.String(), stderr.String(), row.want)
			}
		})
	}
}
