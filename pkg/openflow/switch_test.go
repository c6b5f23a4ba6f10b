package openflow_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// standIn is the testing.TB of an example, which has no testing.TB.
type standIn struct {
	testing.TB // no other method is called
	cleanups   []func()
}

func (s *standIn) Helper()             {}
func (s *standIn) Cleanup(f func())    { s.cleanups = append(s.cleanups, f) }
func (s *standIn) Failed() bool        { return false }
func (s *standIn) Logf(string, ...any) {}
func (s *standIn) Fatal(args ...any)   { panic(fmt.Sprint(args...)) }
func (s *standIn) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

// startSwitch starts an Open vSwitch of its own, without a datapath, with the bridge br0. It
// panics where Open vSwitch is lacking.
func startSwitch() (dial ofconn.Dialer, stop func()) {
	tb := &standIn{}
	stop = func() {
		for _, f := range tb.cleanups {
			f()
		}
	}
	o := ovstest.Start(tb, ovstest.Dummy)
	o.Vsctl("--timeout=60", "add-br", "br0", "--", "set", "bridge", "br0", "fail-mode=secure")
	return ofconn.UnixDialer(filepath.Join(o.RunDir(), "br0.mgmt")), stop
}
