package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	agent "github.com/tombolo-net/tombolo/cmd/tombolo-agent/flags"
	controller "github.com/tombolo-net/tombolo/cmd/tombolo-controller/flags"
	tombolo "github.com/tombolo-net/tombolo/cmd/tombolo/program"
	"github.com/tombolo-net/tombolo/pkg/cli/multicluster"
	"github.com/tombolo-net/tombolo/pkg/gates"
)

// snippet is a block of code in a document, or a code span of a text.
type snippet struct {
	page     string
	line     int
	language string // of a block; empty without one
	span     bool
	text     string
}

func (s snippet) String() string { return fmt.Sprintf("%s:%d", s.page, s.line) }

// span is code in a text; it may go over lines.
var span = regexp.MustCompile("`([^`]+)`")

// snippetsOf returns the code of a document.
func snippetsOf(page, text string) (list []snippet) {
	var prose strings.Builder // as many lines as the document has, without its blocks
	var block *snippet
	for i, line := range strings.Split(text, "\n") {
		fence, is := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case is && block == nil:
			block = &snippet{page: page, line: i + 2, language: fence}
		case is:
			list = append(list, *block)
			block = nil
		case block != nil:
			block.text += line + "\n"
		case strings.HasPrefix(line, "    "):
			list = append(list, snippet{page: page, line: i + 1, text: line + "\n"})
		default:
			prose.WriteString(line)
			if strings.TrimSpace(line) == "" {
				prose.WriteString("`") // a paragraph ends code that is not closed
				prose.WriteString("`")
			}
		}
		prose.WriteString("\n")
	}
	plain := strings.ReplaceAll(prose.String(), "``", "")
	for _, m := range span.FindAllStringSubmatchIndex(plain, -1) {
		list = append(list, snippet{page: page, line: 1 + strings.Count(plain[:m[0]], "\n"), span: true,
			text: strings.Join(strings.Fields(plain[m[2]:m[3]]), " ")})
	}
	return list
}

// snippets returns the code of all documents.
func snippets(t *testing.T) (list []snippet) {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for page := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, page))
		if os.IsNotExist(err) { // deleted, and not committed yet
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, snippetsOf(page, string(text))...)
	}
	return list
}

// commandsOf returns the commands of a snippet as their words.
func (s snippet) commandsOf() (list [][]string) {
	if s.language != "" && s.language != "sh" {
		return nil
	}
	for line := range strings.Lines(strings.ReplaceAll(s.text, "\\\n", " ")) {
		var words []string
		end := func() {
			if len(words) > 0 {
				list = append(list, words)
			}
			words = nil
		}
		for _, w := range shellWords(line) {
			if w.ends {
				end()
			} else {
				words = append(words, w.text)
			}
		}
		end()
	}
	return list
}

// word is a word of a command, or what ends one.
type word struct {
	text string
	ends bool
}

// shellWords splits a line as a shell does, up to a comment. Commands within quotes stay parts of their word.
func shellWords(line string) (list []word) {
	var text strings.Builder
	begun, quote := false, rune(0)
	flush := func() {
		if begun {
			list = append(list, word{text: text.String()})
		}
		text.Reset()
		begun = false
	}
	for _, c := range line {
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			text.WriteRune(c)
		case c == '\'' || c == '"':
			quote, begun = c, true
		case c == '#' && !begun:
			return list
		case strings.ContainsRune(" \t\n", c):
			flush()
		case strings.ContainsRune("|;&<>()", c):
			flush()
			list = append(list, word{ends: true})
		default:
			text.WriteRune(c)
			begun = true
		}
	}
	flush()
	return list
}

// programs are the programs with documented commands.
var programs = map[string]func() *cobra.Command{
	"tombolo":            func() *cobra.Command { return tombolo.Command("tombolo") },
	"antctl":             func() *cobra.Command { return tombolo.Command("antctl") },
	"tombolo-agent":      func() *cobra.Command { return agent.Command(agent.Run{}) },
	"tombolo-controller": func() *cobra.Command { return controller.Command(controller.Run{}) },
}

// before are words that a command may follow.
var before = []string{"--", "sudo", "time", "watch", "if", "until", "while", "do", "then", "!", "$"}

