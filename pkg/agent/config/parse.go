package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// decoder fills a Config from a YAML tree, using the tags of its fields. It keeps every error, so that one start shows
// all of them.
type decoder struct {
	errs  []error
	warns []Warning
	lines map[string]int // where each key was set
}

func (d *decoder) fail(line int, key, message string) {
	d.errs = append(d.errs, &Error{Line: line, Key: key, Message: message})
}

func (d *decoder) warn(line int, key, message string) {
	d.warns = append(d.warns, Warning{Line: line, Key: key, Message: message})
}

// Parse reads a configuration. Warnings and errors are in the order of the file. An unknown key is a Warning. A key
// that is set twice, an unknown feature gate and malformed YAML are errors.
func Parse(b []byte) (Config, []Warning, error) {
	var c Config
	d := &decoder{lines: map[string]int{}}
	d.defaults(reflect.ValueOf(&c).Elem())
	if err := errors.Join(d.errs...); err != nil {
		return c, nil, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(b, &doc); err != nil {
		return Config{}, nil, malformed(err)
	}
	if len(doc.Content) > 0 {
		d.mapping(doc.Content[0], "", reflect.ValueOf(&c).Elem())
	}
	if len(d.errs) == 0 {
		d.check(&c)
	}
	if len(d.errs) > 0 {
		return Config{}, d.warns, errors.Join(d.errs...)
	}
	slices.SortStableFunc(d.warns, func(a, b Warning) int { return a.Line - b.Line })
	return c, d.warns, nil
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// malformed turns the YAML library's error into ours.
func malformed(err error) error {
	text := err.Error()
	m := yamlLine.FindStringSubmatch(text)
	e := &Error{Key: "malformed YAML", Message: text}
	if m != nil {
		e.Message = text[len(m[0]):]
		if n, err := strconv.Atoi(m[1]); err == nil {
			return &Error{Line: n, Message: "malformed YAML: " + e.Message +
				"; look for wrong indentation, tabs and stray characters on this line or next to it"}
		}
	}
	e.Message += "; look for wrong indentation, tabs and stray characters"
	return e
}

// defaults sets every field from its tag.
func (d *decoder) defaults(v reflect.Value) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Type.Kind() == reflect.Struct {
			d.defaults(v.Field(i))
			continue
		}
		text, ok := f.Tag.Lookup("default")
		if !ok {
			continue
		}
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(text), &doc); err != nil || len(doc.Content) == 0 {
			d.fail(0, f.Tag.Get("key"), "bad default in its tag")
			continue
		}
		d.value(doc.Content[0], f.Tag.Get("key"), f.Tag, v.Field(i))
	}
}

// mapping fills a struct from a YAML mapping.
func (d *decoder) mapping(n *yaml.Node, path string, v reflect.Value) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		d.fail(n.Line, path, "has "+describe(n)+", want keys with values below it")
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, value := n.Content[i], n.Content[i+1]
		key := join(path, k.Value)
		f, alias, ok := field(v.Type(), k.Value)
		if !ok {
			// The documented agent continues, too, since a file may be newer than the program.
			if first, twice := seen[k.Value]; twice {
				d.fail(k.Line, key, fmt.Sprintf("set twice, first on line %d; remove one", first))
				continue
			}
			seen[k.Value] = k.Line
			d.warn(k.Line, key, "unknown key without effect"+d.hint(k.Value, v.Type())+"; correct or remove it")
			continue
		}
		name := f.Tag.Get("key")
		if first, twice := seen[name]; twice {
			also := ""
			if alias {
				also = fmt.Sprintf(" (it is the old name of %s)", join(path, name))
			}
			d.fail(k.Line, key, fmt.Sprintf("set twice%s, first on line %d; remove one", also, first))
			continue
		}
		seen[name] = k.Line
		if alias {
			d.warn(k.Line, key, "is the old name of "+join(path, name)+"; rename it")
		}
		key = join(path, name)
		d.lines[key] = k.Line
		d.value(value, key, f.Tag, v.FieldByIndex(f.Index))
	}
}

