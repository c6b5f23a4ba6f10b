package v1beta1_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/test/apiserver"
	"github.com/tombolo-net/tombolo/test/manifests"
)

const top = "../../../../"

// warnings collects the warnings in the API server's answers.
type warnings struct {
	mu   sync.Mutex
	text []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, text)
}

// take returns and forgets them.
func (w *warnings) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { w.text = nil }()
	return strings.Join(w.text, "\n")
}

// admitting starts an API server with the manifests of the agent that are about policies.
func admitting(t testing.TB) (client.Client, *warnings) {
	t.Helper()
	warned := &warnings{}
	config := rest.CopyConfig(apiserver.New(t, apiserver.Options{CRDs: []string{top + "deploy/crds"}}).Config)
	config.WarningHandler = warned
	c, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rules := slices.DeleteFunc(documents(t, top+"deploy/agent/tombolo-crds.yml"),
		func(o *unstructured.Unstructured) bool { return !strings.HasPrefix(o.GetKind(), "ValidatingAdmission") })
	for _, o := range append(rules, tiers(t)...) {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatalf("create %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	// Admission policies take effect some time after they are created. The last policy of the file warns.
	probe := object(t, "ClusterNetworkPolicy", "probe",
		"{priority: 1, appliedTo: [{podSelector: {}}], ingress: [{action: Deny}]}")
	err = wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			err := c.Create(ctx, probe.DeepCopy(), client.DryRunAll)
			return strings.Contains(warned.take(), "write Drop"), err
		})
	if err != nil {
		t.Fatalf("admission policies have no effect: %v", err)
	}
	return c, warned
}

func documents(t testing.TB, path string) []*unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(text))
}

func parse(t testing.TB, text string) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	for _, document := range strings.Split(text, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		all = append(all, o)
	}
	return all
}

// tiers returns the Tiers of the agent's manifest.
func tiers(t testing.TB) []*unstructured.Unstructured {
	t.Helper()
	return slices.DeleteFunc(documents(t, top+"deploy/agent/tombolo.yml"),
		func(o *unstructured.Unstructured) bool { return o.GetKind() != "Tier" })
}

// object makes an object of crd.antrea.io with a spec.
func object(t testing.TB, kind, name, spec string) *unstructured.Unstructured {
	t.Helper()
	o := parse(t, fmt.Sprintf("{apiVersion: crd.antrea.io/v1beta1, kind: %s, metadata: {name: %s}, spec: %s}", kind, name,
		spec))[0]
	if kind == "NetworkPolicy" || kind == "Group" || kind == "AntreaNetworkPolicy" {
		o.SetNamespace("default")
	}
	return o
}

// repeat is a list with the same element n times.
func repeat(n int, element string) string {
	return "[" + strings.Repeat(element+",", n-1) + element + "]"
}

