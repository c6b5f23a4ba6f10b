package publickey

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	key := Key{1, 2, 31: 3}
	if k, err := Parse(key.String()); err != nil || k != key {
		t.Errorf("%v, %v", k, err)
	}
	text := key.String()
	for _, bad := range []string{"", "k", text[1:], text + "=", strings.Repeat("A", 43) + "=", strings.Repeat("x", 100000),
		" " + text} {
		if _, err := Parse(bad); err == nil || len(err.Error()) > 200 {
			t.Errorf("%.50q: error %v", bad, err)
		}
	}
}