// value fills one field.
func (d *decoder) value(n *yaml.Node, key string, tag reflect.StructTag, v reflect.Value) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if isNull(n) {
		return // "key:" with nothing behind it keeps the default
	}
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		t, err := time.ParseDuration(n.Value)
		if n.Kind != yaml.ScalarNode || err != nil || t <= 0 {
			d.fail(n.Line, key, "has "+describe(n)+", want a duration such as 5s or 2m")
			return
		}
		v.SetInt(int64(t))
	case v.Kind() == reflect.Struct:
		d.mapping(n, key, v)
	case v.Kind() == reflect.Map:
		d.gates(n, key, v)
	case v.Kind() == reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			d.fail(n.Line, key, "has "+describe(n)+", want a list such as [a, b]")
			return
		}
		out := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
		for i, item := range n.Content {
			d.value(item, fmt.Sprintf("%s[%d]", key, i), tag, out.Index(i))
		}
		v.Set(out)
	case v.Kind() == reflect.Bool:
		var b bool
		if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" || n.Decode(&b) != nil {
			d.fail(n.Line, key, "has "+describe(n)+", want true or false")
			return
		}
		v.SetBool(b)
	case v.Kind() == reflect.Int:
		d.number(n, key, tag, v)
	default:
		if n.Kind != yaml.ScalarNode {
			d.fail(n.Line, key, "has "+describe(n)+", want a text")
			return
		}
		d.text(n, key, tag, v)
	}
}

func (d *decoder) number(n *yaml.Node, key string, tag reflect.StructTag, v reflect.Value) {
	var i int
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || n.Decode(&i) != nil {
		d.fail(n.Line, key, "has "+describe(n)+", want a whole number")
		return
	}
	low, noLow := strconv.Atoi(tag.Get("min"))
	high, noHigh := strconv.Atoi(tag.Get("max"))
	switch {
	case noLow == nil && noHigh == nil && (i < low || i > high):
		d.fail(n.Line, key, fmt.Sprintf("has %d, want %d to %d", i, low, high))
	case noLow == nil && i < low:
		d.fail(n.Line, key, fmt.Sprintf("has %d, want %d or more", i, low))
	}
	v.SetInt(int64(i))
}

var linkName = regexp.MustCompile(`^[^/\s]{1,15}$`) // dev_valid_name() of the kernel

func (d *decoder) text(n *yaml.Node, key string, tag reflect.StructTag, v reflect.Value) {
	s := n.Value
	if allowed := tag.Get("oneof"); allowed != "" {
		list := strings.Split(allowed, ",")
		i := slices.IndexFunc(list, func(a string) bool { return strings.EqualFold(a, s) })
		if i < 0 {
			d.fail(n.Line, key, fmt.Sprintf("has %q, want one of %s", s, strings.Join(list, ", ")))
			return
		}
		v.SetString(list[i])
		return
	}
	if s != "" {
		if want := form(tag.Get("is"), s); want != "" {
			d.fail(n.Line, key, fmt.Sprintf("has %q, want %s", s, want))
			return
		}
	} else if tag.Get("default") != "" {
		d.fail(n.Line, key, fmt.Sprintf("is empty; remove it for the default, %s", tag.Get("default")))
		return
	}
	v.SetString(s)
}

// form returns the expected form if a text does not have it, else "".
func form(is, s string) string {
	switch is {
	case "cidr":
		if _, err := netip.ParsePrefix(s); err != nil {
			return "an address range such as 10.96.0.0/12"
		}
	case "cidrs":
		for _, p := range strings.Split(s, ",") {
			if form("cidr", strings.TrimSpace(p)) != "" {
				return "address ranges such as 10.10.0.0/16, separated by commas"
			}
		}
	case "link":
		if !linkName.MatchString(s) || s == "." || s == ".." {
			return "an interface's name: at most 15 characters, no slash, no blank"
		}
	case "servers":
		if _, ok := servers(s); !ok {
			return "DNS servers such as 10.96.0.10 or ranges such as 10.0.0.0/24, separated by commas; all answer at port 53"
		}
	case "url":
		u, err := url.Parse(s)
		if err != nil || u.Host == "" || u.Scheme != "https" {
			// Over plain HTTP the agent's token would go through the network for everyone to read.
			return "the API server's https URL such as https://192.168.77.10:6443"
		}
	case "ports":
		first, last, ok := strings.Cut(s, "-")
		a, err1 := strconv.Atoi(first)
		b, err2 := strconv.Atoi(last)
		if !ok || err1 != nil || err2 != nil || a < 1 || b > 65535 || a >= b {
			return "ports such as 61000-62000"
		}
	}
	return ""
}

