package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Types of a PacketCapture's conditions.
const (
	// PacketCaptureStarted is True once an agent captures.
	PacketCaptureStarted = "PacketCaptureStarted"
	// PacketCaptureComplete is True once the capture has ended, with or without success.
	PacketCaptureComplete = "PacketCaptureComplete"
	// PacketCaptureFileUploaded is False if a file server is asked for.
	PacketCaptureFileUploaded = "PacketCaptureFileUploaded"
)

// Reasons of a PacketCapture's conditions.
const (
	// ReasonStarted is of PacketCaptureStarted: an agent captures, or has captured.
	ReasonStarted = "Started"
	// ReasonWaiting is of PacketCaptureStarted: a Pod is not there yet, or is not attached yet.
	ReasonWaiting = "Waiting"
	// ReasonPending is of PacketCaptureStarted: the Node runs as many captures as it may.
	ReasonPending = "Pending"
	// ReasonSucceed is of PacketCaptureComplete: as many packets as asked for are captured.
	ReasonSucceed = "Succeed"
	// ReasonTimeout is of PacketCaptureComplete: the time is over.
	ReasonTimeout = "Timeout"
	// ReasonFailed is of PacketCaptureComplete: nothing could be captured, or not all.
	ReasonFailed = "Failed"
	// ReasonNotServed is of PacketCaptureFileUploaded: no agent sends files to a file server.
	ReasonNotServed = "NotServed"
)

// PacketCaptureDirection is the direction of packets.
//
// +kubebuilder:validation:Enum=SourceToDestination;DestinationToSource;Both
type PacketCaptureDirection string

// Directions of packets.
const (
	SourceToDestination PacketCaptureDirection = "SourceToDestination"
	DestinationToSource PacketCaptureDirection = "DestinationToSource"
	Both                PacketCaptureDirection = "Both"
)

// PacketCapturePoint is the end at whose Pod packets are captured.
//
// +kubebuilder:validation:Enum=Source;Destination
type PacketCapturePoint string

// Ends of a connection.
const (
	AtSource      PacketCapturePoint = "Source"
	AtDestination PacketCapturePoint = "Destination"
)

