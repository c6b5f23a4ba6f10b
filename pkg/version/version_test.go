package version

import "testing"

func TestIsRelease(t *testing.T) {
	for version, want := range map[string]bool{
		"v1.2.3": true, "v0.10.0-rc.12": true,
		"": false, "next": false, "dev": false, "1.2.3": false, "v1.2": false, "v1.2.3+build": false, "v1.2.3-rc": false,
		"v0.1.0-dev": false, "v0.1.0-dirty": false, "v0.1.0-0-gabc1234": false, "v0.1.0-5-gabc1234-dirty": false,
		"v0.1.0-rc.1-5-gabc1234": false, "v1.2.3\n": false,
	} {
		if have := IsRelease(version); have != want {
			t.Errorf("%q is of a release: %v, want %v", version, have, want)
		}
		if have := Tag(version); have != map[bool]string{true: version, false: "dev"}[want] {
			t.Errorf("images of %q have the tag %q", version, have)
		}
	}
}
