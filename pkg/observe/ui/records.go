package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/record"
)

const (
	// maxReaders is the number of pages that may read records at a time. Each page reads from at most maxStreams agents of
	// each cluster.
	maxReaders = 4
	maxStreams = 64
	// firstRecords is the number of records of each agent that a page begins with.
	firstRecords = 50
	// maxLines bounds the lines of a message to the page.
	maxLines = 500
	// These are the pauses before an agent whose answer has ended is asked again. The first is minPause, and the longest,
	// after repeated failures, is maxPause.
	minPause = time.Second
	maxPause = 30 * time.Second
)

// StreamAgent copies the answer of the agent of a Node to w, until the answer or ctx ends.
type StreamAgent func(ctx context.Context, node, path string, query url.Values, w io.Writer) error

// Line is an event of an agent, or the reason why an agent sends no events.
type Line struct {
	Cluster    string         `json:"cluster"` // key
	Node       string         `json:"node,omitempty"`
	Drop       *record.Record `json:"drop,omitempty"`
	Connection *record.Record `json:"connection,omitempty"`
	Missing    string         `json:"missing,omitempty"`
}

// Recorder emits the records of one cluster until ctx ends.
type Recorder interface {
	Records(ctx context.Context, connections bool, emit func(Line))
}

// Records reads drops, and connections if requested, from the agents of the cluster until ctx ends. Agents have no work
// for a page that does not read. Records of Nodes that are added later are read too.
func (s *Source) Records(ctx context.Context, connections bool, emit func(Line)) {
	if s.stream == nil {
		return
	}
	r := &reading{source: s, connections: connections, emit: emit, ends: map[string]context.CancelFunc{}}
	every(ctx, record.MergeWait, r.pass)
	r.running.Wait()
}

// reading reads the records of one cluster for one page.
type reading struct {
	source      *Source
	connections bool
	emit        func(Line)
	running     sync.WaitGroup
	ends        map[string]context.CancelFunc // of the Nodes that are read
	reported    string                        // about the Nodes

	mu      sync.Mutex
	merger  record.Merger
	refused bool // the user may not ask the agents
}

// pass begins to read new Nodes, and emits what is due.
func (r *reading) pass(ctx context.Context) {
	key := r.source.key()
	nodes := r.source.objects.nodes.All()
	text := ""
	if left := len(nodes) - maxStreams; left > 0 {
		text = fmt.Sprintf("%d of %d Nodes are not asked for records", left, len(nodes))
		nodes = nodes[:maxStreams]
	} else if len(nodes) == 0 {
		text = "the Nodes are not known yet; they are asked for records once they are"
	}
	if text != r.reported && text != "" {
		r.emit(Line{Cluster: key, Missing: text})
	}
	r.reported = text
	wanted := map[string]bool{}
	for _, row := range nodes {
		name := row.Value.Name
		wanted[name] = true
		if r.ends[name] == nil {
			node, end := context.WithCancel(ctx)
			r.ends[name] = end
			r.running.Go(func() { r.read(node, key, name) })
		}
	}
	for name, end := range r.ends {
		if !wanted[name] {
			end()
			delete(r.ends, name)
		}
	}
	r.mu.Lock()
	due := r.merger.Due(time.Now())
	r.mu.Unlock()
	for _, e := range due {
		line := Line{Cluster: key, Drop: e.Drop, Connection: e.Connection}
		switch {
		case e.Begin != nil && !e.Begin.Drops:
			line.Node, line.Missing = e.Begin.Node, "the Node records no drops: observe.drops is false in antrea-agent.conf"
		case e.Missing != nil:
			line.Node, line.Missing = e.Missing.Node, fmt.Sprintf("%d records are lost: %s", e.Missing.Lost, e.Missing.Why)
		case e.Record() == nil || e.End != nil: // the page shows beginnings
			continue
		default:
			e.Record().Time = sayable(e.Record().Time)
		}
		r.emit(line)
	}
}

// read reads the records of one Node until ctx ends. It retries after an error, with growing pauses.
func (r *reading) read(ctx context.Context, key, node string) {
	query := url.Values{"follow": {"true"}, "connections": {strconv.FormatBool(r.connections)},
		"last": {strconv.Itoa(firstRecords)}}
	var newest time.Time
	reported, pause := "", minPause
	for {
		start := time.Now()
		err := record.Events(ctx, func(w io.Writer) error {
			return r.source.stream(ctx, node, api.PathObserve, query, w)
		}, func(e record.Event) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if o := e.Record(); o != nil && o.Time.After(newest) {
				newest = o.Time
			}
			r.merger.Add(e, time.Now())
		})
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("the agent has ended its answer")
		}
		if time.Since(start) > maxPause {
			pause = minPause
		}
		if text := err.Error(); apierrors.IsForbidden(err) || refuses(text) {
			pause = refusedFor
			r.mu.Lock()
			first := !r.refused
			r.refused = true
			r.mu.Unlock()
			if first {
				r.emit(Line{Cluster: key, Missing: "this user may not ask the agents: " + text})
			}
		} else if text != reported {
			reported = text
			r.emit(Line{Cluster: key, Node: node, Missing: text})
		}
		if !wait(ctx, pause, nil) {
			return
		}
		pause = min(2*pause, maxPause)
		if !sayable(newest).IsZero() {
			query.Set("since", newest.Add(1).UTC().Format(time.RFC3339Nano))
		}
	}
}

// key returns the key of the cluster in the Model.
func (s *Source) key() string {
	if set := setOf(derive.Values(s.objects.sets.All())); set != nil {
		return keyOf(set.Name, set.Spec.ClusterID)
	}
	return "context/" + s.access.Name
}

// records sends records as server-sent events, at most two a second.
func (s *Server) records(w http.ResponseWriter, r *http.Request) {
	select {
	case s.readers <- struct{}{}:
		defer func() { <-s.readers }()
	default:
		http.Error(w, fmt.Sprintf("%d pages read records already. Close one.", maxReaders), http.StatusServiceUnavailable)
		return
	}
	ctx, stop := context.WithCancel(r.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	var mu sync.Mutex
	var pending []Line
	left := 0
	emit := func(l Line) {
		mu.Lock()
		defer mu.Unlock()
		if len(pending) < maxLines {
			pending = append(pending, l)
		} else {
			left++
		}
	}
	for _, source := range s.recorders {
		running.Go(func() { source.Records(ctx, r.URL.Query().Get("connections") == "true", emit) })
	}
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	for {
		mu.Lock()
		lines, over := pending, left
		pending, left = nil, 0
		mu.Unlock()
		text, err := json.Marshal(map[string]any{"lines": lines, "left": over})
		if err != nil {
			return
		}
		err = errors.Join(control.SetWriteDeadline(time.Now().Add(writeLimit)), write(w, text), control.Flush())
		if err != nil || !wait(ctx, passEvery, nil) {
			return
		}
	}
}
