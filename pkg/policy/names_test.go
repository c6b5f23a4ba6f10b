package policy

import "testing"

func TestMatchesName(t *testing.T) {
	for _, test := range []struct {
		pattern, name string
		want          bool
	}{
		{"kubernetes.io", "kubernetes.io", true},
		{"kubernetes.io", "www.kubernetes.io", false},
		{"kubernetes.io", "my-kubernetes.io", false},
		{"*.kubernetes.io", "www.kubernetes.io", true},
		{"*.kubernetes.io", "latest.blog.kubernetes.io", true},
		{"*.kubernetes.io", "kubernetes.io", false},
		{"*.kubernetes.io", "wikipedia.org", false},
		{"*.kubernetes.io", "www.kubernetes.io.evil.org", false},
		{"*", "wikipedia.org", true},
		{"*kubernetes.io", "my-kubernetes.io", true},
		{"api-*.example.com", "api-7.example.com", true},
		{"api-*.example.com", "web.example.com", false},
		{"a*b*c", "aXbYbZc", true},
		{"a*b*c", "abc", true},
		{"a*b*c", "ac", false},
		{"a*a", "a", false},
		{"*.a.*", "x.a.a.y", true},
	} {
		if have := MatchesName(NameOf(test.pattern), NameOf(test.name+".")); have != test.want {
			t.Errorf("%s matches %s: %v, want %v", test.pattern, test.name, have, test.want)
		}
	}
	if have := NameOf("WWW.Example.COM."); have != "www.example.com" {
		t.Error(have)
	}
}
