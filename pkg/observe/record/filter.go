package record

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Filter selects records. Of conditions with different words, all have to hold. Of several conditions with the same
// word, one has to hold. The zero Filter accepts all records.
type Filter struct{ words map[string][]condition }

// condition is a value that a word has to have.
type condition struct {
	text string
	not  bool
}

// word is a condition's meaning.
type word struct {
	help  string
	match func(r *Record, text string) bool
	is    func(text string) string // what is wrong with a value; nil for any text
}

// words are the words of filters. NotPrefix before a word turns it round.
var words = map[string]word{
	"from":      {"the client: namespace/pod, namespace/, address or range", client, nil},
	"to":        {"the server: namespace/pod, namespace/, address or range", server, nil},
	"pod":       {"either end", eitherEnd, nil},
	"namespace": {"the Namespace of either end", inNamespace, nil},
	"service":   {"the Service that the client asked: namespace/name", byService, nil},
	"cluster":   {"the other cluster, by its ID", inCluster, nil},
	"node":      {"the Node that has seen it, or that an end is on", onNode, nil},
	"port":      {"the server's port, or the Service's", onPort, isPort},
	"protocol":  {"TCP, UDP, SCTP, ICMP or ICMPv6", byProtocol, nil},
	"verdict":   {"allowed, dropped or rejected", byVerdict, oneOf(Allowed, Dropped, Rejected)},
	"reason":    {"the reason of a drop, such as policy or isolated", byReason, isReason},
	"policy":    {"a policy that decided: its name, or namespace/name", byPolicy, nil},
	"way":       {"the far end of the tunnel to another cluster", byWay, nil},
}

// NotPrefix before a word takes the records that the condition does not hold for.
const NotPrefix = "not-"

// Words returns the words of filters with what they mean, sorted.
func Words() (out [][2]string) {
	for name, w := range words {
		out = append(out, [2]string{name, w.help})
	}
	slices.SortFunc(out, func(x, y [2]string) int { return strings.Compare(x[0], y[0]) })
	return out
}

// Parse reads a filter from a query. It ignores the keys in others. Its errors list the known words.
func Parse(query url.Values, others ...string) (Filter, error) {
	f := Filter{map[string][]condition{}}
	for key, values := range query {
		if slices.Contains(others, key) {
			continue
		}
		name, not := strings.CutPrefix(key, NotPrefix)
		w, ok := words[name]
		if !ok {
			var known []string
			for _, w := range Words() {
				known = append(known, w[0])
			}
			return Filter{}, fmt.Errorf("no filter is called %q: the filters are %s, each also with %s before it", key,
				strings.Join(known, ", "), NotPrefix)
		}
		for _, text := range values {
			if text == "" {
				return Filter{}, fmt.Errorf("filter %s is empty: give %s", key, w.help)
			}
			if w.is != nil {
				if wrong := w.is(text); wrong != "" {
					return Filter{}, fmt.Errorf("filter %s=%q: %s", key, text, wrong)
				}
			}
			f.words[key] = append(f.words[key], condition{text: text, not: not})
		}
	}
	return f, nil
}

// Takes reports whether the filter takes a record.
func (f Filter) Takes(r *Record) bool {
	for key, list := range f.words {
		match := words[strings.TrimPrefix(key, NotPrefix)].match
		holds := slices.ContainsFunc(list, func(c condition) bool { return match(r, c.text) })
		if holds == list[0].not {
			return false
		}
	}
	return true
}

// Is reports whether a text denotes an end. The text is "namespace/", "namespace/pod", the beginning of a Pod's name,
// an address or a range.
func (e End) Is(text string) bool {
	if p, err := netip.ParsePrefix(text); err == nil {
		ip, err := netip.ParseAddr(e.IP)
		return err == nil && p.Contains(ip)
	}
	if ip, err := netip.ParseAddr(text); err == nil {
		return ip.String() == e.IP
	}
	return e.Pod != "" && named(e.Namespace+"/"+e.Pod, text)
}

// named reports whether a text denotes an object: "namespace/", "namespace/name", a name, or a name without the hashes
// that a Deployment adds to its Pods' names.
func named(object, text string) bool {
	if object == "" {
		return false
	}
	namespace, name, ok := strings.Cut(text, "/")
	if !ok {
		namespace, name = "", text
	}
	of, own, _ := strings.Cut(object, "/")
	if ok && namespace != of {
		return false
	}
	return name == "" || own == name || strings.HasPrefix(own, name+"-")
}

func client(r *Record, text string) bool     { return r.From.Is(text) }
func server(r *Record, text string) bool     { return r.To.Is(text) }
func eitherEnd(r *Record, text string) bool  { return client(r, text) || server(r, text) }
func byService(r *Record, text string) bool  { return named(r.Service, text) }
func inCluster(r *Record, text string) bool  { return r.From.Cluster == text || r.To.Cluster == text }
func byProtocol(r *Record, text string) bool { return strings.EqualFold(r.Protocol, text) }
func byVerdict(r *Record, text string) bool  { return r.Verdict == text }
func byReason(r *Record, text string) bool   { return r.Reason == text }
func byWay(r *Record, text string) bool      { return r.Way == text }

func inNamespace(r *Record, text string) bool {
	of, _, _ := strings.Cut(r.Service, "/")
	return r.From.Namespace == text || r.To.Namespace == text || of == text
}

func onNode(r *Record, text string) bool {
	return r.Node == text || r.From.Node == text || r.To.Node == text || slices.Contains(r.Nodes, text)
}

func onPort(r *Record, text string) bool {
	if strconv.Itoa(int(r.To.Port)) == text {
		return true
	}
	asked, err := netip.ParseAddrPort(r.Asked)
	return err == nil && strconv.Itoa(int(asked.Port())) == text
}

func byPolicy(r *Record, text string) bool {
	return slices.ContainsFunc(r.policies(), func(policy string) bool {
		_, name, _ := strings.Cut(policy, " ")
		return name == text || name[strings.LastIndex(name, "/")+1:] == text || policy == text
	})
}

func isPort(text string) string {
	if n, err := strconv.ParseUint(text, 10, 16); err != nil || n == 0 {
		return "give a number from 1 to 65535"
	}
	return ""
}

func oneOf(list ...string) func(string) string {
	return func(text string) string {
		if slices.Contains(list, text) {
			return ""
		}
		return "give one of " + strings.Join(list, ", ")
	}
}

func isReason(text string) string {
	var known []string
	for _, r := range Reasons {
		known = append(known, r.Word)
	}
	return oneOf(known...)(text)
}
