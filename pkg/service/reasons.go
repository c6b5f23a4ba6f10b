package service

import "github.com/tombolo-net/tombolo/pkg/reasons"

// The reasons of this package.
var (
	reasonAddressInUse = reasons.New(reasons.Row{
		Name: "AddressInUse", Objects: "Service", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "An address of the Service belongs to another Service.",
		Remedy: "Choose another address.",
	})

	reasonEndpointLoop = reasons.New(reasons.Row{
		Name: "EndpointLoop", Objects: "Service", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "An endpoint leads back to the Service.",
		Remedy: "Remove the endpoint.",
	})

	reasonEndpointNesting = reasons.New(reasons.Row{
		Name: "EndpointNesting", Objects: "Service", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "Services lead to each other in too many steps, or to too many endpoints.",
		Remedy: "Name the endpoints themselves.",
	})

	reasonInvalidAddress = reasons.New(reasons.Row{
		Name: "InvalidAddress", Objects: "EndpointSlice", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "An endpoint has an address that is not usable. It is left out.",
		Remedy: "Correct the controller that writes the EndpointSlice.",
	})

	reasonInvalidClusterIP = reasons.New(reasons.Row{
		Name: "InvalidClusterIP", Objects: "Service", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "A ClusterIP is not a usable address.",
		Remedy: "Create the Service again.",
	})

	reasonInvalidExternalIP = reasons.New(reasons.Row{
		Name: "InvalidExternalIP", Objects: "Service", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "An address in spec.externalIPs is not usable.",
		Remedy: "Correct or remove it.",
	})

	reasonInvalidLoadBalancerIP = reasons.New(reasons.Row{
		Name: "InvalidLoadBalancerIP", Objects: "Service", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "An address in status.loadBalancer is not usable.",
		Remedy: "Correct the controller that writes it.",
	})

	reasonInvalidPort = reasons.New(reasons.Row{
		Name: "InvalidPort", Objects: "Service", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "A port is not valid.",
		Remedy: "Write a port within 1 to 65535.",
	})

	reasonInvalidProtocol = reasons.New(reasons.Row{
		Name: "InvalidProtocol", Objects: "Service", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "A protocol is not known. The port is not served.",
		Remedy: "Write TCP, UDP or SCTP.",
	})

	reasonInvalidSourceRange = reasons.New(reasons.Row{
		Name: "InvalidSourceRange", Objects: "Service", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "A text in spec.loadBalancerSourceRanges is not a range. It lets no client in.",
		Remedy: "Write a range such as 192.0.2.0/24.",
	})

	reasonInvalidWeight = reasons.New(reasons.Row{
		Name: "InvalidWeight", Objects: "EndpointSlice", Shown: reasons.Problem, Level: reasons.Warning,
		Cause:  "The annotation with the number of ready endpoints is not a number. Endpoints count as one each.",
		Remedy: "Apply the manifests of this release where the Service is exported.",
	})

	// ReasonSCTP is the reason of ports that only the kernel's datapath serves.
	ReasonSCTP = reasons.New(reasons.Row{
		Name: "SCTPNotSupported", Objects: "Service", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The userspace datapath does not track connections of SCTP. The port is not served.",
		Remedy: "Set ovsDatapathType to system in antrea-agent.conf, or use TCP or UDP.",
	})

	// ReasonTooManySources is the reason of a Service that lets no client in.
	ReasonTooManySources = reasons.New(reasons.Row{
		Name: "TooManySourceRanges", Objects: "Service", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "spec.loadBalancerSourceRanges has too many ranges. No client is let in.",
		Remedy: "Write fewer and larger ranges.",
	})
)
