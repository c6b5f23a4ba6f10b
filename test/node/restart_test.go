package node

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/test/child"
)

var (
	restartPackets = flag.Int("restart.packets", 3000,
		"how many packets are sent over each restart of ovs-vswitchd, 1000 a second")
	restartMeasure = flag.Bool("restart.measure", false,
		"measure also what is lost when the switch's own tools restore its flows, and without waiting for flows")
)

// container runs Open vSwitch as the containers of the DaemonSet do: by their start script.
type container struct {
	r        *rig
	env      []string
	database *exec.Cmd
	daemon   *exec.Cmd
}

func newContainer(r *rig) *container {
	r.runDir = filepath.Join(r.dir, "ovs")
	c := &container{r: r, env: append(os.Environ(), "OVS_RUNDIR="+r.runDir, "OVS_DBDIR="+filepath.Join(r.dir, "db"),
		"OVS_LOGDIR="+r.dir)}
	c.database = c.start("ovsdb-server")
	c.startDaemon()
	r.t.Cleanup(func() { c.end(&c.daemon); c.end(&c.database) })
	return c
}

func (c *container) start(what string, env ...string) *exec.Cmd {
	c.r.t.Helper()
	cmd := exec.Command("../../build/ovs/tombolo-ovs", what)
	cmd.Env = append(append([]string{}, c.env...), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stdout, cmd.Stderr = c.r.log, c.r.log
	cmd.WaitDelay = time.Second // the script's timer holds the output open
	if err := child.Start(cmd); err != nil {
		c.r.t.Fatal(err)
	}
	return cmd
}

func (c *container) startDaemon(env ...string) { c.daemon = c.start("ovs-vswitchd", env...) }

// end stops a container as the kubelet does.
func (c *container) end(cmd **exec.Cmd) {
	if *cmd == nil {
		return
	}
	_ = (*cmd).Process.Signal(syscall.SIGTERM)
	err := (*cmd).Wait()
	group := -(*cmd).Process.Pid
	c.r.eventually("the script's timer ends with the daemon", func() error {
		if err := syscall.Kill(group, 0); !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("processes of the container are left: %w", err)
		}
		return nil
	})
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		c.r.t.Errorf("end of a daemon: %v", err)
	}
	*cmd = nil
}

// alone waits until nothing but the daemon itself is left in its container.
func (c *container) alone() {
	c.r.t.Helper()
	c.r.eventually("the script's timer ends with the wait", func() error {
		stats, err := filepath.Glob("/proc/[0-9]*/stat")
		if err != nil {
			return err
		}
		for _, path := range stats {
			text, err := os.ReadFile(path)
			if err != nil {
				continue // it has ended
			}
			_, after, _ := strings.Cut(string(text), ") ") // state, parent, group; proc(5)
			var state string
			var parent, group int
			if _, err := fmt.Sscan(after, &state, &parent, &group); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if group == c.daemon.Process.Pid && path != fmt.Sprintf("/proc/%d/stat", group) {
				return fmt.Errorf("there is %s", text)
			}
		}
		return nil
	})
}

// tool runs one of Open vSwitch's tools.
func (c *container) tool(args ...string) (string, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = c.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%q: %w: %s", args, err, out)
	}
	return string(out), nil
}

func (c *container) must(args ...string) string {
	c.r.t.Helper()
	out, err := c.tool(args...)
	if err != nil {
		c.r.t.Fatal(err)
	}
	return out
}

var meter = regexp.MustCompile(`meter:\d+,`)

var firstTable = regexp.MustCompile(`table 0[^:]*:\s+active=\d+, lookup=(\d+), matched=(\d+)`)

// misses is how many packets have met no flow in the first table since ovs-vswitchd started.
func (c *container) misses() (lookups, misses uint64) {
	c.r.t.Helper()
	text := c.must("ovs-ofctl", "-O", "OpenFlow15", "dump-tables", "br-int")
	m := firstTable.FindStringSubmatch(text)
	if m == nil {
		c.r.t.Fatalf("no first table in %s", text)
	}
	var matched uint64
	if _, err := fmt.Sscan(m[1]+" "+m[2], &lookups, &matched); err != nil {
		c.r.t.Fatal(err)
	}
	return lookups, lookups - matched
}

func (c *container) waiting() bool {
	out, err := c.tool("ovs-vsctl", "--timeout=5", "get", "Open_vSwitch", ".", "other_config")
	return err != nil || strings.Contains(out, "flow-restore-wait")
}

