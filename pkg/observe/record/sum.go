package record

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// keys maps each word by which records can be summed to a function that returns a record's values for it. In filters
// the same words have the same meaning.
var keys = map[string]func(r *Record) []string{
	"from":           func(r *Record) []string { return r.From.workload() },
	"to":             func(r *Record) []string { return r.To.workload() },
	"from-namespace": func(r *Record) []string { return some(r.From.Namespace) },
	"to-namespace":   func(r *Record) []string { return some(r.To.Namespace) },
	"namespace":      func(r *Record) []string { return some(r.From.Namespace, r.To.Namespace) },
	"service":        func(r *Record) []string { return some(r.Service) },
	"cluster":        func(r *Record) []string { return some(r.From.Cluster, r.To.Cluster) },
	"node":           func(r *Record) []string { return some(r.Node) },
	"port":           func(r *Record) []string { return some(r.port()) },
	"protocol":       func(r *Record) []string { return some(r.Protocol) },
	"verdict":        func(r *Record) []string { return some(r.Verdict) },
	"reason":         func(r *Record) []string { return some(r.Reason) },
	"policy":         func(r *Record) []string { return r.policies() },
	"rule":           func(r *Record) []string { return r.rules() },
	"way":            func(r *Record) []string { return some(r.Way) },
}

// Keys returns the words that records can be summed by, sorted.
func Keys() []string { return slices.Sorted(maps.Keys(keys)) }

// Values returns the values that a record has for a word of Keys, each once. If the word is also a word of filters, a
// filter with that word and value accepts the record.
func (r *Record) Values(key string) []string {
	if values := keys[key]; values != nil {
		return values(r)
	}
	return nil
}

// some returns the values that are not empty, each once.
func some(values ...string) (out []string) {
	for _, v := range values {
		if v != "" && !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}

// safe are the characters of the hashes that Kubernetes gives names.
const safe = "bcdfghjklmnpqrstvwxz2456789"

// workload returns a name for the workload of an end: the Pod's name without the hashes of a Deployment or a DaemonSet,
// and without the number of a StatefulSet. For an end without a Pod it returns the address.
func (e End) workload() []string {
	if e.Pod == "" {
		return some(e.IP)
	}
	name, last, ok := cutLast(e.Pod)
	switch {
	case !ok:
		name = e.Pod
	case isHash(last, 5, 5):
		if of, hash, ok := cutLast(name); ok && isHash(hash, 6, 10) {
			name = of
		}
	case strings.Trim(last, "0123456789") != "":
		name = e.Pod
	}
	return some(e.Namespace + "/" + name)
}

func cutLast(name string) (before, after string, ok bool) {
	at := strings.LastIndexByte(name, '-')
	if at <= 0 {
		return "", "", false
	}
	return name[:at], name[at+1:], true
}

func isHash(text string, from, to int) bool {
	return len(text) >= from && len(text) <= to && strings.Trim(text, safe) == ""
}

// port is the port that the client asked.
func (r *Record) port() string {
	port := r.To.Port
	if asked, err := netip.ParseAddrPort(r.Asked); err == nil {
		port = asked.Port()
	}
	if port == 0 {
		return ""
	}
	return strconv.Itoa(int(port))
}

// policies are the names of the policies that have decided.
func (r *Record) policies() []string {
	out := slices.Clone(r.Policies)
	for _, rule := range []*Rule{r.Rule, r.Egress, r.Ingress} {
		if rule != nil {
			out = append(out, rule.Policy)
		}
	}
	return some(out...)
}

// rules returns the rules that have decided. For an isolated Pod without a rule, these are the policies that isolate
// it.
func (r *Record) rules() []string {
	out := slices.Clone(r.Policies)
	for _, rule := range []*Rule{r.Rule, r.Egress, r.Ingress} {
		if rule != nil {
			out = append(out, rule.Policy+" "+rule.Name)
		}
	}
	return some(out...)
}

// Sum is what records with equal values come to.
type Sum struct {
	Values  []string `json:"values"` // of Sums.By
	Began   uint64   `json:"began"`  // connections
	Ended   uint64   `json:"ended"`
	Dropped uint64   `json:"dropped"` // packets, with refused ones
	// Sent and Received are bytes of connections that have ended, from the client's view.
	Sent     uint64 `json:"sent"`
	Received uint64 `json:"received"`
}

// maxSums is the largest number of sums. All further ones share one sum, which has Other as its first value.
const maxSums = 100_000

// Other stands for all values beyond maxSums.
const Other = "(other)"

// Sums adds records up. The zero value has one sum of all records.
type Sums struct {
	By  []string // words of Keys
	all map[string]*Sum
}

// CheckKeys returns an error that names the known words if a word is no key.
func CheckKeys(by []string) error {
	for _, key := range by {
		if keys[key] == nil {
			return fmt.Errorf("records have no %q: sum them by some of %s", key, strings.Join(Keys(), ", "))
		}
	}
	return nil
}

// Add adds the record of an event.
func (s *Sums) Add(e Event) {
	r := e.Record()
	if r == nil {
		return
	}
	values := make([]string, len(s.By))
	for i, key := range s.By {
		values[i] = strings.Join(keys[key](r), ", ")
	}
	sum := s.of(values)
	switch {
	case e.Drop != nil:
		sum.Dropped += max(1, r.Count)
	case e.Connection != nil:
		sum.Began++
	default:
		sum.Ended++
		if r.Life != nil && r.Life.Sent != nil && r.Life.Received != nil {
			sum.Sent += r.Life.Sent.Bytes
			sum.Received += r.Life.Received.Bytes
		}
	}
}

func (s *Sums) of(values []string) *Sum {
	if s.all == nil {
		s.all = map[string]*Sum{}
	}
	text := strings.Join(values, "\x00")
	if have := s.all[text]; have != nil {
		return have
	}
	if len(s.all) >= maxSums && len(values) > 0 {
		values = append([]string{Other}, make([]string, len(values)-1)...)
		if text = strings.Join(values, "\x00"); s.all[text] != nil {
			return s.all[text]
		}
	}
	s.all[text] = &Sum{Values: values}
	return s.all[text]
}

// List returns the sums, the largest first: by dropped packets, then by connections.
func (s *Sums) List() []Sum {
	var out []Sum
	for _, sum := range s.all {
		out = append(out, *sum)
	}
	slices.SortFunc(out, func(x, y Sum) int {
		return cmp.Or(cmp.Compare(y.Dropped, x.Dropped), cmp.Compare(y.Began, x.Began), cmp.Compare(y.Ended, x.Ended),
			slices.Compare(x.Values, y.Values))
	})
	return out
}
