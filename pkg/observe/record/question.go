package record

import (
	"fmt"
	"net/url"
	"strconv"
	"time"
)

const (
	defaultLatest = 20
	maxSinceAgo   = 365 * 24 * time.Hour
)

// Question is a reader's question, the query of api.PathObserve.
type Question struct {
	Filter              Filter
	Follow, Connections bool
	Last                int // a negative number is no bound
	Since               time.Time
}

// ParseQuestion reads a reader's query. others are further keys of the query.
func ParseQuestion(query url.Values, others ...string) (q Question, err error) {
	if q.Filter, err = Parse(query, append(others, "follow", "connections", "last", "since")...); err != nil {
		return q, err
	}
	for key, to := range map[string]*bool{"follow": &q.Follow, "connections": &q.Connections} {
		if text := query.Get(key); text != "" {
			if *to, err = strconv.ParseBool(text); err != nil {
				return q, fmt.Errorf("%s=%q: give true or false", key, text)
			}
		}
	}
	q.Last = defaultLatest
	if text := query.Get("since"); text != "" {
		if q.Since, err = time.Parse(time.RFC3339, text); err != nil {
			ago, err := time.ParseDuration(text)
			if err != nil || ago < 0 || ago > maxSinceAgo {
				return q, fmt.Errorf("since=%q: give a duration such as 10m, or a time such as %s", text,
					time.Now().UTC().Format(time.RFC3339))
			}
			q.Since = time.Now().Add(-ago)
		}
		q.Last = -1 // all of them
	}
	if text := query.Get("last"); text != "" {
		if q.Last, err = strconv.Atoi(text); err != nil || q.Last < 0 {
			return q, fmt.Errorf("last=%q: give a number of records", text)
		}
	}
	return q, nil
}

// Takes reports whether the reader gets an event.
func (q Question) Takes(e Event) bool {
	r := e.Record()
	return r == nil || (e.Drop != nil || q.Connections) && !r.Time.Before(q.Since) && q.Filter.Takes(r)
}
