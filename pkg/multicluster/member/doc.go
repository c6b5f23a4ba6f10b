// Package member is the part of the multi-cluster controller that runs in every member cluster of a ClusterSet. It
// announces the cluster to the leader, exports Services, imports the Services of other clusters, chooses the Gateways,
// and announces how to reach them.
//
// All decisions are tables derived from tables (package derive), one key at a time: one export, one import, the
// Gateways. Features make the decisions. Each feature is a package below this one. The last tables are the missing
// writes. This package is the shell around them, which only composes, watches and writes:
//
//	watches (facts) -> sources -> membership, exports, imports, ... -> writes -> retry.Queue
//
// There are two watchers, one of this cluster and one of the leader's Common Area, and two queues of writes. Writes to
// this cluster never wait for the leader, so that a Gateway fails over while the leader is unavailable. A heartbeat
// writes its result to a row that mostly stays the same.
//
// [Plan] evaluates the same tables from nothing for a [View]. TestWalk compares the two.
//
// No imported object is removed before the leader's ResourceImports have been read completely. Known objects stay as
// they are while the leader is unavailable.
package member
