// Package clitest runs commands of the program tombolo for tests and compares their output with golden files.
package clitest

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/cli"
)

var update = flag.Bool("update", false, "write the golden files")

// Run runs a command line and returns what it printed, and the exit code.
func Run(t *testing.T, root *cobra.Command, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, err bytes.Buffer
	code = cli.Run(t.Context(), root, args, &out, &err)
	return out.String(), err.String(), code
}

// Golden compares with testdata/name.
func Golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got); run with -update if this is meant:\n%s", path, diff)
	}
}
