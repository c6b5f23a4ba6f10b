package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"
)

// comments returns the comments of the keys that the type Config of a package declares, by the keys' paths. A field
// has its key in the tag key or json.
func comments(directory string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(directory, "*.go"))
	if err != nil {
		return nil, err
	}
	types := map[string]*ast.StructType{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for n := range ast.Preorder(parsed) {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok {
					types[spec.Name.Name] = s
				}
			}
		}
	}
	if types["Config"] == nil {
		return nil, fmt.Errorf("%s has no type Config", directory)
	}
	found := map[string]string{}
	commentsOf("", types["Config"], types, found)
	return found, nil
}

// commentsOf adds the comments of a struct's fields, whose keys are below a path.
func commentsOf(path string, s *ast.StructType, types map[string]*ast.StructType, found map[string]string) {
	for _, f := range s.Fields.List {
		if f.Tag == nil || len(f.Names) != 1 {
			continue
		}
		tag := reflect.StructTag(strings.Trim(f.Tag.Value, "`"))
		key, _, _ := strings.Cut(tag.Get("json"), ",")
		if name := tag.Get("key"); name != "" {
			key = name
		}
		text := f.Doc.Text()
		if text == "" {
			text = f.Comment.Text()
		}
		text = sentence(f.Names[0].Name, key, text)
		found[path+key] = text
		if alias := tag.Get("alias"); alias != "" {
			found[path+alias] = "old name of " + key
		}
		switch t := f.Type.(type) {
		case *ast.StructType:
			commentsOf(path+key+".", t, types, found)
		case *ast.Ident:
			if below := types[t.Name]; below != nil {
				commentsOf(path+key+".", below, types, found)
			}
		}
	}
}

// sentence returns a field's comment in one line. A comment that begins with the field's name begins with its key then.
func sentence(field, key, comment string) string {
	text := strings.Join(strings.Fields(comment), " ")
	if rest, ok := strings.CutPrefix(text, field); ok {
		if r, _ := utf8.DecodeRuneInString(rest); !unicode.IsLetter(r) {
			return key + rest
		}
	}
	return text
}
