package agent

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// conversation is a connection that is used all the time.
type conversation struct {
	stop    chan struct{}
	done    sync.WaitGroup
	turns   int
	longest time.Duration
	err     error
}

// converse opens a connection to port 7 of an address. Once it was answered, it sends something every 20 ms.
func (p *encryptedPod) converse(address string) (*conversation, error) {
	var conn net.Conn
	var err error
	p.do(func() error {
		conn, err = net.DialTimeout("tcp4", net.JoinHostPort(address, "7"), 3*time.Second)
		return nil
	})
	if err != nil {
		return nil, err
	}
	c := &conversation{stop: make(chan struct{})}
	c.done.Go(func() {
		defer conn.Close()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		received := make([]byte, len(secret))
		for {
			select {
			case <-c.stop:
				return
			case <-tick.C:
			}
			start := time.Now()
			_ = conn.SetDeadline(start.Add(long))
			if _, c.err = conn.Write([]byte(secret)); c.err == nil {
				_, c.err = io.ReadFull(conn, received)
			}
			if c.err == nil && string(received) != secret {
				c.err = fmt.Errorf("received %q", received)
			}
			if c.err != nil {
				return
			}
			c.longest = max(c.longest, time.Since(start))
			c.turns++
		}
	})
	return c, nil
}

func (c *conversation) end() error {
	close(c.stop)
	c.done.Wait()
	return c.err
}

// TestSwitchUpgraded gives each of two Nodes another ovs-vswitchd under connections, as an upgrade does. It starts with
// flow-restore-wait. Connections from Pod to Pod continue. On the kernel's datapath connections through a Service
// continue too, since the kernel remembers the endpoint of each. The userspace datapath forgets it with its process. If
// it chooses another endpoint for a connection, the connection breaks.
func TestSwitchUpgraded(t *testing.T) {
	s, dirs, switches := wholeSides(t, true)
	one, other, another := s.all[0].attach(dirs[0], "one"), s.all[1].attach(dirs[1], "other"),
		s.all[1].attach(dirs[1], "another")
	s.set(func() {
		for _, side := range s.all {
			side.order.Endpoints = []string{other.ip.String(), another.ip.String()}
			s.deliver(side)
		}
	})
	direct := map[string]*conversation{}
	open := func(name string, from *encryptedPod, address string, into map[string]*conversation) {
		t.Helper()
		ovstest.Eventually(t, name, func() error {
			c, err := from.converse(address)
			if err == nil {
				into[name] = c
			}
			return err
		})
	}
	translated := map[string]*conversation{}
	for i := range 6 {
		open(fmt.Sprintf("from Pod to Pod, %d", i), one, other.ip.String(), direct)
		open(fmt.Sprintf("back, %d", i), other, one.ip.String(), direct)
		open(fmt.Sprintf("by a Service, %d", i), one, echoService, translated)
	}
	time.Sleep(time.Second) // all of them are used
	for i, ovs := range switches {
		ovs.StopDaemon()
		time.Sleep(500 * time.Millisecond) // as long as a container takes to start
		ovs.Vsctl("--no-wait", "set", "Open_vSwitch", ".", "other_config:flow-restore-wait=true")
		// of this thread, which the switches are started from
		if err := netns.Set(placeOf(t, s.all[i].cmd.Process.Pid).ns); err != nil {
			t.Fatal(err)
		}
		ovs.StartDaemon()
		s.all[i].until("it is ready", long, func(r sideReport) bool { return r.Ready })
		ovs.Eventually("the switch forwards by its flows", func() error {
			if c, err := one.converse(echoService); err != nil {
				return err
			} else if err := c.end(); err != nil {
				return err
			}
			return nil
		})
	}
	time.Sleep(time.Second)
	errorsOf := func(all map[string]*conversation) (errs error) {
		for name, c := range all {
			if err := c.end(); err != nil || c.turns < 10 {
				errs = errors.Join(errs, fmt.Errorf("%s: %d turns, %w", name, c.turns, err))
				continue
			}
			t.Logf("%s: %d turns, the longest %d ms", name, c.turns, c.longest.Milliseconds())
		}
		return errs
	}
	if err := errorsOf(direct); err != nil {
		t.Errorf("connections from Pod to Pod broke:\n%v", err)
	}
	if err := errorsOf(translated); ovstest.System() && err != nil {
		t.Errorf("connections by the Service broke:\n%v", err)
	}
}
