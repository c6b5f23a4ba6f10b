package leader

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/multicluster/requests"
)

// whole takes all of an object as its facts.
func whole[T any](o T) T { return o }

// announce is the state of a MemberClusterAnnounce. Decisions read Fact, which heartbeats do not change.
type announce struct {
	Fact    *mcv1alpha1.MemberClusterAnnounce
	UID     types.UID
	Version string // resourceVersion
	Touched string // its time stamp
}

func announceFacts(a *mcv1alpha1.MemberClusterAnnounce) announce {
	fact := &mcv1alpha1.MemberClusterAnnounce{ObjectMeta: factsOfMeta(a.ObjectMeta), ClusterID: a.ClusterID}
	if by, ok := a.Annotations[multicluster.AnnotationAnnouncedBy]; ok {
		fact.Annotations = map[string]string{multicluster.AnnotationAnnouncedBy: by}
	}
	return announce{Fact: fact, UID: a.UID, Version: a.ResourceVersion,
		Touched: a.Annotations[multicluster.AnnotationTouchTimestamp]}
}

// export is the part of a ResourceExport from which imports are made. The leader's own writes do not change it. There
// are many exports, so it is small.
type export struct {
	Key       derive.Object
	ClusterID string
	Kind      string
	Of        object // the exported object
	Created   int64  // seconds
	Deleted   bool
	// Finalizers are the finalizers of a deleted one.
	Finalizers []string
	// Missing is set if the spec has no field for its kind; otherwise one of these is set.
	Missing bool
	Ports   []corev1.ServicePort
	Facts   *exportcheck.ServiceFacts // nil if the exporter lists no facts
	Subsets []corev1.EndpointSubset
	Ready   int // endpoints behind its address; 0 if the exporter does not report it
	Info    *mcv1alpha1.ClusterInfo
	Reached string // clusters that the exporter reaches, listed next to its ClusterInfo
	Label   string // normalised
	Policy  string // its spec as JSON
	Wrong   string // why there is no policy
	Report  map[string]exportcheck.PolicyState
	// Addresses are the addresses of Pods.
	Addresses exportcheck.PodAddresses
	// Namespaces are a member's isolated Namespaces; nil without a valid list.
	Namespaces *exportcheck.Namespaces
}

// written is the part of a ResourceExport that the leader writes, with the UID and version for the write.
type written struct {
	UID        types.UID
	Version    string // resourceVersion
	Conditions []mcv1alpha1.ResourceExportCondition
}

func exportFacts(re *mcv1alpha1.ResourceExport) *export {
	e := &export{
		Key: derive.Object{Namespace: re.Namespace, Name: re.Name}, ClusterID: re.Spec.ClusterID, Kind: re.Spec.Kind,
		Of: object{re.Spec.Namespace, re.Spec.Name}, Created: re.CreationTimestamp.Unix(),
		Deleted: re.DeletionTimestamp != nil,
	}
	if e.Deleted {
		e.Finalizers = re.Finalizers
	}
	switch re.Spec.Kind {
	case multicluster.ServiceKind:
		if e.Missing = re.Spec.Service == nil; !e.Missing {
			e.Ports = re.Spec.Service.ServiceSpec.Ports
			var err error
			if e.Facts, err = exportcheck.ReadServiceFacts(re.Annotations[multicluster.AnnotationService]); err != nil {
				e.Wrong = err.Error()
			}
		}
	case multicluster.EndpointsKind:
		if e.Missing = re.Spec.Endpoints == nil; !e.Missing {
			e.Subsets = re.Spec.Endpoints.Subsets
			var err error
			if e.Ready, err = requests.ReadReady(re.Annotations[multicluster.AnnotationReady]); err != nil {
				e.Wrong = err.Error()
			}
		}
	case multicluster.ClusterInfoKind:
		e.Info, e.Missing = re.Spec.ClusterInfo, re.Spec.ClusterInfo == nil
		e.Reached = re.Annotations[multicluster.AnnotationReached]
		if _, err := requests.ReadReached(e.Reached); err != nil {
			e.Reached, e.Wrong = "", err.Error()
		}
	case multicluster.LabelIdentityKind:
		if e.Missing = re.Spec.LabelIdentity == nil; !e.Missing {
			e.Label = re.Spec.LabelIdentity.NormalizedLabel
		}
	case multicluster.AntreaClusterNetworkPolicyKind, multicluster.NetworkPolicyKind,
		multicluster.ClusterNetworkPolicyKind:
		p, missing, err := exportcheck.ExportedPolicy(re.Spec)
		if e.Missing, e.Policy = missing, p.Spec; err != nil {
			e.Wrong = err.Error()
		}
	case multicluster.PolicyReportKind:
		if e.Missing = re.Spec.Raw == nil; !e.Missing {
			var err error
			if e.Report, err = exportcheck.PolicyReport(re.Spec.Raw.Data); err != nil {
				e.Wrong = err.Error()
			}
		}
	case multicluster.PodAddressesKind:
		if e.Missing = re.Spec.Raw == nil; !e.Missing {
			var err error
			if e.Addresses, err = exportcheck.ReadPodAddresses(re.Spec.Raw.Data); err != nil {
				e.Wrong = err.Error()
			}
		}
	case multicluster.NamespacesKind:
		if e.Missing = re.Spec.Raw == nil; !e.Missing {
			list, err := exportcheck.ReadNamespaces(re.Spec.Raw.Data)
			if err == nil && list.ClusterID != re.Spec.ClusterID {
				err = exportcheck.Problem{Field: "spec.raw.data.clusterID", Message: "is not spec.clusterID"}
			}
			if err != nil {
				e.Wrong = err.Error()
				break
			}
			e.Namespaces = &list
		}
	}
	return e
}

