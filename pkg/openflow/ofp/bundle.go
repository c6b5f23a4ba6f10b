package ofp

// Time is a time or a span in a bundle's properties (ofp_time).
type Time struct {
	Seconds     uint64
	Nanoseconds uint32
}

// Bits of BundleFeaturesReply.Capabilities besides BundleAtomic and BundleOrdered, and a flag of
// a scheduled bundle.
const BundleTime uint16 = 1 << 2

// Flags of a BundleFeaturesRequest (ofp_bundle_feature_flags).
const (
	BundleFeatureTimestamp uint32 = 1 << 0 // tell the switch's time
	BundleFeatureSetSched  uint32 = 1 << 1 // set the tolerances in Time
)

// BundleSchedule is how exactly and how far from now a bundle can be committed at a time
// (ofp_bundle_features_prop_time).
type BundleSchedule struct{ Accuracy, MaxFuture, MaxPast, Timestamp Time }

// BundleFeaturesRequest asks what bundles the switch can do (OFPMP_BUNDLE_FEATURES). Open
// vSwitch 3.1 answers OFPBRC_BAD_STAT.
type BundleFeaturesRequest struct {
	Flags      uint32
	Schedule   *BundleSchedule
	Properties []RawProperty
}

// BundleFeaturesReply says what bundles the switch can do.
type BundleFeaturesReply struct {
	Capabilities uint16
	Schedule     *BundleSchedule
	Properties   []RawProperty
}
