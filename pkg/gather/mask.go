package gather

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// masked is in the place of a text that may be a secret.
const masked = "[masked]"

// rule masks one shape of secrets. Go's regular expressions take time that is linear in the text, whatever the text is.
type rule struct {
	// near lists texts, in lower case. The shape occurs only in a text that contains one of them. A search for them costs
	// less than a search for the shape.
	near  []string
	shape *regexp.Regexp
	with  string // the replacement, with the groups of the shape
}

// secretWords are the ends of names of secret values, such as names of flags, keys and headers. A short word counts
// only as a whole word.
const secretWords = `(?:(?:\b|_)(?:pass|pwd|psk|auth|sig)|password|passwd|passphrase|passcode|secret|token|` +
	`private[_-]?key|preshared[_-]?key|api[_-]?key|access[_-]?key(?:[_-]id)?|client[_-](?:key|certificate)[_-]data|` +
	`credentials?|authorization|signature|dockerconfigjson)`

// These are patterns of values: bare is a character of a value without quotation marks, inner is the text of a JSON
// string within a JSON string.
const (
	bare  = `(?:[^\s"'\\&]|\\[^nrt"'\\])`
	inner = `(?:[^"\\]|\\\\(?:\\"|\\\\|[^"\\])|\\[^"\\])*`
)

// rules mask shapes in the order of this list: a rule for a whole text comes before rules for its parts.
var rules = []rule{
	// PEM, also on one line with \n, and cut off at either end.
	{[]string{"-----begin"}, regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]+-----.*?-----END [A-Z0-9 ]+-----`), masked},
	{[]string{"-----begin"}, regexp.MustCompile(`-----BEGIN [A-Z0-9 ]+-----(?:\s|\\[nr]|[A-Za-z0-9+/]{16,}={0,2})*`),
		masked},
	{[]string{"-----end"}, regexp.MustCompile(
		`(?:[A-Za-z0-9+/]{16,}={0,2}(?:\s|\\[nr])*)*[A-Za-z0-9+/]*={0,2}(?:\s|\\[nr])*-----END [A-Z0-9 ]+-----`), masked},
	// JSON Web Tokens, with or without a signature.
	{[]string{"eyj"}, regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*){0,3}`), masked},
	// Passwords in URLs: a user may be empty, a password may have an @.
	{[]string{"://"}, regexp.MustCompile(`(://[^\s/:@"'<>]*):[^\s/"'<>]+@`), "${1}:" + masked + "@"},
	{[]string{"://"}, regexp.MustCompile(`(://)[A-Za-z0-9_-]{20,}@`), "${1}" + masked + "@"},
	// Headers.
	{[]string{"bearer"}, regexp.MustCompile(`(?i)\b(bearer(?:\s|%20|\+)+)[A-Za-z0-9._~+/=-]{8,}`), "${1}" + masked},
	{[]string{"authorization"}, regexp.MustCompile(`(?i)(authorization:\s*)[^\r\n"'\\]+`), "${1}" + masked},
	{[]string{"cookie:"}, regexp.MustCompile(`(?i)(cookie:\s*)[^\s=;"'\\]+=[^\r\n"'\\]+`), "${1}" + masked},
	{[]string{"basic"}, regexp.MustCompile(`(?i)\b(basic\s+)[A-Za-z0-9+/]{8,}={0,2}`), "${1}" + masked},
	// Keys with a known beginning, of clouds and forges.
	{[]string{"akia", "asia"}, regexp.MustCompile(`\b(?:AKIA|ASIA)[A-Z0-9]{16}`), masked},
	{[]string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_"}, regexp.MustCompile(`\bgh[pousr]_[A-Za-z0-9]{20,}`), masked},
	{[]string{"github_pat_"}, regexp.MustCompile(`\bgithub_pat_[A-Za-z0-9_]{20,}`), masked},
	{[]string{"glpat-"}, regexp.MustCompile(`\bglpat-[A-Za-z0-9_-]{16,}`), masked},
	{[]string{"xox"}, regexp.MustCompile(`\bxox[a-z]-[A-Za-z0-9-]{10,}`), masked},
	{[]string{"sk-"}, regexp.MustCompile(`\bsk-[A-Za-z0-9_-]{20,}`), masked},
	{[]string{"aiza"}, regexp.MustCompile(`\bAIza[A-Za-z0-9_-]{30,}`), masked},
}

