package gather

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
)

// replacer replaces names by words. A name has the same word in the whole bundle, and other words in other bundles, so
// a reader cannot find a name by trying.
type replacer struct {
	key []byte

	mu    sync.RWMutex
	names map[string]string
	heads map[string]string // the beginnings of Pods' names that are in names of ports (cni.PortName)
	parts int               // of the name with the most parts
}

func newReplacer() *replacer {
	w := &replacer{key: make([]byte, 32), names: map[string]string{}, heads: map[string]string{}}
	_, _ = rand.Read(w.key) // never fails (crypto/rand)
	return w
}

// public matches names that are the same in all clusters.
var public = regexp.MustCompile(`^(?:default|kubernetes|coredns|kube-.*|tombolo|tombolo-.*|antrea|antrea-.*)$`)

// learn has a name replaced from now on.
func (w *replacer) learn(name string) {
	if name == "" || public.MatchString(name) {
		return
	}
	mac := hmac.New(sha256.New, w.key)
	mac.Write([]byte(name))
	word := "anon-" + strings.ToLower(base32.StdEncoding.EncodeToString(mac.Sum(nil)[:5]))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[name] = word
	w.heads[strings.TrimLeft(name[:min(8, len(name))], "-")] = word
	w.parts = max(w.parts, len(parts(name)))
}

// learnObject registers the name of a Pod, a Namespace or a Service for replacement, and the names of the Pod's owners.
// Names of Tombolo's Pods stay.
func (w *replacer) learnObject(o map[string]any) {
	if own(unstructured.Unstructured{Object: o}) {
		return
	}
	meta, _ := o["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	w.learn(name)
	owners, _ := meta["ownerReferences"].([]any)
	for _, owner := range owners {
		owner, _ := owner.(map[string]any)
		name, _ := owner["name"].(string)
		w.learn(name)
		if i := strings.LastIndexByte(name, '-'); i > 0 && owner["kind"] == "ReplicaSet" {
			w.learn(name[:i]) // the Deployment
		}
	}
}

// usersKinds are the kinds of objects in Events whose names are replaced.
var usersKinds = []string{"Pod", "Service", "Endpoints", "ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "Job",
	"CronJob", multicluster.ServiceImportKind, "ServiceExport"}

// replicated matches the name of a Pod of a Deployment. Kubernetes generates the end of such a name without vowels.
var replicated = regexp.MustCompile(`^((.+)-[b-df-hj-np-tv-xz24-9]{6,10})-[b-df-hj-np-tv-xz24-9]{5}$`)

// learnMentioned registers the names in an Event, an export or an import for replacement. They are names of objects
// that may no longer exist, and of objects in other clusters.
func (w *replacer) learnMentioned(o map[string]any) {
	field := func(path ...string) string {
		text, _, _ := unstructured.NestedString(o, path...)
		return text
	}
	switch field("kind") {
	case "Event":
		namespace, kind, name := field("involvedObject", "namespace"), field("involvedObject", "kind"),
			field("involvedObject", "name")
		w.learn(namespace)
		switch {
		case kind == "Namespace":
			w.learn(name)
		case slices.Contains(usersKinds, kind):
			w.learn(name)
			if m := replicated.FindStringSubmatch(name); m != nil && kind == "Pod" {
				w.learn(m[1])
				w.learn(m[2])
			}
		}
	case "ServiceExport", multicluster.ServiceImportKind:
		w.learn(field("metadata", "namespace"))
		w.learn(field("metadata", "name"))
	case "ResourceExport", "ResourceImport":
		if slices.Contains(usersKinds, field("spec", "kind")) {
			w.learn(field("spec", "namespace"))
			w.learn(field("spec", "name"))
		}
	}
}

var (
	token = regexp.MustCompile(`[A-Za-z0-9][A-Za-z0-9._-]*`)
	port  = regexp.MustCompile(`^(.{1,8})-([0-9a-f]{6})$`)
)

// parts are the parts of a name, each with the sign behind it.
func parts(name string) []string {
	var all []string
	for name != "" {
		i := strings.IndexAny(name, ".-_")
		if i < 0 {
			i = len(name) - 1
		}
		all = append(all, name[:i+1])
		name = name[i+1:]
	}
	return all
}

// text replaces the names in a text, even inside of other names, such as names of ports and of exports.
func (w *replacer) text(text string) string {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return token.ReplaceAllStringFunc(text, func(t string) string {
		if m := port.FindStringSubmatch(t); m != nil && w.heads[m[1]] != "" {
			return w.heads[m[1]] + "-" + m[2]
		}
		all := parts(t)
		var out strings.Builder
		for i := 0; i < len(all); {
			n := min(w.parts, len(all)-i)
			for ; n > 0; n-- { // the longest name first
				name := strings.Join(all[i:i+n], "")
				bare := strings.TrimRight(name, ".-_")
				if word := w.names[bare]; word != "" {
					out.WriteString(word + name[len(bare):])
					break
				}
			}
			if n == 0 {
				out.WriteString(all[i])
				n = 1
			}
			i += n
		}
		return out.String()
	})
}

// json replaces the names in the values of an answer, and in keys such as names of ports. The names of fields stay:
// they have only letters and digits.
func (w *replacer) json(text []byte) []byte {
	var v any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if decoder.Decode(&v) != nil {
		return []byte(w.text(string(text)))
	}
	var replace func(any) any
	replace = func(v any) any {
		switch v := v.(type) {
		case string:
			return w.text(v)
		case []any:
			for i := range v {
				v[i] = replace(v[i])
			}
		case map[string]any:
			out := make(map[string]any, len(v))
			for key, value := range v {
				if strings.ContainsAny(key, "-./_") {
					key = w.text(key)
				}
				out[key] = replace(value)
			}
			return out
		}
		return v
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(replace(v)); err != nil {
		return []byte(`"` + masked + `"`)
	}
	return slices.Clip(out.Bytes())
}
