package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/tombolo-net/tombolo/build/comments"
)

// kubernetes is Kubernetes' own reference.
const kubernetes = "https://kubernetes.io/docs/reference/kubernetes-api/"

// known are structures of Kubernetes, and kinds that other kinds contain. The page describes each of them once. A
// schema with these fields is one of them.
var known = []struct {
	name   string
	fields []string
	about  string
}{
	{"LabelSelector", []string{"matchExpressions", "matchLabels"},
		"selects objects by their labels. An empty one selects all. `matchLabels` has labels with their values. " +
			"`matchExpressions` has conditions: `key`, `operator` (`In`, `NotIn`, `Exists`, `DoesNotExist`) and `values`. An " +
			"object has to meet all of both"},
	{"Condition", []string{"lastTransitionTime", "message", "reason", "status"},
		"is one fact about an object: its `type`, `status` (`True`, `False` or `Unknown`), `reason` in one word, and " +
			"`message`. `lastTransitionTime` is the time when the status became so. `observedGeneration`, if there is one, is " +
			"the generation of the object that the fact is about. [Reasons](reasons.md) has remedies"},
	{"ObjectReference", []string{"fieldPath", "kind", "name", "resourceVersion", "uid"},
		"names another object by `kind`, `namespace` and `name`; further fields are optional"},
	{"ServiceSpec", []string{"clusterIP", "externalName", "ports", "selector"},
		"is the `spec` of a Service of Kubernetes"},
	{"ServiceImport", []string{"apiVersion", "kind", "metadata", "spec", "status"}, ""},
	{"EndpointSubset", []string{"addresses", "notReadyAddresses", "ports"},
		"is a part of Endpoints of Kubernetes: `addresses` that are ready, `notReadyAddresses`, and the `ports` of all of " +
			"them"},
}

// structure returns the name of the known structure that a schema is, or "".
func structure(s apiextensionsv1.JSONSchemaProps) string {
	for _, k := range known {
		if !slices.ContainsFunc(k.fields, func(f string) bool { _, ok := s.Properties[f]; return !ok }) {
			return k.name
		}
	}
	return ""
}

// kinds writes the page of the custom resources.
func kinds(root string, p *page) error {
	paths, err := filepath.Glob(filepath.Join(root, "deploy/crds/*.yaml"))
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return fmt.Errorf("deploy/crds has no definitions")
	}
	var list []*apiextensionsv1.CustomResourceDefinition
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, crd); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		list = append(list, crd)
	}
	slices.SortFunc(list, func(a, b *apiextensionsv1.CustomResourceDefinition) int {
		return cmp.Or(cmp.Compare(a.Spec.Group, b.Spec.Group), cmp.Compare(a.Spec.Names.Kind, b.Spec.Names.Kind))
	})
	p.prose("`[]` stands for the elements of a list, `{}` for the values of a map. Fields with a star are required.")
	group := ""
	for _, crd := range list {
		if crd.Spec.Group != group {
			group = crd.Spec.Group
			p.section(2, group)
		}
		p.kind(crd)
	}
	p.section(2, "Structures of Kubernetes")
	for _, k := range known {
		if k.about == "" {
			continue // the page has the kind
		}
		p.section(3, k.name)
		p.prose(k.name + " " + k.about + ".")
	}
	p.text("[Kubernetes' reference](%s) has all their fields.", kubernetes)
	return nil
}

// kind adds one kind. Of several versions it shows the stored one.
func (p *page) kind(crd *apiextensionsv1.CustomResourceDefinition) {
	names := crd.Spec.Names
	p.section(3, names.Kind)
	var versions []string
	var schema *apiextensionsv1.JSONSchemaProps
	for _, v := range crd.Spec.Versions {
		text := code(v.Name)
		if v.Deprecated {
			text += " (old)"
		}
		versions = append(versions, text)
		if v.Storage && v.Schema != nil {
			schema = v.Schema.OpenAPIV3Schema
		}
	}
	scope := "in a Namespace"
	if crd.Spec.Scope == apiextensionsv1.ClusterScoped {
		scope = "of the cluster"
	}
	text := fmt.Sprintf("Versions %s; %s; `kubectl get %s`", strings.Join(versions, ", "), scope, crd.Name)
	if len(names.ShortNames) > 0 {
		text += ", short `" + strings.Join(names.ShortNames, "`, `") + "`"
	}
	if schema == nil || schema.Description == "" {
		p.bare = append(p.bare, crd.Spec.Group+" "+names.Kind)
	} else {
		p.prose(plain(comments.Sentence(schema.Description)))
	}
	p.text("%s.", text)
	if schema != nil {
		f := fields{page: p, of: names.Kind, rows: p.table("field", "type", "meaning")}
		f.below("", *schema)
	}
}

// ofPart begins the comment of the type of a spec or status.
var ofPart = regexp.MustCompile(`^\w+(Spec|Status) (is|are) `)

// fields lists the fields of one kind.
type fields struct {
	page *page
	of   string
	rows *table
}

func (f *fields) below(path string, s apiextensionsv1.JSONSchemaProps) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		at := name
		if path != "" {
			at = path + "." + name
		} else if name == "apiVersion" || name == "kind" || name == "metadata" {
			continue
		}
		f.field(at, s.Properties[name], slices.Contains(s.Required, name))
	}
}

// field adds a field and all below it. Fields of Kubernetes' structures are left out.
func (f *fields) field(path string, s apiextensionsv1.JSONSchemaProps, required bool) {
	name, inner, kind := path, &s, ""
	for {
		if of := structure(*inner); of != "" {
			kind += link(of, "#"+strings.ToLower(of))
			break
		}
		if inner.Items != nil && inner.Items.Schema != nil {
			kind, path, inner = kind+"list of ", path+"[]", inner.Items.Schema
			continue
		}
		if inner.AdditionalProperties != nil && inner.AdditionalProperties.Schema != nil {
			kind, path, inner = kind+"map of ", path+"{}", inner.AdditionalProperties.Schema
			continue
		}
		kind += kindOf(*inner, kind != "")
		break
	}
	star := ""
	if required {
		star = " \\*"
	}
	about := cmp.Or(s.Description, inner.Description)
	last := strings.TrimSuffix(name[strings.LastIndex(name, ".")+1:], "[]")
	meaning := comments.About(ofPart.ReplaceAllString(about, ""), last)
	f.rows.described(f.of+" "+name, entry{code(name) + star, kind, plain(meaning)})
	if structure(*inner) == "" {
		f.below(path, *inner)
	}
}

// kindOf returns the type of a schema, with the allowed values.
func kindOf(s apiextensionsv1.JSONSchemaProps, several bool) string {
	name := map[string]string{"string": "text", "integer": "number", "number": "number", "boolean": "boolean",
		"object": "object"}[s.Type]
	if s.XIntOrString {
		name = "number or text"
	}
	if name == "" {
		name = "any value"
	}
	if several && name != "text" && name != "any value" {
		name += "s"
	}
	var list []string
	for _, value := range s.Enum {
		var text any
		if json.Unmarshal(value.Raw, &text) == nil {
			list = append(list, code(fmt.Sprint(text)))
		}
	}
	switch {
	case len(list) > 0:
		name += ": " + strings.Join(list, ", ")
	case s.Minimum != nil && s.Maximum != nil:
		name += fmt.Sprintf(": %.0f to %.0f", *s.Minimum, *s.Maximum)
	case s.Minimum != nil:
		name += fmt.Sprintf(": %.0f or more", *s.Minimum)
	}
	if s.Default != nil {
		name += ", default " + code(strings.Trim(string(s.Default.Raw), `"`))
	}
	return name
}
