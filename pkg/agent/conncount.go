package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/ovs/appctl"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// connectionCount watches the number of connections that the datapath tracks. At the limit the datapath drops new
// connections of any Pod. So a problem is reported before the limit is reached.
type connectionCount struct {
	read func(context.Context) (tracked, limit int, err error)
	log  *slog.Logger

	mu             sync.Mutex
	tracked, limit int
}

const (
	countPause = 30 * time.Second
	countShare = 80 // percent of the limit that are reported
)

func (c *connectionCount) run(ctx context.Context) {
	for ctx.Err() == nil {
		reading, cancel := context.WithTimeout(ctx, countPause)
		tracked, limit, err := c.read(reading)
		cancel()
		if err != nil {
			c.log.Debug("connections not counted", "error", err)
		}
		c.mu.Lock()
		before := c.full()
		c.tracked, c.limit = tracked, limit
		after := c.full()
		c.mu.Unlock()
		if before != after {
			c.log.Warn("the limit of tracked connections", "near", after, "connections", tracked, "limit", limit)
		}
		_ = sleep(ctx, countPause)
	}
}

// last returns the last numbers. It returns false before the first ones.
func (c *connectionCount) last() (tracked, limit int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tracked, c.limit, c.limit > 0
}

func (c *connectionCount) full() bool { return c.limit > 0 && c.tracked*100 >= c.limit*countShare }

func (c *connectionCount) problems(node string) []problem.Problem {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.full() {
		return nil
	}
	return []problem.Problem{{
		Object: problem.Object{Kind: "Node", Name: node}, Reason: reasonConnectionsNearLimit,
		Message: fmt.Sprintf("%d of at most %d connections are tracked; at the limit new connections of all Pods are "+
			"dropped: find the Pod that opens them (ovs-appctl dpctl/dump-conntrack), "+
			"or raise the limit (net.netfilter.nf_conntrack_max; on the userspace datapath ovs-appctl dpctl/ct-set-maxconns)",
			c.tracked, c.limit),
	}}
}

// countConnections returns the number of tracked connections and their limit. The kernel has both in sysctls of the
// host, and its number includes the host's own connections.
func countConnections(ctx context.Context, tracer appctl.Client, c config.Config) (tracked, limit int, err error) {
	ask := func(what string) (string, error) {
		if c.OVSDatapathType == "netdev" {
			command := "dpctl/ct-get-" + map[string]string{"count": "nconns", "max": "maxconns"}[what]
			return tracer.Run(ctx, command, conntrackDump(c, false)[0])
		}
		text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_" + what)
		return string(text), err
	}
	for what, to := range map[string]*int{"count": &tracked, "max": &limit} {
		text, err := ask(what)
		if err != nil {
			return 0, 0, err
		}
		if *to, err = strconv.Atoi(strings.TrimSpace(text)); err != nil {
			return 0, 0, err
		}
	}
	return tracked, limit, nil
}
