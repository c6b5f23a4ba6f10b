package leader

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configplanev1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/configplane/v1alpha1"
	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/multicluster/exportcheck"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/retry"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// centralSteps have the missing writes of copies.
type centralSteps struct {
	*central
	networks *networks
	crowded  *derive.Table[derive.Name, bool] // clusters with too many copies, also these that terminate
	crammed  *derive.Table[derive.Name, bool] // the same of copies of VirtualNetworks

	bySubnet       *derive.Index[derive.Object, derive.Object, *centralNetwork] // VirtualNetworks by the Subnets they name
	managerSteps   *derive.Table[derive.Object, statusStep]
	namespaceSteps *derive.Table[derive.Object, *copyStep]
	virtualSteps   *derive.Table[derive.Object, *copyStep]
	tenantSteps    *derive.Table[derive.Object, tenantStep]
	virtualStatus  *derive.Table[derive.Object, statusStep]
	subnetSteps    *derive.Table[derive.Object, statusStep]
	routerSteps    *derive.Table[derive.Object, statusStep]
}

// maxCopies is the number of copies of a cluster above which no new ones are made. Copies that terminate count, so a
// member cannot fill the central cluster by listing other names again and again.
const (
	maxCopies   = 2 * exportcheck.MaxNamespaces
	maxNetworks = 2 * exportcheck.MaxVirtualNetworks // the same of copies of VirtualNetworks
)

// newCentralSteps adds the tables of writes.
func newCentralSteps(e *derive.Engine, c *central, n *networks) *centralSteps {
	s := &centralSteps{central: c, networks: n}
	made := derive.NewIndex(c.copies, "TenantNetwork", func(k derive.Object, of *copied) []derive.Object {
		if of.Kept {
			return nil
		}
		return []derive.Object{of.tenantNetwork(k.Name)}
	})
	madeNetworks := derive.NewIndex(c.copiedNetworks, "its TenantNetwork",
		func(k derive.Object, n *copiedNetwork) []derive.Object {
			if n.Of.Kept {
				return nil
			}
			return []derive.Object{n.Of.tenantNetwork(networkName(k))}
		})
	defaults := derive.NewIndex(c.live, "VirtualNetwork",
		func(k derive.Object, _ tenant.NamespaceFacts) []derive.Object {
			return []derive.Object{{Namespace: k.Name, Name: contrailv4.DefaultPodNetwork}}
		})
	s.crowded = derive.NewTable(e, "clusters with too many copies",
		func(id derive.Name, r *derive.Reader) (bool, []problem.Problem) {
			return len(derive.List(r, c.copiesOf, id)) >= maxCopies, nil
		}, derive.KeysOfIndex(c.copiesOf))
	s.crammed = derive.NewTable(e, "clusters with too many copies of VirtualNetworks",
		func(id derive.Name, r *derive.Reader) (bool, []problem.Problem) {
			return len(derive.List(r, c.networksOf, id)) >= maxNetworks, nil
		}, derive.KeysOfIndex(c.networksOf))
	s.managerSteps = derive.NewTable(e, "steps of Kubemanagers", s.managerStep, derive.KeysOf(c.kubemanagers))
	s.namespaceSteps = derive.NewTable(e, "steps of copies", s.namespaceStep, derive.KeysOf(c.copies),
		derive.KeysOf(c.namespaces))
	s.virtualSteps = derive.NewTable(e, "steps of VirtualNetworks", s.virtualStep, derive.KeysOfIndex(defaults),
		derive.KeysOf(c.copiedNetworks), derive.KeysOf(c.virtual))
	s.tenantSteps = derive.NewTable(e, "steps of TenantNetworks of copies", s.tenantStep, derive.KeysOf(n.networks),
		derive.KeysOfIndex(made), derive.KeysOfIndex(madeNetworks))
	s.virtualStatus = derive.NewTable(e, "status steps of VirtualNetworks", s.virtualStatusStep, derive.KeysOf(c.virtual))
	s.bySubnet = derive.NewIndex(c.virtual, "Subnet", func(k derive.Object, n *centralNetwork) (out []derive.Object) {
		for _, name := range n.Subnets {
			if name != "" {
				out = append(out, derive.Object{Namespace: k.Namespace, Name: name})
			}
		}
		return out
	})
	s.subnetSteps = derive.NewTable(e, "status steps of Subnets", s.subnetStep, derive.KeysOf(c.subnets))
	s.routerSteps = derive.NewTable(e, "status steps of routers", s.routerStep, derive.KeysOf(c.routers))
	return s
}