// PodReference names a Pod.
type PodReference struct {
	// Namespace of the Pod.
	// +optional
	// +kubebuilder:default=default
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// Name of the Pod.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// PacketCaptureEnd is the source or the destination of packets: a Pod or an address.
//
// +kubebuilder:validation:XValidation:rule="has(self.pod) != has(self.ip)",message="write pod or ip, and not both"
type PacketCaptureEnd struct {
	// Pod that packets come from or go to.
	// +optional
	Pod *PodReference `json:"pod,omitempty"`
	// IP is an address of IPv4 or IPv6.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	IP string `json:"ip,omitempty"`
}

// UDPHeader is the part of a UDP header that a packet must have.
type UDPHeader struct {
	// SrcPort is the source port.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	SrcPort *int32 `json:"srcPort,omitempty"`
	// DstPort is the destination port.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	DstPort *int32 `json:"dstPort,omitempty"`
}

// TCPFlagsMatcher matches TCP flags: flags & mask == value.
type TCPFlagsMatcher struct {
	// Value of the flags.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	Value int32 `json:"value"`
	// Mask selects the flags; without it the value does.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	Mask *int32 `json:"mask,omitempty"`
}

// TCPHeader is the part of a TCP header that a packet must have.
type TCPHeader struct {
	// SrcPort is the source port.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	SrcPort *int32 `json:"srcPort,omitempty"`
	// DstPort is the destination port.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	DstPort *int32 `json:"dstPort,omitempty"`
	// Flags are alternatives.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	Flags []TCPFlagsMatcher `json:"flags,omitempty"`
}

// ICMPMsgMatcher matches ICMP messages.
type ICMPMsgMatcher struct {
	// Type is a number, or icmp-echo, icmp-echoreply, icmp-unreach or icmp-timxceed.
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 255 : self in ['icmp-echo', 'icmp-echoreply', 'icmp-unreach', 'icmp-timxceed']",message="write a number from 0 to 255, or icmp-echo, icmp-echoreply, icmp-unreach or icmp-timxceed"
	Type intstr.IntOrString `json:"type"`
	// Code of the message.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	Code *int32 `json:"code,omitempty"`
}

// ICMPHeader is the part of an ICMP header that a packet must have.
type ICMPHeader struct {
	// Messages are alternatives.
	// +optional
	// +kubebuilder:validation:MaxItems=32
	Messages []ICMPMsgMatcher `json:"messages,omitempty"`
}

// TransportHeader is the header after that of IP.
//
// +kubebuilder:validation:XValidation:rule="(has(self.tcp) ? 1 : 0) + (has(self.udp) ? 1 : 0) + (has(self.icmp) ? 1 : 0) <= 1",message="write one of tcp, udp and icmp"
type TransportHeader struct {
	// ICMP header, also of ICMPv6.
	// +optional
	ICMP *ICMPHeader `json:"icmp,omitempty"`
	// UDP header.
	// +optional
	UDP *UDPHeader `json:"udp,omitempty"`
	// TCP header.
	// +optional
	TCP *TCPHeader `json:"tcp,omitempty"`
}

// Packet is what packets must have to be captured.
//
// +kubebuilder:validation:XValidation:rule="!has(self.protocol) || !has(self.transportHeader) || !has(self.transportHeader.tcp) || string(self.protocol).lowerAscii() in ['tcp', '6']",message="transportHeader.tcp goes with the protocol TCP"
// +kubebuilder:validation:XValidation:rule="!has(self.protocol) || !has(self.transportHeader) || !has(self.transportHeader.udp) || string(self.protocol).lowerAscii() in ['udp', '17']",message="transportHeader.udp goes with the protocol UDP"
// +kubebuilder:validation:XValidation:rule="!has(self.protocol) || !has(self.transportHeader) || !has(self.transportHeader.icmp) || string(self.protocol).lowerAscii() in ['icmp', 'icmpv6', '1', '58']",message="transportHeader.icmp goes with the protocol ICMP"
type Packet struct {
	// IPFamily is the version of IP. Without it the stated address determines the version, or else it is IPv4 if the Pods
	// have it.
	// +optional
	// +kubebuilder:validation:Enum=IPv4;IPv6
	IPFamily corev1.IPFamily `json:"ipFamily,omitempty"`
	// Protocol is TCP, UDP, ICMP (also for ICMPv6) or a number.
	// +optional
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 255 : self.lowerAscii() in ['tcp', 'udp', 'icmp', 'icmpv6']",message="write TCP, UDP, ICMP or a number from 0 to 255"
	Protocol *intstr.IntOrString `json:"protocol,omitempty"`
	// TransportHeader is the header after that of IP.
	// +optional
	TransportHeader TransportHeader `json:"transportHeader,omitempty,omitzero"`
}

// PacketCaptureFirstNConfig captures the first packets.
type PacketCaptureFirstNConfig struct {
	// Number of packets.
	// +kubebuilder:validation:Minimum=1
	Number int32 `json:"number"`
}

// CaptureConfig is how many packets are captured.
type CaptureConfig struct {
	// FirstN captures the first packets.
	FirstN *PacketCaptureFirstNConfig `json:"firstN"`
}

// PacketCaptureFileServer is a server for the file. No agent sends files to it: the condition PacketCaptureFileUploaded
// names what to do instead.
type PacketCaptureFileServer struct {
	// URL of the server.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`sftp:\/\/[\w-_./]+:\d+`
	URL string `json:"url,omitempty"`
	// HostPublicKey is the server's key.
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	HostPublicKey []byte `json:"hostPublicKey,omitempty"`
}

// PacketCaptureSpec is what to capture.
//
// +kubebuilder:validation:XValidation:rule="has(self.source) || has(self.destination)",message="write source or destination"
// +kubebuilder:validation:XValidation:rule="has(self.source) && has(self.source.pod) || has(self.destination) && has(self.destination.pod)",message="the source or the destination must be a Pod: packets are captured at its interface"
// +kubebuilder:validation:XValidation:rule="!has(self.capturePoint) || (self.capturePoint == 'Source' ? has(self.source) && has(self.source.pod) : has(self.destination) && has(self.destination.pod))",message="the end that capturePoint names must be a Pod"
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a capture cannot be changed: create another PacketCapture"
type PacketCaptureSpec struct {
	// Timeout is the longest time of the capture, in seconds.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=300
	Timeout *int32 `json:"timeout,omitempty"`
	// CaptureConfig is how many packets are captured.
	CaptureConfig CaptureConfig `json:"captureConfig"`
	// Source of the packets; without it any.
	// +optional
	Source *PacketCaptureEnd `json:"source,omitempty"`
	// Destination of the packets; without it any.
	// +optional
	Destination *PacketCaptureEnd `json:"destination,omitempty"`
	// Packet is what packets must have; without it all are captured.
	// +optional
	Packet *Packet `json:"packet,omitempty"`
	// Direction of the packets.
	// +optional
	// +kubebuilder:default=SourceToDestination
	Direction PacketCaptureDirection `json:"direction,omitempty"`
	// CapturePoint is the end at whose Pod packets are captured. Without it they are captured at the source if it is a
	// Pod, or else at the destination.
	// +optional
	CapturePoint PacketCapturePoint `json:"capturePoint,omitempty"`
	// FileServer is not served.
	// +optional
	FileServer *PacketCaptureFileServer `json:"fileServer,omitempty"`
}

// PacketCaptureCondition is one condition of a capture.
type PacketCaptureCondition struct {
	// Type names the condition.
	Type string `json:"type"`
	// Status is True, False or Unknown.
	Status metav1.ConditionStatus `json:"status"`
	// LastTransitionTime is when the status changed last.
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`
	// Reason is a word for programs.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is for people.
	// +optional
	Message string `json:"message,omitempty"`
}

// PacketCaptureStatus is the state of a capture.
type PacketCaptureStatus struct {
	// NumberCaptured is the number of packets in the file. It follows the capture with a delay.
	// +optional
	NumberCaptured int32 `json:"numberCaptured,omitempty"`
	// FilePath is where the file is: the agent's Pod, a colon, and the path in it. The path has the Node's name.
	// +optional
	FilePath string `json:"filePath,omitempty"`
	// Conditions are PacketCaptureStarted, PacketCaptureComplete and PacketCaptureFileUploaded.
	// +optional
	Conditions []PacketCaptureCondition `json:"conditions,omitempty"`
}

// Condition returns the condition of a type, or nil.
func (s *PacketCaptureStatus) Condition(name string) *PacketCaptureCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == name {
			return &s.Conditions[i]
		}
	}
	return nil
}

// PacketCapture captures packets at the interface of a Pod.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=packetcaptures,scope=Cluster,shortName=pcap,singular=packetcapture
type PacketCapture struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec PacketCaptureSpec `json:"spec"`
	// +optional
	Status PacketCaptureStatus `json:"status,omitempty"`
}

// PacketCaptureList is a list of PacketCaptures.
//
// +kubebuilder:object:root=true
type PacketCaptureList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PacketCapture `json:"items"`
}
