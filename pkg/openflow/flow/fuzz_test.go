package flow

import "testing"

func FuzzParseFlow(f *testing.F) {
	for _, text := range programmed {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		x, err := ParseFlow(text)
		if err != nil {
			return
		}
		y, err := ParseFlow(x.String())
		if err != nil || !y.Equal(x) {
			t.Fatalf("%q is read as %s, and that as %s: %v", text, x, y, err)
		}
	})
}
