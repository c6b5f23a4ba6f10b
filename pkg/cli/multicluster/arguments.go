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

// globalsBehind puts flags of the group mc that stand before it behind it: documents call them global, as in
// `antctl -v mc get clusterset`, and other commands do not have them.
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

// asDocumented rewrites the one option of mc commands that documents print with one dash: -clusterid.
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