// program returns the program that a command runs, and its words.
func program(words []string) (*cobra.Command, []string) {
	for i, w := range words {
		if i > 0 && !slices.Contains(before, words[i-1]) && !strings.HasSuffix(words[i-1], "=$") &&
			(i != 1 || !strings.Contains(words[i-1], "=")) {
			continue
		}
		if w == "kubectl" && i+1 < len(words) && words[i+1] == "tombolo" {
			return tombolo.Command("kubectl-tombolo"), words[i+2:]
		}
		if of := programs[filepath.Base(w)]; of != nil {
			return of(), words[i+1:]
		}
	}
	return nil, nil
}

// placeholder is a word in place of a reader's own.
var placeholder = regexp.MustCompile(`^(\.\.\.|…|[A-Z][A-Z0-9_/-]*(\.\.\.)?)$|[<\[{]|=[A-Z]+$`)

// fault returns the fault of a command's words, or "". Whole is false for a mention, which may lack words.
func fault(program *cobra.Command, words []string, whole bool) string {
	program.InitDefaultHelpCmd()
	program.InitDefaultCompletionCmd(words...)
	program.InitDefaultVersionFlag()
	open := false // whether some words are placeholders
	for i, w := range words {
		if w == "..." || strings.HasPrefix(w, "[") {
			open, words = true, words[:i]
			break
		}
		if placeholder.MatchString(w) {
			open = true
		}
	}
	if len(words) == 0 || open && placeholder.MatchString(words[0]) {
		return ""
	}
	words = multicluster.Arguments(program, words)
	c, rest, err := program.Find(words)
	if err != nil {
		return err.Error()
	}
	c.InitDefaultHelpFlag()
	var notes bytes.Buffer // about flags of earlier builds
	c.Flags().SetOutput(&notes)
	if err := c.ParseFlags(rest); err != nil {
		if open && strings.Contains(err.Error(), "invalid argument") {
			return ""
		}
		if !whole && strings.Contains(err.Error(), "needs an argument") {
			return ""
		}
		return err.Error()
	}
	if notes.Len() > 0 {
		return strings.TrimSpace(notes.String())
	}
	args := c.Flags().Args()
	if c.HasSubCommands() && len(args) > 0 && !placeholder.MatchString(args[0]) {
		return fmt.Sprintf("%s has no command %s", c.CommandPath(), args[0])
	}
	help, _ := c.Flags().GetBool("help")
	if !whole || open || help || c.HasSubCommands() || c.Args == nil || program.Flags().Changed("version") {
		return ""
	}
	if err := c.Args(c, args); err != nil {
		return err.Error()
	}
	return ""
}

// TestDocumentedCommands parses each command line of the documents with the programs' own commands: its commands, flags
// and their values, and the number of words. A target of make has to be in the Makefile.
func TestDocumentedCommands(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, s := range snippets(t) {
		for _, words := range s.commandsOf() {
			if words[0] == "make" && s.page != "test/bench/README.md" {
				for _, target := range words[1:] {
					if strings.HasPrefix(target, "-") || strings.Contains(target, "=") || placeholder.MatchString(target) {
						continue
					}
					found["make"]++
					if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(target) + `:`).Match(makefile) {
						t.Errorf("%s: make %s: the Makefile has no such target", s, target)
					}
				}
			}
			program, words := program(words)
			if program == nil {
				continue
			}
			found[program.Name()]++
			if f := fault(program, words, !s.span); f != "" {
				t.Errorf("%s: %s %s: %s", s, program.Name(), strings.Join(words, " "), f)
			}
		}
	}
	t.Logf("commands: %v", found)
	for name, least := range map[string]int{"tombolo": 300, "antctl": 20, "make": 60, "kubectl-tombolo": 1} {
		if found[name] < least {
			t.Errorf("the documents have %d commands of %s, want %d: they are not found", found[name], name, least)
		}
	}
}