// statusStep is the desired status of an object, as JSON; empty if the object has it.
type statusStep struct {
	UID    types.UID
	Status string
	Group  string // the cluster ID
}

func statusStepOf(uid types.UID, cluster string, fields map[string]any) statusStep {
	text, err := json.Marshal(fields)
	if err != nil { // texts and numbers cause no error
		return statusStep{}
	}
	return statusStep{uid, string(text), cluster}
}

// managerStep decides the status of a Kubemanager.
func (s *centralSteps) managerStep(k derive.Object, r *derive.Reader) (statusStep, []problem.Problem) {
	have, _ := derive.Get(r, s.managerStatus, k)
	m, _ := derive.Get(r, s.managed, k)
	about := problem.About("Kubemanager", k.Namespace, k.Name)
	ps := slices.Clone(m.Problems)
	var taken, others, networks, waiting, crammedIn []string
	f, _ := derive.Get(r, s.kubemanagers, k)
	crowded, _ := derive.Get(r, s.crowded, derive.Name(f.Spec.ClusterName))
	crammed, _ := derive.Get(r, s.crammed, derive.Name(f.Spec.ClusterName))
	for _, name := range slices.Sorted(maps.Keys(m.Copies)) {
		of, _ := derive.Get(r, s.copies, derive.Object{Name: name})
		n, _ := derive.Get(r, s.namespaces, derive.Object{Name: name})
		made, _ := derive.Get(r, s.networks.networks, m.Copies[name].tenantNetwork(name))
		switch {
		case of == nil || of.Kubemanager != k:
			others = append(others, name)
		case n != nil && !n.Copy:
			taken = append(taken, name)
		case n == nil && crowded:
			waiting = append(waiting, name)
		case crammed && len(m.Copies[name].VirtualNetworks) > 0:
			crammedIn = append(crammedIn, name)
		case made != nil && !made.Copy:
			networks = append(networks, name)
		}
	}
	if len(others) > 0 {
		ps.Add(about, "metadata.name", reasonNameTaken, "an older Kubemanager has a copy with the name "+
			problem.Few(others)+": create this Kubemanager with another name")
	}
	if len(taken) > 0 {
		ps.Add(about, "metadata.name", reasonNameTaken, "there is a Namespace "+problem.Few(taken)+" that is no copy, and "+
			"stays as it is: delete it, or create this Kubemanager with another name")
	}
	if len(waiting) > 0 {
		ps.Add(about, "spec.clusterName", reasonTooManyCopies, "there is no copy "+problem.Few(waiting)+": cluster "+
			f.Spec.ClusterName+fmt.Sprintf(" has %d copies or more, with these that are being deleted: wait until they are "+
			"gone, and see in the cluster who creates so many isolated Namespaces", maxCopies))
	}
	if len(crammedIn) > 0 {
		ps.Add(about, "spec.clusterName", reasonTooManyCopies, "VirtualNetworks may have no copies in "+
			problem.Few(crammedIn)+": cluster "+f.Spec.ClusterName+fmt.Sprintf(" has %d copies of VirtualNetworks or more, "+
			"with these that are being deleted: wait until they are gone, and see in the cluster who creates so many",
			maxNetworks))
	}
	if len(networks) > 0 {
		ps.Add(about, "metadata.name", reasonNameTaken, "there is a TenantNetwork "+problem.Few(networks)+" that is not for "+
			"a copy, and stays as it is, so routers do not join the copy: delete it, or create this Kubemanager with another "+
			"name")
	}
	state, observation := observed(ps)
	if m.Fails {
		state = configplanev1alpha1.StateFailure
	}
	if have.Status == (configplanev1alpha1.KubemanagerStatus{State: state, Observation: observation}) {
		return statusStep{}, nil
	}
	return statusStepOf(have.UID, f.Spec.ClusterName, map[string]any{"state": state, "observation": observation}), nil
}

// copyStep is a write of a copy.
type copyStep struct {
	Verb        verb
	UID         types.UID
	Version     string
	Labels      map[string]string // the whole desired ones
	Annotations map[string]string
	// Gone are labels that are removed.
	Gone  []string
	Group string // the cluster ID
}

// original is what has a copy.
type original struct {
	Cluster, Name string // the name is NAMESPACE, or NAMESPACE/NAME for a VirtualNetwork
	Labels        map[string]string
}

func (c *copied) original() original { return original{c.ClusterID, c.Name, c.Labels} }

