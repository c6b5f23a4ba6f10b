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
// and asks; an answer other than yes is an error. In scripts it asks nothing, and does not list the objects.
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
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read the answer: %w; give --yes", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true, nil
	}
	return false, errors.New("nothing was deleted: the answer was not yes")
}
