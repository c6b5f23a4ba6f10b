package main

import (
	"fmt"
	"strings"
)

// descriptions are the texts for kinds whose Go types are another module's, by kind and path. In a path a star stands
// for any name, and [] for the elements of a list. The path "" is the kind itself.
var descriptions = map[string]map[string]string{
	"multicluster.x-k8s.io ServiceExport": {
		"":                         "ServiceExport exports the Service of its name to the other clusters of the ClusterSet.",
		"spec":                     "Labels and annotations for the imported Service.",
		"spec.exportedLabels":      "Labels that ServiceImports of the Service get.",
		"spec.exportedAnnotations": "Annotations that ServiceImports of the Service get.",
		"status":                   "State of the export. The member's controller writes it.",
		"status.conditions":        "Valid, Ready, Conflict and RequestsValid.",
	},
	"multicluster.x-k8s.io ServiceImport": {
		"": "ServiceImport is a Service that clusters of the ClusterSet export. The member's controller " +
			"writes it.",
		"spec":                                "The Service, as the exports of all clusters describe it together.",
		"spec.type":                           "ClusterSetIP for a Service with an address, or Headless.",
		"spec.ips":                            "Addresses of the Service in this cluster.",
		"spec.ipFamilies":                     "Versions of IP of the Service.",
		"spec.ports":                          "Ports of the Service.",
		"spec.ports[].name":                   "Name of the port. It is empty for a single port without a name.",
		"spec.ports[].port":                   "Number of the port.",
		"spec.ports[].protocol":               "TCP, UDP or SCTP.",
		"spec.ports[].appProtocol":            "Protocol above it, for programs that read it.",
		"spec.sessionAffinity":                "ClientIP keeps a client at one endpoint. None does not.",
		"spec.sessionAffinityConfig":          "Time of the session affinity.",
		"spec.sessionAffinityConfig.clientIP": "Time of the affinity ClientIP.",
		"spec.sessionAffinityConfig.clientIP.timeoutSeconds": "Seconds without a connection after which a client may get " +
			"another endpoint.",
		"spec.internalTrafficPolicy": "Cluster, or Local for endpoints of the client's Node only.",
		"spec.trafficDistribution":   "Which endpoints are preferred, such as PreferSameZone.",
		"status":                     "State of the import.",
		"status.clusters":            "Clusters that export the Service.",
		"status.clusters[].cluster":  "ID of the cluster, or its hash if the ID is not a DNS label.",
		"status.conditions":          "Ready.",
		"status.endpointSliceObjects": "EndpointSlices with the endpoints. Tombolo leaves it empty: the label " +
			"multicluster.kubernetes.io/service-name finds them.",
	},
	"policy.networking.k8s.io ClusterNetworkPolicy": {
		"": "ClusterNetworkPolicy decides about packets of Pods of all Namespaces. Policies of tier Admin " +
			"come before NetworkPolicies, policies of tier Baseline after them.",
		"spec":                        "Subject and rules.",
		"spec.tier":                   "Admin, before NetworkPolicies, or Baseline, after them.",
		"spec.priority":               "Order of policies in a tier. A lower number comes first.",
		"spec.subject":                "Pods that the policy is about. Exactly one of its fields is set.",
		"spec.subject.namespaces":     "All Pods of the selected Namespaces.",
		"spec.subject.pods":           "Selected Pods of the selected Namespaces.",
		"*.pods.namespaceSelector":    "Namespaces of the Pods.",
		"*.pods.podSelector":          "Pods in these Namespaces.",
		"spec.ingress":                "Rules about connections to the Pods, in order. The first one that matches decides.",
		"spec.egress":                 "Rules about connections from the Pods, in order. The first one that matches decides.",
		"spec.*[].name":               "Name of the rule, for records and logs.",
		"spec.*[].action":             "Accept, Deny, or Pass, which leaves the decision to NetworkPolicies.",
		"spec.ingress[].from":         "Clients. A connection has to match one of them.",
		"spec.egress[].to":            "Servers. A connection has to match one of them.",
		"spec.*[].*[].namespaces":     "All Pods of the selected Namespaces.",
		"spec.*[].*[].pods":           "Selected Pods of the selected Namespaces.",
		"spec.egress[].to[].networks": "Ranges of addresses. Addresses of Pods match as well.",
		"spec.egress[].to[].nodes":    "Nodes that are selected by their labels.",
		"spec.egress[].to[].domainNames": "Names in DNS. *.example.com matches all names below example.com. Only rules " +
			"with action Accept may have them.",
		"spec.*[].protocols":                        "Protocols and ports. Without them all match.",
		"spec.*[].protocols[].tcp":                  "TCP.",
		"spec.*[].protocols[].udp":                  "UDP.",
		"spec.*[].protocols[].sctp":                 "SCTP.",
		"spec.*[].protocols[].*.destinationPort":    "Ports of the server. Without them all match.",
		"spec.*[].protocols[].destinationNamedPort": "Name of a port of the server's containers.",
		"*.destinationPort.number":                  "One port.",
		"*.destinationPort.range":                   "Several ports.",
		"*.destinationPort.range.start":             "First port.",
		"*.destinationPort.range.end":               "Last port.",
		"status":                                    "State of the policy. Tombolo's policy controller writes it.",
		"status.conditions":                         "Realized, and conditions about parts that are left out.",
	},
}

// describe adds the descriptions of a kind to its definition. A path that leads to no field is an error.
func describe(crd map[string]any) error {
	spec, _ := crd["spec"].(map[string]any)
	kind := fmt.Sprint(spec["group"], " ", at(spec, "names", "kind"))
	texts := descriptions[kind]
	used := map[string]bool{}
	versions, _ := spec["versions"].([]any)
	for _, v := range versions {
		if schema, _ := at(v, "schema", "openAPIV3Schema").(map[string]any); schema != nil {
			describeBelow(schema, "", texts, used)
		}
	}
	for path := range texts {
		if !used[path] {
			return fmt.Errorf("descriptions of %s have the path %q, which matches no field: correct it", kind, path)
		}
	}
	return nil
}

// describeBelow sets the descriptions of a schema and of all schemas in it. The longest path that matches decides.
func describeBelow(schema map[string]any, path string, texts map[string]string, used map[string]bool) {
	best := ""
	for pattern := range texts {
		if matches(pattern, path) {
			used[pattern] = true
			if len(pattern) > len(best) || best == "" {
				best = pattern
			}
		}
	}
	if text := texts[best]; text != "" && (best != "" || path == "") {
		schema["description"] = text
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, child := range properties {
		if child, ok := child.(map[string]any); ok {
			describeBelow(child, strings.TrimPrefix(path+"."+name, "."), texts, used)
		}
	}
	if items, ok := schema["items"].(map[string]any); ok {
		describeBelow(items, path+"[]", texts, used)
	}
}

// matches reports whether a path matches a pattern. A star in the pattern stands for one name. At the beginning it
// stands for any path.
func matches(pattern, path string) bool {
	if rest, anywhere := strings.CutPrefix(pattern, "*."); anywhere {
		return strings.HasSuffix(path, "."+rest)
	}
	want, have := strings.Split(pattern, "."), strings.Split(path, ".")
	if len(want) != len(have) {
		return false
	}
	for i := range want {
		plain, list := strings.CutSuffix(want[i], "[]")
		name, isList := strings.CutSuffix(have[i], "[]")
		if list != isList || plain != "*" && plain != name {
			return false
		}
	}
	return true
}
