// Package words is the list of words that comments, names, documents and messages avoid.
package words

import (
	"regexp"
	"strings"
	"unicode"
)

// word is an expression that comments and documents avoid, since readers who are in a hurry stumble over it.
type word struct {
	pattern *regexp.Regexp
	instead string
}

// words is the list of such expressions, with replacements. Machines report, send, receive and hold; a pronoun has its
// noun in the same sentence.
var words = []word{
	{regexp.MustCompile(`(?i)\bthose (that|of|which|who|whose)\b`), "name the things"},
	{regexp.MustCompile(`(?i)\b(is|are|as|than|with|by|in|on|for|from|to|of|and|or) that of\b`), "repeat the noun"},
	{regexp.MustCompile(`(?i)\bthe ones? (that|of|which|whose)\b`), "name the thing"},
	{regexp.MustCompile(`(?i)\b(no|some|any|every)body\b`), "name the reader, caller or program"},
	{regexp.MustCompile(`(?i)\bwhoever\b`), "name the reader, caller or program"},
	{
		regexp.MustCompile(`(?i)\b(says?|said) (whether|that|which|who|what|how|so|where|when|nothing|no|of)\b`),
		"report, show, state, mean, return",
	},
	{regexp.MustCompile(`(?i)\b(tells?|told|untold)\b`), "report, send, announce"},
	{regexp.MustCompile(`(?i)\b(hears?|heard)\b`), "receive"},
	{regexp.MustCompile(`(?i)\b(knows?|knew) of\b`), "hold, list, have read"},
	{regexp.MustCompile(`(?i)\bnone (is|are|has|have|of|that|which|does|do)\b`), "no and the noun"},
	{regexp.MustCompile(`(?i)\b(is|are|of|if|where|than|with|has|have|to|by|from) none\b`), "no and the noun"},
	{regexp.MustCompile(`(^|[.;:] +)What [^?]*$`), "name the thing"},
	{regexp.MustCompile(`(?i)\bbeside\b`), "in addition to, next to"},
	{regexp.MustCompile(`(?i)\banew\b`), "again"},
	{regexp.MustCompile(`(?i)\bof before\b`), "earlier, previous"},
	{regexp.MustCompile(`(?i)\bpatience\b`), "back-off, limit"},
	{regexp.MustCompile(`(?i)\bwish(es)?\b`), "desired state"},
}

// names are the words that declared names have instead of a technical term.
var names = map[string]string{
	"said": "reported", "says": "reports", "say": "report", "told": "reported", "tell": "report", "untold": "not reported",
	"hear": "receive", "heard": "received", "beside": "next", "anew": "again", "circle": "members", "deaf": "not reading",
	"lingers": "remains", "patience": "limit", "nobody": "no one", "wish": "desired",
}

// Bad returns the first expression of the list in a text, and what to write instead.
func Bad(text string) (found, instead string) {
	for _, w := range words {
		if m := w.pattern.FindString(text); m != "" {
			if m = strings.Trim(m, " .;:"); strings.HasPrefix(m, "What ") {
				m = "What"
			}
			return m, w.instead
		}
	}
	return "", ""
}

// BadName returns the first word of a declared name that is in the list, and what to write instead.
func BadName(name string) (found, instead string) {
	var word []rune
	for i, r := range name + "_" {
		if r == '_' || unicode.IsUpper(r) && i > 0 {
			if instead, bad := names[strings.ToLower(string(word))]; bad {
				return string(word), instead
			}
			word = nil
		}
		word = append(word, r)
	}
	return "", ""
}
