package tenant

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	contrailv4 "github.com/tombolo-net/tombolo/pkg/apis/contrail/v4"
	plumbingv1 "github.com/tombolo-net/tombolo/pkg/apis/plumbing/v1"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// A NetworkAttachmentDefinition (NAD) stands for the VirtualNetwork with the same name. If the NAD has an annotation
// with Subnets, the controller creates the VirtualNetwork and these Subnets.

const (
	// AnnotationDefinition on a NAD has the Subnets of its VirtualNetwork, in JSON. Contrail CN2 uses the same annotation.
	AnnotationDefinition = "juniper.net/networks"
	// PluginCN2 is the type in configurations of NADs whose interfaces are in VirtualNetworks.
	PluginCN2 = "contrail-k8s-cni"
)

// maxObjectName is the longest name of an object.
const maxObjectName = 253

// OtherPlugin reports whether a plugin of another project makes the interfaces of a NAD. Multus calls such plugins. If
// the NAD has no configuration, or an invalid one, it stands for the VirtualNetwork with its name.
func OtherPlugin(n *plumbingv1.NetworkAttachmentDefinition) bool {
	var conf struct {
		Type    string `json:"type"`
		Plugins []struct {
			Type string `json:"type"`
		} `json:"plugins"`
	}
	if json.Unmarshal([]byte(n.Spec.Config), &conf) != nil {
		return false
	}
	kinds := map[string]bool{conf.Type: true}
	for _, p := range conf.Plugins {
		kinds[p.Type] = true
	}
	delete(kinds, "")
	return len(kinds) > 0 && !kinds[PluginCN2]
}

// DefinitionFacts is the part of a NAD that its VirtualNetwork is made of.
type DefinitionFacts struct {
	UID    types.UID
	Labels map[string]string
	CIDRs  [2]netip.Prefix // of its Subnets for IPv4 and IPv6; the zero value for no Subnet
	Spec   contrailv4.VirtualNetworkSpec
}

// definition is the annotation of a NAD.
type definition struct {
	IPAMV4Subnet          string                   `json:"ipamV4Subnet"`
	IPAMV6Subnet          string                   `json:"ipamV6Subnet"`
	FabricSNAT            bool                     `json:"fabricSNAT"`
	PodNetwork            bool                     `json:"podNetwork"`
	RouteTargetList       []contrailv4.RouteTarget `json:"routeTargetList"`
	ImportRouteTargetList []contrailv4.RouteTarget `json:"importRouteTargetList"`
	ExportRouteTargetList []contrailv4.RouteTarget `json:"exportRouteTargetList"`
}

// DefinitionFactsOf returns the facts about a NAD that has Subnets. Other NADs have no facts.
func DefinitionFactsOf(n *plumbingv1.NetworkAttachmentDefinition) *DefinitionFacts {
	f, ps := definitionOf(n)
	if len(ps) > 0 || f.CIDRs == [2]netip.Prefix{} || n.DeletionTimestamp != nil || OtherPlugin(n) {
		return nil
	}
	return f
}

// DefinitionProblems returns the defects of a NAD's annotation. If there are any, nothing is created.
func DefinitionProblems(n *metav1.PartialObjectMetadata) []problem.Problem {
	_, ps := definitionOf(&plumbingv1.NetworkAttachmentDefinition{ObjectMeta: n.ObjectMeta})
	return ps
}

