package main

import (
	"cmp"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// metric is one metric of Prometheus.
type metric struct {
	name, help, kind, from string
	labels                 []string
}

// exposers are the programs that have the metrics of packages.
var exposers = [][2]string{
	{"pkg/observe/relay", "relay"},
	{"pkg/observe/metrics", "agents, leader, member"},
	{"pkg/multicluster/leader", "leader"},
	{"pkg/multicluster/member", "member"},
	{"pkg/agent", "agents"},
	{"pkg/openflow", "agents"},
}

// metrics writes the page of metrics and alerts.
func metrics(root string, p *page) error {
	all, err := packages(root)
	if err != nil {
		return err
	}
	p.prose("[Metrics](../metrics.md) shows how to read them. Those of all agents are [at the " +
		"relay](../relay.md). Go's own metrics and those of controller-runtime are there, too.")
	var list []metric
	for _, code := range all {
		list = append(list, metricsOf(code)...)
	}
	slices.SortFunc(list, func(a, b metric) int { return cmp.Compare(a.name, b.name) })
	list = slices.CompactFunc(list, func(a, b metric) bool { return a.name == b.name })
	rows := p.table("metric", "type", "labels", "of", "meaning")
	for _, m := range list {
		if m.from == "" {
			p.bare = append(p.bare, m.name+" (no program in exposers)")
		}
		rows.described(m.name, entry{code(m.name), m.kind, code(strings.Join(m.labels, ", ")), m.from, plain(m.help)})
	}
	return alerts(root, p)
}

// metricsOf returns the metrics that a package declares.
func metricsOf(p *goPackage) []metric {
	var out []metric
	histograms, prefixes, labels := map[string]bool{}, map[string]string{}, map[ast.Node]ast.Expr{}
	p.inspect(func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if prefix, ok := describes(p, n); ok {
				prefixes[n.Name.Name] = prefix
			}
		case *ast.CallExpr:
			if called(n) == "MustNewConstHistogram" && len(n.Args) > 0 {
				if name, ok := n.Args[0].(*ast.Ident); ok {
					histograms[name.Name] = true
				}
			}
			if strings.HasSuffix(called(n), "Vec") && len(n.Args) == 2 {
				labels[n.Args[0]] = n.Args[1]
			}
		}
		return true
	})
	from := belongs(p.dir, exposers)
	add := func(name, help, kind string, labels []string) {
		if strings.HasPrefix(name, "tombolo_") {
			out = append(out, metric{name: name, help: help, kind: kind, from: from, labels: labels})
		}
	}
	byDesc := map[*ast.CallExpr]string{} // the names of the variables
	for name, value := range p.values {
		if call, ok := value.(*ast.CallExpr); ok {
			byDesc[call] = name
		}
	}
	p.inspect(func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			prefix, wrapped := prefixes[called(n)]
			if wrapped && len(n.Args) >= 2 {
				name, _ := p.text(n.Args[0])
				help, _ := p.text(n.Args[1])
				var of []string
				for _, label := range n.Args[2:] {
					if text, ok := p.text(label); ok {
						of = append(of, text)
					}
				}
				add(prefix+name, help, byName(name), of)
			}
			if called(n) == "NewDesc" && len(n.Args) == 4 {
				name, ok := p.text(n.Args[0])
				help, _ := p.text(n.Args[1])
				kind := byName(name)
				if histograms[byDesc[n]] {
					kind = "histogram"
				}
				if ok {
					add(name, help, kind, p.texts(n.Args[2]))
				}
			}
		case *ast.CompositeLit:
			kind, is := strings.CutSuffix(typeName(n.Type), "Opts")
			fields := fieldsOf(n)
			if is && fields["Name"] != nil {
				name, _ := p.text(fields["Name"])
				help, _ := p.text(fields["Help"])
				add(name, help, strings.ToLower(kind), p.texts(labels[n]))
			}
		}
		return true
	})
	return out
}

// describes reports whether a function makes descriptions of metrics whose names have a prefix.
func describes(p *goPackage, f *ast.FuncDecl) (prefix string, ok bool) {
	if f.Body == nil {
		return "", false
	}
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if call, is := n.(*ast.CallExpr); is && called(call) == "NewDesc" && len(call.Args) > 0 {
			if sum, is := call.Args[0].(*ast.BinaryExpr); is {
				prefix, ok = p.text(sum.X)
			}
		}
		return !ok
	})
	return prefix, ok
}

// byName returns the type of a metric whose name ends as Prometheus recommends.
func byName(name string) string {
	if strings.HasSuffix(name, "_total") {
		return "counter"
	}
	return "gauge"
}

var valueOf = regexp.MustCompile(`\{\{ \$value[^}]*\}\}`)

var labelOf = regexp.MustCompile(`\{\{ \$labels\.(\w+) \}\}`)

// summary returns the summary of an alert, with the names of labels for their values.
func summary(text string) string {
	text = valueOf.ReplaceAllString(text, "N")
	return labelOf.ReplaceAllStringFunc(text, func(value string) string {
		return strings.ToUpper(labelOf.FindStringSubmatch(value)[1])
	})
}

// alerts adds the alerts of the chart.
func alerts(root string, p *page) error {
	text, err := os.ReadFile(filepath.Join(root, "deploy/charts/tombolo/files/alerts.yaml"))
	if err != nil {
		return err
	}
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, For          string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return err
	}
	p.section(2, "Alerts")
	p.prose("[Alerts and boards](../alerts.md) has the meaning, remedy and expression of each.")
	rows := p.table("alert", "severity", "after", "about")
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			rows.described(r.Alert, entry{link(r.Alert, "../alerts.md#"+strings.ToLower(r.Alert)), r.Labels["severity"], r.For,
				plain(strings.TrimSuffix(summary(r.Annotations["summary"]), "."))})
		}
	}
	return nil
}
