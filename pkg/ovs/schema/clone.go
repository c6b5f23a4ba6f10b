package schema

import (
	"maps"
	"slices"

	"github.com/ovn-kubernetes/libovsdb/model"
)

// libovsdb copies rows whenever they change or are read. It copies through JSON unless the rows implement the copy.

// CloneModel returns a copy that shares nothing with the row.
func (r *OpenVSwitch) CloneModel() model.Model {
	c := &OpenVSwitch{}
	r.CloneModelInto(c)
	return c
}

// CloneModelInto makes another row a copy.
func (r *OpenVSwitch) CloneModelInto(to model.Model) {
	c := to.(*OpenVSwitch)
	*c = *r
	c.Bridges, c.DatapathTypes = slices.Clone(r.Bridges), slices.Clone(r.DatapathTypes)
	c.OtherConfig, c.ExternalIDs, c.Datapaths = maps.Clone(r.OtherConfig), maps.Clone(r.ExternalIDs),
		maps.Clone(r.Datapaths)
	c.OVSVersion = clone(r.OVSVersion)
}

// CloneModel returns a copy that shares nothing with the row.
func (r *Datapath) CloneModel() model.Model {
	c := &Datapath{}
	r.CloneModelInto(c)
	return c
}

// CloneModelInto makes another row a copy.
func (r *Datapath) CloneModelInto(to model.Model) {
	c := to.(*Datapath)
	*c = *r
	c.CTZones = maps.Clone(r.CTZones)
}

// CloneModel returns a copy that shares nothing with the row.
func (r *CTZone) CloneModel() model.Model {
	c := &CTZone{}
	r.CloneModelInto(c)
	return c
}

// CloneModelInto makes another row a copy.
func (r *CTZone) CloneModelInto(to model.Model) {
	c := to.(*CTZone)
	*c = *r
	c.TimeoutPolicy = clone(r.TimeoutPolicy)
}

// CloneModel returns a copy that shares nothing with the row.
func (r *CTTimeoutPolicy) CloneModel() model.Model {
	c := &CTTimeoutPolicy{}
	r.CloneModelInto(c)
	return c
}

// CloneModelInto makes another row a copy.
func (r *CTTimeoutPolicy) CloneModelInto(to model.Model) {
	c := to.(*CTTimeoutPolicy)
	*c = *r
	c.Timeouts = maps.Clone(r.Timeouts)
}

// CloneModel returns a copy that shares nothing with the row.
func (r *Bridge) CloneModel() model.Model {
	c := &Bridge{}
	r.CloneModelInto(c)
	return c
}

// CloneModelInto makes another row a copy.
func (r *Bridge) CloneModelInto(to model.Model) {
	c := to.(*Bridge)
	*c = *r
	c.DatapathID, c.FailMode = clone(r.DatapathID), clone(r.FailMode)
	c.Protocols, c.Ports = slices.Clone(r.Protocols), slices.Clone(r.Ports)
	c.ExternalIDs, c.OtherConfig = maps.Clone(r.ExternalIDs), maps.Clone(r.OtherConfig)
}

// CloneModel returns a copy that shares nothing with the row.
func (r *Port) CloneModel() model.Model {
	c := &Port{}
	r.CloneModelInto(c)
	return c
}

// CloneModelInto makes another row a copy.
func (r *Port) CloneModelInto(to model.Model) {
	c := to.(*Port)
	*c = *r
	c.Interfaces, c.ExternalIDs = slices.Clone(r.Interfaces), maps.Clone(r.ExternalIDs)
	c.QoS = clone(r.QoS)
}

// CloneModel returns a copy that shares nothing with the row.
func (r *QoS) CloneModel() model.Model {
	c := &QoS{}
	r.CloneModelInto(c)
	return c
}

// CloneModelInto makes another row a copy.
func (r *QoS) CloneModelInto(to model.Model) { *to.(*QoS) = *r }

// CloneModel returns a copy that shares nothing with the row.
func (r *Interface) CloneModel() model.Model {
	c := &Interface{}
	r.CloneModelInto(c)
	return c
}

// CloneModelInto makes another row a copy.
func (r *Interface) CloneModelInto(to model.Model) {
	c := to.(*Interface)
	*c = *r
	c.Options, c.ExternalIDs = maps.Clone(r.Options), maps.Clone(r.ExternalIDs)
	c.BFD, c.BFDStatus = maps.Clone(r.BFD), maps.Clone(r.BFDStatus)
	c.OFPort, c.OFPortRequest, c.MTU, c.MTURequest = clone(r.OFPort), clone(r.OFPortRequest), clone(r.MTU),
		clone(r.MTURequest)
	c.IfIndex = clone(r.IfIndex)
	c.MAC, c.MACInUse, c.Error = clone(r.MAC), clone(r.MACInUse), clone(r.Error)
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}
