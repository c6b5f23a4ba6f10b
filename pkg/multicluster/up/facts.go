package up

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/deploy"
	"github.com/tombolo-net/tombolo/deploy/charts"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
)

// facts is what a set-up reads of a cluster before it changes anything.
type facts struct {
	uid          types.UID // of the Namespace kube-system; empty: not read
	nodes        []corev1.Node
	agents       *appsv1.DaemonSet // nil: none
	kubeProxy    bool              // a DaemonSet of that name
	servers      []string          // URLs at which the API server announces itself
	serviceRange []netip.Prefix    // empty: not known
	memberSet    *mcv1alpha2.ClusterSet
	leaderSet    *mcv1alpha2.ClusterSet
}

// leastVersion is the first version of Kubernetes that accepts the definitions (docs/install.md).
var leastVersion = utilversion.MustParseGeneric("1.31.0")

// read fills the facts of a cluster, and returns all of its faults that prevent a set-up.
func (s *site) read(ctx context.Context) error {
	info, err := s.reach(ctx)
	if err != nil {
		return err
	}
	faults := []error{checkVersion(info), checkRights(ctx, s)}
	if err := readNodes(ctx, s); err != nil {
		faults = append(faults, err)
	} else {
		faults = append(faults, checkNodes(s))
	}
	return errors.Join(append(faults, readAgents(ctx, s), readServer(ctx, s), readClusterSets(ctx, s),
		checkOtherCNI(ctx, s), checkForeign(ctx, s), checkVersions(ctx, s))...)
}

// reach asks the API server for its version, and reads the UID by which the cluster differs from others.
func (s *site) reach(ctx context.Context) (*apiversion.Info, error) {
	d, err := discovery.NewDiscoveryClientForConfig(s.Config)
	if err != nil {
		return nil, fmt.Errorf("reach its API server: %w", err)
	}
	info, err := d.ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("its API server %s does not answer: %w; correct the context, or open the way to it",
			s.Config.Host, err)
	}
	var system corev1.Namespace
	if s.setup.Client.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &system) == nil {
		s.facts.uid = system.UID
	}
	return info, nil
}

func checkVersion(info *apiversion.Info) error {
	v, err := utilversion.ParseGeneric(info.GitVersion)
	if err != nil {
		return fmt.Errorf("its API server has version %q: %w", info.GitVersion, err)
	}
	if v.LessThan(leastVersion) {
		return fmt.Errorf("it runs Kubernetes %s, which is too old: Tombolo needs %s or later", info.GitVersion, leastVersion)
	}
	return nil
}

// checkRights checks whether this user has all rights: the set-up makes roles, which needs all rights in these roles.
func checkRights(ctx context.Context, s *site) error {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"}}}
	if err := s.setup.Client.Create(ctx, review); err != nil {
		return fmt.Errorf("ask for this user's rights: %w", err)
	}
	if !review.Status.Allowed {
		return errors.New("this user may not do everything there, and roles and objects of all kinds are made and deleted: " +
			"use a context of a user with the ClusterRole cluster-admin")
	}
	return nil
}

func readNodes(ctx context.Context, s *site) error {
	var list corev1.NodeList
	if err := s.setup.Client.List(ctx, &list); err != nil {
		return fmt.Errorf("list its Nodes: %w", err)
	}
	s.facts.nodes = list.Items
	return nil
}

// checkNodes finds Nodes that cannot run agents, and Gateways that are no Nodes.
func checkNodes(s *site) error {
	nodes := s.facts.nodes
	if len(nodes) == 0 {
		return errors.New("it has no Nodes: add one first")
	}
	var without, others []string
	for _, n := range nodes {
		if len(n.Spec.PodCIDRs) == 0 && n.Spec.PodCIDR == "" {
			without = append(without, n.Name)
		}
		if goos := n.Status.NodeInfo.OperatingSystem; goos != "" && goos != "linux" {
			others = append(others, n.Name+" ("+goos+")")
		}
	}
	var faults []error
	if len(without) > 0 {
		faults = append(faults, fmt.Errorf("spec.podCIDRs of Node %s is empty: start kube-controller-manager with "+
			"--allocate-node-cidrs=true and --cluster-cidr", strings.Join(without, ", ")))
	}
	if len(others) > 0 {
		faults = append(faults, fmt.Errorf("agents run on Linux alone, not on Node %s", strings.Join(others, ", ")))
	}
	for _, name := range s.Gateways {
		if !slices.ContainsFunc(nodes, func(n corev1.Node) bool { return n.Name == name }) {
			faults = append(faults, fmt.Errorf("there is no Node %s to be a Gateway: correct --gateway", name))
		}
	}
	return errors.Join(faults...)
}

func readAgents(ctx context.Context, s *site) error {
	var sets appsv1.DaemonSetList
	if err := s.setup.Client.List(ctx, &sets, client.InNamespace(metav1.NamespaceSystem)); err != nil {
		return fmt.Errorf("list DaemonSets of Namespace %s: %w", metav1.NamespaceSystem, err)
	}
	for _, d := range sets.Items {
		switch d.Name {
		case agents:
			s.facts.agents = &d
		case "kube-proxy":
			s.facts.kubeProxy = true
		}
	}
	return nil
}

