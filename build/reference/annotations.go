package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/tombolo-net/tombolo/build/comments"
)

var (
	// domainKey is a key of an annotation or label with a domain.
	domainKey = regexp.MustCompile(
		`^([a-z0-9-]+\.)*(antrea\.io|tombolo\.io|juniper\.net|kubernetes\.io|k8s\.io)/([A-Za-z][A-Za-z0-9._-]*)?$`)
	// version ends the name of an API, which looks like such a key.
	version = regexp.MustCompile(`/v[0-9]+((alpha|beta)[0-9]+)?$`)
)

// foreign are annotations and labels of other projects that Tombolo reads or writes. The code has them as constants of
// Kubernetes, or as literals in a list.
var foreign = []struct{ constant, key, kind, about string }{
	{"discoveryv1.LabelServiceName", discoveryv1.LabelServiceName, "label",
		"On EndpointSlices: the Service that they belong to."},
	{"discoveryv1.LabelManagedBy", discoveryv1.LabelManagedBy, "label",
		"On EndpointSlices of imported Services: the member controller made them."},
	{"discoveryv1.LabelSkipMirror", discoveryv1.LabelSkipMirror, "label",
		"On Endpoints of imported Services: Kubernetes makes no EndpointSlices of them."},
	{"mcsv1beta1.LabelSourceCluster", mcsv1beta1.LabelSourceCluster, "label",
		"On EndpointSlices of imported Services: the cluster that has the endpoints."},
	{"mcsv1beta1.LabelServiceName", mcsv1beta1.LabelServiceName, "label",
		"On EndpointSlices of imported Services: the name of the ServiceImport."},
	{"corev1.LabelMetadataName", corev1.LabelMetadataName, "label", "On Namespaces: their name. Selectors may use it."},
	{"corev1.LabelTopologyZone", corev1.LabelTopologyZone, "label",
		"On Nodes: the zone. Services that prefer their client's zone use it."},
	{"corev1.IsHeadlessService", corev1.IsHeadlessService, "label",
		"On Services and Endpoints: the agents leave them alone, as kube-proxy does."},
	{"", "node.kubernetes.io/out-of-service", "taint", "On Nodes: `tombolo gather` writes it into bundles."},
	{"", "service.kubernetes.io/topology-mode", "annotation",
		"On Services: Kubernetes gives their EndpointSlices hints, which the agents use. `tombolo gather` writes it."},
	{"", "networkpolicy.antrea.io/enable-logging", "annotation",
		"On Namespaces: it has no effect. `tombolo gather` writes it into bundles."},
	{"", "policy.networking.k8s.io/scope", "annotation", "On policies: `tombolo gather` writes it into bundles."},
}

// noKeys are texts in the code that only look like keys.
var noKeys = []string{
	"authentication.kubernetes.io/node-name",      // a claim of a token
	"kubernetes.io/serviceaccount/namespace",      // the same
	"policy.networking.k8s.io/bundle-version",     // of a definition
	"policy.networking.k8s.io/channel",            // the same
	"k8s.io/network-policy-api", "k8s.io/mcs-api", // modules
}

// annotation is one annotation, label, finalizer or type of condition.
type annotation struct{ key, kind, about string }

// annotations writes the page of annotations and labels.
func annotations(root string, p *page) error {
	all, err := packages(root)
	if err != nil {
		return err
	}
	p.prose("`ID` stands for the ID of a cluster. [The guide](../multicluster.md) and [the pages about " +
		"policies](../policy.md) and [tenants](../tenants.md) show how to use the ones that you write. [Not " +
		"supported](../not-supported.md) lists keys of others without effect.")
	var list []annotation
	declared := map[string]bool{}
	// The keys in package unserved have no effect. The list of requests that are not served has them.
	all = slices.DeleteFunc(all, func(p *goPackage) bool { return p.dir == "pkg/unserved" })
	for _, code := range all {
		for _, c := range code.consts {
			inAPI := strings.HasPrefix(code.dir, "pkg/apis/multicluster") &&
				(strings.HasPrefix(c.name, "Annotation") || strings.HasPrefix(c.name, "LabelSource"))
			if (!isKey(c.value) && !inAPI) || declared[c.value] || slices.Contains(noKeys, c.value) {
				continue
			}
			declared[c.value] = true
			kind := kindOfKey(c)
			if kind == "" {
				p.bare = append(p.bare, fmt.Sprintf("%s (%s of %s): name it Label or Annotation, or write the word in its comment;",
					c.value, c.name, code.dir))
			}
			key := c.value
			if strings.HasSuffix(key, "/") {
				key += "ID"
			}
			list = append(list, annotation{key, kind, comments.About(c.doc, c.name)})
		}
	}
	for _, f := range foreign {
		declared[f.key] = true
		list = append(list, annotation{f.key, f.kind, f.about})
	}
	for _, code := range all {
		for _, key := range undeclared(code, declared) {
			p.bare = append(p.bare, fmt.Sprintf("%s in %s: declare it as a constant with a comment;", key, code.dir))
		}
	}
	slices.SortFunc(list, func(a, b annotation) int {
		return cmp.Or(cmp.Compare(order(a.key), order(b.key)), cmp.Compare(a.key, b.key))
	})
	rows := p.table("key", "kind", "meaning")
	for _, a := range list {
		about := plain(a.about)
		rows.described(a.key, entry{code(a.key), a.kind, about})
	}
	return nil
}

// order puts the keys of Kubernetes last.
func order(key string) int {
	if strings.Contains(key, "kubernetes.io/") || strings.Contains(key, "k8s.io/") {
		return 1
	}
	return 0
}

func isKey(text string) bool { return domainKey.MatchString(text) && !version.MatchString(text) }

// kindOfKey reads in the name and the comment of a constant what it is the key of.
func kindOfKey(c constant) string {
	name := strings.ToLower(c.name)
	for _, kind := range []string{"annotation", "label", "finalizer", "condition"} {
		if strings.Contains(name, kind) {
			return kind
		}
	}
	kind, at := "", len(c.doc)
	for _, k := range []string{"annotation", "label", "finalizer", "condition"} {
		if i := strings.Index(strings.ToLower(c.doc), k); i >= 0 && i < at {
			kind, at = k, i
		}
	}
	return kind
}

// undeclared returns the keys in a package's code that are not foreign, and that no constant with a comment declares.
func undeclared(p *goPackage, declared map[string]bool) []string {
	var out []string
	check := func(key string) {
		if isKey(key) && !declared[key] && !slices.Contains(noKeys, key) && !slices.Contains(out, key) {
			out = append(out, key)
		}
	}
	p.inspect(func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				if text, err := strconv.Unquote(n.Value); err == nil {
					check(text)
				}
			}
		case *ast.SelectorExpr:
			if of, ok := n.X.(*ast.Ident); ok {
				if name := of.Name + "." + n.Sel.Name; keyOfKubernetes.MatchString(name) && !knownForeign(name) {
					out = append(out, name)
				}
			}
		}
		return true
	})
	return out
}

// keyOfKubernetes is a constant of Kubernetes with a key.
var keyOfKubernetes = regexp.MustCompile(
	`^(corev1|discoveryv1|mcsv1beta1|mcsv1alpha1|networkingv1|appsv1)\.(Label[A-Z]|Annotation[A-Z]|IsHeadless)[A-Za-z]*$`)

func knownForeign(name string) bool {
	for _, f := range foreign {
		if f.constant == name {
			return true
		}
	}
	return false
}
