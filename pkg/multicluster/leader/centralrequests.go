package leader

import (
	"slices"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// Users also create VirtualNetworks with Subnets in a copy, as in the documents of Contrail CN2. The TenantNetwork then
// has a request, and the copy's cluster creates the VirtualNetwork and its Subnets in the copied Namespace. The cluster
// lists it, as its other VirtualNetworks.

// maxRequestedRanges is the number of ranges of a Subnet that a request may have, as in its definition.
const maxRequestedRanges = 50

// centralSubnet has the facts of a Subnet of the central cluster. Subnets that are being deleted have no row.
type centralSubnet struct {
	tenant.SubnetFacts
	Spec   contrailv4.SubnetSpec
	Status contrailv4.SubnetStatus
}

func centralSubnetFacts(o *contrailv4.Subnet) *centralSubnet {
	if !o.DeletionTimestamp.IsZero() {
		return nil
	}
	return &centralSubnet{SubnetFacts: tenant.SubnetFactsOf(o), Spec: o.Spec, Status: o.Status}
}

// version returns the index of the Subnet's version of IP in tenant.VirtualNetworkFacts.Subnets, or -1 if it has no
// valid range.
func (s *centralSubnet) version() int {
	switch {
	case s == nil || !s.Range.CIDR.IsValid():
		return -1
	case s.Range.CIDR.Addr().Is4():
		return 0
	}
	return 1
}

// requested returns the Subnet as a part of a request.
func (s *centralSubnet) requested(name string) *tombolov1alpha1.RequestedSubnet {
	out := &tombolov1alpha1.RequestedSubnet{Name: name, CIDR: s.Spec.CIDR, DefaultGateway: s.Spec.DefaultGateway}
	for _, group := range s.Spec.Ranges {
		for _, one := range group.IPRanges {
			if len(out.Ranges) < maxRequestedRanges {
				out.Ranges = append(out.Ranges, tombolov1alpha1.AddressRange(one))
			}
		}
	}
	return out
}

// requests reports whether a user created the VirtualNetwork, and names Subnets. In a copy it is a request to the
// copy's cluster.
func (n *centralNetwork) requests() bool { return !n.Copy && !n.Deleted && n.Subnets != [2]string{} }

// requestIndex returns the index of VirtualNetworks that may be requests.
func requestIndex(
	of *derive.Source[derive.Object, *centralNetwork],
) *derive.Index[derive.Object, derive.Object, *centralNetwork] {
	return derive.NewIndex(of, "request", func(k derive.Object, n *centralNetwork) []derive.Object {
		if !n.requests() {
			return nil
		}
		return []derive.Object{k}
	})
}

// ofCluster returns the Namespace of a copy.
func (c *copied) ofCluster() *tombolov1alpha1.NamespaceOfCluster {
	return &tombolov1alpha1.NamespaceOfCluster{ClusterID: c.ClusterID,
		NamespaceReference: tombolov1alpha1.NamespaceReference{Name: c.Name, UID: c.UID}}
}

// requestOf returns the VirtualNetwork that a cluster is to create, or nil. A Subnet that is missing or not valid stays
// as it was requested before: Pods have its addresses, and an unread Subnet looks like a missing one. Without Subnets
// there is no request.
func (c *central) requestOf(o *networkOwner, before *tombolov1alpha1.NetworkRequest,
	r *derive.Reader) *tombolov1alpha1.NetworkRequest {
	n, _ := derive.Get(r, c.virtual, o.Key)
	if n == nil || !o.Virtual.Requests {
		return nil
	}
	if before == nil {
		before = &tombolov1alpha1.NetworkRequest{}
	}
	out := &tombolov1alpha1.NetworkRequest{Namespace: *o.ofCluster(), Name: o.Key.Name}
	for version, to := range []struct {
		is, was **tombolov1alpha1.RequestedSubnet
	}{
		{&out.V4Subnet, &before.V4Subnet}, {&out.V6Subnet, &before.V6Subnet},
	} {
		name := n.Subnets[version]
		s, _ := derive.Get(r, c.subnets, derive.Object{Namespace: o.Key.Namespace, Name: name})
		if name != "" && s.version() == version {
			*to.is = s.requested(name)
		} else if was := *to.was; was != nil && was.Name == name {
			*to.is = was
		}
	}
	if out.V4Subnet == nil && out.V6Subnet == nil {
		return nil
	}
	return out
}

// hasRange reports whether a request has a range. A tenant may replace a Subnet in the cluster. The central cluster
// joins no other range.
func hasRange(q *tombolov1alpha1.NetworkRequest, text string) bool {
	if q == nil {
		return false
	}
	return slices.ContainsFunc([]*tombolov1alpha1.RequestedSubnet{q.V4Subnet, q.V6Subnet},
		func(s *tombolov1alpha1.RequestedSubnet) bool { return s != nil && s.CIDR == text })
}

// requestStatus reports why the Pods of a cluster get no addresses of a VirtualNetwork that a user created in a copy.
// It fails if no Subnet is usable.
func (s *centralSteps) requestStatus(k derive.Object, of *copiedNetwork, r *derive.Reader,
	ps *problem.List) (fails bool) {
	n, _ := derive.Get(r, s.virtual, k)
	about := problem.About("VirtualNetwork", k.Namespace, k.Name)
	usable := false
	for version, field := range []string{"spec.v4SubnetReference", "spec.v6SubnetReference"} {
		name := n.Subnets[version]
		if name == "" {
			continue
		}
		subnet, there := derive.Get(r, s.subnets, derive.Object{Namespace: k.Namespace, Name: name})
		switch subnet.version() {
		case version:
			usable = true
		case -1:
			if there {
				ps.Add(about, field, reasonNoSubnet, "Subnet "+name+" gives no addresses: correct the reason in its "+
					"observation")
			} else {
				ps.Add(about, field, reasonNoSubnet, "Subnet "+name+" is not in this Namespace: create it. Or apply "+
					"tombolo-central.yml of the leader's version, if it is there")
			}
		default:
			ps.Add(about, field, reasonNoSubnet, "Subnet "+name+" has addresses of the other version of IP: name it in the "+
				"other field")
		}
	}
	if n.Own {
		ps.Add(about, "spec.podNetwork", reasonManagerNotServed, "it is stored and has no effect: first interfaces of Pods "+
			"of an isolated Namespace are in the network of the Namespace: remove it")
	}
	in := of.Of.Name + "/" + k.Name + " of cluster " + of.Of.ClusterID
	switch {
	case of.Taken:
		ps.Add(about, "metadata.name", reasonNameTaken, "a user of the cluster has created VirtualNetwork "+in+", so it is "+
			"joined with nothing: delete that one, or create this one with another name. Or update the cluster's member "+
			"controller, if it is older than the leader's")
		return true
	case !usable && of.UID == "":
		return true
	case of.UID == "":
		ps.Add(about, "metadata.name", reasonNotCreated, "there is no VirtualNetwork "+in+" yet, or it has no room in the "+
			"cluster's list: wait. If this stays, look at the Events of its ClusterSet, delete other VirtualNetworks there, "+
			"and update its member controller")
	case len(of.CIDRs) == 0:
		ps.Add(about, "metadata.name", reasonNotCreated, "VirtualNetwork "+in+" gives no addresses, or other networks there "+
			"have them, too: correct the reason in its observation, or create it with a range that no other Subnet overlaps")
	}
	made, _ := derive.Get(r, s.networks.networkStatus, of.Of.tenantNetwork(networkName(k)))
	wanted := s.requestOf(&networkOwner{of.Of, k, of}, made.Status.Request, r)
	for _, text := range of.CIDRs {
		if !hasRange(wanted, text) {
			ps.Add(about, "metadata.name", reasonNotCreated, "VirtualNetwork "+in+" has range "+text+", which this one does "+
				"not have, and which is joined with nothing: delete its Subnet there, or the Pods of an earlier one")
		}
	}
	return false
}

// subnetStep decides the status of a Subnet in a copy. The leader does not write the status of other Subnets.
func (s *centralSteps) subnetStep(k derive.Object, r *derive.Reader) (statusStep, []problem.Problem) {
	of, _ := derive.Get(r, s.copies, derive.Object{Name: k.Namespace})
	if of == nil || !s.isLive(k.Namespace, r) {
		return statusStep{}, nil
	}
	have, _ := derive.Get(r, s.subnets, k)
	about := problem.About("Subnet", k.Namespace, k.Name)
	ps := problem.List(slices.Clone(have.Problems))
	of.isOut(about, &ps)
	ranges := 0
	for _, group := range have.Spec.Ranges {
		ranges += len(group.IPRanges)
	}
	if ranges > maxRequestedRanges {
		ps.Add(about, "spec.ranges", reasonManagerNotServed, "ranges after the first 50 are left out: write fewer ranges")
	}
	if have.version() >= 0 && !of.Kept {
		s.givenStatus(k, of, r, &ps)
	}
	var want contrailv4.Status
	want.State, want.Observation = observed(ps)
	if have.version() < 0 {
		want.State = contrailv4.StateFailure
	}
	if have.Status.Status == want {
		return statusStep{}, nil
	}
	return statusStepOf(have.UID, of.ClusterID, map[string]any{"state": want.State, "observation": want.Observation}), nil
}

// givenStatus reports whether the copy's cluster gives addresses of a Subnet.
func (s *centralSteps) givenStatus(k derive.Object, of *copied, r *derive.Reader, ps *problem.List) {
	have, _ := derive.Get(r, s.subnets, k)
	about := problem.About("Subnet", k.Namespace, k.Name)
	named := false
	for _, row := range derive.List(r, s.bySubnet, k) {
		n, _ := derive.Get(r, s.copiedNetworks, row.Key)
		if n == nil || !n.Requests || row.Value.Subnets[have.version()] != k.Name {
			continue
		}
		if slices.Contains(n.CIDRs, have.Range.CIDR.String()) {
			return
		}
		named = true
	}
	if !named {
		ps.Add(about, "metadata.name", reasonNotCreated, "no VirtualNetwork of this Namespace has it: name it in "+
			"spec.v4SubnetReference or spec.v6SubnetReference of one")
		return
	}
	ps.Add(about, "metadata.name", reasonNotCreated, "cluster "+of.ClusterID+" gives no addresses of it: wait. If this "+
		"stays, correct the reason in the observation of Subnet "+of.Name+"/"+k.Name+" there, or in the Events of its "+
		"ClusterSet")
}
