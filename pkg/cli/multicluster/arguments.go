package multicluster

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Arguments rewrites arguments that documents write in another form than the flags have.
func Arguments(root *cobra.Command, args []string) []string {
	return asDocumented(globalsBehind(root, args))
}

// globalsBehind moves flags of the group mc that are written before the word mc behind it. Documents call these flags
// global, as in `antctl -v mc get clusterset`, but other commands do not have them.
func globalsBehind(root *cobra.Command, args []string) []string {
	mc, _, err := root.Find([]string{"mc"})
	if err != nil {
		return args
	}
	n := 0
	for n < len(args) && strings.HasPrefix(args[n], "-") {
		name, _, hasValue := strings.Cut(strings.TrimLeft(args[n], "-"), "=")
		flag := mc.PersistentFlags().Lookup(name)
		if name != "" && !strings.HasPrefix(args[n], "--") {
			flag = mc.PersistentFlags().ShorthandLookup(name[:1])
			hasValue = hasValue || len(name) > 1
		}
		if flag == nil {
			return args
		}
		if n++; flag.NoOptDefVal == "" && !hasValue {
			n++
		}
	}
	if n == 0 || n >= len(args) || args[n] != mc.Name() && !mc.HasAlias(args[n]) {
		return args
	}
	return slices.Concat(args[n:n+1], args[:n], args[n+1:])
}

// asDocumented rewrites -clusterid to --clusterid. Documents print this one option of mc commands with one dash.
func asDocumented(args []string) []string {
	if len(args) == 0 || args[0] != "mc" && args[0] != "multicluster" {
		return args
	}
	args = slices.Clone(args)
	for i, arg := range args {
		if arg == "--" {
			break
		}
		if arg == "-clusterid" || strings.HasPrefix(arg, "-clusterid=") {
			args[i] = "-" + arg
		}
	}
	return args
}
