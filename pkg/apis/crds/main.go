// Command crds finishes the CustomResourceDefinitions that controller-gen has written: it removes the descriptions that
// are not this repository's own, adds descriptions and missing parts to kinds of other modules, bounds label selectors,
// and adds further versions with the same schema.
//
//	crds DIRECTORY SOURCE...
//
// SOURCE are directories of Go packages whose comments may stand in definitions.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "crds: want DIRECTORY SOURCE...")
		os.Exit(1)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "crds:", err)
		os.Exit(1)
	}
}

func run(dir string, sources []string) error {
	own, err := comments(sources)
	if err != nil {
		return err
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var crd map[string]any
		if err := yaml.Unmarshal(text, &crd); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		finish(crd, own)
		if err := describe(crd); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		out, err := yaml.Marshal(crd)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := os.WriteFile(path, append([]byte("---\n"), out...), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// finish changes one definition in place.
func finish(crd map[string]any, own map[string]bool) {
	strip(crd, own)
	spec, _ := crd["spec"].(map[string]any)
	if spec == nil {
		return
	}
	names, _ := spec["names"].(map[string]any)
	switch spec["group"] {
	case "multicluster.x-k8s.io":
		versions, _ := spec["versions"].([]any)
		for _, v := range versions {
			v, _ := v.(map[string]any)
			v["subresources"] = map[string]any{"status": map[string]any{}}
			v["additionalPrinterColumns"] = columns[fmt.Sprint(names["kind"])]
		}
	case "policy.networking.k8s.io":
		// API servers accept kinds of *.k8s.io only with the annotation api-approved.kubernetes.io. Tools of SIG Network read
		// the other annotations.
		metadata, _ := crd["metadata"].(map[string]any)
		metadata["annotations"] = map[string]any{
			"api-approved.kubernetes.io":              "https://github.com/kubernetes-sigs/network-policy-api/pull/347",
			"policy.networking.k8s.io/bundle-version": "v0.2.0",
			"policy.networking.k8s.io/channel":        "experimental",
		}
	case "k8s.cni.cncf.io":
		names["singular"] = "network-attachment-definition" // the standard's
	case "crd.antrea.io":
		otherSide(spec["versions"])
		selectors(spec["versions"])
		addresses(spec["versions"])
		shortWords(spec["versions"])
		if of := columns[fmt.Sprint(names["kind"])]; of != nil {
			versions, _ := spec["versions"].([]any)
			for _, v := range versions {
				v, _ := v.(map[string]any)
				v["additionalPrinterColumns"] = of
			}
		}
	case "tombolo.io", "configplane.juniper.net":
		selectors(spec["versions"])
	case "core.contrail.juniper.net":
		selectors(spec["versions"])
		spec["versions"] = withOlder(spec["versions"], "v1alpha1", "v3")
	}
}

// withOlder adds versions to a definition with one version. They have the schema of that version, and API servers store
// that version.
func withOlder(versions any, names ...string) []any {
	list, _ := versions.([]any)
	for _, name := range slices.Backward(names) {
		newest, _ := list[len(list)-1].(map[string]any)
		older := maps.Clone(newest)
		older["name"], older["storage"] = name, false
		list = slices.Insert(list, 0, any(older))
	}
	return list
}

// otherSide reduces the fields that a rule cannot have: "to" in ingress rules, and "from" in egress rules. A validation
// refuses a rule with them. With the whole schema they would count twice against the limit for a definition's cost.
func otherSide(versions any) {
	list, _ := versions.([]any)
	for _, v := range list {
		for direction, field := range map[string]string{"ingress": "to", "egress": "from"} {
			rules := at(v, "schema", "openAPIV3Schema", "properties", "spec", "properties", direction, "items")
			if rule, _ := at(rules, "properties", field).(map[string]any); rule != nil {
				rule["items"] = map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
			}
		}
	}
}

// at is what stands under these keys, or nil.
func at(node any, keys ...string) any {
	for _, key := range keys {
		m, _ := node.(map[string]any)
		node = m[key]
	}
	return node
}

// Limits of a label selector. API servers take rules about values in lists only if the lists are bounded.
const (
	maxRequirements = 20
	maxValues       = 50
)

// selectors bounds every label selector of a schema, and refuses texts that cannot be labels. A schema cannot restrict
// the keys of matchLabels: package admission refuses wrong ones.
func selectors(node any) {
	switch node := node.(type) {
	case map[string]any:
		properties, _ := node["properties"].(map[string]any)
		labels, _ := properties["matchLabels"].(map[string]any)
		requirements, _ := properties["matchExpressions"].(map[string]any)
		if labels != nil && requirements != nil {
			const value = `^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`
			labels["maxProperties"] = maxRequirements
			labels["additionalProperties"] = map[string]any{"type": "string", "maxLength": 63, "pattern": value}
			requirements["maxItems"] = maxRequirements
			item := requirements["items"].(map[string]any)
			of := item["properties"].(map[string]any)
			of["key"] = map[string]any{
				"type": "string", "maxLength": 317,
				"pattern": `^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$`,
			}
			of["operator"] = map[string]any{"type": "string", "enum": []any{"In", "NotIn", "Exists", "DoesNotExist"}}
			values := of["values"].(map[string]any)
			values["maxItems"] = maxValues
			values["items"] = map[string]any{"type": "string", "maxLength": 63, "pattern": value}
			item["x-kubernetes-validations"] = []any{map[string]any{
				"rule":      "self.operator.endsWith('In') == (has(self.values) && size(self.values) > 0)",
				"fieldPath": ".values",
				"message": "does not go with the operator: In and NotIn need one value or more, " +
					"Exists and DoesNotExist have none",
			}}
			return
		}
		for _, child := range node {
			selectors(child)
		}
	case []any:
		for _, child := range node {
			selectors(child)
		}
	}
}

// addresses allows either version of IP as the address of an end of a PacketCapture, and no other text.
func addresses(versions any) {
	list, _ := versions.([]any)
	for _, v := range list {
		for _, end := range []string{"source", "destination"} {
			of := at(v, "schema", "openAPIV3Schema", "properties", "spec", "properties", end)
			if ip, _ := at(of, "properties", "ip").(map[string]any); ip != nil {
				ip["anyOf"] = []any{map[string]any{"format": "ipv4"}, map[string]any{"format": "ipv6"}}
			}
		}
	}
}

// shortWords bounds the length of number and word fields that validation rules read. Without bounds the rules would
// cost more than definitions may.
func shortWords(node any) {
	switch node := node.(type) {
	case map[string]any:
		if node["x-kubernetes-int-or-string"] == true && node["x-kubernetes-validations"] != nil {
			node["maxLength"] = 20
		}
		for _, child := range node {
			shortWords(child)
		}
	case []any:
		for _, child := range node {
			shortWords(child)
		}
	}
}

// columns are the columns that kubectl prints for kinds of the Multi-Cluster Services API, and for kinds whose JSON
// paths are too long for a comment.
var columns = map[string][]any{
	"ServiceExport": {age},
	"ServiceImport": {
		column("Type", "string", ".spec.type", "How clients reach the imported Service: ClusterSetIP or Headless"),
		column("IP", "string", ".spec.ips", "Addresses of the imported Service in this cluster"),
		age,
	},
	"AntreaAgentInfo": {
		condition("Healthy", "string", "agentConditions", "AgentHealthy", "status"),
		condition("Last Heartbeat", "date", "agentConditions", "AgentHealthy", "lastHeartbeatTime"),
		wide(column("Version", "string", ".version", ""), 1),
		wide(column("Node", "string", ".nodeRef.name", ""), 1),
		wide(column("Num Pods", "integer", ".localPodNum", ""), 2),
		wide(column("Subnets", "string", ".nodeSubnets", ""), 2),
	},
	"AntreaControllerInfo": {
		condition("Healthy", "string", "controllerConditions", "ControllerHealthy", "status"),
		condition("Last Heartbeat", "date", "controllerConditions", "ControllerHealthy", "lastHeartbeatTime"),
		wide(column("Version", "string", ".version", ""), 1),
		wide(column("Connected Agents", "integer", ".connectedAgentNum", ""), 1),
		wide(column("Node", "string", ".nodeRef.name", ""), 1),
		wide(column("Num Network Policies", "integer", ".networkPolicyControllerInfo.networkPolicyNum", ""), 2),
	},
	"PacketCapture": {
		wide(column("Source-Pod", "string", ".spec.source.pod", "Pod that packets come from"), 10),
		wide(column("Destination-Pod", "string", ".spec.destination.pod", "Pod that packets go to"), 10),
		wide(column("Source-IP", "string", ".spec.source.ip", "Address that packets come from"), 10),
		wide(column("Destination-IP", "string", ".spec.destination.ip", "Address that packets go to"), 10),
		wide(column("Timeout", "integer", ".spec.timeout", "Longest time in seconds"), 10),
		age,
		column("Captured-Packets", "integer", ".status.numberCaptured", "Packets in the file"),
		condition("Started", "string", "status.conditions", "PacketCaptureStarted", "status"),
		condition("Complete", "string", "status.conditions", "PacketCaptureComplete", "status"),
		wide(condition("Uploaded", "string", "status.conditions", "PacketCaptureFileUploaded", "status"), 10),
	},
	"Traceflow": {
		column("Phase", "string", ".status.phase", "How far it is"),
		wide(column("Source-Pod", "string", ".spec.source.pod", "Pod that the packet comes from"), 10),
		wide(column("Destination-Pod", "string", ".spec.destination.pod", "Pod that the packet goes to"), 10),
		wide(column("Destination-IP", "string", ".spec.destination.ip", "Address that the packet goes to"), 10),
		wide(column("Live-Traffic", "boolean", ".spec.liveTraffic", "Asks for a packet of the Pods' own traffic"), 10),
		wide(column("Dropped-Only", "boolean", ".spec.droppedOnly", "Asks for a packet that is dropped"), 10),
		wide(column("Timeout", "integer", ".spec.timeout", "Longest time in seconds"), 10),
		age,
	},
}

// condition is a column with a field of the condition of a type.
func condition(name, kind, list, of, field string) map[string]any {
	return column(name, kind, fmt.Sprintf(`.%s[?(@.type=="%s")].%s`, list, of, field), "")
}

// wide is a column that kubectl shows only with -o wide.
func wide(c map[string]any, priority int) map[string]any {
	c["priority"] = priority
	return c
}

var age = column("Age", "date", ".metadata.creationTimestamp", "")

func column(name, kind, path, description string) map[string]any {
	c := map[string]any{"name": name, "type": kind, "jsonPath": path}
	if description != "" {
		c["description"] = description
	}
	return c
}

// strip removes foreign descriptions from a schema. A property may have the name description. Its value is a schema and
// stays.
func strip(node any, own map[string]bool) {
	switch node := node.(type) {
	case map[string]any:
		if text, ok := node["description"].(string); ok && !own[words(text)] {
			delete(node, "description")
		}
		for _, child := range node {
			strip(child, own)
		}
	case []any:
		for _, child := range node {
			strip(child, own)
		}
	}
}

// words is a text with single blanks, however its lines are broken.
func words(text string) string { return strings.Join(strings.Fields(text), " ") }

// comments returns the comments in the Go files of some directories, and the descriptions in their markers.
func comments(dirs []string) (map[string]bool, error) {
	own := map[string]bool{}
	for _, dir := range dirs {
		paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			return nil, err
		}
		if len(paths) == 0 {
			return nil, fmt.Errorf("%s has no Go files", dir)
		}
		for _, path := range paths {
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
			if err != nil {
				return nil, err
			}
			for _, group := range file.Comments {
				add(own, group)
			}
		}
	}
	return own, nil
}

func add(own map[string]bool, group *ast.CommentGroup) {
	var text []string
	for line := range strings.Lines(group.Text()) {
		line = strings.TrimSpace(line)
		if _, description, ok := strings.Cut(line, `description="`); ok && strings.HasPrefix(line, "+") {
			description, _, _ = strings.Cut(description, `"`)
			own[words(description)] = true
		}
		if !strings.HasPrefix(line, "+") {
			text = append(text, line)
		}
	}
	own[words(strings.Join(text, " "))] = true
}
