package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/tombolo-net/tombolo/build/keys"
	"github.com/tombolo-net/tombolo/deploy/manifest"
	agentconfig "github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
)

// schema is a JSON schema.
type schema = map[string]any

// agentSchema returns the schemas of the values of the chart for every cluster: the keys of antrea-agent.conf, and the
// chart's own.
func agentSchema() schema {
	all := agentconfig.Schema()
	all["image"] = of("object", "without effect: names Antrea's image; see images")
	own := all["observe"].(schema)["properties"].(schema)
	own["enabled"] = of("boolean", "run the relay tombolo-observe")
	own["replicas"] = number(1, 8, "number of the relay's Pods")
	own["serviceMonitor"] = of("boolean", "make a ServiceMonitor of the Prometheus Operator for the relay")
	own["alerts"] = of("boolean", "make a PrometheusRule of the Prometheus Operator with the alerts (docs/alerts.md)")
	own["boards"] = of("boolean", "make ConfigMaps with dashboards for Grafana")
	all["withOtherCNI"] = of("boolean", "install although the cluster or a Node has another CNI plugin")
	all["uninstall"] = of("boolean", "instead of the agents run a Pod on each Node that removes what they have made there")
	all["disruptionBudgets"] = of("boolean", "make PodDisruptionBudgets for Deployments with more than one replica")
	directory := func(description string) schema { return with(of("string", description), "pattern", "^/.") }
	all["cni"] = object("directories of Nodes for CNI plugins", schema{
		"hostBinPath":  directory("directory of each Node where its container runtime looks for CNI plugins"),
		"hostConfPath": directory("directory of each Node where its container runtime looks for plugins' configuration"),
	})
	all["images"] = imagesSchema()
	all["pods"] = object("Pods by workload", schema{
		"agent": podsSchema("DaemonSet tombolo-agent", "updateStrategy", "resources", "installResources",
			"extraArgs"),
		"ovs":              podsSchema("DaemonSet tombolo-ovs", "updateStrategy", "resources", "databaseResources"),
		"wireguard":        podsSchema("DaemonSet tombolo-wireguard", "updateStrategy", "resources"),
		"controller":       podsSchema("Deployment tombolo-controller", "replicas", "resources", "extraArgs"),
		"policyController": podsSchema("Deployment tombolo-policy-controller", "replicas", "resources", "extraArgs"),
		"relay":            podsSchema("Deployment tombolo-observe", "resources", "extraArgs"),
	})
	return all
}

// controllerSchema returns the schemas of the values of the multi-cluster chart: the keys of the controller's
// configuration that its ConfigMap does not fix, and the chart's own. The ConfigMap fixes the ports of health and
// webhook, since the chart's Service and probes have them. It fixes the name of the Lease, since the chart's Role has
// it.
func controllerSchema() schema {
	all := config.Schema()
	for _, fixed := range []string{"apiVersion", "kind", "health", "webhook"} {
		delete(all, fixed)
	}
	election := all["leaderElection"].(schema)["properties"].(schema)
	for _, fixed := range []string{"leaderElect", "resourceLock", "resourceName", "resourceNamespace"} {
		delete(election, fixed)
	}
	all["role"] = schema{"enum": []string{"leader", "member"},
		"description": "whether the controller is the leader of a ClusterSet, or a member"}
	all["replicas"] = number(0, 8, "number of the controller's Pods; one of them is elected")
	all["disruptionBudgets"] = of("boolean", "make a PodDisruptionBudget if there is more than one replica")
	all["podMonitor"] = of("boolean",
		"make a PodMonitor of the Prometheus Operator for the controller; it needs metrics.bindAddress")
	all["images"] = imagesSchema()
	all["pods"] = object("Pods by workload", schema{
		"controller": podsSchema("Deployment antrea-mc-controller", "resources", "extraArgs"),
	})
	return all
}

// of returns a schema of a type.
func of(kind, description string) schema { return schema{"type": kind, "description": description} }

// with returns a schema with one more key.
func with(s schema, key string, value any) schema {
	s[key] = value
	return s
}

// object returns the schema of an object that has no other keys.
func object(description string, properties schema) schema {
	return with(with(of("object", description), "additionalProperties", false), "properties", properties)
}

// number returns the schema of an integer with bounds.
func number(low, high int, description string) schema {
	return with(with(of("integer", description), "minimum", low), "maximum", high)
}

