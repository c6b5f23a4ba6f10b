package program

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
	"testing"
)

// TestEnds holds that a closed terminal interrupts commands, except below nohup.
func TestEnds(t *testing.T) {
	if !slices.Contains(ends(), os.Signal(syscall.SIGHUP)) && !signal.Ignored(syscall.SIGHUP) {
		t.Error("SIGHUP does not interrupt")
	}
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	if slices.Contains(ends(), os.Signal(syscall.SIGHUP)) {
		t.Error("an ignored SIGHUP interrupts")
	}
}