// named masks values that have the name of a secret. A quoted value ends with its quotation mark, any other value with
// a blank.
var named = []rule{
	{[]string{`\"`}, regexp.MustCompile(`(?i)(` + secretWords + `\\"\s*:\s*)\\"` + inner + `\\"`),
		`${1}\"` + masked + `\"`},
	{[]string{`\"`}, regexp.MustCompile(`(?i)(` + secretWords + `\\+"\s*:\s*)(\\+)"[^"\\]*(?:\\+[^"\\]+)*\\*"?`),
		`${1}${2}"` + masked + `${2}"`},
	{[]string{`"`}, regexp.MustCompile(`(?i)(` + secretWords + `"?\s*[=:]\s*)(?:"(?:[^"\\]|\\.)*"|"[^"\n]*)`),
		`${1}"` + masked + `"`},
	{[]string{`'`}, regexp.MustCompile(`(?i)(` + secretWords + `'?\s*[=:]\s*)(?:'[^']*'|'[^'\n]*)`), `${1}'` + masked +
		`'`},
	{[]string{`"`}, regexp.MustCompile(`(?i)(` + secretWords + `\\*"\s*:\s*)-?[0-9][0-9.eE+-]*`), `${1}"` + masked + `"`},
	{[]string{"="}, regexp.MustCompile(`(?i)(` + secretWords + `\s*=\s*)` + bare + `+`), "${1}" + masked},
	{[]string{":"}, regexp.MustCompile(`(?i)(` + secretWords + `\s*:[ \t]*)` + bare + `{6,}`), "${1}" + masked},
	// Also a short value, if the name stands before no other word.
	{[]string{":"}, regexp.MustCompile(`(?i)((?:password|passwd|passphrase|secret)\s*:[ \t]*)` + bare + `+`),
		"${1}" + masked},
	{[]string{"-"}, regexp.MustCompile(`(?i)((?:^|[\s"'\[,(=])--?(?:[a-z0-9]+[-_.])*` + secretWords +
		`(?:["',\s]|\\n)+)[^\s"'\\,;&\[\]{}()<>-][^\s"'\\,;&\[\]{}()<>]*`), "${1}" + masked},
}

// words are in each text that a rule of named can match.
var words = []string{"pass", "pwd", "psk", "auth", "sig", "secret", "token", "key", "credential", "dockerconfigjson"}

