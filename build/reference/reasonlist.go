package main

// reasonLists are all reasons, by part.
var reasonLists = [][]reason{
	agentReasons, serviceReasons, policyReasons, tenantReasons, clusterSetReasons, captureReasons, mapReasons,
}