func (n *copiedNetwork) original() original {
	return original{n.Of.ClusterID, n.Of.Name + "/" + n.Name, n.Labels}
}

// copyMeta returns the step that gives an object the labels of a copy, or nil if it has them. The labels and
// annotations of others stay, also if the original gets a label of the same key later.
func copyMeta(of original, have, annotations map[string]string) *copyStep {
	step := &copyStep{Labels: map[string]string{tenant.LabelCopy: copyLabel(of.Cluster)}, Group: of.Cluster}
	var keys []string
	listed, made := annotations[tenant.AnnotationCopiedLabels]
	before := strings.Split(listed, ",")
	for _, key := range slices.Sorted(maps.Keys(of.Labels)) {
		_, there := have[key]
		users := made && there && !slices.Contains(before, key)
		if exportcheck.Copied(key) && !users {
			step.Labels[key] = of.Labels[key]
			keys = append(keys, key)
		}
	}
	step.Annotations = map[string]string{tenant.AnnotationCopyOf: of.Cluster + "/" + of.Name,
		tenant.AnnotationCopiedLabels: strings.Join(keys, ",")}
	due := false
	for key, value := range step.Labels {
		have, there := have[key]
		due = due || !there || have != value
	}
	for key, value := range step.Annotations {
		due = due || annotations[key] != value
	}
	for _, key := range before {
		if _, stays := step.Labels[key]; !stays && key != "" && exportcheck.Copied(key) {
			step.Gone = append(step.Gone, key)
		}
	}
	if !due {
		return nil
	}
	return step
}

// copyLabel returns the value of the label of copies: the cluster ID, shortened to the form of a label's value if
// necessary.
func copyLabel(clusterID string) string {
	if len(clusterID) > validation.LabelValueMaxLength {
		return "true"
	}
	return clusterID
}

func (s *centralSteps) namespaceStep(k derive.Object, r *derive.Reader) (*copyStep, []problem.Problem) {
	want, _ := derive.Get(r, s.copies, k)
	have, _ := derive.Get(r, s.namespaces, k)
	switch {
	case have == nil && want == nil, have != nil && (!have.Copy || have.Deleted), want != nil && want.Kept:
		return nil, nil
	case want == nil:
		cluster, _ := have.copyOf()
		return &copyStep{Verb: remove, UID: have.UID, Version: have.Version, Group: cluster}, nil
	case have == nil:
		if crowded, _ := derive.Get(r, s.crowded, derive.Name(want.ClusterID)); crowded {
			return nil, nil
		}
		step := copyMeta(want.original(), nil, nil)
		step.Verb = create
		return step, nil
	}
	step := copyMeta(want.original(), have.Labels, have.Annotations)
	if step != nil {
		step.Verb, step.UID, step.Version = update, have.UID, have.Version
	}
	return step, nil
}

// virtualStep makes the VirtualNetworks of a copy: default-podnetwork, and copies of VirtualNetworks with Subnets. An
// existing object of such a name stays as it is.
func (s *centralSteps) virtualStep(k derive.Object, r *derive.Reader) (*copyStep, []problem.Problem) {
	of, _ := derive.Get(r, s.copies, derive.Object{Name: k.Namespace})
	have, _ := derive.Get(r, s.virtual, k)
	if of == nil || of.Kept || !s.isLive(k.Namespace, r) || have != nil && (!have.Copy || have.Deleted) {
		return nil, nil
	}
	want := of.original()
	if k.Name != contrailv4.DefaultPodNetwork {
		n, _ := derive.Get(r, s.copiedNetworks, k)
		if n == nil {
			return goneNetwork(k, have), nil
		}
		want = n.original()
		if crammed, _ := derive.Get(r, s.crammed, derive.Name(of.ClusterID)); crammed && have == nil {
			return nil, nil
		}
	}
	if have == nil {
		step := copyMeta(want, nil, nil)
		step.Verb = create
		return step, nil
	}
	step := copyMeta(want, have.Labels, have.Annotations)
	if step != nil {
		step.Verb, step.UID, step.Version = update, have.UID, have.Version
	}
	return step, nil
}

// goneNetwork returns the removal of the copy of a VirtualNetwork that is gone. Other objects stay.
func goneNetwork(k derive.Object, have *centralNetwork) *copyStep {
	if have == nil {
		return nil
	}
	cluster, _, name := have.copyOf()
	if name != k.Name {
		return nil
	}
	return &copyStep{Verb: remove, UID: have.UID, Version: have.Version, Group: cluster}
}