// servers reads addresses and ranges of DNS servers. Port 53 may stand behind an address, as in Antrea's files.
func servers(s string) (out []netip.Prefix, ok bool) {
	for text := range strings.SplitSeq(s, ",") {
		text = strings.TrimSpace(text)
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p.Masked())
			continue
		}
		if p, err := netip.ParseAddrPort(text); err == nil && p.Port() == 53 {
			text = p.Addr().String()
		}
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return nil, false
		}
		out = append(out, netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
	}
	return out, true
}

// Resolvers returns the DNS servers of dnsServerOverride. If the key is not set, it returns nil.
func (c Config) Resolvers() []netip.Prefix {
	if c.DNSServerOverride == "" {
		return nil
	}
	out, _ := servers(c.DNSServerOverride) // Parse has checked it
	return out
}

// gates reads featureGates.
func (d *decoder) gates(n *yaml.Node, key string, v reflect.Value) {
	if n.Kind != yaml.MappingNode {
		d.fail(n.Line, key, "has "+describe(n)+", want names of gates with true or false")
		return
	}
	set := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, value := n.Content[i], n.Content[i+1]
		if _, twice := set[k.Value]; twice {
			d.fail(k.Line, join(key, k.Value), "set twice; remove one")
			continue
		}
		var on bool
		if value.Kind != yaml.ScalarNode || value.Tag != "!!bool" || value.Decode(&on) != nil {
			d.fail(value.Line, join(key, k.Value), "has "+describe(value)+", want true or false")
			continue
		}
		set[k.Value] = on
		d.lines[join(key, k.Value)] = k.Line
		d.gate(k.Line, k.Value, on)
	}
	v.Set(reflect.ValueOf(set))
}

// field finds the field of a key; alias is true when it was found by its old name.
func field(t reflect.Type, key string) (f reflect.StructField, alias, ok bool) {
	for f := range fields(t) {
		if f.Tag.Get("key") == key {
			return f, false, true
		}
		if f.Tag.Get("alias") == key {
			return f, true, true
		}
	}
	return reflect.StructField{}, false, false
}

func fields(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if !yield(t.Field(i)) {
				return
			}
		}
	}
}

// hint returns where an unknown key may belong, or which key may have been meant.
func (d *decoder) hint(key string, at reflect.Type) string {
	var known []string
	for f := range fields(at) {
		known = append(known, f.Tag.Get("key"))
		if strings.EqualFold(f.Tag.Get("key"), key) {
			return fmt.Sprintf("; did you mean %s?", f.Tag.Get("key"))
		}
	}
	if root := reflect.TypeFor[Config](); at != root {
		if _, _, ok := field(root, key); ok {
			return "; it belongs at the top level of the file"
		}
	} else {
		var places []string
		for f := range fields(root) {
			if f.Type.Kind() != reflect.Struct || key == "enable" {
				continue
			}
			if _, _, ok := field(f.Type, key); ok {
				places = append(places, f.Tag.Get("key"))
			}
		}
		if len(places) > 0 {
			return "; it belongs under " + strings.Join(places, " or ")
		}
	}
	return suggest(key, known)
}

// suggest returns the nearest known word, if it is near enough to be the intended one.
func suggest(word string, known []string) string {
	best, distance := "", len(word)/2+1
	for _, k := range known {
		if n := edits(strings.ToLower(word), strings.ToLower(k)); n < distance {
			best, distance = k, n
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// edits is the Levenshtein distance.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// describe returns the kind of a node, for errors.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "keys and values"
	case yaml.SequenceNode:
		return "a list"
	}
	return strconv.Quote(n.Value)
}
