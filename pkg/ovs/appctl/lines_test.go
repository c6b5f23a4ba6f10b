package appctl

import (
	"bufio"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReadLines(t *testing.T) {
	long := strings.Repeat("x", lineMax+1)
	for _, row := range []struct {
		reply   string
		lines   []string
		refused string
		err     string // "" for none
	}{
		{reply: `{"id":1,"result":"a\nb\n","error":null}`, lines: []string{"a", "b"}},
		{reply: ` { "error" : null , "result" : "a\n\nno newline" , "id" : 1 } `, lines: []string{"a", "", "no newline"}},
		{reply: `{"result":"","error":null,"id":1}`},
		{reply: `{"result":"\"\\\/\t\u00e9ü\ud83d\ude00\ud83dx","error":null,"id":1}`, lines: []string{"\"\\/\té" + "ü😀�x"}},
		{reply: `{"result":null,"error":"unknown command\n","id":1}`, refused: "unknown command\n"},
		{reply: `{"result":null,"error":null,"id":1}`, err: "neither result nor error"},
		{reply: `{}`, err: "neither result nor error"},
		{reply: `{"result":"a\nb`, lines: []string{"a"}, err: "unexpected EOF"},
		{reply: `{"result":"a\`, err: "unexpected EOF"},
		{reply: `{"result":"\u12`, err: "unexpected EOF"},
		{reply: `{"result":"\x"}`, err: "no escape"},
		{reply: `{"result":"\uzzzz"}`, err: "no escape"},
		{reply: `{"result":"a"`, lines: []string{"a"}, err: "unexpected EOF"},
		{reply: `{"result":"a",}`, lines: []string{"a"}, err: "member's name"},
		{reply: `{"result":"a" "id":1}`, lines: []string{"a"}, err: "comma"},
		{reply: `{"result" "a"}`, err: "':'"},
		{reply: `{"result":["a"]}`, err: "want a string"},
		{reply: `{1:2}`, err: "member's name"},
		{reply: `[]`, err: "'{'"},
		{reply: ``, err: "unexpected EOF"},
		{reply: `{"result":"` + long + `"}`, err: "longer"},
		{reply: `{"` + long, err: "longer"},
		{reply: `{"id":` + strings.Repeat("1", 100), err: "member \"id\""},
	} {
		for name, reader := range map[string]*bufio.Reader{
			"at once":      bufio.NewReaderSize(strings.NewReader(row.reply), 1<<16),
			"byte by byte": bufio.NewReaderSize(iotest.OneByteReader(strings.NewReader(row.reply)), 16),
		} {
			var lines []string
			refused, err := readLines(reader, func(line string) { lines = append(lines, line) })
			failed := (err == nil) != (row.err == "") || !strings.Contains(fmt.Sprint(err), row.err)
			if failed || !slices.Equal(lines, row.lines) || refused != row.refused {
				t.Errorf("%s, %.60s: lines %.200q, refused %q, error %v", name, row.reply, lines, refused, err)
			}
		}
	}
}

// FuzzReadLines finds no reply that makes it fail otherwise than with an error.
func FuzzReadLines(f *testing.F) {
	f.Add(`{"id":1,"result":"a\nb\n","error":null}`)
	f.Add(`{"result":null,"error":"\ud83d\ude00"}`)
	f.Fuzz(func(_ *testing.T, reply string) {
		_, _ = readLines(bufio.NewReaderSize(strings.NewReader(reply), 16), func(string) {})
	})
}
