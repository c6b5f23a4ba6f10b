// Package leader is the leader's side of a ClusterSet. It works in the Common Area, which is one Namespace. It turns
// the exports of the members into imports, and reports which members are alive.
//
// The desired objects are derived from the existing objects, key by key (tables, package derive). So no separate code
// cleans up: an import whose last export is gone has the step "delete". Steps go to a queue of writes (package retry).
// A step ends when the API server shows its result.
//
// A member's heartbeat is not a fact. The clock records heartbeats, and only the clock has the time. It writes rows
// when a member becomes disconnected, is connected again, or is to be removed.
package leader
