// Package policy turns network policies, the labels of Pods and Namespaces, and addresses into the rules of one Node.
// It is pure: no client, no clock, no switch. Its functions are functions of derived tables.
//
// # Identities
//
// Pods with the same labels in Namespaces with the same labels are one Identity. Selectors are matched against
// identities, never against Pods, and a Rule counts identities: a Deployment of a thousand Pods is one. A Pod that
// comes or goes with known labels changes one row of Addresses, however many rules name its identity.
//
//	Namespaces ─┐
//	Pods ───────┴► identities ──► numbers
//	                   │  └─────► peers ◄─ selectors ─┐
//	                   ▼                              │
//	Policies ───────► applied ──► active policies ──► Rules      of Pods of this Node
//	Pods ──────────────────────────────────────────► Addresses  of identities that a rule may name
//
// # What a Rule is
//
// A Rule allows new connections between the Pods of this Node that it is applied to and its peers, to its ports.
// Replies, and packets of connections that were allowed, are not asked for again. A Pod that a policy selects for a
// direction is isolated in it: everything is denied that no rule allows. This follows the specification of Kubernetes
// NetworkPolicy (networking.k8s.io/v1). If a part of a rule has a fault, the rule allows nothing through that part, and
// a Problem reports it: closed stays closed.
package policy
