// Package comments reads the comments of Go declarations, for references that are made of them.
package comments

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Files parses the Go files of a directory that are not tests. It returns them by name.
func Files(dir string) (*token.FileSet, map[string]*ast.File, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	set, files := token.NewFileSet(), map[string]*ast.File{}
	for _, e := range entries {
		if e.IsDir() || !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		const mode = parser.ParseComments | parser.SkipObjectResolution
		file, err := parser.ParseFile(set, filepath.Join(dir, e.Name()), nil, mode)
		if err != nil {
			return nil, nil, err
		}
		files[e.Name()] = file
	}
	return set, files, nil
}

// Fields returns the comments of the fields of all struct types in a directory. A key is the type's name and the
// field's, with the names of structs without a name between them.
func Fields(dir string) (map[string]string, error) {
	_, files, err := Files(dir)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok {
					fields(spec.Name.Name, s, out)
				}
			}
			return true
		})
	}
	return out, nil
}

func fields(of string, s *ast.StructType, out map[string]string) {
	for _, f := range s.Fields.List {
		for _, name := range f.Names {
			path := of + "." + name.Name
			out[path] = Text(f.Doc)
			if below, ok := f.Type.(*ast.StructType); ok {
				fields(path, below, out)
			}
		}
	}
}

// Text returns a comment as one line, without markers of tools.
func Text(group *ast.CommentGroup) string {
	var words []string
	for line := range strings.Lines(group.Text()) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "+") {
			words = append(words, strings.Fields(line)...)
		}
	}
	return strings.Join(words, " ")
}

// About returns the comment of a declaration as text for a reference, which has the name in another column: without the
// name and the verb behind it. A name that is a part of the sentence, as in "Name of the object", stays.
func About(comment, name string) string {
	rest := strings.TrimLeft(comment, " ")
	if len(rest) <= len(name) || !strings.EqualFold(rest[:len(name)], name) || rest[len(name)] != ' ' {
		return Sentence(comment)
	}
	rest = rest[len(name)+1:]
	if first, _, _ := strings.Cut(rest, " "); slices.Contains([]string{"of", "in", "for", "at", "from"}, first) {
		return Sentence(comment)
	}
	for _, verb := range []string{"is ", "are "} {
		rest = strings.TrimPrefix(rest, verb)
	}
	return Sentence(rest)
}

// Sentence begins with a capital letter, and ends with a full stop.
func Sentence(text string) string {
	if text == "" {
		return ""
	}
	first, size := utf8.DecodeRuneInString(text)
	text = string(unicode.ToUpper(first)) + text[size:]
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}