func TestRefused(t *testing.T) {
	c, _ := admitting(t)
	const all = "appliedTo: [{podSelector: {}}]"
	acnp := func(rest string) string { return "{priority: 1, " + all + ", " + rest + "}" }
	from := func(peer string) string {
		return acnp("ingress: [{action: Allow}, {action: Drop, from: [" + peer + "]}]")
	}
	to := func(peer string) string { return acnp("egress: [{action: Drop, to: [" + peer + "]}]") }
	ports := func(port string) string { return acnp("ingress: [{action: Drop, ports: [" + port + "]}]") }
	const policy, own = "ClusterNetworkPolicy", "NetworkPolicy"
	for _, tc := range []struct {
		name, kind, spec string
		want             []string // the field, and the remedy
	}{
		{"no priority", policy, "{" + all + "}", []string{"spec.priority", "Required"}},
		{"priority 0", policy, "{priority: 0, " + all + "}", []string{"spec.priority", "greater than or equal to 1"}},
		{"priority 10001", policy, "{priority: 10001, " + all + "}",
			[]string{"spec.priority", "less than or equal to 10000"}},
		{"no action", policy, acnp("ingress: [{}]"), []string{"spec.ingress[0].action", "Required"}},
		{"unknown action", policy, acnp("ingress: [{action: Accept}]"),
			[]string{"spec.ingress[0].action", `"Allow", "Drop", "Reject", "Pass"`}},
		{"Pass in baseline", policy, acnp("tier: baseline, ingress: [{action: Pass}]"),
			[]string{"spec.tier", "use Allow, Drop or Reject, or another Tier"}},
		{"Pass in Baseline", own, acnp("tier: Baseline, egress: [{action: Pass}]"),
			[]string{"spec.tier", "use Allow, Drop or Reject, or another Tier"}},

		{"no appliedTo", policy, "{priority: 1, ingress: [{action: Drop}]}",
			[]string{"spec", "appliedTo is missing: write it once for the policy, or in every rule"}},
		{"no appliedTo, no rules", policy, "{priority: 1}", []string{"spec", "appliedTo is missing"}},
		{"appliedTo in one of two rules", policy, "{priority: 1, ingress: [{action: Drop, " + all +
			"}], egress: [{action: Drop}]}", []string{"spec", "appliedTo is missing"}},
		{"both kinds of appliedTo", policy, acnp("ingress: [{action: Drop, " + all + "}]"),
			[]string{"spec.appliedTo", "keep the one of the policy, or write one in every rule"}},
		{"empty appliedTo", policy, "{priority: 1, appliedTo: [{}]}",
			[]string{"spec.appliedTo[0]", "write exactly one of: podSelector"}},
		{"group and selector", policy, "{priority: 1, appliedTo: [{group: g, podSelector: {}}]}",
			[]string{"spec.appliedTo[0]", "write exactly one of: podSelector"}},
		{"empty group", policy, "{priority: 1, appliedTo: [{group: ''}]}",
			[]string{"spec.appliedTo[0].group", "at least 1 chars long"}},
		{"ExternalEntities", policy, "{priority: 1, appliedTo: [{externalEntitySelector: {}}]}",
			[]string{"spec.appliedTo[0].externalEntitySelector", "remove externalEntitySelector"}},
		{"service and egress", policy,
			"{priority: 1, appliedTo: [{service: {name: a, namespace: b}}], egress: [{action: Drop}]}",
			[]string{"spec.appliedTo", "put the egress rules into a policy of their own"}},
		{"service in an egress rule", policy,
			"{priority: 1, egress: [{action: Drop, appliedTo: [{service: {name: a, namespace: b}}]}]}",
			[]string{"spec.egress", "use another appliedTo"}},
		{"serviceAccount of no Namespace", policy, "{priority: 1, appliedTo: [{serviceAccount: {name: a}}]}",
			[]string{"spec", "write its namespace too"}},
		{"an empty Namespace", own, "{priority: 1, appliedTo: [{serviceAccount: {name: a, namespace: ''}}]}",
			[]string{"spec.appliedTo[0].serviceAccount.namespace", "at least 1 chars long"}},
		{"namespaceSelector in a NetworkPolicy", own, "{priority: 1, appliedTo: [{namespaceSelector: {}}]}",
			[]string{"spec", "or write a ClusterNetworkPolicy"}},
		{"nodeSelector in a rule of a NetworkPolicy", own,
			"{priority: 1, ingress: [{action: Drop, appliedTo: [{nodeSelector: {}}]}]}",
			[]string{"spec", "or write a ClusterNetworkPolicy"}},
		{"serviceAccount of another Namespace", own,
			"{priority: 1, appliedTo: [{serviceAccount: {name: a, namespace: kube-system}}]}",
			[]string{"appliedTo", "remove its namespace, or write a ClusterNetworkPolicy"}},
		{"service of another Namespace in a rule", own,
			"{priority: 1, ingress: [{action: Drop, appliedTo: [{service: {name: a, namespace: kube-system}}]}]}",
			[]string{"appliedTo", "remove its namespace, or write a ClusterNetworkPolicy"}},

		{"empty peer", policy, from("{}"), []string{"spec.ingress[1].from[0]", "write exactly one of: podSelector"}},
		{"ipBlock beside podSelector", policy, from("{podSelector: {}, ipBlock: {cidr: 10.0.0.0/8}}"),
			[]string{"spec.ingress[1].from[0]", "write exactly one of: podSelector"}},
		{"group beside namespaceSelector", policy, from("{group: g, namespaceSelector: {}}"),
			[]string{"spec.ingress[1].from[0]", "write exactly one of: podSelector"}},
		{"serviceAccount beside nodeSelector", policy, to("{serviceAccount: {name: a, namespace: b}, nodeSelector: {}}"),
			[]string{"spec.egress[0].to[0]", "write exactly one of: podSelector"}},
		{"fqdn beside ipBlock", policy, to("{fqdn: a.example, ipBlock: {cidr: 10.0.0.0/8}}"),
			[]string{"spec.egress[0].to[0]", "write exactly one of: podSelector"}},
		{"namespaces beside namespaceSelector", policy, from("{namespaces: {match: Self}, namespaceSelector: {}}"),
			[]string{"spec.ingress[1].from[0].namespaces", "write one of the two"}},
		{"namespaces without content", policy, from("{namespaces: {}}"),
			[]string{"spec.ingress[1].from[0].namespaces", "write either match: Self or sameLabels"}},
		{"namespaces with both", policy, from("{namespaces: {match: Self, sameLabels: [a]}}"),
			[]string{"spec.ingress[1].from[0].namespaces", "write either match: Self or sameLabels"}},
		{"another match", policy, from("{namespaces: {match: Other}}"),
			[]string{"spec.ingress[1].from[0].namespaces.match", `"Self"`}},
		{"namespaces in a NetworkPolicy", own, from("{namespaces: {match: Self}}"),
			[]string{"spec", "write podSelector alone for the policy's own Namespace"}},
		{"unknown scope", policy, from("{podSelector: {}, scope: World}"),
			[]string{"spec.ingress[1].from[0].scope", `"Cluster", "ClusterSet"`}},
		{"addresses of the ClusterSet", policy, from("{ipBlock: {cidr: 10.0.0.0/8}, scope: ClusterSet}"),
			[]string{"spec.ingress[1].from[0].scope", "remove scope"}},
		{"serviceAccount of no Namespace as peer", policy, from("{serviceAccount: {name: a}}"),
			[]string{"spec", "write its namespace too"}},
		{"ExternalEntities as peer", policy, from("{externalEntitySelector: {matchLabels: {a: b}}}"),
			[]string{"spec.ingress[1].from[0].externalEntitySelector", "write their addresses as ipBlock"}},
		{"fqdn of clients", policy, from("{fqdn: a.example}"), []string{"spec.ingress[1].from", "fqdn is for egress rules"}},
		{"no name", policy, to("{fqdn: 'a b'}"), []string{"spec.egress[0].to[0].fqdn", "should match"}},

		{"no range", policy, from("{ipBlock: {cidr: 10.0.0.0}}"),
			[]string{"spec.ingress[1].from[0].ipBlock.cidr", "write one such as 192.168.0.0/16"}},
		{"a range of another length", policy, from("{ipBlock: {cidr: 10.0.0.0/33}}"),
			[]string{"spec.ingress[1].from[0].ipBlock.cidr", "write one such as 192.168.0.0/16"}},
		{"no range in except", policy, from("{ipBlock: {cidr: 10.0.0.0/8, except: [x]}}"),
			[]string{"spec.ingress[1].from[0].ipBlock.except[0]", "must be of type cidr"}},
		{"except outside", policy, to("{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16, 11.0.0.0/16]}}"),
			[]string{"spec.egress[0].to[0].ipBlock.except", "write only parts of cidr here"}},
		{"except around", policy, to("{ipBlock: {cidr: 10.0.0.0/8, except: [8.0.0.0/6]}}"),
			[]string{"spec.egress[0].to[0].ipBlock.except", "write only parts of cidr here"}},
		{"except of the other family", policy, to("{ipBlock: {cidr: 0.0.0.0/0, except: ['fd00::/64']}}"),
			[]string{"spec.egress[0].to[0].ipBlock.except", "of the same address family"}},

		{"unknown operator", policy, from("{podSelector: {matchExpressions: [{key: a, operator: Is}]}}"),
			[]string{"matchExpressions[0].operator", `"In", "NotIn", "Exists", "DoesNotExist"`}},
		{"In without values", policy, from("{podSelector: {matchExpressions: [{key: a, operator: In}]}}"),
			[]string{"matchExpressions[0].values", "In and NotIn need one value or more"}},
		{"Exists with values", policy, from("{podSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}"),
			[]string{"matchExpressions[0].values", "Exists and DoesNotExist have none"}},
		{"no key of a label", policy, from("{podSelector: {matchExpressions: [{key: 'a b', operator: Exists}]}}"),
			[]string{"matchExpressions[0].key", "should match"}},
		{"no value of a label", policy, from("{podSelector: {matchLabels: {a: 'b c'}}}"),
			[]string{"matchLabels.a", "should match"}},
		{"no key in matchLabels", policy, from("{podSelector: {matchLabels: {'a b': c}}}"),
			[]string{"spec.ingress: matchLabels", "write at most 63 letters"}},
		{"no key in matchLabels of egress", policy, to("{podSelector: {}, namespaceSelector: {matchLabels: {'/a': c}}}"),
			[]string{"spec.egress: matchLabels", "write at most 63 letters"}},
		{"no key in matchLabels of appliedTo", own, "{priority: 1, appliedTo: [{podSelector: {matchLabels: {'a/b/c': d}}}]}",
			[]string{"spec.appliedTo: matchLabels", "write at most 63 letters"}},

		{"servers of an ingress rule", policy, acnp("ingress: [{action: Drop, to: [{podSelector: {}}]}]"),
			[]string{"spec.ingress[0]", "write them as from"}},
		{"Services of an ingress rule", policy, acnp("ingress: [{action: Drop, toServices: [{name: a, namespace: b}]}]"),
			[]string{"spec.ingress[0]", "write them as from"}},
		{"clients of an egress rule", policy, acnp("egress: [{action: Drop, from: [{podSelector: {}}]}]"),
			[]string{"spec.egress[0].from", "write them as to"}},
		{"toServices beside to", policy,
			acnp("egress: [{action: Drop, to: [{podSelector: {}}], toServices: [{name: a, namespace: b}]}]"),
			[]string{"spec.egress[0].toServices", "remove to, ports and protocols"}},
		{"toServices beside ports", policy,
			acnp("egress: [{action: Drop, ports: [{port: 80}], toServices: [{name: a, namespace: b}]}]"),
			[]string{"spec.egress[0].toServices", "remove to, ports and protocols"}},
		{"toServices beside protocols", policy,
			acnp("egress: [{action: Drop, protocols: [{icmp: {}}], toServices: [{name: a, namespace: b}]}]"),
			[]string{"spec.egress[0].toServices", "remove to, ports and protocols"}},
		{"toServices without a Namespace", policy, acnp("egress: [{action: Drop, toServices: [{name: a}]}]"),
			[]string{"spec.egress", "write its namespace too"}},
		{"toServices without a name", own, acnp("egress: [{action: Drop, toServices: [{namespace: a}]}]"),
			[]string{"spec.egress[0].toServices[0].name", "Required"}},
		{"toServices of another scope", own, acnp("egress: [{action: Drop, toServices: [{name: a, scope: World}]}]"),
			[]string{"spec.egress[0].toServices[0].scope", `"Cluster", "ClusterSet"`}},
		{"toNodes", policy, acnp("egress: [{action: Drop, toNodes: [{nodeSelector: {}}]}]"),
			[]string{"spec.egress[0].toNodes", "write a peer in to with nodeSelector"}},
		{"layer 7", policy, acnp("ingress: [{action: Allow, l7Protocols: [{http: {path: /a}}]}]"),
			[]string{"spec.ingress[0].l7Protocols", "remove l7Protocols"}},

		{"port 0", policy, ports("{port: 0}"), []string{"spec.ingress[0].ports[0].port", "write a number from 1 to 65535"}},
		{"port 65536", policy, ports("{port: 65536}"),
			[]string{"spec.ingress[0].ports[0].port", "write a number from 1 to 65535"}},
		{"no port's name", policy, ports("{port: HTTP}"), []string{"spec.ingress[0].ports[0].port", "lower-case letters"}},
		{"a number in quotes", policy, ports("{port: '80'}"), []string{"spec.ingress[0].ports[0].port", "write a number"}},
		{"no protocol", policy, ports("{protocol: ICMP}"),
			[]string{"spec.ingress[0].ports[0].protocol", `"TCP", "UDP", "SCTP"`}},
		{"endPort before port", policy, ports("{port: 80, endPort: 79}"),
			[]string{"spec.ingress[0].ports[0].endPort", "not larger than endPort"}},
		{"endPort of a name", policy, ports("{port: http, endPort: 90}"),
			[]string{"spec.ingress[0].ports[0].endPort", "write port as a number"}},
		{"endPort alone", policy, ports("{endPort: 90}"),
			[]string{"spec.ingress[0].ports[0].endPort", "write port as a number"}},
		{"endPort 65536", policy, ports("{port: 1, endPort: 65536}"),
			[]string{"spec.ingress[0].ports[0].endPort", "less than or equal to 65535"}},
		{"sourceEndPort alone", policy, ports("{sourceEndPort: 90}"),
			[]string{"spec.ingress[0].ports[0].sourceEndPort", "write sourcePort"}},
		{"sourceEndPort before sourcePort", policy, ports("{sourcePort: 91, sourceEndPort: 90}"),
			[]string{"spec.ingress[0].ports[0].sourceEndPort", "write sourcePort"}},
		{"sourcePort of a name", policy, ports("{port: http, sourcePort: 90}"),
			[]string{"spec.ingress[0].ports[0].sourcePort", "write port as a number"}},
		{"protocol without content", policy, acnp("ingress: [{action: Drop, protocols: [{}]}]"),
			[]string{"spec.ingress[0].protocols[0]", "write either icmp or igmp"}},
		{"two protocols in one", policy, acnp("ingress: [{action: Drop, protocols: [{icmp: {}, igmp: {}}]}]"),
			[]string{"spec.ingress[0].protocols[0]", "write either icmp or igmp"}},
		{"code without type", policy, acnp("ingress: [{action: Drop, protocols: [{icmp: {icmpCode: 1}}]}]"),
			[]string{"spec.ingress[0].protocols[0].icmp.icmpCode", "write icmpType too"}},
		{"type 256", policy, acnp("ingress: [{action: Drop, protocols: [{icmp: {icmpType: 256}}]}]"),
			[]string{"spec.ingress[0].protocols[0].icmp.icmpType", "less than or equal to 255"}},
		{"no multicast group", policy, acnp("ingress: [{action: Drop, protocols: [{igmp: {groupAddress: 10.0.0.1}}]}]"),
			[]string{"spec.ingress[0].protocols[0].igmp.groupAddress", "from 224.0.0.0 to 239.255.255.255"}},

		{"101 rules", policy, acnp("ingress: " + repeat(101, "{action: Drop}")),
			[]string{"spec.ingress", "at most 100 items"}},
		{"101 peers", policy, acnp("egress: [{action: Drop, to: " + repeat(101, "{group: g}") + "}]"),
			[]string{"spec.egress[0].to", "at most 100 items"}},
		{"101 ports", policy, acnp("egress: [{action: Drop, ports: " + repeat(101, "{port: 1}") + "}]"),
			[]string{"spec.egress[0].ports", "at most 100 items"}},
		{"101 times appliedTo", policy, "{priority: 1, appliedTo: " + repeat(101, "{group: g}") + "}",
			[]string{"spec.appliedTo", "at most 100 items"}},
		{"17 exceptions", policy, from("{ipBlock: {cidr: 10.0.0.0/8, except: " + repeat(17, "10.1.0.0/16") + "}}"),
			[]string{"ipBlock.except", "at most 16 items"}},
		{"21 labels", policy, from("{podSelector: {matchExpressions: " + repeat(21, "{key: a, operator: Exists}") + "}}"),
			[]string{"matchExpressions", "at most 20 items"}},
		{"a long name of a rule", policy, acnp("ingress: [{action: Drop, name: " + strings.Repeat("a", 64) + "}]"),
			[]string{"spec.ingress[0].name", "may not be more than 63"}},

		{"priority of a Tier", "Tier", "{priority: 256}", []string{"spec.priority", "less than or equal to 255"}},
		{"negative priority of a Tier", "Tier", "{priority: -1}", []string{"spec.priority", "greater than or equal to 0"}},
		{"reserved priority of a Tier", "Tier", "{priority: 252}",
			[]string{"spec.priority", "use another one from 0 to 249"}},
		{"priority of a default Tier", "Tier", "{priority: 250}", []string{"spec.priority", "use another priority"}},
		{"no priority of a Tier", "Tier", "{description: x}", []string{"spec.priority", "Required"}},

		{"empty group", "ClusterGroup", "{}", []string{"spec", "write exactly one of: podSelector"}},
		{"two kinds of content", "ClusterGroup", "{podSelector: {}, ipBlocks: [{cidr: 10.0.0.0/8}]}",
			[]string{"spec", "write exactly one of: podSelector"}},
		{"childGroups beside a Service", "Group", "{serviceReference: {name: a}, childGroups: [b]}",
			[]string{"spec", "write exactly one of: podSelector"}},
		{"no children", "ClusterGroup", "{childGroups: []}", []string{"spec.childGroups", "at least 1 items"}},
		{"itself", "ClusterGroup", "{childGroups: [a, x]}", []string{"spec.childGroups", "has the group itself: remove it"}},
		{"itself in a Namespace", "Group", "{childGroups: [x]}",
			[]string{"spec.childGroups", "has the group itself: remove it"}},
		{"Service of no Namespace", "ClusterGroup", "{serviceReference: {name: a}}",
			[]string{"spec.serviceReference", "write the Service's namespace too"}},
		{"ExternalEntities in a group", "ClusterGroup", "{externalEntitySelector: {}}",
			[]string{"spec.externalEntitySelector", "write their addresses as ipBlocks"}},
		{"no range in a group", "Group", "{ipBlocks: [{cidr: 10.0.0.0/8}, {cidr: x}]}",
			[]string{"spec.ipBlocks[1].cidr", "write one such as 192.168.0.0/16"}},
		{"1001 ranges", "ClusterGroup", "{ipBlocks: " + repeat(1001, "{cidr: 10.0.0.0/8}") + "}",
			[]string{"spec.ipBlocks", "at most 1000 items"}},
		{"no key in matchLabels of a group", "ClusterGroup", "{podSelector: {matchLabels: {'a b': c}}}",
			[]string{"spec: matchLabels", "write at most 63 letters"}},

		{"the old kind", "AntreaNetworkPolicy", "{priority: 1, " + all + "}", []string{"kind", "write kind: NetworkPolicy"}},
	} {
		t.Run(tc.kind+"/"+tc.name, func(t *testing.T) {
			err := c.Create(t.Context(), object(t, tc.kind, "x", tc.spec), client.DryRunAll)
			if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
				t.Fatalf("have %v, want a refusal", err)
			}
			for _, want := range append(tc.want, `"x"`) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("have %q, want %q in it", err, want)
				}
			}
		})
	}
}