func writtenFacts(re *mcv1alpha1.ResourceExport) written {
	return written{UID: re.UID, Version: re.ResourceVersion, Conditions: re.Status.Conditions}
}

func factsOfMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, CreationTimestamp: m.CreationTimestamp,
		DeletionTimestamp: m.DeletionTimestamp, Finalizers: m.Finalizers}
}

func accountFacts(a *corev1.ServiceAccount) *corev1.ServiceAccount {
	fact := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name,
		ResourceVersion: a.ResourceVersion}}
	if id, ok := a.Annotations[multicluster.AnnotationClusterID]; ok {
		fact.Annotations = map[string]string{multicluster.AnnotationClusterID: id}
	}
	return fact
}

// live is the time of a member's last heartbeat, as this controller has seen it. A connected member has no row until it
// has touched its announcement.
type live struct {
	Touched bool      // it has touched its announcement since this controller started
	Silent  bool      // for longer than disconnectAfter
	Since   time.Time // the last sign of life; only for one that is silent
	Expired bool      // it has been silent for so long that it is removed
}

// liveOf derives the state of a member from the sightings of its announcement. since is the time at which the member
// became disconnected, according to the ClusterSet's status. It is zero if the member did not.
func liveOf(seen Sighting, a announce, since, now time.Time) live {
	l := live{Touched: !seen.Touched.IsZero(), Expired: expired(seen, a, since, now)}
	if now.Sub(seen.Changed) > disconnectAfter {
		l.Silent, l.Since = true, seen.Changed
	}
	return l
}

// expired reports whether a member has been disconnected for too long. If the time stamp is long past and this
// controller has seen no heartbeat, the member's clock may be behind. Then the member gets some time for another one.
func expired(seen Sighting, a announce, since, now time.Time) bool {
	return now.Sub(lastReport(seen, a, since)) > expireAfter &&
		(!seen.Touched.IsZero() || now.Sub(seen.First) > listenFor)
}

// lastReport returns the time of a member's last heartbeat. If this controller has seen a heartbeat, the time of that
// heartbeat counts. Otherwise the time stamp of the announcement counts, from the member's clock. If the time stamp is
// in the future, two other times bound it. One is the time of the first sighting. The other is the time at which a
// leader found the member disconnected, which the ClusterSet's status keeps over restarts.
func lastReport(seen Sighting, a announce, since time.Time) time.Time {
	if !seen.Touched.IsZero() {
		return seen.Touched
	}
	last := a.Fact.CreationTimestamp.Time // without a readable time stamp
	if t, err := time.Parse(time.RFC3339, a.Touched); err == nil {
		last = t
	}
	if last.After(seen.First) {
		last = seen.First
	}
	if !since.IsZero() && last.After(since) {
		last = since
	}
	return last
}

// inOrder sorts by age, then name: the order in which exports win conflicts.
func inOrder[T metav1.Object](objects []T) []T {
	sorted := slices.Clone(objects)
	slices.SortFunc(sorted, func(a, b T) int {
		return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), cmp.Compare(a.GetName(), b.GetName()))
	})
	return sorted
}

// oldest sorts exports in the same way.
func oldest(exports []*export) {
	slices.SortFunc(exports, func(a, b *export) int {
		return cmp.Or(cmp.Compare(a.Created, b.Created), cmp.Compare(a.Key.Name, b.Key.Name))
	})
}

// values are the values of rows.
func values[K derive.Key[K], V any](rows []derive.Row[K, V]) []V {
	out := make([]V, len(rows))
	for i, r := range rows {
		out[i] = r.Value
	}
	return out
}
