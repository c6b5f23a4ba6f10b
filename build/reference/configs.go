package main

import (
	"cmp"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/tombolo-net/tombolo/build/comments"
	"github.com/tombolo-net/tombolo/build/keys"
	"github.com/tombolo-net/tombolo/pkg/gates"
)

// agentKeys writes the page of antrea-agent.conf.
func agentKeys(root string, p *page) error {
	list, err := keys.Agent(root)
	if err != nil {
		return err
	}
	p.prose("The file `antrea-agent.conf` in ConfigMap `antrea-config` configures the agents. They read it when they " +
		"start. An unknown key is a warning, and the agent starts. [The chart](charts.md) has these keys among " +
		"its values.")
	p.section(2, "Keys")
	p.keys(list)
	p.section(2, "Feature gates")
	p.prose("Keys of `featureGates`. A gate with `-` under *default* is locked: it is always on. This version does " +
		"not have the gates of the second table: to turn one on is a warning.")
	for _, have := range []bool{true, false} {
		rows := p.table("gate", "default", "about")
		for _, name := range gates.Names() {
			g, _ := gates.Of(name)
			if g.Have != have {
				continue
			}
			value := "off"
			if g.On {
				value = "on"
			}
			if g.Locked {
				value = "-"
			}
			rows.described(name, entry{code(name), value, plain(comments.Sentence(g.About))})
		}
	}
	return nil
}

// controllerKeys writes the page of the multi-cluster controller's configuration.
func controllerKeys(root string, p *page) error {
	list, err := keys.Controller(root)
	if err != nil {
		return err
	}
	p.prose("The file `controller_manager_config.yaml` in ConfigMap `antrea-mc-controller-config` configures the " +
		"controllers `leader` and `member`. An unknown key is an error. The other controllers have " +
		"[flags](commands.md#tombolo-controller).")
	p.section(2, "Keys")
	p.keys(list)
	return nil
}

// keys adds a table of keys.
func (p *page) keys(list []keys.Key) {
	rows := p.table("key", "type", "default", "meaning")
	for _, k := range list {
		rows.described(k.Path, entry{code(k.Path), withValues(k.Type, k.Values), code(k.Default), meaning(k)})
	}
}

func withValues(kind, values string) string {
	if values == "" {
		return kind
	}
	return kind + ": " + values
}

func meaning(k keys.Key) string {
	text := plain(k.Meaning)
	if k.Alias != "" && text != "" {
		text += " Older name: " + code(k.Alias) + "."
	}
	return text
}

// schema is the part of a JSON schema that the reference shows.
type schema struct {
	Type        string
	Description string
	Enum        []any
	Pattern     string
	Minimum     *int
	Maximum     *int
	Properties  map[string]schema
	Items       *schema
}

// charts writes the page of the charts' values.
func charts(root string, p *page) error {
	agent, err := keys.Agent(root)
	if err != nil {
		return err
	}
	controller, err := keys.Controller(root)
	if err != nil {
		return err
	}
	p.prose("Both charts refuse unknown values. The keys of [the agent's](agent.md) and [the " +
		"controller's](controller.md) configuration are values, too. [Installation](../install.md) shows how to " +
		"set them.")
	for _, chart := range []struct {
		name string
		keys []keys.Key
	}{{"tombolo", agent}, {"tombolo-multicluster", controller}} {
		dir := filepath.Join(root, "deploy/charts", chart.name)
		v := values{page: p, keys: map[string]keys.Key{}, aliases: map[string]string{}, set: map[string]any{}}
		for _, k := range chart.keys {
			v.keys[k.Path] = k
			if k.Alias != "" {
				v.aliases[k.Alias] = k.Path
			}
		}
		text, err := os.ReadFile(filepath.Join(dir, "values.schema.json"))
		if err != nil {
			return err
		}
		var s schema
		if err := json.Unmarshal(text, &s); err != nil {
			return err
		}
		if text, err = os.ReadFile(filepath.Join(dir, "values.yaml")); err != nil {
			return err
		}
		if err := yaml.Unmarshal(text, &v.set); err != nil {
			return err
		}
		p.section(2, "Chart "+chart.name)
		v.rows = p.table("value", "type", "default", "meaning")
		v.below("", s, v.set)
	}
	return nil
}

// values lists the values of one chart.
type values struct {
	page    *page
	rows    *table
	keys    map[string]keys.Key
	aliases map[string]string
	set     map[string]any // values.yaml
}

func (v *values) below(path string, s schema, set any) {
	defaults, _ := set.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		at := name
		if path != "" {
			at = path + "." + name
		}
		if of := v.aliases[at]; of != "" {
			continue // the meaning of the key names it
		}
		child := s.Properties[name]
		if len(child.Properties) > 0 {
			v.below(at, child, defaults[name])
			continue
		}
		v.value(at, child, defaults, name)
		if child.Items != nil && len(child.Items.Properties) > 0 {
			v.below(at+"[]", *child.Items, nil)
		}
	}
}

// value adds one value. A key of a configuration has its type and default there.
func (v *values) value(path string, s schema, defaults map[string]any, name string) {
	k, ok := v.keys[path]
	if !ok {
		k.Type, k.Values = typeOf(s)
	}
	if set, is := defaults[name]; is {
		k.Default = oneLine(set)
	}
	k.Meaning = cmp.Or(comments.Sentence(s.Description), k.Meaning)
	text := meaning(k)
	if path == "featureGates" {
		text += " " + link("All gates", "agent.md#feature-gates") + "."
	}
	v.rows.described(path, entry{code(path), withValues(k.Type, k.Values), code(k.Default), text})
}

// oneLine returns a value of values.yaml as JSON. Empty values are empty.
func oneLine(value any) string {
	if text, ok := value.(string); ok {
		return text
	}
	out, err := json.Marshal(value)
	if err != nil || string(out) == "{}" || string(out) == "[]" || string(out) == "null" {
		return ""
	}
	return string(out)
}

// typeOf returns the type of a schema, and the allowed values.
func typeOf(s schema) (kind, allowed string) {
	kind = map[string]string{"boolean": "boolean", "integer": "number", "number": "number", "object": "map",
		"array": "list", "string": "text", "": "text"}[s.Type]
	if s.Items != nil {
		if inner, _ := typeOf(*s.Items); s.Items.Type != "" {
			kind = "list of " + strings.Replace(inner, "map", "objects", 1)
		}
	}
	var list []string
	for _, value := range s.Enum {
		if text := oneLine(value); text != "" {
			list = append(list, code(text))
		}
	}
	allowed = strings.Join(list, ", ")
	if words, ok := strings.CutPrefix(s.Pattern, "^(?i:"); ok {
		words, _, _ = strings.Cut(words, ")")
		allowed = "`" + strings.ReplaceAll(words, "|", "`, `") + "`"
	}
	switch {
	case s.Minimum != nil && s.Maximum != nil:
		allowed = oneLine(*s.Minimum) + " to " + oneLine(*s.Maximum)
	case s.Minimum != nil:
		allowed = oneLine(*s.Minimum) + " or more"
	}
	return kind, allowed
}