func TestAccepted(t *testing.T) {
	c, warned := admitting(t)
	const all = "appliedTo: [{podSelector: {}}]"
	for _, tc := range []struct{ name, kind, spec string }{
		{"priority 1", "ClusterNetworkPolicy", "{priority: 1.0, " + all + "}"},
		{"priority with a fraction", "NetworkPolicy", "{priority: 9999.5, tier: Emergency, " + all + "}"},
		{"every appliedTo",
			"ClusterNetworkPolicy", `{priority: 1, appliedTo: [
			{podSelector: {}, namespaceSelector: {}}, {namespaceSelector: {}}, {group: g},
			{serviceAccount: {name: a, namespace: b}}, {nodeSelector: {matchLabels: {a.example/b: ''}}}]}`},
		{"NodePorts", "ClusterNetworkPolicy",
			"{priority: 1, appliedTo: [{service: {name: a, namespace: b}}], ingress: [{action: Drop, from: [{ipBlock: {cidr: " +
				"0.0.0.0/0}}]}]}"},
		{"appliedTo in every rule", "NetworkPolicy",
			"{priority: 1, ingress: [{action: Drop, appliedTo: [{service: {name: a, namespace: default}}]}], egress: " +
				"[{action: Reject, appliedTo: [{serviceAccount: {name: a}}]}]}"},
		{"every peer", "ClusterNetworkPolicy",
			"{priority: 1, " +
				all + `, egress: [{action: Allow, name: r, enableLogging: true, logLabel: l, to: [{podSelector: {}},
			{podSelector: {matchExpressions: [{key: a, operator: In, values: [b, '']}, {key: c, operator: DoesNotExist}]},
			namespaces: {sameLabels: [a, b]}}, {namespaces: {match: Self}},
			{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.0.0/16, 10.1.2.3/32]}}, {ipBlock: {cidr: 'fd00::/8'}}, {group: g},
			{serviceAccount: {name: a, namespace: b}}, {nodeSelector: {}}, {fqdn: '*.example.com'}, {fqdn: example.com},
			{podSelector: {}, scope: ClusterSet}]}]}`},
		{"every port", "NetworkPolicy",
			"{priority: 1, " +
				all + `, ingress: [{action: Reject, ports: [{}, {protocol: SCTP}, {port: 1}, {port: 1, endPort: 65535},
			{port: http-alt, protocol: UDP}, {sourcePort: 5, sourceEndPort: 5}],
			protocols: [{icmp: {}}, {icmp: {icmpType: 8, icmpCode: 0}}, {igmp: {igmpType: 17, groupAddress: 224.0.0.22}}]}]}`},
		{"empty lists", "ClusterNetworkPolicy", "{priority: 1, " + all +
			", ingress: [{action: Drop, from: [], ports: [], protocols: [], appliedTo: []}], egress: []}"},
		{"Services of the ClusterSet", "NetworkPolicy", "{priority: 1, " + all +
			", egress: [{action: Drop, toServices: [{name: a, scope: ClusterSet}, {name: b, namespace: c}]}]}"},
		{"as large as may be", "ClusterNetworkPolicy", "{priority: 1, " + all + ", ingress: " + repeat(99, "{action: Pass}") +
			", egress: [{action: Drop, to: " +
			repeat(100, "{ipBlock: {cidr: 10.0.0.0/8, except: "+repeat(16, "10.1.0.0/16")+"}}") + ", ports: " + repeat(100,
			"{port: 1}") + "}]}"},
		{"a Tier", "Tier", "{priority: 0, description: x}"},
		{"Pods", "ClusterGroup", "{podSelector: {matchLabels: {a: b}}, namespaceSelector: {}}"},
		{"addresses", "ClusterGroup", "{ipBlocks: " + repeat(1000, "{cidr: 10.0.0.0/8}") + "}"},
		{"a Service", "Group", "{serviceReference: {name: a}}"},
		{"groups", "Group", "{childGroups: [a, b]}"},
	} {
		t.Run(tc.kind+"/"+tc.name, func(t *testing.T) {
			o := object(t, tc.kind, "x", tc.spec)
			if err := c.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			if text := warned.take(); text != "" {
				t.Errorf("a warning: %s", text)
			}
			if tier, _, _ := unstructured.NestedString(o.Object, "spec", "tier"); strings.HasSuffix(tc.kind, "NetworkPolicy") &&
				tier == "" {
				t.Error("the policy has no Tier, want application")
			}
			if err := c.Delete(t.Context(), o); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDocuments creates the policies of the users' guide, also its replicated policy.
func TestDocuments(t *testing.T) {
	c, warned := admitting(t)
	for _, tc := range []struct{ part, warning string }{
		{"policy-egress-to-service", ""},
		{"policy-ingress-cluster", "spec.ingress: action Deny is an old name and means Drop: write Drop"},
		{"policy-ingress-namespace", "spec.ingress: action Deny is an old name and means Drop: write Drop"},
		{"replicated-policy", ""},
	} {
		t.Run(tc.part, func(t *testing.T) {
			text, err := manifests.V114().Part(tc.part)
			if err != nil {
				t.Fatal(err)
			}
			o := parse(t, text)[0]
			if spec, found, _ := unstructured.NestedMap(o.Object, "spec", "clusterNetworkPolicy"); found {
				o = object(t, "ClusterNetworkPolicy", "replicated", "{}")
				o.Object["spec"] = spec
			}
			if o.GetNamespace() != "" {
				o.SetNamespace("default") // this Namespace exists
			}
			if err := c.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			if have := warned.take(); !strings.Contains(have, tc.warning) || tc.warning == "" && have != "" {
				t.Errorf("warned of %q, want %q", have, tc.warning)
			}
		})
	}
}

// TestTiers keeps the default Tiers as they are, and the priority of others.
func TestTiers(t *testing.T) {
	c, _ := admitting(t)
	ctx := t.Context()
	have := map[string]int32{}
	for _, o := range tiers(t) {
		priority, _, _ := unstructured.NestedFloat64(o.Object, "spec", "priority")
		have[o.GetName()] = int32(priority)
	}
	for name, priority := range v1beta1.DefaultTiers {
		if have[name] != priority {
			t.Errorf("the manifest has Tier %s with priority %d, want %d", name, have[name], priority)
		}
		tier := object(t, "Tier", name, "{}")
		if err := c.Delete(ctx, tier); err == nil ||
			!strings.Contains(err.Error(), "Tier "+name+" is a default Tier and cannot be deleted") {
			t.Errorf("delete Tier %s: %v", name, err)
		}
		for _, patch := range []string{`{"spec":{"priority":77}}`, `{"spec":{"description":"another"}}`} {
			if err := c.Patch(ctx, tier, client.RawPatch("application/merge-patch+json", []byte(patch))); err == nil ||
				!strings.Contains(err.Error(), "a default Tier cannot be changed") {
				t.Errorf("patch Tier %s with %s: %v", name, patch, err)
			}
		}
	}
	if len(have) != len(v1beta1.DefaultTiers) {
		t.Errorf("the manifest has Tiers %v", have)
	}
	own := object(t, "Tier", "own", "{priority: 77}")
	if err := c.Create(ctx, own); err != nil {
		t.Fatal(err)
	}
	priority := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"priority":78}}`))
	if err := c.Patch(ctx, own, priority); err == nil || !strings.Contains(err.Error(), "create another Tier") {
		t.Errorf("change the priority: %v", err)
	}
	description := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"description":"x"}}`))
	if err := c.Patch(ctx, own, description); err != nil {
		t.Errorf("describe: %v", err)
	}
	if err := c.Delete(ctx, own); err != nil {
		t.Errorf("delete: %v", err)
	}
}
