package tenants

import (
	"context"
	"net/netip"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/problem"
	"github.com/tombolo-net/tombolo/pkg/retry"
	"github.com/tombolo-net/tombolo/pkg/tenant"
)

// definitionStep is a NetworkAttachmentDefinition whose VirtualNetwork or Subnets do not exist.
type definitionStep struct {
	Facts   *tenant.DefinitionFacts
	Subnets [2]bool // these are missing
	Network bool    // it is missing
}

// definitionStep returns the missing objects of a NetworkAttachmentDefinition. Existing objects with these names stay
// as they are.
func (t *tables) definitionStep(k derive.Object, r *derive.Reader) (definitionStep, []problem.Problem) {
	f, _ := derive.Get(r, t.definitions, k)
	cluster, _ := derive.Get(r, t.cluster, self)
	if f == nil || !cluster.On || t.inCopy(k, r) {
		return definitionStep{}, nil
	}
	out := definitionStep{Facts: f}
	_, there := derive.Get(r, t.networks, k)
	out.Network = !there
	missing := out.Network
	for i, at := range f.Subnets(k) {
		_, there := derive.Get(r, t.subnets.statuses, at)
		out.Subnets[i] = at.Name != "" && !there
		missing = missing || out.Subnets[i]
	}
	if !missing {
		return definitionStep{}, nil
	}
	return out, nil
}

// offerDefinition queues the creation of the objects that a NetworkAttachmentDefinition lacks, or removes a queued one
// that is no longer due.
func (c *controller) offerDefinition(key derive.Object, s definitionStep) {
	object := problem.About("NetworkAttachmentDefinition", key.Namespace, key.Name)
	o := retry.Offer{Key: object.String(), Group: key.Namespace}
	create := func(what string, at client.Object) {
		o.Writes = append(o.Writes, retry.Write{
			What: "create " + what + " " + at.GetNamespace() + "/" + at.GetName(),
			Blame: problem.Problem{Object: object, Field: "metadata.annotations[" + tenant.AnnotationDefinition + "]",
				Reason: retry.ReasonWriteFailed, Message: remedy},
			Do: func(ctx context.Context) error {
				made, ok := at.DeepCopyObject().(client.Object)
				if !ok {
					return nil // every object of a client is one
				}
				return client.IgnoreAlreadyExists(c.to.Create(ctx, made))
			},
		})
	}
	if s.Facts != nil {
		subnets, network := s.Facts.Objects(key)
		for _, one := range subnets {
			for i, at := range s.Facts.Subnets(key) {
				if at.Name == one.Name && s.Subnets[i] {
					create("Subnet", one)
				}
			}
		}
		if s.Network {
			create("VirtualNetwork", network)
		}
	}
	c.queue.Set(o)
}

// differs returns the ranges in the NetworkAttachmentDefinition of a VirtualNetwork that the VirtualNetwork does not
// have.
func (t *tables) differs(k derive.Object, r *derive.Reader) problem.List {
	f, _ := derive.Get(r, t.definitions, k)
	if f == nil {
		return nil
	}
	n, _ := derive.Get(r, t.networkFacts, k)
	return f.Differs(k, n, func(at derive.Object) netip.Prefix {
		s, _ := derive.Get(r, t.subnets.facts, at)
		return s.Range.CIDR
	})
}