// readServer reads the addresses at which API servers announce themselves, and the Service ranges.
func readServer(ctx context.Context, s *site) error {
	var slicesOf discoveryv1.EndpointSliceList
	if err := s.setup.Client.List(ctx, &slicesOf, client.InNamespace(metav1.NamespaceDefault),
		client.MatchingLabels{discoveryv1.LabelServiceName: "kubernetes"}); err != nil {
		return fmt.Errorf("list the endpoints of Service default/kubernetes: %w", err)
	}
	for _, e := range slicesOf.Items {
		for _, p := range e.Ports {
			for _, endpoint := range e.Endpoints {
				if p.Port != nil && len(endpoint.Addresses) > 0 {
					s.facts.servers = append(s.facts.servers,
						"https://"+net.JoinHostPort(endpoint.Addresses[0], strconv.Itoa(int(*p.Port))))
				}
			}
		}
	}
	var ranges networkingv1.ServiceCIDRList
	err := s.setup.Client.List(ctx, &ranges)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil // before Kubernetes 1.33
	}
	if err != nil {
		return fmt.Errorf("list its ServiceCIDRs: %w", err)
	}
	for _, r := range ranges.Items {
		for _, text := range r.Spec.CIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				s.facts.serviceRange = append(s.facts.serviceRange, p.Masked())
			}
		}
	}
	return nil
}

// setPlace is a Namespace in which a cluster may have a ClusterSet.
type setPlace struct {
	namespace string
	remedy    string // the command that removes a ClusterSet from there
	wanted    bool   // a set-up makes one there
	to        **mcv1alpha2.ClusterSet
}

func (s *site) setPlaces() []setPlace {
	return []setPlace{
		{deploy.MemberNamespace, "mc leave", s.member, &s.facts.memberSet},
		{deploy.LeaderNamespace, "mc destroy", s.leader, &s.facts.leaderSet},
	}
}

// clusterSets returns the ClusterSets of a Namespace. It returns nil if the cluster does not serve the kind.
func (s *site) clusterSets(ctx context.Context, namespace string) ([]mcv1alpha2.ClusterSet, error) {
	var sets mcv1alpha2.ClusterSetList
	err := s.setup.Client.List(ctx, &sets, client.InNamespace(namespace))
	if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("list ClusterSets of Namespace %s: %w", namespace, err)
	}
	return sets.Items, nil
}

// readClusterSets reads the ClusterSets that the cluster is in already.
func readClusterSets(ctx context.Context, s *site) error {
	var faults []error
	for _, at := range s.setPlaces() {
		if !at.wanted {
			continue
		}
		sets, err := s.clusterSets(ctx, at.namespace)
		if err != nil {
			faults = append(faults, err)
		}
		for _, set := range sets {
			switch {
			case set.Name != s.o.ClusterSet:
				faults = append(faults, fmt.Errorf("it is in ClusterSet %s/%s already: `tombolo %s` first, or give "+
					"--clusterset %s", set.Namespace, set.Name, at.remedy, set.Name))
			case set.Spec.ClusterID != s.ID:
				faults = append(faults, fmt.Errorf("its cluster ID in ClusterSet %s/%s is %s, not %s: give %s=CONTEXT, or "+
					"`tombolo %s` first", set.Namespace, set.Name, set.Spec.ClusterID, s.ID, set.Spec.ClusterID, at.remedy))
			default:
				*at.to = &set
			}
		}
	}
	return errors.Join(faults...)
}

// checkOtherCNI finds another CNI plugin: by the names of known DaemonSets, or by Nodes that are ready without agents.
func checkOtherCNI(ctx context.Context, s *site) error {
	if s.o.WithOtherCNI {
		return nil
	}
	const remedy = "remove it first (docs/install.md#another-cni-plugin), or give --with-other-cni"
	for _, name := range charts.OtherCNIs {
		err := s.setup.Client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: name}, &appsv1.DaemonSet{})
		switch {
		case err == nil:
			return fmt.Errorf("it has another CNI plugin, DaemonSet %s/%s: %s", metav1.NamespaceSystem, name, remedy)
		case !apierrors.IsNotFound(err):
			return fmt.Errorf("look for DaemonSet %s/%s: %w", metav1.NamespaceSystem, name, err)
		}
	}
	if s.facts.agents != nil {
		return nil
	}
	for _, n := range s.facts.nodes {
		if ready(&n) {
			return fmt.Errorf("its Node %s is Ready without Tombolo, so it has another CNI plugin: %s", n.Name, remedy)
		}
	}
	return nil
}

// checkForeign finds another project's multi-cluster controllers.
func checkForeign(ctx context.Context, s *site) error {
	if s.o.WithOtherCNI {
		return nil
	}
	err := s.setup.Foreign(ctx, s.objects, deploy.MemberNamespace, false)
	if s.leader {
		err = errors.Join(err, s.setup.Foreign(ctx, s.objects, deploy.LeaderNamespace, false))
	}
	return err
}

// checkVersions refuses agents of another version than this program.
func checkVersions(ctx context.Context, s *site) error {
	infos := schema.GroupVersionResource{Group: "crd.antrea.io", Version: "v1beta1", Resource: "antreaagentinfos"}
	list, err := s.objects.Resource(infos).List(ctx, metav1.ListOptions{})
	if s.facts.agents == nil || apierrors.IsNotFound(err) {
		return nil // a definition that an uninstalled version left has no living agents
	}
	if err != nil {
		return fmt.Errorf("list AntreaAgentInfos: %w", err)
	}
	for _, o := range list.Items {
		if v, _ := o.Object["version"].(string); v != "" && v != s.o.Version {
			return fmt.Errorf("the agent of Node %s has version %s, and this program has %s: update the cluster first "+
				"(docs/upgrade.md), or use the program of that version", o.GetName(), v, s.o.Version)
		}
	}
	return nil
}

func ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
