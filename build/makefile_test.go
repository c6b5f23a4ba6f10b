package build

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestMakefile compares the targets that the Makefile declares phony with its rules. make has nothing to do for a phony
// target without a rule, and succeeds: a tier of the tests would be lost without a word.
func TestMakefile(t *testing.T) {
	text, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, list, found := strings.Cut(string(text), "\n.PHONY: ")
	list, _, _ = strings.Cut(list, "\n")
	if !found || len(strings.Fields(list)) < 20 {
		t.Fatalf("phony targets of the Makefile: %q", list)
	}
	for _, target := range strings.Fields(list) {
		rule := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(target) + `:.*\n\t.`)
		if !rule.Match(text) {
			t.Errorf("the phony target %s has no recipe", target)
		}
	}
}
