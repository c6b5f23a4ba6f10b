package relay

import (
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/reverse"
)

const pathNode = reverse.Path

// node is a connection of a Node.
type node struct {
	*reverse.Conn
	name  string
	since time.Time
}

// nodes are the Nodes of the cluster, and the connections to their agents.
type nodes struct {
	log *slog.Logger

	mu      sync.Mutex
	all     map[string]bool
	open    map[string]*node
	changed chan struct{} // closed at the next change
}

func newNodes(log *slog.Logger) *nodes {
	return &nodes{log: log, all: map[string]bool{}, open: map[string]*node{}, changed: make(chan struct{})}
}

// notify wakes readers that wait for changes. Call it with mu.
func (n *nodes) notify() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// Add notes a Node of the cluster.
func (n *nodes) Add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.all[name] {
		n.all[name] = true
		n.notify()
	}
}

// Delete forgets a Node of the cluster, and ends its connection.
func (n *nodes) Delete(name string) {
	n.mu.Lock()
	c := n.open[name]
	delete(n.all, name)
	delete(n.open, name)
	n.notify()
	n.mu.Unlock()
	if c != nil {
		_ = c.Close()
	}
}

// connected takes a connection of a Node in place of an older one.
func (n *nodes) connected(c *node) {
	n.mu.Lock()
	old := n.open[c.name]
	n.open[c.name] = c
	n.notify()
	n.mu.Unlock()
	if old != nil {
		_ = old.Close()
	}
}

// ended forgets a connection.
func (n *nodes) ended(c *node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.open[c.name] == c {
		delete(n.open, c.name)
		n.notify()
	}
}

func (n *nodes) closeAll() {
	n.mu.Lock()
	open := slices.Collect(maps.Values(n.open))
	n.mu.Unlock()
	for _, c := range open {
		_ = c.Close()
	}
}

// now returns the connections, the names of all Nodes, and a channel that is closed at the next change.
func (n *nodes) now() (open map[string]*node, all []string, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	names := maps.Clone(n.all)
	for name := range n.open { // the API server's watch may be behind
		names[name] = true
	}
	return maps.Clone(n.open), slices.Sorted(maps.Keys(names)), n.changed
}

// find returns the connection of a Node or nil, whether the cluster has the Node, and a channel that is closed at the
// next change.
func (n *nodes) find(name string) (c *node, known bool, changed <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.open[name], n.all[name], n.changed
}

// of returns the connection of a Node.
func (n *nodes) of(name string) (*node, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.open[name]
	switch {
	case c != nil:
		return c, nil
	case n.all[name]:
		return nil, failed(http.StatusServiceUnavailable, "Node %s is not connected to this replica of %s: look at its "+
			"tombolo-agent", name, api.RelayService)
	}
	return nil, failed(http.StatusNotFound, "the cluster has no Node %s", name)
}

// takeNode takes the connection of a Node.
func (r *Relay) takeNode(w http.ResponseWriter, q *http.Request) error {
	if !reverse.Asks(q) {
		return failed(http.StatusUpgradeRequired, "this path is for agents")
	}
	name, err := r.who.node(q.Context(), q)
	if err != nil {
		r.log.Warn("refused a connection of an agent", "from", q.RemoteAddr, "error", err)
		return err
	}
	conn, err := reverse.Accept(w, q)
	if err != nil {
		r.log.Debug("a connection of an agent failed", "node", name, "from", q.RemoteAddr, "error", err)
		return nil // it is answered or closed
	}
	c := &node{conn, name, time.Now()}
	r.nodes.connected(c)
	r.log.Info("a Node is connected", "node", name, "from", q.RemoteAddr)
	go func() {
		<-conn.Done()
		r.nodes.ended(c)
		r.log.Info("a Node is no longer connected", "node", name, "from", q.RemoteAddr)
	}()
	return nil
}

// listNodes lists the Nodes with the state of their connections.
func (r *Relay) listNodes(w http.ResponseWriter, q *http.Request) error {
	if err := r.allow(q, nodesAccess); err != nil {
		return err
	}
	open, all, _ := r.nodes.now()
	list := api.NodeList{Nodes: []api.RelayNode{}}
	for _, name := range all {
		row := api.RelayNode{Name: name}
		if c := open[name]; c != nil {
			row.Connected, row.Since = true, c.since
		}
		list.Nodes = append(list.Nodes, row)
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

// nodesMetric counts Nodes by the state of their connections.
type nodesMetric struct{ nodes *nodes }

var nodesDesc = prometheus.NewDesc("tombolo_observe_relay_nodes",
	"Nodes of the cluster, by whether their agents are connected to this replica.", []string{"state"}, nil)

// Describe implements prometheus.Collector.
func (m nodesMetric) Describe(to chan<- *prometheus.Desc) { to <- nodesDesc }

// Collect implements prometheus.Collector.
func (m nodesMetric) Collect(to chan<- prometheus.Metric) {
	open, all, _ := m.nodes.now()
	for state, n := range map[string]int{"connected": len(open), "absent": len(all) - len(open)} {
		to <- prometheus.MustNewConstMetric(nodesDesc, prometheus.GaugeValue, float64(n), state)
	}
}