// tenantStep is a write of the TenantNetwork of a copy.
type tenantStep struct {
	Verb  verb
	UID   types.UID
	Group string // the cluster ID
}

func (s *centralSteps) tenantStep(k derive.Object, r *derive.Reader) (tenantStep, []problem.Problem) {
	if !s.on {
		return tenantStep{}, nil
	}
	have, _ := derive.Get(r, s.networks.networks, k)
	of := s.ofTenantNetwork(k, r)
	wanted := of != nil && s.isLive(of.Key.Namespace, r)
	if wanted && of.Virtual != nil && !of.Virtual.Requests { // the copy is made first, unless a user's object has its name
		object, _ := derive.Get(r, s.virtual, of.Key)
		wanted = object == nil && have != nil || object != nil && object.Copy
	}
	switch {
	case wanted && have == nil:
		return tenantStep{Verb: create, Group: of.ClusterID}, nil
	case !wanted && have != nil && have.Copy:
		step := tenantStep{Verb: remove, UID: have.UID}
		status, _ := derive.Get(r, s.networks.networkStatus, k)
		step.Group = clusterOf(status.Status)
		return step, nil
	}
	return tenantStep{}, nil
}

// virtualStatusStep decides the status of a VirtualNetwork in a copy. The leader does not write the status of other
// VirtualNetworks.
func (s *centralSteps) virtualStatusStep(k derive.Object, r *derive.Reader) (statusStep, []problem.Problem) {
	of, _ := derive.Get(r, s.copies, derive.Object{Name: k.Namespace})
	if of == nil || !s.isLive(k.Namespace, r) {
		return statusStep{}, nil
	}
	have, _ := derive.Get(r, s.virtual, k)
	virtual, _ := derive.Get(r, s.copiedNetworks, k)
	own, _ := derive.Get(r, s.tenants.VirtualNetworkProblems, k)
	ps := slices.Clone(problem.List(own.List))
	about := problem.About("VirtualNetwork", k.Namespace, k.Name)
	of.isOut(about, &ps)
	var want contrailv4.VirtualNetworkStatus
	fails, families := false, of.Families
	network := of.tenantNetwork(k.Namespace)
	if virtual != nil {
		network = of.tenantNetwork(networkName(k))
	}
	made, _ := derive.Get(r, s.networks.networks, network)
	switch number, numbered := derive.Get(r, s.networks.numbers, network); {
	case k.Name != contrailv4.DefaultPodNetwork && virtual == nil:
		if _, _, name := have.copyOf(); name == k.Name { // it is about to be deleted
			return statusStep{}, nil
		}
		fails = true
		ps.Add(about, "spec.v4SubnetReference", reasonManagerNotServed, "it names no Subnet, so no Pod of cluster "+
			of.ClusterID+" is in it: create a Subnet in this Namespace, and name it here or in v6SubnetReference")
	case virtual != nil && !have.Copy && !virtual.Requests:
		fails = true
		ps.Add(about, "metadata.name", reasonNameTaken, "it is no copy, so VirtualNetwork "+of.Name+"/"+k.Name+" of cluster "+
			of.ClusterID+" has no copy, and joins nothing: delete it")
	case of.Kept && made == nil:
		fails = true
		ps.Add(about, "metadata.namespace", reasonNotCreated, "the Namespaces of cluster "+of.ClusterID+" are not known, so "+
			"it has no network yet: correct the reason in the observation of Kubemanager "+of.Kubemanager.String())
	case of.Kept:
		want.VirtualNetworkNetworkID, want.IPFamilies = have.Status.VirtualNetworkNetworkID, have.Status.IPFamilies
	case made == nil: // its TenantNetwork is made first
		return statusStep{}, nil
	case !made.Copy:
		fails = true
		ps.Add(about, "metadata.namespace", reasonNameTaken, "it has no network: TenantNetwork "+network.String()+
			" has its name, and is not for a copy: delete that one, or create a Kubemanager with another name")
	case !numbered:
		fails = true
		ps.Add(about, "metadata.namespace", reasonNumberTaken, "it has no network: TenantNetwork "+
			s.networks.holder(made, r).String()+" is older and has the number: delete TenantNetwork "+network.String()+
			", which is made again with another number")
	default:
		if virtual != nil {
			families = s.rangesStatus(about, network, have, r, &ps)
			if virtual.Requests {
				fails = s.requestStatus(k, virtual, r, &ps)
			}
		}
		want.VirtualNetworkNetworkID, want.IPFamilies = int64(number), families
	}
	want.State, want.Observation = observed(ps)
	if fails {
		want.State = contrailv4.StateFailure
	}
	if have.Status == want {
		return statusStep{}, nil
	}
	fields := map[string]any{"state": want.State, "observation": want.Observation, "virtualNetworkNetworkId": nil,
		"ipFamilies": nil}
	if want.VirtualNetworkNetworkID != 0 {
		fields["virtualNetworkNetworkId"] = want.VirtualNetworkNetworkID
	}
	if want.IPFamilies != "" {
		fields["ipFamilies"] = want.IPFamilies
	}
	return statusStepOf(have.UID, of.ClusterID, fields), nil
}

