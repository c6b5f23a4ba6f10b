package hostnet

import "github.com/tombolo-net/tombolo/pkg/reasons"

// The reasons of this package.
var (
	reasonForwardDrop = reasons.New(reasons.Row{
		Name: "ForwardPolicyDrop", Objects: "nftables chain", Shown: reasons.Problem, Level: reasons.Error,
		Cause: "Another program's table drops forwarded packets that no rule accepts. Pods may reach no other " +
			"machine.",
		Remedy: "Accept packets of the link that the message names, or change the policy of the chain.",
	})

	reasonPending = reasons.New(reasons.Row{
		Name: "Pending", Objects: "things of the host", Shown: reasons.Problem, Level: reasons.Warning,
		Cause:  "The host's configuration waits for something that is not there yet.",
		Remedy: "It goes when the other thing is there. See `tombolo get status`.",
	})

	reasonRefused = reasons.New(reasons.Row{
		Name: "Refused", Objects: "things of the host", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The kernel refused a link, an address, a route or a rule.",
		Remedy: "The message has its error. Look for another program that manages the interface.",
	})

	reasonTaken = reasons.New(reasons.Row{
		Name: "Taken", Objects: "route, address or link of the host", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "Another program's configuration is in the way.",
		Remedy: "Remove that route or link.",
	})
)
