package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TraceflowPhase is how far a Traceflow is.
type TraceflowPhase string

// Phases of a Traceflow. An object without a phase is Pending.
const (
	TraceflowPending   TraceflowPhase = "Pending"
	TraceflowRunning   TraceflowPhase = "Running"
	TraceflowSucceeded TraceflowPhase = "Succeeded" // the end of the packet is known, also if it was dropped
	TraceflowFailed    TraceflowPhase = "Failed"
)

// TraceflowComponent is a part of a Node's network.
type TraceflowComponent string

// Components of observations.
const (
	ComponentSpoofGuard    TraceflowComponent = "SpoofGuard"
	ComponentLB            TraceflowComponent = "LB"
	ComponentNetworkPolicy TraceflowComponent = "NetworkPolicy"
	ComponentForwarding    TraceflowComponent = "Forwarding"
)

// TraceflowAction is what a component has done with the packet.
type TraceflowAction string

// Actions of observations.
const (
	ActionReceived              TraceflowAction = "Received"
	ActionForwarded             TraceflowAction = "Forwarded"
	ActionForwardedOutOfNetwork TraceflowAction = "ForwardedOutOfNetwork"
	ActionDelivered             TraceflowAction = "Delivered"
	ActionDropped               TraceflowAction = "Dropped"
	ActionRejected              TraceflowAction = "Rejected"
)

// Roles of Nodes in the path of a packet.
const (
	RoleSender   = "Sender"
	RoleReceiver = "Receiver"
)

// TraceflowSource is where the packet comes from: a Pod, or the address of a Pod.
type TraceflowSource struct {
	// Namespace of the Pod.
	// +optional
	// +kubebuilder:default=default
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// Pod is the name of the Pod.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod,omitempty"`
	// IP is an address of IPv4 or IPv6.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	IP string `json:"ip,omitempty"`
}

// TraceflowDestination is where the packet goes: a Pod, a Service or an address.
type TraceflowDestination struct {
	// Namespace of the Pod or the Service.
	// +optional
	// +kubebuilder:default=default
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// Pod is the name of the Pod.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Pod string `json:"pod,omitempty"`
	// Service is the name of the Service.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Service string `json:"service,omitempty"`
	// IP is an address of IPv4 or IPv6.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	IP string `json:"ip,omitempty"`
}

// IPHeader is a header of IPv4.
type IPHeader struct {
	// Protocol is the number of the protocol: 1, 6 or 17. Without it the protocol is ICMP, or the Service's.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	Protocol int32 `json:"protocol,omitempty"`
	// TTL of the packet.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	TTL int32 `json:"ttl,omitempty"`
	// Flags of the header: 2, do not fragment. Packets have it also without this.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=7
	Flags int32 `json:"flags,omitempty"`
}

// IPv6Header is a header of IPv6.
type IPv6Header struct {
	// NextHeader is the number of the protocol: 58, 6 or 17. Without it the protocol is ICMPv6, or the Service's.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	NextHeader *int32 `json:"nextHeader,omitempty"`
	// HopLimit of the packet.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	HopLimit int32 `json:"hopLimit,omitempty"`
}

// ICMPEchoRequestHeader is the header of an echo request.
type ICMPEchoRequestHeader struct {
	// ID is the identifier. Without it one is chosen.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	ID int32 `json:"id,omitempty"`
	// Sequence is the sequence number. Packets are sent with 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Sequence int32 `json:"sequence,omitempty"`
}

// UDPHeader is a header of UDP.
type UDPHeader struct {
	// SrcPort is the source port. Without it one is chosen.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	SrcPort int32 `json:"srcPort,omitempty"`
	// DstPort is the destination port. Without it that is the port of a Service that has one.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	DstPort int32 `json:"dstPort,omitempty"`
}

// TCPHeader is a header of TCP.
type TCPHeader struct {
	// SrcPort is the source port. Without it one is chosen.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	SrcPort int32 `json:"srcPort,omitempty"`
	// DstPort is the destination port. Without it that is the port of a Service that has one.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	DstPort int32 `json:"dstPort,omitempty"`
	// Flags of the header. Without it that is 2, the SYN of a connection.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	Flags *int32 `json:"flags,omitempty"`
}

// TraceflowTransportHeader is the header after that of IP.
//
// +kubebuilder:validation:XValidation:rule="(has(self.tcp) ? 1 : 0) + (has(self.udp) ? 1 : 0) + (has(self.icmp) ? 1 : 0) <= 1",message="write one of tcp, udp and icmp"
type TraceflowTransportHeader struct {
	// ICMP is of an echo request, also of ICMPv6.
	// +optional
	ICMP *ICMPEchoRequestHeader `json:"icmp,omitempty"`
	// UDP header.
	// +optional
	UDP *UDPHeader `json:"udp,omitempty"`
	// TCP header.
	// +optional
	TCP *TCPHeader `json:"tcp,omitempty"`
}

// TraceflowPacket describes the headers of the packet. Without ipHeader and ipv6Header its version of IP is one that
// both ends have, IPv4 if they have both.
//
// +kubebuilder:validation:XValidation:rule="!has(self.ipHeader) || !has(self.ipv6Header)",message="write ipHeader or ipv6Header, and not both"
type TraceflowPacket struct {
	// IPHeader is of an IPv4 packet.
	// +optional
	IPHeader *IPHeader `json:"ipHeader,omitempty"`
	// IPv6Header is of an IPv6 packet.
	// +optional
	IPv6Header *IPv6Header `json:"ipv6Header,omitempty"`
	// TransportHeader is the header after that of IP.
	// +optional
	TransportHeader TraceflowTransportHeader `json:"transportHeader,omitempty,omitzero"`
}

