package warnings

import "github.com/tombolo-net/tombolo/pkg/reasons"

// The reasons of this package.
var (
	reasonConfigurationIgnored = reasons.New(reasons.Row{
		Name: "ConfigurationIgnored", Objects: "ConfigMap", Shown: reasons.Event, Level: reasons.Warning,
		Cause:  "No program reads the configuration of antrea-controller.",
		Remedy: "Remove the key. The message names the places of its settings.",
	})
)
