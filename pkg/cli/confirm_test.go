package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// terminal returns the two ends of a new pseudo-terminal: the user's, and the program's.
func terminal(t *testing.T) (user, program *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { user.Close() })
	fd := int(user.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return user, program
}

// TestDeletion asks at a terminal, and only there.
func TestDeletion(t *testing.T) {
	const question = "Secret \"a\"\nDelete these objects? [y/N] "
	for _, row := range []struct {
		name, words, typed string // typed at a terminal; without it there is no terminal
		objects            []string
		stdout, stderr     string
		deleted            bool
	}{
		{"in a script", "", "", []string{`Secret "a"`}, "", "", true},
		{"yes", "", "y\n", []string{`Secret "a"`}, "", question, true},
		{"the whole word", "", "YES\n", []string{`Secret "a"`}, "", question, true},
		{"no", "", "\n", []string{`Secret "a"`}, "", question + "x: nothing was deleted: the answer was not yes\n", false},
		{"the end of the input", "", "\x04", []string{`Secret "a"`}, "",
			question + "x: nothing was deleted: the answer was not yes\n", false},
		{"without a question", "--yes", "n\n", []string{`Secret "a"`}, "", "", true},
		{"nothing to delete", "", "n\n", nil, "", "", true},
		{"a dry run", "--dry-run", "n\n", []string{`Secret "a"`}, "Secret \"a\" would be deleted\n", "", false},
		{"a dry run in a script", "--dry-run", "", []string{`Secret "a"`}, "Secret \"a\" would be deleted\n", "", false},
		{"a dry run of nothing", "--dry-run -y", "", nil, "nothing would be deleted\n", "", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			var d Deletion
			deleted := false
			cmd := Root("x", "")
			cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
				deleted, err = d.Confirmed(cmd, func() ([]string, error) { return row.objects, nil })
				return err
			}
			d.Flags(cmd)
			null, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			defer null.Close()
			cmd.SetIn(null)
			if row.typed != "" {
				user, program := terminal(t)
				cmd.SetIn(program)
				if _, err := user.WriteString(row.typed); err != nil {
					t.Fatal(err)
				}
			}
			var stdout, stderr bytes.Buffer
			Run(t.Context(), cmd, strings.Fields(row.words), &stdout, &stderr)
			if deleted != row.deleted || stdout.String() != row.stdout || stderr.String() != row.stderr {
				t.Errorf("deleted %t, %q, %q", deleted, stdout.String(), stderr.String())
			}
		})
	}
}

// TestInterrupt: an interrupt at the question ends the command, and nothing is deleted.
func TestInterrupt(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	user, program := terminal(t)
	var d Deletion
	deleted := false
	cmd := Root("x", "")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		deleted, err = d.Confirmed(cmd, func() ([]string, error) { return []string{`Secret "a"`}, nil })
		return err
	}
	d.Flags(cmd)
	cmd.SetIn(program)
	asked, stderr := io.Pipe()
	go func() {
		question := make([]byte, 1000)
		for text := ""; !strings.Contains(text, "[y/N]"); {
			n, err := asked.Read(question)
			if err != nil {
				return
			}
			text += string(question[:n])
		}
		interrupt()
		_, _ = io.Copy(io.Discard, asked)
	}()
	code := Run(ctx, cmd, nil, io.Discard, stderr)
	stderr.Close()
	user.Close() // ends the read
	if code != 1 || deleted {
		t.Errorf("code %d, deleted: %t", code, deleted)
	}
}
