package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"strings"
	"testing"

	"github.com/tombolo-net/tombolo/build/words"
)

// message is a message with a reason. Its values are parameters.
type message struct {
	reason, text string
	at           token.Pos
}

// longestMessage is the most characters of a message without its values.
const longestMessage = 320

// remedy finds an instruction in a message: an imperative at the start of a part.
var remedy = regexp.MustCompile(`(^|[:;,.] |\b(or|and|then|else) )(` +
	`accept|add|agree|allow|annotate|apply|capture|change|check|choose|correct|create|delete|deny|expected|fetch|give|` +
	`install|label|leave|let|list|lower|make|name|narrow|raise|recreate|remove|rename|repair|report|restart|run|see|` +
	`select|set|start|turn|use|wait|write)\b`)

// value ends a message whose remedy comes with the value, such as an error.
var value = regexp.MustCompile(`%[svw]\)?$|^%[svw];`)

// infoReasons returns the variables of reasons with level Info.
func infoReasons(all []*goPackage) map[string]bool {
	out := map[string]bool{}
	for _, p := range all {
		for name, e := range p.values {
			if c, ok := e.(*ast.CallExpr); ok && called(c) == "New" && len(c.Args) == 1 {
				if row, ok := c.Args[0].(*ast.CompositeLit); ok {
					level, ok := fieldsOf(row)["Level"].(*ast.SelectorExpr)
					out[name] = out[name] || ok && level.Sel.Name == "Info"
				}
			}
		}
	}
	return out
}

// TestMessages holds that messages are short, name the remedy, and avoid the words that documents avoid.
func TestMessages(t *testing.T) {
	all, err := packages(root)
	if err != nil {
		t.Fatal(err)
	}
	n, info := 0, infoReasons(all)
	for _, p := range all {
		for _, m := range messages(p) {
			n++
			if len(m.text) > longestMessage {
				t.Errorf("%s: %s: the message has %d characters, at most %d: %s", p.dir, m.reason, len(m.text), longestMessage,
					m.text)
			}
			if !info[m.reason] && !remedy.MatchString(m.text) && !value.MatchString(m.text) {
				t.Errorf("%s: %s: the message has no remedy: %s", p.dir, m.reason, m.text)
			}
			if found, instead := words.Bad(m.text); found != "" {
				t.Errorf("%s: %s: the message has %q, write instead: %s: %s", p.dir, m.reason, found, instead, m.text)
			}
			if strings.ContainsAny(m.text, "\n\t") || strings.Contains(m.text, "  ") {
				t.Errorf("%s: %s: the message has breaks: %q", p.dir, m.reason, m.text)
			}
		}
	}
	if n < 100 {
		t.Errorf("%d messages are found: their form has changed", n)
	}
}

var reasonVariable = regexp.MustCompile(`^[rR]eason[A-Z]`)

// messages returns the messages in the code of a package: the argument after a reason, and the field Message next to a
// field Reason.
func messages(p *goPackage) (out []message) {
	variable := func(e ast.Expr) string {
		name, ok := e.(*ast.Ident)
		if s, is := e.(*ast.SelectorExpr); is {
			name, ok = s.Sel, true
		}
		if !ok || !reasonVariable.MatchString(name.Name) {
			return ""
		}
		return name.Name
	}
	add := func(reason string, e ast.Expr) {
		if text := p.template(e); strings.Contains(strings.TrimSpace(text), " ") {
			out = append(out, message{reason, text, e.Pos()})
		}
	}
	p.inspect(func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			for i, a := range n.Args[:max(0, len(n.Args)-1)] {
				if reason := variable(a); reason != "" {
					add(reason, n.Args[i+1])
				}
			}
		case *ast.CompositeLit:
			fields := fieldsOf(n)
			if reason := fields["Reason"]; reason != nil && fields["Message"] != nil && variable(reason) != "" {
				add(variable(reason), fields["Message"])
			}
		}
		return true
	})
	return out
}

// template returns the text of a message. A value is "%s".
func (p *goPackage) template(e ast.Expr) string {
	if text, ok := p.text(e); ok {
		return text
	}
	switch e := e.(type) {
	case *ast.BinaryExpr:
		return p.template(e.X) + p.template(e.Y)
	case *ast.ParenExpr:
		return p.template(e.X)
	case *ast.CallExpr:
		if called(e) == "Sprintf" {
			return p.template(e.Args[0])
		}
	}
	return "%s"
}

// TestTemplate reads messages in each form of code.
func TestTemplate(t *testing.T) {
	p := parseText(t, `package p

const remedy = ": correct it"

func f(l list, name string) {
	report("spec", reasonOne, "%d is wrong"+remedy, 7)
	l.Add("object", "spec", other.ReasonTwo, "it is "+name+remedy)
	_ = problem{Reason: reasonThree, Message: fmt.Sprintf("%s is"+remedy, name)}
	report("spec", reason, "it has no reason")
}
`)
	have := ""
	for _, m := range messages(p) {
		have += fmt.Sprintf("%s: %s\n", m.reason, m.text)
	}
	const want = "reasonOne: %d is wrong: correct it\nReasonTwo: it is %s: correct it\nreasonThree: %s is: correct it\n"
	if have != want {
		t.Errorf("%s, want %s", have, want)
	}
}