var (
	// bootstrap is the end of a bootstrap token of Kubernetes. Its beginning is six letters.
	bootstrap = regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`)
	// hexadecimal is a digest or an ID. They are in many texts, and are no encoding of others.
	hexadecimal = regexp.MustCompile(`^(?:0x)?[0-9a-f_-]*$`)
	// secretName matches the name of a value that is secret.
	secretName = regexp.MustCompile(`(?i)` + secretWords + `$`)
	// standard is the standard alphabet of base64 for the letters of the other one.
	standard = strings.NewReplacer("-", "+", "_", "/")
	// breaks are the ends of lines in an encoding.
	breaks = strings.NewReplacer("\r", "", "\n", "", "\t", "", " ", "", `\r`, "", `\n`, "")
)

// depth is how many encodings within each other are looked into.
const depth = 4

// Mask returns a text without the parts that may be secrets: tokens, keys, PEM blocks, passwords, values with the name
// of a secret, and encodings of those by base64 and gzip. It may mask more than secrets, and never fails.
func Mask(text []byte) []byte { return mask(text, depth) }

// MaskText is Mask for a text.
func MaskText(text string) string { return string(mask([]byte(text), depth)) }

func mask(text []byte, depth int) []byte {
	lower := bytes.ToLower(text)
	for _, r := range rules {
		if r.possible(lower) {
			text = r.shape.ReplaceAll(text, []byte(r.with))
		}
	}
	return maskRuns(maskNamed(text), depth)
}

// maskNamed masks values with the name of a secret. The rules see only the parts of the text that have such a name,
// since most texts have few.
func maskNamed(text []byte) []byte {
	var out []byte
	all := parted{text: text}
	for part := all.next(); len(part) > 0; part = all.next() {
		lower := bytes.ToLower(part)
		if slices.ContainsFunc(words, func(w string) bool { return bytes.Contains(lower, []byte(w)) }) {
			part = part[:len(part)+len(all.next())] // a value may be on the next line
			lower = bytes.ToLower(part)
			for _, r := range named {
				if r.possible(lower) {
					part = r.shape.ReplaceAll(part, []byte(r.with))
				}
			}
		}
		if hasLongPart(part) {
			part = bootstrap.ReplaceAll(part, []byte(masked))
		}
		out = append(out, part...)
	}
	return out
}

// parted is a text that is read part by part. It examines each byte a fixed number of times, even if the whole text is
// one line.
type parted struct {
	text []byte
	line int // the rest of the line that text begins with
}

// next returns the next part of the text: a line, or one object of an answer that is written on one line. It is empty
// at the end.
func (p *parted) next() []byte {
	if p.line == 0 {
		p.line = len(p.text)
		if i := bytes.IndexByte(p.text, '\n'); i >= 0 {
			p.line = i + 1
		}
	}
	n := p.line
	if i := bytes.Index(p.text[:n], []byte("},{")); i >= 0 {
		n = i + 2
	}
	part := p.text[:n]
	p.text, p.line = p.text[n:], p.line-n
	return part
}

// hasLongPart reports whether a text has a dot with 16 letters behind it.
func hasLongPart(text []byte) bool {
	for i := bytes.IndexByte(text, '.'); i >= 0 && len(text)-i > 16; {
		if !slices.ContainsFunc(text[i+1:i+17], func(c byte) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') }) {
			return true
		}
		next := bytes.IndexByte(text[i+1:], '.')
		if next < 0 {
			break
		}
		i += 1 + next
	}
	return false
}

// maskRuns masks runs of base64 characters that are a key or contain a secret. A run may use either alphabet and span
// lines. It also masks long words of such characters, such as a PEM block without its first and last line.
func maskRuns(text []byte, depth int) []byte {
	const short, whole = 16, 60
	var out []byte
	for i := 0; i < len(text); {
		n := letters(text[i:])
		if n < short {
			n = max(n, 1)
			out = append(out, text[i:i+n]...)
			i += n
			continue
		}
		begin, stop := i, i+n
		for last := n; last >= whole; { // the next line of a text in lines
			skipped := breakAt(text[stop:])
			last = letters(text[stop+skipped:])
			after := stop + skipped + last
			if skipped == 0 || last == 0 || after < len(text) && !bytes.ContainsRune([]byte("\r\n\\\""), rune(text[after])) {
				break
			}
			stop += skipped + last
		}
		i = stop
		r := text[begin:stop]
		// Behind a blank as well: lines of logs begin with their time.
		alone := n >= whole && (begin == 0 || unicode.IsSpace(rune(text[begin-1]))) &&
			(stop == len(text) || unicode.IsSpace(rune(text[stop])))
		if alone && mixed(string(r)) || bytes.ContainsFunc(r, unicode.IsUpper) && secretRun(string(r), depth) {
			r = []byte(masked)
		}
		out = append(out, r...)
	}
	return out
}

// isLetter has the letters of both alphabets of base64.
var isLetter = func() (is [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_") {
		is[c] = true
	}
	return is
}()

// letters returns how many letters of base64 a text begins with, with their padding.
func letters(text []byte) int {
	n := 0
	for n < len(text) && isLetter[text[n]] {
		n++
	}
	for pad := 0; n > 0 && n < len(text) && text[n] == '=' && pad < 2; pad++ {
		n++
	}
	return n
}

// breakAt returns the length of the line break at the beginning of a text, with the indent of the next line. It is 0 if
// the text does not begin with one.
func breakAt(text []byte) int {
	for _, br := range []string{"\n", "\r\n", `\n`, `\r\n`} {
		if bytes.HasPrefix(text, []byte(br)) {
			rest := text[len(br):]
			return len(br) + len(rest) - len(bytes.TrimLeft(rest, " \t"))
		}
	}
	return 0
}

func (r rule) possible(lower []byte) bool {
	for _, word := range r.near {
		if bytes.Contains(lower, []byte(word)) {
			return true
		}
	}
	return r.near == nil
}

// longest is the length of the longest run that is decoded. A longer run is masked unless it is hexadecimal.
const longest = 1 << 20

// secretRun reports whether a run of base64's letters is a key or the encoding of a secret.
func secretRun(r string, depth int) bool {
	r = breaks.Replace(r)
	bare := strings.TrimRight(r, "=")
	switch {
	case hexadecimal.MatchString(bare):
		return false
	case len(bare) > longest, depth == 0 && mixed(bare):
		return true
	case len(bare) > 43 && bare[:2] == "MI" && mixed(bare[:40]):
		return true // DER: a key or a certificate
	case len(bare) >= 43 && r == bare+"=" && (len(bare) == 43 || strings.Contains("/+-_",
		bare[len(bare)-44:len(bare)-43])):
		return true // 32 bytes, as of WireGuard's keys
	}
	// Without padding a name may be as long as 32 bytes are. A key has letters of all kinds.
	for _, part := range append(strings.Split(bare, "/"), bare) {
		if len(part) == 43 && mixed(part) {
			return true
		}
	}
	bare = standard.Replace(bare)
	// Letters before an encoding, such as of a path, shift it.
	for shift := range min(4, len(bare)) {
		part := bare[shift:]
		if len(part)%4 == 1 {
			part = part[:len(part)-1]
		}
		if inside, err := base64.RawStdEncoding.DecodeString(part); err == nil && secretInside(inside, depth-1) {
			return true
		}
	}
	return false
}

// secretInside reports whether a decoded text is compressed or has a secret. Texts of Tombolo have no compressed parts,
// and they could not be searched for secrets.
func secretInside(inside []byte, depth int) bool {
	if bytes.Contains(inside, []byte("\x1f\x8b\x08")) || bytes.HasPrefix(inside, []byte("\x78\x9c")) ||
		bytes.HasPrefix(inside, []byte("\x28\xb5\x2f\xfd")) {
		return true
	}
	for _, text := range bytes.FieldsFunc(inside, func(c rune) bool {
		return c > 0x7e || c < 0x20 &&
			!unicode.IsSpace(c)
	}) {
		if len(text) >= 8 && !bytes.Equal(mask(text, depth), text) {
			return true
		}
	}
	return false
}

// mixed reports whether a text has capital and small letters, and digits.
func mixed(text string) bool {
	return strings.ContainsAny(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") && strings.ContainsAny(text,
		"abcdefghijklmnopqrstuvwxyz") &&
		strings.ContainsAny(text, "0123456789")
}

// maskValue masks the strings of a decoded object. It masks the whole value of a field that has the name of a secret.
func maskValue(v any) any {
	switch v := v.(type) {
	case string:
		return MaskText(v)
	case []any:
		for i := range v {
			// An argument may be the value of the flag before it.
			if flag, ok := v[max(0, i-1)].(string); i > 0 && ok && strings.HasPrefix(flag, "-") &&
				secretName.MatchString(flag) {
				v[i] = masked
				continue
			}
			v[i] = maskValue(v[i])
		}
	case map[string]any:
		for key, value := range v {
			if text, ok := value.(string); ok && text != "" && secretName.MatchString(key) {
				v[key] = masked
				continue
			}
			v[key] = maskValue(value)
		}
	}
	return v
}

// maskJSON masks an answer and leaves it an answer.
func maskJSON(text []byte) []byte {
	if out := Mask(text); json.Valid(out) {
		return out
	}
	var v any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&v); err != nil {
		return Mask(text)
	}
	out, err := json.Marshal(maskValue(v))
	if err != nil {
		return []byte(`"` + masked + `"`)
	}
	return out
}
