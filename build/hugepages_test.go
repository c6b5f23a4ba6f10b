package build

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestHugepages: a command runs while the kernel gives large pages, and the setting is restored, also after a failure.
// The owner's decision against them stays.
func TestHugepages(t *testing.T) {
	for _, row := range []struct{ before, during, after string }{
		{"always [madvise] never\n", "always\n", "madvise\n"},
		{"[always] madvise never\n", "[always] madvise never\n", "[always] madvise never\n"},
		{"always madvise [never]\n", "always madvise [never]\n", "always madvise [never]\n"},
	} {
		file := filepath.Join(t.TempDir(), "enabled")
		if err := os.WriteFile(file, []byte(row.before), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("./hugepages", "sh", "-c", "cat "+file+"; exit 3")
		cmd.Env = append(os.Environ(), "TOMBOLO_HUGEPAGES="+file)
		out, err := cmd.Output()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 3 {
			t.Errorf("%s: the command's exit code 3 becomes %v", strings.TrimSpace(row.before), err)
		}
		after, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if string(out) != row.during || string(after) != row.after {
			t.Errorf("%s: it is %q for the command, and %q after it; want %q and %q", strings.TrimSpace(row.before), out, after,
				row.during, row.after)
		}
	}
}
