package config

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	yamlLine    = regexp.MustCompile(`yaml: line (\d+): (.*)`)
	unknownKey  = regexp.MustCompile(`unknown field "(.*)"`)
	wrongType   = regexp.MustCompile(`cannot unmarshal (\w+) into Go struct field \w*\.([\w.]+) of type (\S+)`)
	setTwice    = regexp.MustCompile(`line (\d+): key "(.*)" already set in map`)
	notDuration = regexp.MustCompile(`time: .*duration "(.*)"`)
)

// malformed turns the YAML library's error into ours: the line, the key and the remedy.
func malformed(b []byte, err error) error {
	text := strings.ReplaceAll(err.Error(), "\n", " ")
	if m := setTwice.FindStringSubmatch(text); m != nil {
		return fmt.Errorf("line %s: %s is set twice; remove one", m[1], m[2])
	}
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		return fmt.Errorf(
			"line %s: malformed YAML: %s; look for wrong indentation, tabs and stray characters on this line or next to it",
			m[1], m[2])
	}
	last := func(path string) string { return path[strings.LastIndex(path, ".")+1:] }
	if m := unknownKey.FindStringSubmatch(text); m != nil {
		return fmt.Errorf("%sunknown field %q; correct or remove it: it is not a key of kind MultiClusterConfig",
			lineOf(b, last(m[1]), ""), m[1])
	}
	if m := wrongType.FindStringSubmatch(text); m != nil {
		return fmt.Errorf("%s%s has a value of type %s, want %s; correct or remove it", lineOf(b, last(m[2]), ""), m[2], m[1],
			typeName(m[3]))
	}
	if m := notDuration.FindStringSubmatch(text); m != nil {
		return fmt.Errorf("%s%q is not a duration such as 15s; correct or remove it", lineOf(b, "", m[1]), m[1])
	}
	for _, prefix := range []string{"error converting YAML to JSON: ", "error unmarshaling JSON: ",
		"while decoding JSON: ", "json: "} {
		text = strings.TrimPrefix(text, prefix)
	}
	return fmt.Errorf("%s; expected the keys of kind MultiClusterConfig with their values", text)
}

// lineOf returns the text "line N: " for the first line that sets a key to a value, or "" if no line does. An empty key
// or value matches any.
func lineOf(b []byte, key, value string) string {
	anyOr := func(word, otherwise string) string {
		if word == "" {
			return otherwise
		}
		return `["']?` + regexp.QuoteMeta(word) + `["']?\s*`
	}
	set := regexp.MustCompile(`^[\s-]*` + anyOr(key, `\w+`) + `:\s*` + anyOr(value, `.*`) + `(#.*)?$`)
	n := 0
	for line := range strings.Lines(string(b)) {
		if n++; set.MatchString(strings.TrimRight(line, "\r\n")) {
			return fmt.Sprintf("line %d: ", n)
		}
	}
	return ""
}

// typeName is a Go type in words.
func typeName(goType string) string {
	switch goType {
	case "[]string":
		return "a list"
	case "bool":
		return "true or false"
	case "int":
		return "a number"
	case "string", "v1.Duration":
		return "a text"
	}
	return "keys with values below it"
}
