// Package leader is the leader's side of a ClusterSet: in the Common Area, one Namespace, it
// turns the exports of the members into imports, and reports the members that are alive.
//
// The desired objects are derived from the objects that exist, key by key (tables, package derive), so nothing
// has to be cleaned up apart: an import whose last export is gone has the step "delete". Steps go to
// a queue of writes (package retry), and end when the API server shows that they are done.
//
// A heartbeat of a member is no fact: it is noted by the clock, which alone knows time, and which
// writes rows when a member falls silent, is alive again, or is to be removed.
package leader
