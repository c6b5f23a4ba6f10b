// Package member is the part of the multi-cluster controller that runs in every member
// cluster of a ClusterSet. It announces the cluster to the leader, exports Services, imports
// what other clusters export, chooses the Gateway Node, and makes known how to reach it.
//
// All decisions are tables derived from tables (package derive), one key at a time: one export, one
// import, the Gateway. The last tables are the writes that are missing. The controller around
// them only watches and writes:
//
//	watches (facts) -> sources -> membership, exports, imports, ... -> writes -> retry.Queue
//
// There are two watchers, one of this cluster and one of the leader's Common Area, and two queues
// of writes. What is here never waits for the leader, so that a Gateway fails over while the
// leader is away. Heartbeats are apart: what they hear is a row that mostly stays the same.
//
// [Plan] is the same tables made from nothing for a [View]; TestWalk holds the two against each other.
//
// An update is sent as a patch of what differs: fields that nobody speaks of keep their values.
//
// Nothing imported is removed before the leader's ResourceImports have been read completely,
// and what was known stays as it is while the leader is away.
package member
