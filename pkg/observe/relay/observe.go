package relay

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/record"
)

// Bounds of readers of records.
const (
	maxReaders     = 128
	maxReadersUser = 16  // of one user
	maxNamespaces  = 100 // that a reader names
	maxLine        = 256 << 10
	queue          = 1024    // events that wait for a reader
	maxWaiting     = 100_000 // events that wait to be sorted
	// mergeWait is how long records wait for the records of other Nodes. It is short, since Nodes are near and readers
	// merge once more.
	mergeWait = record.MergeWait / 3
	// beginLimit is how long Nodes may take until their first line. A slower Node counts as absent until then.
	beginLimit = 3 * time.Second
	// retryAfter is the least time until a Node whose answer has failed is read again. The time grows with each further
	// failure. An answer that has lasted for retrySteady ends the back-off.
	retryAfter, retrySteady = 2 * time.Second, time.Minute
	// wholeLimit is how long an answer that does not follow may take.
	wholeLimit = time.Minute
	// viewKept is how long a reader that follows keeps the rights that it began with.
	viewKept = time.Minute
	// more is a factor: if the relay applies a filter itself, it reads this many times the requested number of records.
	more, maxMore = 50, 10_000
)

// readers counts readers by user.
type readers struct {
	mu  sync.Mutex
	all int
	of  map[string]int
}

func (r *readers) count() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return float64(r.all)
}

// take counts a reader until the returned function is called.
func (r *readers) take(u user) (leave func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all >= maxReaders || r.of[u.Username] >= maxReadersUser {
		return nil, failed(http.StatusTooManyRequests, "there are %d readers, %d of them of %s; the limits are %d and %d: "+
			"end some, or try again later", r.all, r.of[u.Username], u.Username, maxReaders, maxReadersUser)
	}
	if r.of == nil {
		r.of = map[string]int{}
	}
	r.all++
	r.of[u.Username]++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.all--
		if r.of[u.Username]--; r.of[u.Username] == 0 {
			delete(r.of, u.Username)
		}
	}, nil
}

// observe answers with the records of all Nodes that the reader may see.
func (r *Relay) observe(w http.ResponseWriter, q *http.Request) error {
	query := q.URL.Query()
	question, err := record.ParseQuestion(query, api.AskParameter)
	if err != nil {
		return failed(http.StatusBadRequest, "%s", err)
	}
	u, err := r.who.user(q.Context(), q)
	if err != nil {
		return err
	}
	view, err := r.who.view(q.Context(), u, query["namespace"])
	if err != nil {
		return err
	}
	leave, err := r.readers.take(u)
	if err != nil {
		return err
	}
	defer leave()
	to := &impatient{w}
	a := &reading{
		relay: r, user: u, question: question, view: view, only: query[api.AskParameter],
		received: make(chan received, queue),
		of:       map[*node]bool{}, again: map[*node]time.Time{}, tries: map[string]try{}, begun: map[string]bool{},
		before: map[string]bool{}, merger: record.Merger{Wait: mergeWait}, lines: json.NewEncoder(to),
		flush: http.NewResponseController(to).Flush,
	}
	a.ask(query)
	w.Header().Set("Content-Type", "application/x-ndjson")
	ctx, cancel := context.WithCancel(q.Context())
	if !question.Follow {
		ctx, cancel = context.WithTimeout(q.Context(), wholeLimit)
	}
	defer cancel()
	a.run(ctx)
	return nil
}

// view returns what a user may see: everything, or the Pods of the Namespaces that the user names.
func (r *reviewer) view(ctx context.Context, u user, namespaces []string) (record.View, error) {
	if all, err := r.may(ctx, u, flowsAccess, ""); err != nil || all {
		return record.View{All: all}, err
	}
	if len(namespaces) > maxNamespaces {
		return record.View{}, failed(http.StatusBadRequest, "%d Namespaces are too many: name at most %d", len(namespaces),
			maxNamespaces)
	}
	v := record.View{Namespaces: map[string]bool{}}
	need := flowsAccess
	for _, name := range namespaces {
		need.Namespace = name
		ok, err := r.may(ctx, u, need, "")
		if err != nil {
			return record.View{}, err
		}
		if ok {
			v.Namespaces[name] = true
		}
	}
	if len(v.Namespaces) > 0 {
		return v, nil
	}
	err := denied(u, need)
	if len(namespaces) == 0 {
		err = denied(u, flowsAccess)
		err.text += ", or name Namespaces in which you have it with --namespace"
	}
	return record.View{}, err
}

// ask sets the query for agents. If the reader may not see everything, the agents get only the Namespaces, and the
// relay applies the other words to the records that the reader may see.
func (a *reading) ask(query url.Values) {
	a.query, a.trim = url.Values{}, -1
	for key, values := range query {
		if key != api.AskParameter {
			a.query[key] = values
		}
	}
	if a.view.All {
		return
	}
	a.query = url.Values{"follow": query["follow"], "connections": query["connections"], "since": query["since"]}
	for name := range a.view.Namespaces {
		a.query.Add("namespace", name)
	}
	if a.question.Last < 0 {
		return
	}
	last := a.question.Last
	if !a.question.Follow {
		a.trim, last = last, min(last*more, max(last, maxMore))
	}
	a.query.Set("last", strconv.Itoa(last))
}
