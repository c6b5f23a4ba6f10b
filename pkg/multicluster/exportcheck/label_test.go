package exportcheck

import (
	"strings"
	"testing"
)

func TestLabel(t *testing.T) {
	const metadata = "ns:kubernetes.io/metadata.name=default"
	for _, row := range []struct{ name, text, want string }{
		{"both sets", metadata + ",team=a&pod:app=web,tier=front", ""},
		{"a Pod without labels", metadata + "&pod:", ""},
		{"a Pod without labels, as older members write it", metadata + "&pod:<none>", ""},
		{"sorted by the whole pair, as Antrea does", metadata + "&pod:app-x=1,app=2", ""},
		{"an empty value", metadata + "&pod:app=", ""},
		{"nothing", "", `f: "" is not a normalised label: expected ns:<labels>&pod:<labels>`},
		{"no Pod", metadata,
			`f: "ns:kubernetes.io/metadata.name=default" is not a normalised label: expected ns:<labels>&pod:<labels>`},
		{"no pair", metadata + "&pod:app", `f: "app" is not a label: expected key=value`},
		{"a key that is none", metadata + "&pod:a b=c", `f: "a b=c" is not a label: expected key=value`},
		{"a value that is none", metadata + "&pod:a=b=c", `f: "a=b=c" is not a label: expected key=value`},
		{"a second set of Pod labels", metadata + "&pod:a=b&pod:c=d", `f: "a=b&pod:c=d" is not a label: expected key=value`},
		{"an empty pair", metadata + "&pod:a=b,", `f: "" is not a label: expected key=value`},
		{"a key twice", metadata + "&pod:a=b,a=c", `f: label "a" is given twice: expected it once`},
		{"too long", metadata + "&pod:" + strings.Repeat("a", maxLabelBytes),
			"f: has 16427 bytes: expected at most 16384; use fewer or shorter labels"},
	} {
		t.Run(row.name, func(t *testing.T) {
			have := ""
			if err := Label("f", row.text); err != nil {
				have = err.Error()
			}
			if have != row.want {
				t.Errorf("have %s\nwant %s", have, row.want)
			}
		})
	}
}
