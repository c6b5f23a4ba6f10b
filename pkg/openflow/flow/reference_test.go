package flow

import (
	"os"
	"strings"
	"testing"
)

// TestReference wants docs/openflow-fields.md to be what the tables say.
func TestReference(t *testing.T) {
	have, err := os.ReadFile("../../../docs/openflow-fields.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != Reference() {
		t.Error("docs/openflow-fields.md is stale: run go generate ./pkg/openflow/flow")
	}
}

// TestActionForms checks that we and ovs-ofctl read each action of the reference, and that the reference has each
// action that we read.
func TestActionForms(t *testing.T) {
	inReference := map[string]bool{"nat": true} // stands in ct's form
	var text strings.Builder
	var ours []string
	for _, a := range actionForms {
		name, _, _ := strings.Cut(a.text, ":")
		name, _, _ = strings.Cut(name, "(")
		inReference[strings.ToLower(name)] = true
		for _, word := range strings.Fields(a.does) { // such as "strip_vlan is the same"
			inReference[strings.Trim(word, ";,")] = true
		}
		if a.does == "" || a.source == "" {
			t.Errorf("%s: says nothing, or names no source", a.text)
		}
		_, err := ParseActions(a.text)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if strings.HasPrefix(a.text, "raw") {
			continue
		}
		found := false
		for _, c := range madeContexts {
			line := c.match.String() + " actions=" + a.text
			if f, err := ParseFlow(line); err == nil {
				found = true
				text.WriteString(line + "\n")
				ours = append(ours, modText(f))
				break
			}
		}
		if !found {
			t.Errorf("%s: no flow can have it", a.text)
		}
	}
	out, err := ofctlInput(text.String(), "parse-flows", "-")
	if err != nil {
		t.Fatal(err)
	}
	differs(t, "reference through parse-flows", ours, modLines(out))
	for _, names := range []map[string]bool{keys(plainActions), keys(legacyNames), keys(actionParsers)} {
		for name := range names {
			if !inReference[name] {
				t.Errorf("%s is not in the reference", name)
			}
		}
	}
}

func keys[V any](m map[string]V) map[string]bool {
	out := map[string]bool{}
	for k := range m {
		out[k] = true
	}
	return out
}
