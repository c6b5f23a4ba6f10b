// Package deploy has the manifests that users apply, for programs that apply them.
package deploy

import (
	"cmp"
	_ "embed"
	"regexp"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/version"
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

var (
	// image matches an image in the manifests; the charts' values.yaml has its form.
	image = regexp.MustCompile(`(?m)^(\s*image: )tombolo/([a-z-]+):dev$`)
	// labels matches the labels of an object that contain a version. The charts' _helpers.tpl defines their form.
	labels = regexp.MustCompile(`(app\.kubernetes\.io/version: )"dev"(, helm\.sh/chart: [a-z-]+-)\d+\.\d+\.\d+`)
)

// WithImages returns a manifest whose images come from another registry and path, or have another tag. An empty tag
// stands for the tag of this program's version. If that version is a release, the objects' labels name it, as in the
// release's own charts and manifests.
func WithImages(manifest, registry, tag string) string {
	if of := version.String(); version.IsRelease(of) {
		manifest = labels.ReplaceAllString(manifest, `${1}"`+of+`"${2}`+strings.TrimPrefix(of, "v"))
	}
	if registry != "" {
		manifest = strings.ReplaceAll(manifest, "imagePullPolicy: Never\n", "imagePullPolicy: IfNotPresent\n")
	}
	registry, tag = cmp.Or(strings.TrimSuffix(registry, "/"), "tombolo"), cmp.Or(tag, version.Tag(version.String()))
	return image.ReplaceAllStringFunc(manifest, func(line string) string {
		part := image.FindStringSubmatch(line)
		return part[1] + registry + "/" + part[2] + ":" + tag
	})
}
