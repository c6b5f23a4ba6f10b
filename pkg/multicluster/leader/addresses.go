package leader

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// addressed is the result for one export of Pods' addresses.
type addressed struct {
	Import *mcv1alpha1.ResourceImport
	Failed string // why it is not in the import, or not all of it
	Early  bool   // that is likely to be over in a moment
}

// podAddresses passes on the addresses that are in the Pod ranges of their cluster. If the cluster has withdrawn its
// ClusterInfo, its ranges still count for a while, since its Gateway may only be moving.
func (t *tables) podAddresses(key derive.Object, r *derive.Reader) (a addressed, _ []problem.Problem) {
	for _, e := range t.counting(r, derive.List(r, t.index.addressesOf, key)) {
		p := e.Addresses
		switch {
		case e.Missing:
			return addressed{Failed: "spec.raw is missing"}, nil
		case e.Wrong != "":
			return addressed{Failed: e.Wrong}, nil
		case p.ClusterID != e.ClusterID:
			return addressed{Failed: fmt.Sprintf("spec.raw.data.clusterID is %q: expected %q, as in spec.clusterID", p.ClusterID,
				e.ClusterID)}, nil
		case key.Name != multicluster.PodAddressesName(e.ClusterID, p.Block):
			return addressed{Failed: fmt.Sprintf("metadata.name: the export of block %s by cluster %s must be named %s",
				p.Block, e.ClusterID, multicluster.PodAddressesName(e.ClusterID, p.Block))}, nil
		}
		info, _ := derive.Get(r, t.facts.held, derive.Name(e.ClusterID))
		if info == nil || len(info.PodCIDRs) == 0 {
			return addressed{Early: true,
				Failed: fmt.Sprintf(
					"cluster %s announces no Pod ranges that its Pods' addresses could be in: it needs a Gateway, and podCIDRs in "+
						"its member controller's configuration", e.ClusterID)}, nil
		}
		in, out := p.Within(exportcheck.Prefixes(info.PodCIDRs))
		if len(out) > 0 {
			a.Failed = fmt.Sprintf("spec.raw.data: left out are addresses that are not in the Pod ranges of cluster %s: %s",
				e.ClusterID, exportcheck.AddressesText(out))
		}
		if len(in.Labels) > 0 {
			a.Import = &mcv1alpha1.ResourceImport{
				ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
				Spec: mcv1alpha1.ResourceImportSpec{Kind: multicluster.PodAddressesKind,
					Raw: &mcv1alpha1.RawResource{Data: in.JSON()}},
			}
		}
	}
	return a, nil
}
