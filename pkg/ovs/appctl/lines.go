package appctl

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// lineMax is how long a line of an answer may be, in bytes. A longer one is an error.
const lineMax = 1 << 20

// Lines sends one command and calls each with every line of its output, without the newline, as it reads it. So a long
// answer is never in memory as a whole: the output of dpctl/dump-conntrack may have hundreds of megabytes. If Lines
// fails, it may have called each for a part of the lines. If the answer reports that the command failed, the error is
// an *Error.
func (c Client) Lines(ctx context.Context, each func(line string), command string, args ...string) error {
	conn, err := c.dial(ctx)
	if err != nil {
		return fmt.Errorf("run %q on ovs-vswitchd: %w", command, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()

	if err = send(conn, command, args); err == nil {
		var refused string
		refused, err = readLines(bufio.NewReaderSize(conn, 1<<16), each)
		if err == nil && refused != "" {
			return &Error{Command: strings.Join(append([]string{command}, args...), " "), Text: refused}
		}
	}
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("run %q on ovs-vswitchd: %w", command, err)
	}
	return nil
}

// readLines reads a reply (RFC 7047 section 4): one object whose member "result" is a string. The members may be in any
// order. It returns the text of the member "error".
func readLines(r *bufio.Reader, each func(string)) (refused string, err error) {
	var answered bool
	if err := token(r, '{'); err != nil {
		return "", err
	}
	for first := true; ; first = false {
		b, err := next(r)
		if err != nil {
			return "", err
		}
		if b == '}' {
			break
		}
		if !first {
			if b != ',' {
				return "", fmt.Errorf("read reply: %q where a comma or the end is due", b)
			}
			if b, err = next(r); err != nil {
				return "", err
			}
		}
		if b != '"' {
			return "", fmt.Errorf("read reply: %q where a member's name is due", b)
		}
		name, err := whole(r)
		if err != nil {
			return "", err
		}
		if err := token(r, ':'); err != nil {
			return "", err
		}
		text, lines, err := member(r, name, each)
		if err != nil {
			return "", err
		}
		answered = answered || lines
		if name == "error" {
			refused = text
		}
	}
	if !answered && refused == "" {
		return "", errors.New("reply has neither result nor error")
	}
	return refused, nil
}

// member reads a member's value. It reports whether that was the lines.
func member(r *bufio.Reader, name string, each func(string)) (text string, lines bool, err error) {
	b, err := next(r)
	switch {
	case err != nil:
		return "", false, err
	case b == '"' && name == "result":
		return "", true, split(r, each)
	case b == '"':
		text, err = whole(r)
		return text, false, err
	}
	var word []byte // null or a number: this protocol has no others
	for ; b != ',' && b != '}'; b, err = r.ReadByte() {
		if err != nil {
			return "", false, cut(err)
		}
		if word = append(word, b); len(word) > 64 {
			break
		}
	}
	if len(word) > 64 || !json.Valid(word) || word[0] == '[' {
		return "", false, fmt.Errorf("read reply: member %q is %q, want a string, a number or null", name, word)
	}
	return "", false, r.UnreadByte()
}

// split reads the rest of a string and calls each with its lines.
func split(r *bufio.Reader, each func(string)) error {
	var line []byte
	err := runes(r, func(c rune) error {
		if c == '\n' {
			each(string(line))
			line = line[:0]
			return nil
		}
		if line = utf8.AppendRune(line, c); len(line) > lineMax {
			return fmt.Errorf("read reply: a line is longer than %d bytes", lineMax)
		}
		return nil
	})
	if err == nil && len(line) > 0 {
		each(string(line))
	}
	return err
}

// whole reads the rest of a short string.
func whole(r *bufio.Reader) (string, error) {
	var text []byte
	err := runes(r, func(c rune) error {
		if text = utf8.AppendRune(text, c); len(text) > lineMax {
			return fmt.Errorf("read reply: a name or an error is longer than %d bytes", lineMax)
		}
		return nil
	})
	return string(text), err
}

// runes reads a JSON string to its end (RFC 8259 section 7).
func runes(r *bufio.Reader, each func(rune) error) error {
	for {
		c, _, err := r.ReadRune()
		if err != nil {
			return cut(err)
		}
		switch c {
		case '"':
			return nil
		case '\\':
			if c, err = escaped(r); err != nil {
				return err
			}
		}
		if err := each(c); err != nil {
			return err
		}
	}
}

// escapes are what stands behind a backslash, and what it means.
var escapes = map[byte]rune{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

func escaped(r *bufio.Reader) (rune, error) {
	b, err := r.ReadByte()
	if err != nil {
		return 0, cut(err)
	}
	if b != 'u' {
		c, ok := escapes[b]
		if !ok {
			return 0, fmt.Errorf("read reply: no escape: \\%c", b)
		}
		return c, nil
	}
	c, err := unit(r)
	if err != nil || !utf16.IsSurrogate(c) {
		return c, err
	}
	if pair, err := r.Peek(2); err != nil || !bytes.Equal(pair, []byte(`\u`)) {
		return utf8.RuneError, nil
	}
	if _, err := r.Discard(2); err != nil {
		return 0, cut(err)
	}
	low, err := unit(r)
	return utf16.DecodeRune(c, low), err
}

// unit reads the four digits of an escape.
func unit(r *bufio.Reader) (rune, error) {
	var digits [4]byte
	if _, err := io.ReadFull(r, digits[:]); err != nil {
		return 0, cut(err)
	}
	n, err := strconv.ParseUint(string(digits[:]), 16, 16)
	if err != nil {
		return 0, fmt.Errorf("read reply: no escape: \\u%s", digits[:])
	}
	return rune(n), nil
}

// token reads one character behind spaces, which must be b.
func token(r *bufio.Reader, b byte) error {
	have, err := next(r)
	if err == nil && have != b {
		err = fmt.Errorf("read reply: %q where %q is due", have, b)
	}
	return err
}

// next reads one character behind spaces.
func next(r *bufio.Reader) (byte, error) {
	for {
		b, err := r.ReadByte()
		if err != nil {
			return 0, cut(err)
		}
		if b != ' ' && b != '\t' && b != '\n' && b != '\r' {
			return b, nil
		}
	}
}

// cut is the error of a reply that ends too early.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read reply: %w", err)
}
