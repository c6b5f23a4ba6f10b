package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTracesAreFound leaves one trace of each kind that belongs to no other lab.
func TestTracesAreFound(t *testing.T) {
	name := fmt.Sprintf("left%d", os.Getpid())
	before, err := Snapshot(name)
	if err != nil {
		t.Fatal(err)
	}
	p := place{name + "-router"}
	memory := (&Lab{record: record{Config: Config{Name: name}}}).memory()
	t.Cleanup(func() {
		if err := p.remove(); err != nil {
			t.Error(err)
		}
		if err := p.forget(); err != nil {
			t.Error(err)
		}
		os.RemoveAll(memory)
	})
	if err := p.create(); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(memory, 0o700); err != nil {
		t.Fatal(err)
	}
	sleep := exec.Command("setsid", "sleep", "1000") // which leaves its parent
	if err := start(p, filepath.Join(t.TempDir(), "log"), sleep); err != nil {
		t.Fatal(err)
	}
	err = eventually(t.Context(), time.Minute, func(context.Context) error {
		now, err := Snapshot(name)
		if err != nil {
			return err
		}
		left := strings.Join(before.left(now), "\n")
		for _, want := range []string{p.path(), memory, "mount ", ": sleep 1000"} {
			if !strings.Contains(left, want) {
				return fmt.Errorf("%q is not found; what is: %s", want, left)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := killInside(t.Context(), p, nil); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.remove(), p.forget()); err != nil {
		t.Fatal(err)
	}
	os.RemoveAll(memory)
	if err := before.Compare(t.Context()); err != nil {
		t.Error(err)
	}
}
