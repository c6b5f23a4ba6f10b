package events

import (
	"bytes"
	"testing"
)

func TestName(t *testing.T) {
	long := string(bytes.Repeat([]byte("a"), 253))
	if name := nameOf(long, "0123456789abcdef"); len(name) != 253 || name[236:] != ".0123456789abcdef" {
		t.Errorf("got %q, %d bytes", name, len(name))
	}
	if name := nameOf("web", "00"); name != "web.00" {
		t.Errorf("got %q", name)
	}
}
