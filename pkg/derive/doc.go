// Package derive keeps tables that are derived from tables up to date. It finds out by itself
// what a change touches, so that the work after an event is proportional to what the event
// changes.
//
// A Source is a table that is filled from outside: by an informer, the OVSDB, a CNI call. A
// Table is derived: a pure function returns a key's value, and reads other tables
// through a Reader. The engine records these reads. When one of these things changes, the key is
// evaluated again; when the result equals the one before, nothing further happens.
//
//	       Set, Delete                       changed keys only
//	informer ──► Source ──► Table ──► Table ──► Watch ──► flowsync, API server
//	                 │                  ▲
//	                 └──► Index ────────┘
//
// # Rules
//
//   - A function depends on nothing but its key and what it reads through its Reader: no clock,
//     no client, no variable that changes. Time comes in as rows of a Source ("east is
//     expired"), written by the owner of a timer.
//   - A table may only read tables that were made before it, so there are no cycles. A function
//     that breaks this rule fails as one that panics does: it gets a Problem, and its key keeps the
//     value that it had, which the Problem calls stale. A defect must not look like a removal.
//   - Values are never changed after they were handed over.
//   - A zero value (nil, "", an empty struct) means that the key has no value: it is not a row
//     of the table.
//
// # What is guaranteed
//
//   - After each pass every table holds what a new engine with the same sources would hold, but for
//     keys whose function panics. The tests of every user of this package hold it to that, step by
//     step, on a random walk.
//   - No pass runs before each Source was declared Loaded once: nothing is removed because
//     something is not known yet.
//   - One goroutine evaluates. No lock is held while a function or a Watch runs. Sources may be
//     written and tables be read from any goroutine.
//   - The first write after quiet starts a pass at once; writes during a pass are
//     taken together in the next one.
//
// # Numbers
//
// Groups, conjunctions and identities need numbers that are unique, stay the same over
// restarts, and do not depend on the order of events. Numbers is a table of them.
//
// # To be seen
//
// Engine.Stats counts evaluated keys and changes by table; Engine.Explain returns the rows that a row
// was made from, and the rows that were made from it.
//
// The idea comes from incremental engines elsewhere: OVN's northd and ovn-controller (inc-proc-eng.h), which
// name the dependencies of whole nodes by hand; Istio's krt, which records what is fetched;
// Cilium's StateDB, whose tables have indexes and watch channels. Here dependencies are recorded
// by key, and evaluation is one ordered pass, so that no reader sees a state half made.
package derive
