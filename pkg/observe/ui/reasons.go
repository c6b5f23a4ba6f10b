package ui

import "github.com/tombolo-net/tombolo/pkg/reasons"

// The reasons of Problems that the map shows and no object has.
var (
	reasonAgentNotAnswering = reasons.New(reasons.Row{
		Name: "AgentNotAnswering", Objects: "Node on the map", Shown: reasons.Problem, Level: reasons.Warning,
		Cause:  "The agent of the Node does not answer.",
		Remedy: "See the Pod tombolo-agent of the Node.",
	})

	reasonAgentNotReady = reasons.New(reasons.Row{
		Name: "AgentNotReady", Objects: "Node on the map", Shown: reasons.Problem, Level: reasons.Error,
		Cause:  "The network of the Node is not set up.",
		Remedy: "See `tombolo get status` on the Node.",
	})

	reasonAgentsNotAsked = reasons.New(reasons.Row{
		Name: "AgentsNotAsked", Objects: "agents on the map", Shown: reasons.Problem, Level: reasons.Warning,
		Cause:  "The user may not ask the agents.",
		Remedy: "Give the user the rights that the message names.",
	})

	reasonNotListed = reasons.New(reasons.Row{
		Name: "NotListed", Objects: "kind on the map", Shown: reasons.Problem, Level: reasons.Warning,
		Cause:  "The user may not list a kind.",
		Remedy: "Give the user the right.",
	})

	reasonSameCluster = reasons.New(reasons.Row{
		Name: "SameCluster", Objects: "context on the map", Shown: reasons.Problem, Level: reasons.Warning,
		Cause:  "Two contexts show one cluster ID.",
		Remedy: "Leave out one of the contexts.",
	})
)
