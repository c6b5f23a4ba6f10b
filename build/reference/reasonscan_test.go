package main

import (
	"go/ast"
	"regexp"
	"strings"
)

// rowsWithReason returns the reasons of a list of structs without field names, if the structs have a field reason.
func rowsWithReason(c *ast.CompositeLit) (out []ast.Expr) {
	list, ok := c.Type.(*ast.ArrayType)
	if !ok {
		return nil
	}
	row, ok := list.Elt.(*ast.StructType)
	if !ok {
		return nil
	}
	at, index := -1, 0
	for _, f := range row.Fields.List {
		for _, name := range f.Names {
			if strings.EqualFold(name.Name, "reason") {
				at = index
			}
			index++
		}
	}
	for _, e := range c.Elts {
		if values, ok := e.(*ast.CompositeLit); ok && at >= 0 && at < len(values.Elts) {
			out = append(out, values.Elts[at])
		}
	}
	return out
}

// reasonName is the name of a constant with a reason.
var reasonName = regexp.MustCompile(`^(reason|Reason)[A-Z]`)

// reasonsOf returns the reasons in the code of a package: constants with such names, values of fields Reason, and
// arguments for parameters with the name reason.
func reasonsOf(p *goPackage) map[string]bool {
	out := map[string]bool{}
	add := func(e ast.Expr) {
		if text, ok := p.text(e); ok && camel.MatchString(text) {
			out[text] = true
		}
	}
	for name, value := range p.values {
		if reasonName.MatchString(name) {
			add(value)
		}
	}
	takes := map[string]map[int]bool{"Add": {2: true}} // problem.List
	parameter := func(name string, t *ast.FuncType) {
		at := 0
		for _, f := range t.Params.List {
			for _, n := range f.Names {
				if n.Name == "reason" {
					if takes[name] == nil {
						takes[name] = map[int]bool{}
					}
					takes[name][at] = true
				}
				at++
			}
		}
	}
	p.inspect(func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			parameter(n.Name.Name, n.Type)
		case *ast.AssignStmt:
			for i, value := range n.Rhs {
				f, is := value.(*ast.FuncLit)
				if name, ok := n.Lhs[min(i, len(n.Lhs)-1)].(*ast.Ident); ok && is {
					parameter(name.Name, f.Type)
				}
			}
		case *ast.Field: // of an interface or a struct, or a parameter that is a function
			if f, ok := n.Type.(*ast.FuncType); ok && len(n.Names) == 1 {
				parameter(n.Names[0].Name, f)
			}
		}
		return true
	})
	p.inspect(func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			if name, ok := n.Key.(*ast.Ident); ok && strings.EqualFold(name.Name, "reason") {
				add(n.Value)
			}
		case *ast.AssignStmt:
			for i, left := range n.Lhs {
				s, ok := left.(*ast.SelectorExpr)
				name, isName := left.(*ast.Ident)
				if (ok && s.Sel.Name == "Reason" || isName && name.Name == "reason") && len(n.Rhs) == len(n.Lhs) {
					add(n.Rhs[i])
				}
			}
		case *ast.CallExpr:
			for at := range takes[called(n)] {
				if at < len(n.Args) {
					add(n.Args[at])
				}
			}
		case *ast.CompositeLit:
			for _, e := range rowsWithReason(n) {
				add(e)
			}
		}
		return true
	})
	return out
}
