package build

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mostMembers is how many fields a struct of the product has at the most, and how many methods.
const mostMembers = 25

// largeStructs may have more: codecs have a method for each part of a format, and a configuration a field for each
// key. API types (pkg/apis) and generated code are not counted.
var largeStructs = []string{
	"pkg/agent/config.Config",
	"pkg/openflow/flow.printer",
	"pkg/openflow/flow.span",
	"pkg/openflow/ofp.decoder",
	"pkg/openflow/ofp.encoder",
	"pkg/openflow/ofprint.printer",
}

// TestStructs counts the fields and methods of the product's structs. A struct with more is split into parts that have
// names and methods of their own. An embedded struct counts as one field. Its methods count where they are declared.
func TestStructs(t *testing.T) {
	fields, methods := map[string]int{}, map[string]int{}
	for _, root := range []string{"pkg", "cmd", "plugins"} {
		err := filepath.WalkDir(filepath.Join("..", root), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
				strings.HasPrefix(path, "../pkg/apis/") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil || ast.IsGenerated(file) {
				return err
			}
			countMembers(file, strings.TrimPrefix(filepath.Dir(path), "../")+".", fields, methods)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(fields) < 500 || len(methods) < 500 {
		t.Errorf("%d structs and %d types with methods were found: the code is not read", len(fields), len(methods))
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		large, listed := max(fields[name], methods[name]) > mostMembers, slices.Contains(largeStructs, name)
		if large && !listed {
			t.Errorf("%s has %d fields and %d methods, at most %d of each: split it by subject", name, fields[name],
				methods[name], mostMembers)
		}
		if !large && listed {
			t.Errorf("%s has %d fields and %d methods: remove it from largeStructs", name, fields[name], methods[name])
		}
	}
	for _, name := range largeStructs {
		if _, there := fields[name]; !there {
			t.Errorf("largeStructs has %s, and there is no such struct", name)
		}
	}
}

// countMembers adds the fields of a file's structs, and the methods of all types. prefix begins their names.
func countMembers(file *ast.File, prefix string, fields, methods map[string]int) {
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				methods[prefix+receiverOf(d.Recv.List[0].Type)]++
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				named, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				if s, ok := named.Type.(*ast.StructType); ok {
					n := 0
					for _, f := range s.Fields.List {
						n += max(1, len(f.Names)) // an embedded one has no name
					}
					fields[prefix+named.Name.Name] = n
				}
			}
		}
	}
}

// receiverOf returns the name of a receiver's type.
func receiverOf(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiverOf(t.X)
	case *ast.IndexExpr:
		return receiverOf(t.X)
	case *ast.IndexListExpr:
		return receiverOf(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}

// TestCountMembers counts the members of structs in a small file.
func TestCountMembers(t *testing.T) {
	const text = `package p
type one struct {
	a, b int
	two
	_ *one
}
type two struct{}
type generic[K, V any] struct{ k K }
func (o one) f() {}
func (o *one) g() {}
func (g *generic[K, V]) f() {}
func free() {}
`
	file, err := parser.ParseFile(token.NewFileSet(), "p.go", text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	fields, methods := map[string]int{}, map[string]int{}
	countMembers(file, "p.", fields, methods)
	if want := map[string]int{"p.one": 4, "p.two": 0, "p.generic": 1}; !maps.Equal(fields, want) {
		t.Errorf("fields are %v, want %v", fields, want)
	}
	if want := map[string]int{"p.one": 2, "p.generic": 1}; !maps.Equal(methods, want) {
		t.Errorf("methods are %v, want %v", methods, want)
	}
}
