package ofp

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestActionNames checks that errors have a name for every type of action: it looks for all types with a method check
// in the package's source.
func TestActionNames(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	named, actions := map[string]bool{}, map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil || n.Name.Name != "check" {
					return true
				}
				if receiver, ok := n.Recv.List[0].Type.(*ast.Ident); ok && n.Type.Results.NumFields() == 1 {
					actions[receiver.Name] = true
				}
			case *ast.CaseClause:
				if name == "actionname.go" {
					for _, x := range n.List {
						if id, ok := x.(*ast.Ident); ok {
							named[id.Name] = true
						}
					}
				}
			}
			return true
		})
	}
	if len(actions) < 40 {
		t.Errorf("only %d actions are found", len(actions))
	}
	for a := range actions {
		if !named[a] && a != "LearnSpec" { // a part of learn
			t.Errorf("%s has no name", a)
		}
	}
	if got := actionName(Legacy{Kind: LegacyEthSrc}) + " " + actionName(nil); got != "mod_dl_src nothing" {
		t.Errorf("names are %q", got)
	}
}
