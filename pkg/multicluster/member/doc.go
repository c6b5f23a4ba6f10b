// Package member is the part of the multi-cluster controller that runs in every member
// cluster of a ClusterSet. It announces the cluster to the leader, exports Services, imports
// what other clusters export, chooses the Gateway Node, and makes known how to reach it.
//
// All decisions are in [Plan], a pure function of a [View]; [Diff] says which writes turn what
// is there into what Plan wants. The controller around them only watches, reads and writes:
//
//	watches -> bell -> runner: View -> Plan -> Diff -> writes
//
// There are two runners with the same Plan. One writes to the local API server and never
// waits for the leader, so that a Gateway fails over while the leader is away. The other
// writes to the leader.
//
// Nothing imported is removed before the leader's ResourceImports have been read completely,
// and what was known stays as it is while the leader is away.
package member
