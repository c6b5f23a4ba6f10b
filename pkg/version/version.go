// Package version has the version of this program.
package version

// version is set by the linker: -X github.com/tombolo-net/tombolo/pkg/version.version=v1.2.3
var version = "v0.1.0-dev"

// String returns the version, such as "v0.1.0".
func String() string { return version }
