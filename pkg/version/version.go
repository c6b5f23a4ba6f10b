// Package version has the version of this program.
package version

import "regexp"

// version is set by the linker: -X github.com/tombolo-net/tombolo/pkg/version.version=v1.2.3
var version = "v0.1.0-dev"

// String returns the version, such as "v0.1.0".
func String() string { return version }

var release = regexp.MustCompile(`^v\d+\.\d+\.\d+(-rc\.\d+)?$`)

// IsRelease reports whether a version is of a release, such as v1.2.3 or v1.2.3-rc.1.
func IsRelease(version string) bool { return release.MatchString(version) }

// Tag returns the tag of the images of a version. For a release it is the version itself. For other versions, such as
// v0.1.0-dev or v0.1.0-5-gabc-dirty, it is dev.
func Tag(version string) string {
	if IsRelease(version) {
		return version
	}
	return "dev"
}
