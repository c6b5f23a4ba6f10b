package ovstest

import (
	"fmt"
	"os/exec"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/version"
)

// Since reports whether the installed Open vSwitch is of a version such as "3.7" or later. For the empty version the
// result is true. It panics if Open vSwitch is not installed.
func Since(v string) bool {
	return v == "" || installed().AtLeast(version.MustParseGeneric(v))
}

var installed = sync.OnceValue(func() *version.Version {
	out, err := exec.Command("ovs-ofctl", "--version").Output()
	if err != nil {
		panic(fmt.Sprintf("ovs-ofctl --version (is openvswitch-common installed?): %v", err))
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return version.MustParseGeneric(first[strings.LastIndex(first, " ")+1:])
})
