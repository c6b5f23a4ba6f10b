package wireguard

import "github.com/tombolo-net/tombolo/pkg/reasons"

// The reasons of this package.
var (
	reasonWireGuard = reasons.New(reasons.Row{
		Name: "WireGuard", Objects: "link", Shown: reasons.Problem, Level: reasons.Error,
		Cause: "WireGuard cannot be set up.",
		Remedy: "The message has the error. Without WireGuard in the kernel, install the DaemonSet " +
			"tombolo-wireguard.",
	})
)