// testRestart restarts ovs-vswitchd under a stream of packets between two Pods. It comes back with its flows: no packet
// meets an empty table. Only packets are lost that arrive while the switch does not run.
func testRestart(t *testing.T, cl *cluster) {
	r := newRig(t, cl)
	c := newContainer(r)
	r.ready()
	sender, receiver := r.add("sender"), r.add("receiver")
	if c.waiting() {
		t.Error("the first start waits for flows: there are no Pods yet, and an agent may need the switch to reach the API " +
			"server")
	}

	// stream sends packets over what restart does, and returns how many were lost.
	stream := func(restart func()) int {
		t.Helper()
		seen := make([]bool, *restartPackets)
		var in net.PacketConn
		if err := receiver.within(func() (err error) {
			in, err = net.ListenPacket("udp4", ":9000")
			return err
		}); err != nil {
			t.Fatal(err)
		}
		var reading, sending sync.WaitGroup
		reading.Go(func() {
			b := make([]byte, 100)
			for {
				n, _, err := in.ReadFrom(b)
				if err != nil {
					return
				}
				if i := binary.BigEndian.Uint32(b[:n]); int(i) < len(seen) {
					seen[i] = true
				}
			}
		})
		out, err := sender.dial("udp4", receiver.ip+":9000")
		if err != nil {
			t.Fatal(err)
		}
		sending.Go(func() {
			began := time.Now()
			for i := range seen {
				time.Sleep(time.Until(began.Add(time.Duration(i) * time.Millisecond)))
				_, _ = out.Write(binary.BigEndian.AppendUint32(nil, uint32(i))) // an answer of ICMP is an error of the next one
			}
		})
		restart()
		sending.Wait()
		answered := time.Now()
		r.eventually("the last packet has come", func() error {
			if !seen[len(seen)-1] && time.Since(answered) < 3*time.Second {
				return errors.New("it has not")
			}
			return nil
		})
		in.Close()
		out.Close()
		reading.Wait()
		lost := 0
		for _, ok := range seen {
			if !ok {
				lost++
			}
		}
		return lost
	}
	half := func() { time.Sleep(time.Duration(*restartPackets) * time.Millisecond / 3) } // of the stream
	ended := func() {
		t.Helper()
		r.eventually("the switch processes packets", func() error {
			if c.waiting() {
				return errors.New("it waits for its flows")
			}
			return nil
		})
	}
	planned := func(env ...string) func() {
		return func() {
			half()
			c.end(&c.daemon)
			c.startDaemon(env...)
			ended()
		}
	}

	ours := stream(planned())
	begin := time.Now()
	c.alone()
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("the script's timer went on for %s after the agent had ended the wait", took)
	}
	lookups, misses := c.misses()
	if lookups == 0 || misses > 0 {
		t.Errorf("%d of %d packets met an empty table after the restart", misses, lookups)
	}
	if ours > *restartPackets/2 {
		t.Errorf("%d of %d packets were lost", ours, *restartPackets)
	}
	t.Logf("planned restart of ovs-vswitchd at 1,000 packets a second, the agent restores: %d of %d lost, %d met an "+
		"empty table", ours, *restartPackets, misses)

	t.Run("without an agent", func(t *testing.T) {
		r.stop()
		c.end(&c.daemon)
		c.startDaemon("FLOW_RESTORE_WAIT=2")
		r.eventually("the switch waits for its flows", func() error {
			if !c.waiting() {
				return errors.New("it does not")
			}
			return nil
		})
		ended() // by the script's own bound
		r.ready()
	})

	if !*restartMeasure {
		return
	}
	naive := stream(planned("FLOW_RESTORE_WAIT=0"))
	_, misses = c.misses()
	t.Logf("without flow-restore-wait: %d of %d lost, %d met an empty table", naive, *restartPackets, misses)

	flows, groups := filepath.Join(r.dir, "flows"), filepath.Join(r.dir, "groups")
	save := func(file string, args ...string) {
		text := ""
		for line := range strings.Lines(c.must(append([]string{"ovs-ofctl", "-O", "OpenFlow15"}, args...)...)) {
			if !strings.Contains(line, "reply") {
				text += meter.ReplaceAllString(line, "")
			}
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	save(flows, "dump-flows", "br-int", "--no-stats", "--no-names") // without meters, which ovs-save leaves out
	save(groups, "dump-groups", "br-int")
	r.stop()
	tools := stream(func() {
		half()
		c.end(&c.daemon)
		c.startDaemon()
		// As ovs-ctl's restart does (utilities/ovs-lib.in, ovs-save).
		r.eventually("the switch takes flows", func() error {
			_, err := c.tool("ovs-ofctl", "-O", "OpenFlow15", "show", "br-int")
			return err
		})
		c.must("ovs-ofctl", "-O", "OpenFlow15", "add-groups", "br-int", groups)
		c.must("ovs-ofctl", "-O", "OpenFlow15", "--bundle", "add-flows", "br-int", flows)
		c.must("ovs-vsctl", "remove", "Open_vSwitch", ".", "other_config", "flow-restore-wait=true")
	})
	t.Logf("the switch's own tools restore (ovs-ofctl, as ovs-save): %d of %d lost", tools, *restartPackets)
}
