package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Deletion has the flags of a command that deletes objects.
type Deletion struct {
	dryRun, yes bool
}

// Flags adds --dry-run and --yes to a command.
func (d *Deletion) Flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&d.dryRun, "dry-run", false, "print the objects that would be deleted, and delete nothing")
	cmd.Flags().BoolVarP(&d.yes, "yes", "y", false, "delete without a question; one is asked at a terminal only")
}

// Confirmed reports whether the objects are to be deleted. With --dry-run it prints them. At a terminal it prints them
// and asks. An interrupt is an error, and so is an answer other than yes. Without a terminal, as in scripts, it does
// not ask and does not list the objects.
func (d *Deletion) Confirmed(cmd *cobra.Command, list func() ([]string, error)) (bool, error) {
	in, isFile := cmd.InOrStdin().(*os.File)
	asks := !d.yes && isFile && term.IsTerminal(int(in.Fd()))
	if !d.dryRun && !asks {
		return true, nil
	}
	objects, err := list()
	if err != nil {
		return false, err
	}
	if d.dryRun {
		for _, o := range objects {
			fmt.Fprintf(cmd.OutOrStdout(), "%s would be deleted\n", o)
		}
		if len(objects) == 0 {
			fmt.Fprintln(cmd.OutOrStdout(), "nothing would be deleted")
		}
		return false, nil
	}
	if len(objects) == 0 {
		return true, nil // the command reports what is missing
	}
	for _, o := range objects {
		fmt.Fprintln(cmd.ErrOrStderr(), o)
	}
	fmt.Fprint(cmd.ErrOrStderr(), "Delete these objects? [y/N] ")
	select {
	case a := <-answerOf(in):
		switch {
		case a.err != nil && !errors.Is(a.err, io.EOF):
			return false, fmt.Errorf("read the answer: %w; give --yes", a.err)
		case a.text == "y", a.text == "yes":
			return true, nil
		}
		return false, errors.New("nothing was deleted: the answer was not yes")
	case <-cmd.Context().Done():
		fmt.Fprintln(cmd.ErrOrStderr())
		return false, fmt.Errorf("nothing was deleted: interrupted: %w", cmd.Context().Err())
	}
}

// answer is a line that a user has typed, in lower case.
type answer struct {
	text string
	err  error
}

// answerOf reads a line in the background, since the end of a context does not end a read of a terminal.
func answerOf(in io.Reader) <-chan answer {
	read := make(chan answer, 1)
	go func() {
		text, err := bufio.NewReader(in).ReadString('\n')
		read <- answer{strings.ToLower(strings.TrimSpace(text)), err}
	}()
	return read
}
