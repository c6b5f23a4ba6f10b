package main

import (
	"fmt"
	"strings"

	"github.com/tombolo-net/tombolo/build/keys"
	"github.com/tombolo-net/tombolo/deploy/charts"
)

// meanings are the descriptions of values that are no keys of a configuration.
var meanings = map[string]map[string]string{
	charts.Agent: {
		"images.registry":           imageRegistry,
		"images.tag":                imageTag,
		"images.pullPolicy":         imagePullPolicy,
		"images.pullSecrets":        imagePullSecrets,
		"images.pullSecrets[].name": imageSecret,
		"observe.replicas":          "replicas of the relay",
	},
	charts.Multicluster: {
		"images.registry":           imageRegistry,
		"images.tag":                imageTag,
		"images.pullPolicy":         imagePullPolicy,
		"images.pullSecrets":        imagePullSecrets,
		"images.pullSecrets[].name": imageSecret,
		"replicas":                  "replicas of the controller; one is elected, and all serve the webhooks",
		"role": "leader or member of the ClusterSet; a cluster that is both has two releases, each in its " +
			"Namespace",
	},
}

const (
	imageRegistry = "registry and path of the images, such as registry.example.com/tombolo; it has to be set, except " +
		"with pullPolicy Never"
	imageTag         = "tag of the images"
	imagePullPolicy  = "imagePullPolicy of the containers; IfNotPresent without it"
	imagePullSecrets = "Secrets with which Nodes pull the images"
	imageSecret      = "name of the Secret"
)

// describe adds descriptions to the values of a chart: the comments of keys of a configuration, and meanings. A value
// that has a description keeps it.
func describe(chart string, properties map[string]any, list []keys.Key) error {
	for _, k := range list {
		if s := valueAt(properties, k.Path); s != nil && s["description"] == nil && k.Meaning != "" {
			s["description"] = k.Meaning
		}
	}
	for path, text := range meanings[chart] {
		s := valueAt(properties, path)
		if s == nil {
			return fmt.Errorf("chart %s has no value %s any more: remove it from meanings", chart, path)
		}
		if s["description"] == nil {
			s["description"] = text
		}
	}
	return nil
}

// valueAt returns the schema of a value, nil if there is no such value.
func valueAt(properties map[string]any, path string) map[string]any {
	name, rest, below := strings.Cut(path, ".")
	name, list := strings.CutSuffix(name, "[]")
	s, _ := properties[name].(map[string]any)
	if list && s != nil {
		s, _ = s["items"].(map[string]any)
	}
	if !below || s == nil {
		return s
	}
	inner, _ := s["properties"].(map[string]any)
	return valueAt(inner, rest)
}
