// Package openflow is the home of an OpenFlow 1.5 library with Open vSwitch's extensions. It has no code of its own;
// the packages below it are
//
//   - ofp: messages, matches and actions as Go values, and their bytes;
//   - flow: flows, groups and meters with ovs-ofctl's text both ways, sets of them and the
//     difference of two sets;
//   - ofprint: the text of any message, as ovs-ofctl ofp-print writes it;
//   - ofconn: a connection to a switch, with requests, bundles and unsolicited messages of the switch;
//   - flowsync: a reconciler that keeps a switch in the state that owners declare;
//   - oftest: a switch in memory, which walks packets through flows.
//
// ofp, flow and ofprint use no socket and no clock. docs/openflow.md lists the covered messages and the proofs; the
// examples here show the three uses that most programs have.
package openflow
