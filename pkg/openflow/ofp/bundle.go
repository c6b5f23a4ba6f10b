package ofp

// Time is a time or a span in a bundle's properties (ofp_time).
type Time struct {
	Seconds     uint64
	Nanoseconds uint32
}

// BundleTime is a bit of BundleFeaturesReply.Capabilities, in addition to BundleAtomic and BundleOrdered. It is also a
// flag of a scheduled bundle.
const BundleTime uint16 = 1 << 2

// Flags of a BundleFeaturesRequest (ofp_bundle_feature_flags).
const (
	BundleFeatureTimestamp uint32 = 1 << 0 // report the switch's time
	BundleFeatureSetSched  uint32 = 1 << 1 // set the tolerances in Time
)

// BundleSchedule has limits for scheduled commits of bundles: the precision, and how far in the future
// (ofp_bundle_features_prop_time).
type BundleSchedule struct{ Accuracy, MaxFuture, MaxPast, Timestamp Time }

// BundleFeaturesRequest asks which bundles the switch supports (OFPMP_BUNDLE_FEATURES). Open vSwitch 3.1 answers
// OFPBRC_BAD_STAT.
type BundleFeaturesRequest struct {
	Flags      uint32
	Schedule   *BundleSchedule
	Properties []RawProperty
}

// BundleFeaturesReply has the switch's abilities with bundles.
type BundleFeaturesReply struct {
	Capabilities uint16
	Schedule     *BundleSchedule
	Properties   []RawProperty
}

// Type of the messages about bundles' features.
func (BundleFeaturesRequest) Type() Type { return TypeMultipartRequest }
func (BundleFeaturesReply) Type() Type   { return TypeMultipartReply }

// MultipartType of the messages about bundles' features.
func (BundleFeaturesRequest) MultipartType() MultipartType { return MultipartBundleFeatures }
func (BundleFeaturesReply) MultipartType() MultipartType   { return MultipartBundleFeatures }

// HasMore of the messages about bundles' features.
func (BundleFeaturesRequest) HasMore() bool { return false }
func (BundleFeaturesReply) HasMore() bool   { return false }

// Types of properties of bundles and of their features.
const (
	bundlePropTime     uint16 = 1 // ofp_bundle_prop_time
	bundlePropSchedule uint16 = 1 // ofp_bundle_features_prop_time
)

func (e *encoder) time(t Time) {
	e.u64(t.Seconds)
	e.u32s(t.Nanoseconds, 0)
}
func (d *decoder) time(field string) Time {
	t := Time{d.u64(field), d.u32(field)}
	d.skip(4)
	return t
}

func (m BundleControl) appendTo(e *encoder) {
	e.u32(m.ID)
	if m.Ctrl > BundleDiscardReply {
		e.fail("bundle %d: control type %d does not exist", m.ID, m.Ctrl)
	}
	e.u16s(m.Ctrl, m.Flags)
	if m.At != nil {
		p := e.propStart(bundlePropTime)
		e.zero(4)
		e.time(*m.At)
		e.propEnd(p)
	}
	e.raw(m.Properties)
}
func (d *decoder) bundleControl() Message {
	m := BundleControl{ID: d.u32("bundle_id"), Ctrl: d.u16("ctrl type"), Flags: d.u16("flags")}
	for d.left() > 0 {
		switch kind, p := d.prop("bundle property"); kind {
		case bundlePropTime:
			p.skip(4)
			t := p.time("scheduled_time")
			m.At = &t
		default:
			m.Properties = append(m.Properties, p.raw(kind))
		}
	}
	return m
}

func (m BundleAdd) appendTo(e *encoder) {
	start := len(e.b) + 8
	e.bundleAdd(m.ID, m.Flags, m.Message)
	if len(m.Properties) > 0 {
		e.pad8(start)
		e.raw(m.Properties)
	}
}

func (e *encoder) bundleAdd(id uint32, flags uint16, m Message) {
	e.u32(id)
	e.zero(2)
	e.u16(flags)
	if m == nil {
		e.fail("the message is nil")
		return
	}
	if !bundlable(m.Type()) {
		e.fail("a bundle holds changes of flows, groups, ports, tables and meters and packets out, not %s", m.Type())
		return
	}
	e.message(m)
}

// bundlable reports whether a message can be part of a bundle. The switch may accept fewer kinds: Open vSwitch 3.1
// refuses meters and tables.
func bundlable(t Type) bool {
	switch t {
	case TypeFlowMod, TypeGroupMod, TypePortMod, TypeTableMod, TypeMeterMod, TypePacketOut, TypeExperimenter,
		TypeSetConfig, TypeSetAsync:
		return true
	}
	return false
}

func (d *decoder) bundleAdd(xid uint32) Message {
	m := BundleAdd{ID: d.u32("bundle_id")}
	d.skip(2)
	m.Flags = d.u16("flags")
	var inner uint32
	at, whole := *d, d.left()
	m.Message = d.inner(&inner)
	if d.ok() && inner != xid {
		at.fail("message", "its transaction id %#x differs from the outer one, %#x", inner, xid)
	}
	if d.left() > 0 {
		d.skip((8 - (whole-d.left())%8) % 8)
	}
	for d.left() > 0 {
		kind, p := d.prop("bundle property")
		m.Properties = append(m.Properties, p.raw(kind))
	}
	return m
}

func (e *encoder) schedule(s *BundleSchedule) {
	if s == nil {
		return
	}
	p := e.propStart(bundlePropSchedule)
	e.zero(4)
	e.time(s.Accuracy)
	e.time(s.MaxFuture)
	e.time(s.MaxPast)
	e.time(s.Timestamp)
	e.propEnd(p)
}
func (d *decoder) bundleFeatures(s **BundleSchedule, raw *[]RawProperty) {
	for d.left() > 0 {
		switch kind, p := d.prop("bundle property"); kind {
		case bundlePropSchedule:
			p.skip(4)
			*s = &BundleSchedule{p.time("sched_accuracy"), p.time("sched_max_future"), p.time("sched_max_past"),
				p.time("timestamp")}
		default:
			*raw = append(*raw, p.raw(kind))
		}
	}
}

func (m BundleFeaturesRequest) appendTo(e *encoder) {
	e.multipart(m)
	e.u32s(m.Flags, 0)
	e.schedule(m.Schedule)
	e.raw(m.Properties)
}
func (d *decoder) bundleFeaturesRequest() Message {
	m := BundleFeaturesRequest{Flags: d.u32("feature_request_flags")}
	d.skip(4)
	d.bundleFeatures(&m.Schedule, &m.Properties)
	return m
}
func (m BundleFeaturesReply) appendTo(e *encoder) {
	e.multipart(m)
	e.u16(m.Capabilities)
	e.zero(6)
	e.schedule(m.Schedule)
	e.raw(m.Properties)
}
func (d *decoder) bundleFeaturesReply() Message {
	m := BundleFeaturesReply{Capabilities: d.u16("capabilities")}
	d.skip(6)
	d.bundleFeatures(&m.Schedule, &m.Properties)
	return m
}