// rangesStatus returns the versions of IP of the copy of a VirtualNetwork, and reports ranges that others have.
func (s *centralSteps) rangesStatus(about problem.Object, network derive.Object, have *centralNetwork,
	r *derive.Reader, ps *problem.List) string {
	ranges, _ := derive.Get(r, s.networks.ranges, network)
	for _, refused := range ranges.Refused {
		ps.Add(about, "metadata.name", refused.Reason, "it is joined with nothing: "+refused.Words)
	}
	if have.Copy && have.Specified {
		ps.Add(about, "spec", reasonManagerNotServed, "it is stored and has no effect: remove it, and change the "+
			"VirtualNetwork in the member")
	}
	return familiesOf(ranges.CIDRs)
}

// familiesOf returns the versions of IP of ranges, as in v6,v4.
func familiesOf(ranges []string) string {
	var out []string
	for _, one := range []struct {
		name, mark string
	}{{"v6", ":"}, {"v4", "."}} {
		if slices.ContainsFunc(ranges, func(text string) bool { return strings.Contains(text, one.mark) }) {
			out = append(out, one.name)
		}
	}
	return strings.Join(out, ",")
}

// isOut reports that the network of a copy has no joins.
func (c *copied) isOut(about problem.Object, ps *problem.List) {
	if c.Out != nil {
		ps.Add(about, "metadata.namespace", c.Out, "it is kept, and joins nothing, since the Namespaces of cluster "+
			c.ClusterID+" are not known: Kubemanager "+c.Kubemanager.String()+" has the reason and the remedy")
	}
}

// routerStep decides the status of a router in a copy.
func (s *centralSteps) routerStep(k derive.Object, r *derive.Reader) (statusStep, []problem.Problem) {
	of, _ := derive.Get(r, s.copies, derive.Object{Name: k.Namespace})
	if of == nil || !s.isLive(k.Namespace, r) {
		return statusStep{}, nil
	}
	have, _ := derive.Get(r, s.routerStatus, k)
	found, _ := derive.Get(r, s.tenants.RouterProblems, tenant.RouterName(k))
	ps := slices.Clone(problem.List(found))
	of.isOut(problem.About("VirtualNetworkRouter", k.Namespace, k.Name), &ps)
	var want contrailv4.Status
	want.State, want.Observation = observed(ps)
	if have.Status == want {
		return statusStep{}, nil
	}
	return statusStepOf(have.UID, of.ClusterID, map[string]any{"state": want.State, "observation": want.Observation}), nil
}

func metaNamed(name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: labels}
}

// watchCentral offers the steps of copies as they change.
func (w *writer) watchCentral(s *centralSteps) {
	offer(s.managerSteps, w, (*writer).managerOffer)
	offer(s.namespaceSteps, w, (*writer).namespaceOffer)
	offer(s.virtualSteps, w, (*writer).virtualOffer)
	offer(s.tenantSteps, w, (*writer).tenantOffer)
	offer(s.virtualStatus, w, (*writer).virtualStatusOffer)
	offer(s.subnetSteps, w, (*writer).subnetOffer)
	offer(s.routerSteps, w, (*writer).routerOffer)
}

// centralAgain offers all steps of copies that are still due.
func (w *writer) centralAgain(s *centralSteps) {
	offerAll(s.managerSteps, w, (*writer).managerOffer)
	offerAll(s.namespaceSteps, w, (*writer).namespaceOffer)
	offerAll(s.virtualSteps, w, (*writer).virtualOffer)
	offerAll(s.tenantSteps, w, (*writer).tenantOffer)
	offerAll(s.virtualStatus, w, (*writer).virtualStatusOffer)
	offerAll(s.subnetSteps, w, (*writer).subnetOffer)
	offerAll(s.routerSteps, w, (*writer).routerOffer)
}

