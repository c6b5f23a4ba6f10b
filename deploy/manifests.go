// Package deploy has the manifests that users apply, for programs that apply them.
package deploy

import _ "embed"

// The multi-cluster controller, as leader and as member.
var (
	//go:embed multicluster/antrea-multicluster-leader.yml
	Leader string
	//go:embed multicluster/antrea-multicluster-member.yml
	Member string
)

// Namespaces that these manifests are for.
const (
	LeaderNamespace = "antrea-multicluster"
	MemberNamespace = "kube-system"
)