// TestCommandFaults finds each kind of fault.
func TestCommandFaults(t *testing.T) {
	for _, row := range []struct{ text, want string }{
		{"tombolo get flows --owner Policy # all", ""},
		{"kubectl exec -n kube-system $pod -c tombolo-agent -- tombolo get status", ""},
		{"helm test tombolo -n kube-system", ""},
		{"kubectl tombolo status --context east", ""},
		{"tombolo mc get clusterset ...", ""},
		{"tombolo --context leader mc get clusterset", ""},
		{"source <(tombolo completion bash)", ""},
		{"tombolo COMMAND --help", ""},
		{"tombolo --version", ""},
		{"tombolo diagnose --timeout TIME", ""},
		{"tombolo gett flows", `unknown command "gett"`},
		{"tombolo mc verify a b --unknown", "unknown flag: --unknown"},
		{"KUBECONFIG=x tombolo get pots", "tombolo get has no command pots"},
		{"x=$(tombolo gather --since soon)", "invalid argument"},
		{"tombolo openflow dump", "TARGET"},
		{"tombolo observe --node NODE -f", "Flag shorthand -f has been deprecated"},
		{"antctl mc verify", "antctl mc has no command verify"},
		{"a | tombolo-controller polici", "unknown command"},
	} {
		s := snippet{text: row.text + "\n"}
		have := "no command"
		for _, words := range s.commandsOf() {
			if p, words := program(words); p != nil {
				have = fault(p, words, true)
			} else if have == "no command" && strings.HasPrefix(row.text, "helm") {
				have = ""
			}
		}
		if have != row.want && (row.want == "" || !strings.Contains(have, row.want)) {
			t.Errorf("%s: fault %q, want %q", row.text, have, row.want)
		}
	}
}

// cellOf is the first cell of a row of the reference.
var cellOf = regexp.MustCompile("(?m)^\\| `([^`]+)`(?: \\\\\\*)? \\| ([^|]*)\\|")

// keySet are the keys of a page of the reference, with their types.
type keySet map[string]string

func keysOf(t *testing.T, name string) keySet {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, pagesDir, name+".md"))
	if err != nil {
		t.Fatal(err)
	}
	set := keySet{}
	for _, m := range cellOf.FindAllStringSubmatch(string(text), -1) {
		set[m[1]] = strings.TrimSpace(m[2])
	}
	for _, m := range regexp.MustCompile("Older name: `([^`]+)`").FindAllStringSubmatch(string(text), -1) {
		set[m[1]] = ""
	}
	return set
}

// has reports whether a path is a key, has keys below it, or is below a map.
func (k keySet) has(path string) bool {
	for key, kind := range k {
		key = strings.ReplaceAll(key, "[]", "")
		if key == path || strings.HasPrefix(key, path+".") || strings.HasPrefix(path, key+".") && kind == "map" {
			return true
		}
	}
	return false
}

// leaves returns the paths of a YAML value, and their values.
func leaves(path string, value any, out map[string]any) {
	fields, ok := value.(map[string]any)
	if !ok {
		out[path] = value
		return
	}
	for name, v := range fields {
		leaves(strings.TrimPrefix(path+"."+name, "."), v, out)
	}
}

var (
	// setting is a key of a configuration in a text, or one with its value.
	setting = regexp.MustCompile(`^([a-z][A-Za-z0-9]*(?:\.[a-z][A-Za-z0-9]*)*)(?:: *(.*))?$`)
	// identifier is a name as keys and fields have it.
	identifier = regexp.MustCompile(`^[a-z]+[A-Z][A-Za-z0-9]*$`)
	anyWord    = regexp.MustCompile(`[A-Za-z][A-Za-z0-9]*`)
	// otherName is a name of a file or a domain, which has the form of a key.
	otherName = regexp.MustCompile(`\.(go|io|json|md|net|yaml|yml)$`)
)

// notOurs are keys of others in the documents, and values that are refused.
var notOurs = []string{
	"scrape_configs",                            // Prometheus
	"status.storedVersions",                     // Kubernetes
	"apiCABundle", "logVerbosity", "agentImage", // Antrea
	"trafficEncapMode: networkPolicyOnly",             // Antrea's, as the next ones
	"trafficEncryptionMode: ipsec", "tunnelType: stt", //
}