// words returns the schema of a map of strings.
func words(description string) schema {
	return with(of("object", description), "additionalProperties", schema{"type": "string"})
}

// list returns the schema of a list.
func list(items schema, description string) schema {
	return with(of("array", description), "items", items)
}

// imagesSchema returns the schema of the value images. Both charts take the digests of all images, so that one file of
// values is for both.
func imagesSchema() schema {
	digests := schema{}
	for _, name := range []string{"tombolo-agent", "tombolo-controller", "tombolo-ovs"} {
		digests[name] = with(of("string", "digest of the image "+name+"; empty: the tag counts"),
			"pattern", "^(sha256:[0-9a-f]{64})?$")
	}
	return object("the images that Pods run", schema{
		"registry": of("string", "registry and path of the images, such as registry.example/net; it has to be set, "+
			"but with pullPolicy Never"),
		"tag": with(of("string", "tag of the images; empty: the chart's appVersion"), "pattern",
			`^([\w][\w.-]{0,127})?$`),
		"digests": object("digests by image; a digest counts in place of the tag", digests),
		"pullPolicy": schema{"enum": []string{"", "IfNotPresent", "Always", "Never"},
			"description": "when Nodes pull images; empty: IfNotPresent"},
		"pullSecrets": list(object("one Secret", schema{"name": of("string", "name of the Secret")}),
			"Secrets for the registry, in the Namespaces of the Pods"),
	})
}

// podsSchema returns the schema of the settings of a workload's Pods: the settings that all workloads have, and the
// given further ones.
func podsSchema(workload string, others ...string) schema {
	all := schema{
		"annotations":       words("annotations of the Pods"),
		"priorityClassName": with(of("string", "PriorityClass of the Pods"), "minLength", 1),
		"nodeSelector":      words("labels of the Nodes that the Pods may run on"),
		"tolerations":       list(schema{"type": "object"}, "taints of Nodes that the Pods tolerate"),
		"affinity":          of("object", "affinity of the Pods"),
	}
	for name, s := range map[string]schema{
		"replicas":          number(0, 8, "number of Pods; one of them is elected"),
		"resources":         of("object", "requests and limits of the program's container"),
		"installResources":  of("object", "requests and limits of the init container install-cni"),
		"databaseResources": of("object", "requests and limits of the container ovsdb-server"),
		"extraArgs":         list(schema{"type": "string"}, "more arguments of the program"),
		"updateStrategy": object("how the DaemonSet replaces its Pods", schema{
			"type": schema{"enum": []string{"RollingUpdate", "OnDelete"},
				"description": "RollingUpdate: by itself; OnDelete: when an administrator deletes them"},
			"rollingUpdate": of("object", "how many Pods are replaced at a time"),
		}),
	} {
		if slices.Contains(others, name) {
			all[name] = s
		}
	}
	return object("Pods of "+workload, all)
}

// complete adds the defaults of a chart's values.yaml to the schemas of its values. Values that are keys of a
// configuration get the comments of the fields that declare them as descriptions.
func complete(chart string, declared func(root string) ([]keys.Key, error), values schema) error {
	text, err := os.ReadFile(filepath.Join(manifest.Charts, chart, "values.yaml"))
	if err != nil {
		return err
	}
	var defaults map[string]any
	if err := yaml.Unmarshal(text, &defaults); err != nil {
		return fmt.Errorf("chart %s: values.yaml: %w", chart, err)
	}
	list, err := declared(".")
	if err != nil {
		return err
	}
	fields := map[string]string{}
	for _, k := range list {
		fields[k.Path] = k.Meaning
		if k.Alias != "" {
			fields[k.Alias] = "old name of " + k.Path
		}
	}
	describe("", values, defaults, fields)
	return nil
}

// describe completes the schemas of the values below a path.
func describe(path string, values schema, defaults map[string]any, fields map[string]string) {
	for key := range values {
		s, whole := maps.Clone(values[key].(schema)), path+key // two names of one key have one schema
		values[key] = s
		if text := fields[whole]; s["description"] == nil && text != "" {
			s["description"] = text
		}
		value, isSet := defaults[key]
		if below, ok := s["properties"].(schema); ok {
			defaults, _ := value.(map[string]any)
			describe(whole+".", below, defaults, fields)
		} else if isSet {
			s["default"] = value
		}
	}
}