func definitionOf(n *plumbingv1.NetworkAttachmentDefinition) (*DefinitionFacts, problem.List) {
	f, ps := &DefinitionFacts{UID: n.UID, Labels: maps.Clone(n.Labels)}, problem.List(nil)
	text, ok := n.Annotations[AnnotationDefinition]
	if !ok {
		return f, nil
	}
	invalid := func(message string) {
		ps.Add(problem.About("NetworkAttachmentDefinition", n.Namespace, n.Name),
			"metadata.annotations["+AnnotationDefinition+"]", reasonInvalid, message)
	}
	var d definition
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&d)
	if _, more := decoder.Token(); err == nil && !errors.Is(more, io.EOF) {
		err = errors.New("there is text after it")
	}
	if err != nil {
		invalid(fmt.Sprintf("it is not read, so no VirtualNetwork is created (%v): write JSON as in "+
			`{"ipamV4Subnet": "10.0.1.0/24"}`, err))
		return f, ps
	}
	switch {
	case n.Name == contrailv4.DefaultPodNetwork:
		invalid("VirtualNetwork " + n.Name + " is the network of the Namespace: create another NetworkAttachmentDefinition")
	case len(n.Name)+len(subnetSuffixes[0]) > maxObjectName:
		invalid(fmt.Sprintf("the names of its Subnets would have more than %d characters: create another "+
			"NetworkAttachmentDefinition with a shorter name", maxObjectName))
	}
	for i, field := range []struct{ name, text string }{{"ipamV4Subnet", d.IPAMV4Subnet}, {"ipamV6Subnet",
		d.IPAMV6Subnet}} {
		if field.text == "" {
			continue
		}
		p, err := netip.ParsePrefix(field.text)
		if err != nil || p.Addr().Is4In6() || p != p.Masked() || versionOf(p) != i {
			invalid(fmt.Sprintf("%s has %s, which is not a range of IPv%d addresses: write one as in %s", field.name,
				problem.Quoted(field.text), 4+2*i, []string{"10.0.1.0/24", "fd50::/64"}[i]))
			continue
		}
		f.CIDRs[i] = p
	}
	f.Spec = contrailv4.VirtualNetworkSpec{
		FabricSNAT: d.FabricSNAT, PodNetwork: d.PodNetwork, RouteTargetList: d.RouteTargetList,
		ImportRouteTargetList: d.ImportRouteTargetList, ExportRouteTargetList: d.ExportRouteTargetList,
	}
	return f, ps
}

// subnetSuffixes follow the name of a NAD in the names of its Subnets.
var subnetSuffixes = [2]string{"-v4", "-v6"}

// Subnets returns the keys of the Subnets of a NAD, IPv4 first. For a version without a Subnet the key is empty.
func (f *DefinitionFacts) Subnets(k derive.Object) (out [2]derive.Object) {
	for i, p := range f.CIDRs {
		if p.IsValid() {
			out[i] = derive.Object{Namespace: k.Namespace, Name: k.Name + subnetSuffixes[i]}
		}
	}
	return out
}

// Objects returns the Subnets of a NAD and its VirtualNetwork. They end with the NAD.
func (f *DefinitionFacts) Objects(k derive.Object) ([]*contrailv4.Subnet, *contrailv4.VirtualNetwork) {
	own := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: k.Namespace, Name: name, OwnerReferences: []metav1.OwnerReference{{
			APIVersion: plumbingv1.GroupVersion.String(), Kind: "NetworkAttachmentDefinition", Name: k.Name, UID: f.UID,
			Controller: new(true)}}}
	}
	n := &contrailv4.VirtualNetwork{ObjectMeta: own(k.Name), Spec: f.Spec}
	n.Labels = maps.Clone(f.Labels)
	references := []**contrailv4.ResourceReference{&n.Spec.V4SubnetReference, &n.Spec.V6SubnetReference}
	var subnets []*contrailv4.Subnet
	for i, at := range f.Subnets(k) {
		if at.Name == "" {
			continue
		}
		subnets = append(subnets, &contrailv4.Subnet{ObjectMeta: own(at.Name),
			Spec: contrailv4.SubnetSpec{CIDR: f.CIDRs[i].String()}})
		*references[i] = &contrailv4.ResourceReference{APIVersion: contrailv4.GroupVersion.String(), Kind: "Subnet",
			Namespace: at.Namespace, Name: at.Name}
	}
	return subnets, n
}

// Differs returns the problems of a NAD whose VirtualNetwork differs from it: a range has changed, or the
// VirtualNetwork existed before. have returns the range of one of its Subnets.
func (f *DefinitionFacts) Differs(k derive.Object, n VirtualNetworkFacts, have func(derive.Object) netip.Prefix,
) (ps problem.List) {
	for i, at := range f.Subnets(k) {
		if at.Name == "" {
			continue
		}
		if p := have(at); n.Subnets[i] != at.Name || p.IsValid() && p != f.CIDRs[i] {
			ps.Add(problem.About("VirtualNetwork", k.Namespace, k.Name), []string{"spec.v4SubnetReference",
				"spec.v6SubnetReference"}[i], reasonNotServed, "NetworkAttachmentDefinition "+k.String()+" has the range "+
				f.CIDRs[i].String()+", which the network has not: Subnets stay as they are: create another "+
				"NetworkAttachmentDefinition")
		}
	}
	return ps
}