// TraceflowSpec is the packet whose path is asked for.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a Traceflow cannot be changed: create another one"
type TraceflowSpec struct {
	// Source of the packet.
	// +optional
	Source TraceflowSource `json:"source,omitempty,omitzero"`
	// Destination of the packet.
	// +optional
	Destination TraceflowDestination `json:"destination,omitempty,omitzero"`
	// Packet is what the packet has.
	// +optional
	Packet TraceflowPacket `json:"packet,omitempty,omitzero"`
	// LiveTraffic sends no packet. It waits for the first packet of a matching connection between Pods. One end may be
	// left out then.
	// +optional
	LiveTraffic bool `json:"liveTraffic,omitempty"`
	// DroppedOnly waits for a packet that is dropped or rejected. It is for liveTraffic.
	// +optional
	DroppedOnly bool `json:"droppedOnly,omitempty"`
	// Timeout is the longest time until the status is Succeeded or Failed, in seconds. Without it the time is 20 seconds.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=300
	Timeout int32 `json:"timeout,omitempty"`
}

// TraceflowObservation is what a component of a Node has done with the packet.
type TraceflowObservation struct {
	// Component is SpoofGuard, LB, NetworkPolicy or Forwarding.
	// +optional
	Component TraceflowComponent `json:"component,omitempty"`
	// ComponentInfo is the table.
	// +optional
	ComponentInfo string `json:"componentInfo,omitempty"`
	// Action is Received, Forwarded, ForwardedOutOfNetwork, Delivered, Dropped or Rejected.
	// +optional
	Action TraceflowAction `json:"action,omitempty"`
	// Pod that the packet was delivered to.
	// +optional
	Pod string `json:"pod,omitempty"`
	// NetworkPolicy that has let the packet pass or has dropped it, with its rule.
	// +optional
	NetworkPolicy string `json:"networkPolicy,omitempty"`
	// TranslatedSrcIP is the source address that the packet left with.
	// +optional
	TranslatedSrcIP string `json:"translatedSrcIP,omitempty"`
	// TranslatedDstIP is the address of the endpoint that a Service has chosen.
	// +optional
	TranslatedDstIP string `json:"translatedDstIP,omitempty"`
	// TunnelDstIP is the far end of the tunnel that the packet left by.
	// +optional
	TunnelDstIP string `json:"tunnelDstIP,omitempty"`
}

// TraceflowNodeResult is what a Node has seen.
type TraceflowNodeResult struct {
	// Node is the name of the Node.
	// +optional
	Node string `json:"node,omitempty"`
	// Role is Sender, Receiver or nothing.
	// +optional
	Role string `json:"role,omitempty"`
	// Timestamp is when the packet came, in seconds since 1970, by the Node's clock.
	// +optional
	Timestamp int64 `json:"timestamp,omitempty"`
	// Observations in their order.
	// +optional
	Observations []TraceflowObservation `json:"observations,omitempty"`
}

// CapturedPacket is the packet that was found in live traffic.
type CapturedPacket struct {
	// SrcIP is the address that the packet came from.
	// +optional
	SrcIP string `json:"srcIP,omitempty"`
	// DstIP is the address that the packet went to, which may be of a Service.
	// +optional
	DstIP string `json:"dstIP,omitempty"`
	// IPHeader is of an IPv4 packet.
	// +optional
	IPHeader *IPHeader `json:"ipHeader,omitempty"`
	// IPv6Header is of an IPv6 packet.
	// +optional
	IPv6Header *IPv6Header `json:"ipv6Header,omitempty"`
	// TransportHeader is the header after that of IP.
	// +optional
	TransportHeader TraceflowTransportHeader `json:"transportHeader,omitempty,omitzero"`
}

// TraceflowStatus is the path of the packet.
type TraceflowStatus struct {
	// Phase is Pending, Running, Succeeded or Failed.
	// +optional
	Phase TraceflowPhase `json:"phase,omitempty"`
	// Reason is for people: why the phase is Failed, or where the packet has ended.
	// +optional
	Reason string `json:"reason,omitempty"`
	// StartTime is when the phase became Running.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// DataplaneTag is the DSCP of the packet.
	// +optional
	DataplaneTag int32 `json:"dataplaneTag,omitempty"`
	// Results are the Nodes in the order of the path.
	// +optional
	Results []TraceflowNodeResult `json:"results,omitempty"`
	// CapturedPacket is the packet of live traffic.
	// +optional
	CapturedPacket *CapturedPacket `json:"capturedPacket,omitempty"`
}

// Traceflow sends a packet and follows it through the Nodes of the cluster. The packet is not delivered to Pods.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=traceflows,scope=Cluster,shortName=tf,singular=traceflow
type Traceflow struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec TraceflowSpec `json:"spec"`
	// +optional
	Status TraceflowStatus `json:"status,omitempty"`
}

// TraceflowList is a list of Traceflows.
//
// +kubebuilder:object:root=true
type TraceflowList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Traceflow `json:"items"`
}
