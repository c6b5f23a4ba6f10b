package record

// Reason is why packets ended in the switch.
type Reason struct {
	Word    string // that never changes
	Meaning string
	Remedy  string
}

// Words of Reasons.
const (
	ByPolicy    = "policy"
	Isolated    = "isolated"
	Unknown     = "identity-unknown"
	Fragment    = "fragment"
	NotAdmitted = "not-admitted"
	Invalid     = "invalid-connection"
	JudgedAgain = "judged-again"
	NotExported = "not-exported"
	NotAllowed  = "source-range"
	NoEndpoints = "no-endpoints"
	NoLocal     = "no-local-endpoints"
	NoRoute     = "no-route"
	OtherTenant = "other-network"
	NotSent     = "not-sent"
)

// Reasons are all reasons, for filters and for the reference.
var Reasons = []Reason{
	{ByPolicy, "A rule of a policy drops or rejects the connection.", "`tombolo policy why` shows all rules about it."},
	{Isolated, "NetworkPolicies isolate the Pod, and no rule of them allows the connection.",
		"Add a rule for this client and port to one of the policies that the record names."},
	{Unknown, "The labels of a Pod are not known yet, and policies could select it.",
		"It ends when the API server has the Pod; see `tombolo get status` if it stays."},
	{Fragment, "A fragment whose ports no rule can read.", "Lower the client's packet size, or allow all ports."},
	{NotAdmitted, "The sender may not use this source address, or the packet is of no kind that the Node takes.",
		"docs/pipeline.md lists what is admitted; for tunnels see `tombolo diagnose`."},
	{Invalid, "Connection tracking has found the packet invalid, or the client waits for a decision.",
		"The connection ends and begins again by itself; many of them show packets that take two ways."},
	{JudgedAgain, "A known connection is no longer allowed, since policies or labels have changed.",
		"`tombolo policy why` shows the present rules."},
	{NotExported, "Another cluster asks for an address that is not exported.",
		"Export the Service, or turn on enablePodToPodConnectivity."},
	{NotAllowed, "The client is not in loadBalancerSourceRanges, or a policy of the Service refuses it.",
		"Add the client's range to the Service, or a rule to the policies that are applied to the Service."},
	{NoEndpoints, "The Service has no ready endpoints.", "See the EndpointSlices of the Service."},
	{NoLocal, "The Service takes endpoints of this Node alone, and there is no such endpoint.",
		"Change internalTrafficPolicy or externalTrafficPolicy, or run a Pod of the Service on this Node."},
	{NoRoute, "The destination is no address that packets of Pods may go to.",
		"Check the address; of another cluster, see `tombolo get peers`."},
	{OtherTenant, "The two ends are in networks of tenants that are not joined.",
		"Join them; docs/tenants.md is the guide."},
	{NotSent, "The packet has no port to leave by, or its TTL has ended.",
		"`tombolo trace` of this packet shows the flow."},
}

// MeaningOf returns the meaning of a reason's word.
func MeaningOf(word string) string {
	for _, r := range Reasons {
		if r.Word == word {
			return r.Meaning
		}
	}
	return ""
}
