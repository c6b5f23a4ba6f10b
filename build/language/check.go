package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tombolo-net/tombolo/build/words"
)

// maxColumns is the most columns of a line. A tab is one.
const maxColumns = 120

// fault is one defect: a line that is too long, a word of the list, a page with too many lines, or a link that leads
// nowhere.
type fault struct {
	line int // from 1
	text string
}

var (
	generated = regexp.MustCompile(`(?m)^(//|<!--) Code generated .* DO NOT EDIT\.( -->)?$`)
	// address is an address without a place to break it.
	address = regexp.MustCompile(`https?://\S+`)
	// directive is a comment that a tool reads as one line: a marker of controller-gen, a directive of the go command.
	directive = regexp.MustCompile(`^\s*//( ?\+[a-z][\w:-]*(=|$)|go:[a-z]+ )`)
	// tag is the tag of a field: one literal, which package reflect reads as one line.
	tag = regexp.MustCompile("`(\\w+:\"[^\"`]*\" ?)+`$")
	// quoted matches text in a comment or document that its author quotes: code, names, messages.
	quoted = regexp.MustCompile("`[^`]*`" + `|"[^"]*"|\]\([^)]*\)`)
)

// check returns the faults of a file, at most one of each kind for a line. It skips generated files.
func check(path string, text []byte) ([]fault, error) {
	if generated.Match(text) {
		return nil, nil
	}
	var faults []fault
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		line = strings.TrimRight(line, "\r\n")
		if n := utf8.RuneCountInString(line); n > maxColumns && !longAddress(line) && !oneLine(path, line) {
			faults = append(faults, fault{number, fmt.Sprintf("%d columns, at most %d", n, maxColumns)})
		}
	}
	worded := map[int]bool{}
	add := func(line int, found, instead string) {
		if found != "" && !worded[line] {
			worded[line] = true
			text := fmt.Sprintf("%q is in the list of words; write instead: %s", found, instead)
			faults = append(faults, fault{line, text})
		}
	}
	if strings.HasSuffix(path, ".md") {
		checkMarkdown(string(text), add)
	} else if err := checkGo(path, text, add); err != nil {
		return nil, err
	}
	slices.SortStableFunc(faults, func(a, b fault) int { return a.line - b.line })
	return faults, nil
}

// longAddress reports whether only an address makes a line too long.
func longAddress(line string) bool {
	return utf8.RuneCountInString(address.ReplaceAllString(line, "")) <= maxColumns && address.MatchString(line)
}

// oneLine reports whether a line of a Go file is too long only because of what cannot be broken.
func oneLine(path, line string) bool {
	return strings.HasSuffix(path, ".go") && (directive.MatchString(line) ||
		utf8.RuneCountInString(tag.ReplaceAllString(line, "")) <= maxColumns && tag.MatchString(line))
}

func checkMarkdown(text string, add func(line int, found, instead string)) {
	number := 0
	inCode := false
	for line := range strings.Lines(text) {
		number++
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inCode = !inCode
			continue
		}
		if !inCode {
			found, instead := words.Bad(quoted.ReplaceAllString(strings.TrimSpace(line), ""))
			add(number, found, instead)
		}
	}
}

// checkGo checks comments, and names where they are declared.
func checkGo(path string, text []byte, add func(line int, found, instead string)) error {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, group := range file.Comments {
		for _, comment := range group.List {
			start := set.Position(comment.Pos()).Line
			for i, line := range strings.Split(comment.Text, "\n") {
				line = strings.TrimSpace(strings.TrimLeft(strings.TrimSuffix(line, "*/"), "/*"))
				found, instead := words.Bad(quoted.ReplaceAllString(line, ""))
				add(start+i, found, instead)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		for _, name := range declared(n) {
			found, instead := words.BadName(name.Name)
			add(set.Position(name.Pos()).Line, found, instead)
		}
		return true
	})
	return nil
}

// declared returns the names that a node declares.
func declared(n ast.Node) []*ast.Ident {
	switch n := n.(type) {
	case *ast.FuncDecl:
		return []*ast.Ident{n.Name}
	case *ast.TypeSpec:
		return []*ast.Ident{n.Name}
	case *ast.ValueSpec:
		return n.Names
	case *ast.Field:
		return n.Names
	case *ast.AssignStmt:
		if n.Tok == token.DEFINE {
			return identsOf(n.Lhs)
		}
	case *ast.RangeStmt:
		if n.Tok == token.DEFINE {
			return identsOf([]ast.Expr{n.Key, n.Value})
		}
	}
	return nil
}

func identsOf(list []ast.Expr) []*ast.Ident {
	var out []*ast.Ident
	for _, e := range list {
		if id, ok := e.(*ast.Ident); ok {
			out = append(out, id)
		}
	}
	return out
}
