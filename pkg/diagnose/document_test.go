package diagnose

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the codes of docs/diagnose.md")

// TestDocument holds that docs/diagnose.md has an entry for each code, as the table of checks has it.
func TestDocument(t *testing.T) {
	const path = "../../docs/diagnose.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	guide, codes, ok := strings.Cut(string(text), heading)
	if !ok {
		t.Fatalf("%s has no line %q", path, heading)
	}
	if *update {
		if err := os.WriteFile(path, []byte(guide+Document()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(Document(), heading+codes); diff != "" {
		t.Errorf("%s (-want +have); go test ./pkg/diagnose -run TestDocument -update writes it:\n%s", path, diff)
	}
}