// TestDocumentedKeys compares configuration in the documents with the code: keys in YAML, values that Helm sets, and
// keys in texts. A name in the form of a key has to be a word of the code at least.
func TestDocumentedKeys(t *testing.T) {
	charts, config := keysOf(t, "charts"), keysOf(t, "agent")
	fields := keysOf(t, "kinds")
	for key, kind := range keysOf(t, "controller") {
		config[key] = kind
	}
	for key, kind := range charts {
		config[key] = kind
	}
	for _, gate := range gates.Names() {
		config["featureGates."+gate] = ""
	}
	suffixes := map[string]bool{} // of fields' paths
	for path := range fields {
		parts := strings.Split(strings.NewReplacer("[]", "", "{}", "").Replace(path), ".")
		for i := range parts {
			for j := i + 1; j <= len(parts); j++ {
				suffixes[strings.Join(parts[i:j], ".")] = true
			}
		}
	}
	first := map[string]bool{} // of keys with others below them
	for key := range config {
		if name, _, below := strings.Cut(key, "."); below {
			first[name] = true
		}
	}
	code := codeWords(t)
	n := map[string]int{}
	for _, s := range snippets(t) {
		if strings.HasPrefix(s.page, pagesDir) {
			continue
		}
		for _, words := range s.commandsOf() {
			for i, w := range words {
				if i == 0 || words[i-1] != "--set" && words[i-1] != "--set-string" {
					continue
				}
				for part := range strings.SplitSeq(w, ",") {
					key, _, is := strings.Cut(part, "=")
					if !is || strings.HasPrefix(key, "$") {
						continue
					}
					if n["set"]++; !charts.has(key) {
						t.Errorf("%s: --set %s: no chart has this value", s, key)
					}
				}
			}
		}
		switch {
		case s.language == "yaml":
			var value map[string]any
			if err := yaml.Unmarshal([]byte(s.text), &value); err != nil || value["apiVersion"] != nil || value["kind"] != nil {
				continue // several objects, or one
			}
			paths := map[string]any{}
			leaves("", value, paths)
			for path := range paths {
				if n["yaml"]++; !config.has(path) && !suffixes[path] && !slices.Contains(notOurs, path) {
					t.Errorf("%s: no configuration and no chart has the key %s", s, path)
				}
			}
		case s.span:
			m := setting.FindStringSubmatch(s.text)
			if m == nil || slices.Contains(notOurs, s.text) || otherName.MatchString(s.text) {
				continue
			}
			path, value := m[1], strings.Trim(m[2], `"`)
			name, _, below := strings.Cut(path, ".")
			last := path[strings.LastIndex(path, ".")+1:]
			switch kind, is := config[path]; {
			case is && value != "" && strings.Contains(kind, ": `"):
				if n["value"]++; !strings.Contains(kind, "`"+value+"`") && !placeholder.MatchString(value) {
					t.Errorf("%s: %s: %s: the values are %s", s, path, value, kind)
				}
			case is || config.has(path) || suffixes[path]:
				n["key"]++
			case below && first[name]:
				t.Errorf("%s: no configuration and no kind has %s", s, path)
			case identifier.MatchString(last):
				if n["word"]++; !code[strings.ToLower(last)] {
					t.Errorf("%s: %s is no word of the code", s, path)
				}
			}
		}
	}
	t.Logf("keys: %v", n)
	for what, least := range map[string]int{"set": 8, "yaml": 5, "value": 10, "key": 200, "word": 100} {
		if n[what] < least {
			t.Errorf("the documents have %d of %s, want %d: they are not found", n[what], what, least)
		}
	}
}

// codeWords returns the words of all files that are no documents, in lower case.
func codeWords(t *testing.T) map[string]bool {
	t.Helper()
	cmd := exec.Command("git", "ls-files", "-z", "*.go", "*.yaml", "*.yml", "*.tpl", "*.json", "*.ts", "*.mjs", "*.sh",
		"Makefile", "build/*")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	words := map[string]bool{}
	for path := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil || strings.HasSuffix(path, ".md") || bytes.IndexByte(text, 0) >= 0 ||
			path == "build/reference/documents_test.go" {
			continue
		}
		for _, w := range anyWord.FindAll(text, -1) {
			words[strings.ToLower(string(w))] = true
		}
	}
	return words
}
