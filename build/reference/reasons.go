package main

import (
	"fmt"
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strings"

	// These programs and pages declare all reasons, in their own package or in packages that they import.
	_ "github.com/tombolo-net/tombolo/pkg/agent"
	_ "github.com/tombolo-net/tombolo/pkg/cluster/externalip"
	_ "github.com/tombolo-net/tombolo/pkg/cluster/policystatus"
	_ "github.com/tombolo-net/tombolo/pkg/cluster/tenants"
	_ "github.com/tombolo-net/tombolo/pkg/cluster/warnings"
	_ "github.com/tombolo-net/tombolo/pkg/multicluster/leader"
	_ "github.com/tombolo-net/tombolo/pkg/multicluster/member"
	_ "github.com/tombolo-net/tombolo/pkg/observe/ui"

	"github.com/tombolo-net/tombolo/build/words"
	registry "github.com/tombolo-net/tombolo/pkg/reasons"
)

// reasons writes the page of reasons.
func reasons(_ string, p *page) error {
	p.prose("A *Problem* is a part of an object that has no effect. `tombolo get status` lists the Problems of a " +
		"Node, and its metric is `tombolo_agent_problems`. Controllers write conditions and Events. The message " +
		"has the field, the values and the remedy for the case at hand. [Not supported](../not-supported.md) " +
		"lists the requests that no Node serves.")
	p.prose("Level *error*: the object or a part of it does not work. *warning*: the object works, but not as asked, " +
		"not yet or not for long. *info*: nothing is wrong.")
	rows := p.table("reason", "object", "shown as", "level", "cause", "remedy")
	for _, r := range registry.Rows() {
		for _, fault := range faultsOf(r) {
			p.bare = append(p.bare, fmt.Sprintf("reason %s of %s, whose row %s,", r.Name, r.Objects, fault))
		}
		remedy := plain(r.Remedy)
		if remedy == "" {
			remedy = "-"
		}
		rows.add(entry{code(r.Name), r.Objects, r.Shown.String(), string(r.Level), plain(r.Cause), remedy})
	}
	return nil
}

// nothing ends the cause of a reason without a remedy.
const nothing = "Nothing is wrong."

// faultsOf returns the faults of a row. A row of level info needs no remedy. All other rows have one.
func faultsOf(r registry.Row) (out []string) {
	add := func(wrong bool, fault string) {
		if wrong {
			out = append(out, fault)
		}
	}
	const longest = 200
	sentence := func(s string) bool { return len(s) <= longest && strings.HasSuffix(s, ".") }
	add(!camel.MatchString(r.Name), "has no name")
	add(r.Objects == "", "has no objects")
	for _, text := range []string{r.Cause, r.Remedy} {
		found, instead := words.Bad(text)
		add(found != "", fmt.Sprintf("has %q (write instead: %s)", found, instead))
	}
	add(r.Shown == 0, "has no place")
	add(!slices.Contains([]registry.Level{registry.Info, registry.Warning, registry.Error}, r.Level), "has no level")
	add(!sentence(r.Cause), fmt.Sprintf("has no cause of sentences, with at most %d characters", longest))
	info := r.Level == registry.Info
	add(!info && !sentence(r.Remedy), fmt.Sprintf("has no remedy of sentences, with at most %d characters", longest))
	add(info != strings.HasSuffix(r.Cause, nothing) || info && r.Remedy != "", "has another level than its cause")
	return out
}

// declaration is a call of reasons.New.
type declaration struct {
	ident string // the variable; empty for a call in another place
	file  string
}

// declarations returns the reasons that a package declares.
func declarations(p *goPackage) (out []declaration) {
	for _, file := range p.files {
		variables := map[ast.Expr]string{}
		for _, d := range file.Decls {
			if decl, ok := d.(*ast.GenDecl); ok {
				for _, s := range decl.Specs {
					if spec, ok := s.(*ast.ValueSpec); ok {
						for i, value := range spec.Values {
							variables[value] = spec.Names[i].Name
						}
					}
				}
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if c, ok := n.(*ast.CallExpr); ok {
				if f, ok := c.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "New" {
					if name, ok := f.X.(*ast.Ident); ok && name.Name == "reasons" {
						out = append(out, declaration{variables[c], p.names[file]})
					}
				}
			}
			return true
		})
	}
	return out
}

// reasonsFile is the file of a package with its reasons.
const reasonsFile = "reasons.go"

// uses returns the identifiers that the code of a package uses outside of its file of reasons.
func uses(p *goPackage) map[string]bool {
	out := map[string]bool{}
	for _, file := range p.files {
		if path.Base(p.names[file]) != reasonsFile {
			ast.Inspect(file, func(n ast.Node) bool {
				if name, ok := n.(*ast.Ident); ok {
					out[name.Name] = true
				}
				return true
			})
		}
	}
	return out
}

// camel is a reason: one word that begins with a capital letter.
var camel = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*$`)