func (w *writer) managerOffer(key derive.Object, s statusStep) retry.Offer {
	return w.patchStatus("Kubemanager", "status of Kubemanager", key, &configplanev1alpha1.Kubemanager{}, s)
}

func (w *writer) virtualStatusOffer(key derive.Object, s statusStep) retry.Offer {
	return w.patchStatus("VirtualNetwork", "status of VirtualNetwork", key, &contrailv4.VirtualNetwork{}, s)
}

func (w *writer) subnetOffer(key derive.Object, s statusStep) retry.Offer {
	return w.patchStatus("Subnet", "status of Subnet", key, &contrailv4.Subnet{}, s)
}

func (w *writer) routerOffer(key derive.Object, s statusStep) retry.Offer {
	return w.patchStatus("VirtualNetworkRouter", "status of VirtualNetworkRouter", key,
		&contrailv4.VirtualNetworkRouter{}, s)
}

// patchStatus writes a status. The patch has the UID, so the API server refuses it for a recreated object.
func (w *writer) patchStatus(kind, name string, key derive.Object, at client.Object, s statusStep) retry.Offer {
	var do func(context.Context) error
	if s.Status != "" {
		do = func(ctx context.Context) error {
			text, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": s.UID},
				"status": json.RawMessage(s.Status)})
			if err != nil {
				return err
			}
			at := at.DeepCopyObject().(client.Object)
			at.SetNamespace(key.Namespace)
			at.SetName(key.Name)
			return w.to.Status().Patch(ctx, at, client.RawPatch(types.MergePatchType, text))
		}
	}
	o := w.offer(kind, key, s.Group, updateStatus, statusField, do)
	o.Key, o.Late = name+" "+key.String(), true // the object itself may have a write as well
	return o
}

func (w *writer) namespaceOffer(key derive.Object, s *copyStep) retry.Offer {
	return w.copyOffer("Namespace", key, &corev1.Namespace{}, s)
}

func (w *writer) virtualOffer(key derive.Object, s *copyStep) retry.Offer {
	return w.copyOffer("VirtualNetwork", key, &contrailv4.VirtualNetwork{}, s)
}

// copyOffer writes the labels and annotations of a copy, creates it or deletes it. It does not replace an existing
// object, so the objects of other writers stay as they are.
func (w *writer) copyOffer(kind string, key derive.Object, at client.Object, s *copyStep) retry.Offer {
	if s == nil {
		return w.offer(kind, key, "", "", "", nil)
	}
	object := func() client.Object {
		o := at.DeepCopyObject().(client.Object)
		o.SetNamespace(key.Namespace)
		o.SetName(key.Name)
		return o
	}
	var do func(context.Context) error
	switch s.Verb {
	case create:
		do = func(ctx context.Context) error {
			o := object()
			o.SetLabels(s.Labels)
			o.SetAnnotations(s.Annotations)
			return w.to.Create(ctx, o)
		}
	case update:
		do = func(ctx context.Context) error {
			labels := map[string]any{}
			for k, v := range s.Labels {
				labels[k] = v
			}
			for _, k := range s.Gone {
				labels[k] = nil
			}
			text, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": s.UID, "resourceVersion": s.Version,
				"labels": labels, "annotations": s.Annotations}})
			if err != nil {
				return err
			}
			return w.to.Patch(ctx, object(), client.RawPatch(types.MergePatchType, text))
		}
	case remove:
		have := object()
		have.SetUID(s.UID)
		have.SetResourceVersion(s.Version)
		do = w.delete(have)
	}
	return w.offer(kind, key, s.Group, s.Verb, "", do)
}

// tenantOffer creates and deletes the TenantNetwork of a copy. Its status has the Namespace.
func (w *writer) tenantOffer(key derive.Object, s tenantStep) retry.Offer {
	n := &tombolov1alpha1.TenantNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	var do func(context.Context) error
	switch s.Verb {
	case create:
		do = func(ctx context.Context) error {
			n := n.DeepCopy()
			n.Labels = map[string]string{tenant.LabelCopy: "true"}
			return w.to.Create(ctx, n)
		}
	case remove:
		do = func(ctx context.Context) error {
			return client.IgnoreNotFound(w.to.Delete(ctx, n.DeepCopy(), client.Preconditions{UID: &s.UID}))
		}
	}
	o := w.offer("TenantNetwork", key, s.Group, s.Verb, "", do)
	o.Key = "copy's " + o.Key // its status has another write
	return o
}
