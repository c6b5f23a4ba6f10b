package tenants

import "github.com/tombolo-net/tombolo/pkg/reasons"

// The reasons of this package.
var (
	reasonFull = reasons.New(reasons.Row{
		Name: "Full", Objects: "Subnet", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The Subnet is full. Pods on some Nodes get no address.",
		Remedy: "Delete Pods, extend spec.ranges, or use another VirtualNetwork with a larger Subnet.",
	})

	reasonNumberTaken = reasons.New(reasons.Row{
		Name: "NumberTaken", Objects: "VirtualNetwork", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "An older object has the same number of a network. The Pods have no traffic in it.",
		Remedy: "Delete the object and create it again, and it gets another number.",
	})
)
