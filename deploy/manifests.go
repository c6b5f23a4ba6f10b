// Package deploy has the manifests that users apply, for programs that apply them.
package deploy

import (
	_ "embed"
	"strings"
)

// Namespaces that the manifests of the multi-cluster controller are for.
const (
	LeaderNamespace = "antrea-multicluster"
	MemberNamespace = "kube-system"
)

var (
	//go:embed multicluster/antrea-multicluster-leader.yml
	leader string
	//go:embed multicluster/antrea-multicluster-member.yml
	member string
)

// Leader is the manifest of the multi-cluster controller as leader in a Namespace.
func Leader(namespace string) string { return strings.ReplaceAll(leader, LeaderNamespace, namespace) }

// Member is the same as member.
func Member(namespace string) string { return strings.ReplaceAll(member, MemberNamespace, namespace) }
