package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/tombolo-net/tombolo/test/lab"
	"github.com/tombolo-net/tombolo/test/scenario"
)

// monitor prints each change of a way's state, as a line, until its standard input ends. It uses no processor time
// meanwhile. (ovsdb-client 3.1 crashes with --timestamp and JSON.)
const monitor = "ovsdb-client -f json monitor unix:/var/run/openvswitch/db.sock Open_vSwitch Interface " +
	"name,bfd_status & cat; kill $!"

// watcher is a Node whose switch watches a Gateway by BFD. The state in its OVSDB shows when it finds the Gateway down.
type watcher struct {
	node   *lab.Node
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr bytes.Buffer
	done   chan struct{} // closed when all is read
	way    way
	err    error // the first line that was not understood
}

// detect begins to watch when other Nodes of both clusters find a Gateway down. Nodes without a way to that Gateway
// cannot find it: regular Nodes of the other cluster and, if traffic is encrypted, that cluster's Gateways, whose ways
// end at addresses of their own. The returned function ends the watch. It returns, in order, how long after a given
// time each Node found the Gateway down. The error names Nodes that did not find it, and Nodes that reported it as down
// too early.
func detect(ctx context.Context, s *scenario.Scenario,
	gateway *lab.Node) (end func(since time.Time) ([]time.Duration, error), err error) {
	address, err := netip.ParseAddr(gateway.InternalIP())
	if err != nil {
		return nil, err
	}
	var all []*watcher
	end = func(since time.Time) (took []time.Duration, err error) {
		var ends sync.WaitGroup
		for _, w := range all {
			ends.Go(w.end)
		}
		ends.Wait()
		for _, w := range all {
			if w.err != nil {
				err = errors.Join(err, fmt.Errorf("watch the OVSDB of Node %s: %w\n%s", w.node, w.err, w.stderr.String()))
			}
			if w.way.downs != nil && w.way.downs[0].Before(since) {
				err = errors.Join(err,
					fmt.Errorf("the switch of Node %s took %s for down %s before it was: BFD begins anew, with an interval of a "+
						"second", w.node, gateway, since.Sub(w.way.downs[0]).Round(time.Millisecond)))
			}
			if at, ok := w.way.downAfter(since); ok {
				took = append(took, at.Sub(since))
			}
		}
		slices.Sort(took)
		return took, err
	}
	for _, cluster := range members {
		for _, n := range s.Lab.Cluster(cluster).Nodes() {
			if n.String() == gateway.String() {
				continue
			}
			w := &watcher{node: n, done: make(chan struct{}), way: way{port: fmt.Sprintf("bfd-%x", address.AsSlice())}}
			if err := w.start(ctx); err != nil {
				_, _ = end(time.Now())
				return nil, fmt.Errorf("watch the OVSDB of Node %s: %w", n, err)
			}
			all = append(all, w)
		}
	}
	return end, nil
}

func (w *watcher) start(ctx context.Context) (err error) {
	if w.cmd, err = w.node.Command(ctx, "sh", "-c", monitor); err != nil {
		return err
	}
	w.cmd.Stderr = &w.stderr
	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := w.cmd.Start(); err != nil {
		return err
	}
	go func() {
		defer close(w.done)
		n := 0
		lines := bufio.NewScanner(out)
		for lines.Buffer(nil, 16<<20); lines.Scan(); n++ {
			if err := w.way.read(lines.Bytes(), time.Now()); err != nil && w.err == nil {
				w.err = err
			}
		}
		if err := lines.Err(); err != nil || n == 0 {
			w.err = errors.Join(w.err, err, errors.New("the monitor printed nothing, or not all"))
		}
	}()
	return nil
}

func (w *watcher) end() {
	_ = w.stdin.Close() // the monitor ends with it
	<-w.done
	_ = w.cmd.Wait() // it was killed
}

// way is a Node's way to the far end of a port with BFD.
type way struct {
	port  string
	up    bool
	downs []time.Time // when it went down that was up
}

// read takes a line of the monitor, a table of rows:
//
//	{"data":[["UUID","old",null,["map",[["state","up"]]]],
//	         ["","new","bfd-c0a84d65",["map",[["state","down"]]]]],"headings":[...]}
func (w *way) read(line []byte, now time.Time) error {
	var table struct{ Data [][4]json.RawMessage }
	if err := json.Unmarshal(line, &table); err != nil {
		return fmt.Errorf("decode %.200q: %w", line, err)
	}
	for _, row := range table.Data {
		var action, name string
		if err := errors.Join(json.Unmarshal(row[1], &action), json.Unmarshal(row[2], &name)); err != nil {
			return fmt.Errorf("decode %.200q: %w", line, err)
		}
		if name != w.port || action == "old" {
			continue
		}
		was := w.up
		w.up = action != "delete" && bytes.Contains(row[3], []byte(`["state","up"]`))
		if was && !w.up && action == "new" { // no way has gone down whose port is gone
			w.downs = append(w.downs, now)
		}
	}
	return nil
}

// downAfter is when the way went down first after a moment.
func (w *way) downAfter(since time.Time) (time.Time, bool) {
	i := slices.IndexFunc(w.downs, since.Before)
	if i < 0 {
		return time.Time{}, false
	}
	return w.downs[i], true
}

// detected is spread, with how many of the runs they are if not all.
func detected(took []time.Duration, runs int) string {
	switch len(took) {
	case 0:
		return "not seen"
	case runs:
		return spread(took)
	}
	return fmt.Sprintf("%s, %d seen", spread(took), len(took))
}
