package ui

import (
	"bufio"
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

	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/record"
)

const (
	// maxReaders is the number of pages that may read records at a time, from maxStreams agents of each cluster.
	maxReaders = 4
	maxStreams = 64
	// firstRecords is the number of records of each agent that a page begins with.
	firstRecords = 50
	// maxLines bounds the lines of a message to the page.
	maxLines = 500
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

// Records reads drops, and connections if they are asked for, from the agents of the cluster until ctx ends. A page
// that does not read costs the agents nothing.
func (s *Source) Records(ctx context.Context, connections bool, emit func(Line)) {
	if s.stream == nil {
		return
	}
	key := s.key()
	nodes := s.nodes.All()
	if left := len(nodes) - maxStreams; left > 0 {
		emit(Line{Cluster: key, Missing: fmt.Sprintf("%d of %d Nodes are not asked for records", left, len(nodes))})
		nodes = nodes[:maxStreams]
	}
	query := url.Values{"follow": {"true"}, "connections": {strconv.FormatBool(connections)},
		"last": {strconv.Itoa(firstRecords)}}
	var mu sync.Mutex // of the merger
	var merger record.Merger
	var running sync.WaitGroup
	for _, row := range nodes {
		running.Go(func() {
			err := readEvents(ctx, func(w io.Writer) error {
				return s.stream(ctx, row.Value.Name, api.PathObserve, query, w)
			}, func(e record.Event) {
				mu.Lock()
				defer mu.Unlock()
				merger.Add(e, time.Now())
			})
			if err != nil && ctx.Err() == nil {
				emit(Line{Cluster: key, Node: row.Value.Name, Missing: err.Error()})
			}
		})
	}
	every(ctx, record.MergeWait, func(context.Context) {
		mu.Lock()
		due := merger.Due(time.Now())
		mu.Unlock()
		for _, e := range due {
			line := Line{Cluster: key, Drop: e.Drop, Connection: e.Connection}
			switch {
			case e.Begin != nil && !e.Begin.Drops:
				line.Node, line.Missing = e.Begin.Node, "the Node records no drops: observe.drops is false in antrea-agent.conf"
			case e.Missing != nil:
				line.Node, line.Missing = e.Missing.Node, fmt.Sprintf("%d records are lost: %s", e.Missing.Lost, e.Missing.Why)
			case e.Record() == nil:
				continue
			}
			emit(line)
		}
	})
	running.Wait()
}

// key returns the key of the cluster in the Model.
func (s *Source) key() string {
	if set := setOf(s.Snapshot().Sets); set != nil {
		return keyOf(set.Name, set.Spec.ClusterID)
	}
	return "context/" + s.access.Name
}

// readEvents calls add with each line that read writes.
func readEvents(ctx context.Context, read func(io.Writer) error, add func(record.Event)) error {
	reader, writer := io.Pipe()
	defer context.AfterFunc(ctx, func() { _ = writer.CloseWithError(ctx.Err()) })()
	var failed error
	done := make(chan struct{})
	go func() {
		defer close(done)
		failed = read(writer)
		_ = writer.Close()
	}()
	lines := bufio.NewScanner(reader)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e record.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			_ = reader.CloseWithError(err)
			<-done
			return fmt.Errorf("understand the agent's line: %w; are tombolo and the agent of one version?", err)
		}
		add(e)
	}
	_ = reader.Close()
	<-done
	return errors.Join(failed, lines.Err())
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
