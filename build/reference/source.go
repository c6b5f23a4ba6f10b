package main

import (
	"go/ast"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tombolo-net/tombolo/build/comments"
)

// goPackage is the code of one directory without its tests.
type goPackage struct {
	dir    string // in the repository, such as pkg/agent
	files  []*ast.File
	names  map[*ast.File]string // of files, without directory
	values map[string]ast.Expr  // of constants and variables, by name
	consts []constant
}

// constant is one declaration of a constant at the top of a file.
type constant struct {
	name, value, doc string
}

// codeDirs are the directories with the code of the programs.
var codeDirs = []string{"pkg", "cmd", "plugins"}

// parsed caches the code of the programs by the root of the repository, since several pages are made of it.
var parsed = map[string][]*goPackage{}

// packages parses the code of the programs, sorted by directory.
func packages(root string) ([]*goPackage, error) {
	if parsed[root] != nil {
		return slices.Clone(parsed[root]), nil
	}
	var out []*goPackage
	for _, top := range codeDirs {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			if d.Name() == "testdata" {
				return filepath.SkipDir
			}
			dir, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			p, err := parsePackage(path, filepath.ToSlash(dir))
			if err != nil || len(p.files) == 0 {
				return err
			}
			out = append(out, p)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	parsed[root] = out
	return slices.Clone(out), nil
}

// parsePackage parses the files at a path. Dir is the directory in the repository.
func parsePackage(path, dir string) (*goPackage, error) {
	_, files, err := comments.Files(path)
	if err != nil {
		return nil, err
	}
	p := &goPackage{dir: dir, names: map[*ast.File]string{}, values: map[string]ast.Expr{}}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		p.files = append(p.files, files[name])
		p.names[files[name]] = name
	}
	p.declarations()
	return p, nil
}

// declarations fills values and consts.
func (p *goPackage) declarations() {
	type found struct {
		name *ast.Ident
		doc  *ast.CommentGroup
	}
	var consts []found
	for _, file := range p.files {
		for _, d := range file.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.CONST && decl.Tok != token.VAR {
				continue
			}
			for _, s := range decl.Specs {
				spec := s.(*ast.ValueSpec)
				for i, name := range spec.Names {
					if i < len(spec.Values) {
						p.values[name.Name] = spec.Values[i]
					}
					doc := spec.Doc
					if doc == nil && len(decl.Specs) == 1 {
						doc = decl.Doc
					}
					if decl.Tok == token.CONST {
						consts = append(consts, found{name, doc})
					}
				}
			}
		}
	}
	for _, c := range consts {
		if value, ok := p.text(p.values[c.name.Name]); ok {
			p.consts = append(p.consts, constant{c.name.Name, value, comments.Text(c.doc)})
		}
	}
}

// text returns the text of an expression of literals and of constants of the package.
func (p *goPackage) text(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind != token.STRING {
			return "", false
		}
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.BinaryExpr:
		a, ok1 := p.text(e.X)
		b, ok2 := p.text(e.Y)
		return a + b, ok1 && ok2 && e.Op == token.ADD
	case *ast.ParenExpr:
		return p.text(e.X)
	case *ast.Ident:
		if value := p.values[e.Name]; value != nil {
			return p.text(value)
		}
	}
	return "", false
}

// texts returns the texts of a list in code. An element that is no constant is left out.
func (p *goPackage) texts(e ast.Expr) []string {
	if name, ok := e.(*ast.Ident); ok {
		e = p.values[name.Name]
	}
	list, ok := e.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	var out []string
	for _, element := range list.Elts {
		if text, ok := p.text(element); ok {
			out = append(out, text)
		}
	}
	return out
}

// inspect calls a function for each node of the code.
func (p *goPackage) inspect(f func(ast.Node) bool) {
	for _, file := range p.files {
		ast.Inspect(file, f)
	}
}

// called returns the name of the function or method that an expression calls, without its package.
func called(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// typeName returns the name of the type of a composite literal, without its package.
func typeName(e ast.Expr) string {
	switch t := e.(type) {
	case *ast.Ident:
		return t.Name
	case *ast.SelectorExpr:
		return t.Sel.Name
	}
	return ""
}

// fieldsOf returns the fields of a composite literal by name.
func fieldsOf(c *ast.CompositeLit) map[string]ast.Expr {
	out := map[string]ast.Expr{}
	for _, e := range c.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if name, ok := kv.Key.(*ast.Ident); ok {
				out[name.Name] = kv.Value
			}
		}
	}
	return out
}

// belongs returns the first value whose directory a package is in or below.
func belongs(dir string, list [][2]string) string {
	for _, row := range list {
		if dir == row[0] || strings.HasPrefix(dir, row[0]+"/") {
			return row[1]
		}
	}
	return ""
}
