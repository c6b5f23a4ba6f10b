package agent

import (
	"cmp"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	crdv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/capture"
	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/derive"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/pkg/problem"
)

// captureTables decide which PacketCaptures this Node serves, and what is captured for them. One Node serves an object:
//
//   - the Node in the path of its file, once a capture has started;
//   - else the Node of the Pod at whose interface it captures;
//   - else, while there is no such Pod, the first Node by name, which writes what the object waits for.
type captureTables struct {
	node     string
	nodes    *derive.Source[derive.Object, nodeFacts]
	policies *policy.Tables
	pods     *podTables

	objects *derive.Source[derive.Object, captureFacts]
	rows    *derive.Table[derive.Object, captureRow]
}

// captureFacts are the parts of a PacketCapture.
type captureFacts struct {
	UID     types.UID
	Version string
	Created time.Time
	Spec    crdv1alpha1.PacketCaptureSpec
	Status  crdv1alpha1.PacketCaptureStatus
}

func captureFactsOf(p *crdv1alpha1.PacketCapture) captureFacts {
	return captureFacts{p.UID, p.ResourceVersion, p.CreationTimestamp.UTC(), p.Spec, p.Status}
}

// captureRow is a PacketCapture as this Node sees it. If another Node serves the object, only facts and Node are set.
type captureRow struct {
	captureFacts
	Node string // that serves it
	// Link is the interface to capture at, and Filter selects the packets. Link is empty while the object waits.
	Link   string
	Filter capture.Filter
	Waits  string // for what
	Fault  string // of the object, or a Node that is gone: it will never be captured
}

func (t *captureTables) add(e *derive.Engine) {
	t.rows = derive.NewTable(e, "captures", t.captureOf, derive.KeysOf(t.objects))
}

// capturePods reads Pods and attachments, within a pass or between two of them.
type capturePods struct {
	pod         func(derive.Object) (policy.PodFacts, bool)
	attachments func() []derive.Row[derive.Name, cni.Attachment]
	port        func(derive.Name) (portFacts, bool)
}

// within returns the Pods as a row of a table reads them.
func (t *captureTables) within(r *derive.Reader) capturePods {
	return capturePods{
		pod:         func(k derive.Object) (policy.PodFacts, bool) { return derive.Get(r, t.policies.Pods, k) },
		attachments: func() []derive.Row[derive.Name, cni.Attachment] { return derive.All(r, t.pods.attachments) },
		port:        func(k derive.Name) (portFacts, bool) { return derive.Get(r, t.pods.ports, k) },
	}
}

// between returns the Pods as they are between two passes.
func (t *captureTables) between() capturePods {
	return capturePods{pod: t.policies.Pods.Get, attachments: t.pods.attachments.All, port: t.pods.ports.Get}
}

func (t *captureTables) captureOf(key derive.Object, r *derive.Reader) (captureRow, []problem.Problem) {
	f, _ := derive.Get(r, t.objects, key)
	row := captureRow{captureFacts: f}
	pod, podErr := capturedPod(&f.Spec)
	pods := t.within(r)
	facts, there := pods.pod(pod)
	wrote := nodeOfPath(f.Status.FilePath)
	switch {
	case wrote != "":
		row.Node = wrote
	case there:
		row.Node = facts.Node
	}
	if _, ok := derive.Get(r, t.nodes, derive.Object{Name: row.Node}); !ok || row.Node == "" {
		row.Node = t.first(r)
	}
	if row.Node != t.node {
		return row, nil
	}
	switch {
	case podErr != nil:
		row.Fault = podErr.Error()
	case wrote != "" && wrote != t.node:
		row.Fault = fmt.Sprintf("Node %s, which has captured, is gone, and the file with it", wrote)
	default:
		t.look(&row, pod, facts, there, pods)
	}
	return row, nil
}

// look sets what is captured at the interface of a Pod, or what that waits for.
func (t *captureTables) look(row *captureRow, pod derive.Object, facts policy.PodFacts, there bool, pods capturePods) {
	switch {
	case !there:
		row.Waits = fmt.Sprintf("there is no Pod %s that runs with a network of its own, which Pods with hostNetwork lack",
			pod)
	case facts.Node == "":
		row.Waits = fmt.Sprintf("Pod %s is on no Node yet", pod)
	case facts.Node != t.node:
		row.Waits = fmt.Sprintf("Pod %s is on Node %s", pod, facts.Node)
	default:
		t.setFilter(row, pod, facts, pods)
	}
}

// first returns the first Node by name.
func (t *captureTables) first(r *derive.Reader) string {
	rows := derive.All(r, t.nodes)
	if len(rows) == 0 {
		return ""
	}
	return slices.MinFunc(rows, func(a, b derive.Row[derive.Object, nodeFacts]) int {
		return strings.Compare(a.Key.Name, b.Key.Name)
	}).Key.Name
}

// setFilter sets what is captured at the interface of a Pod of this Node.
func (t *captureTables) setFilter(row *captureRow, pod derive.Object, facts policy.PodFacts, pods capturePods) {
	at, ok := pods.attachmentOf(pod, facts.UID)
	if !ok {
		row.Waits = fmt.Sprintf("Pod %s is not attached to the network of Node %s yet", pod, t.node)
		return
	}
	addresses := func(end *crdv1alpha1.PacketCaptureEnd, name string) ([]netip.Addr, string, error) {
		switch {
		case end == nil:
			return nil, "", nil
		case end.Pod == nil:
			ip, err := netip.ParseAddr(end.IP)
			if err != nil || ip.Zone() != "" {
				return nil, "", fmt.Errorf("spec.%s.ip %q is no address: write one of IPv4 or IPv6", name, end.IP)
			}
			return []netip.Addr{ip.Unmap()}, "", nil
		}
		other := podOfEnd(end)
		if other == pod {
			var own []netip.Addr
			for _, p := range at.IPs {
				own = append(own, p.Addr())
			}
			return own, "", nil
		}
		f, _ := pods.pod(other)
		if len(f.IPs) == 0 {
			return nil, fmt.Sprintf("there is no Pod %s with an address", other), nil
		}
		return f.IPs, "", nil
	}
	var ends capture.Ends
	var waits [2]string
	var errs [2]error
	ends.Source, waits[0], errs[0] = addresses(row.Spec.Source, "source")
	ends.Destination, waits[1], errs[1] = addresses(row.Spec.Destination, "destination")
	if err := cmp.Or(errs[0], errs[1]); err != nil {
		row.Fault = err.Error()
		return
	}
	if row.Waits = cmp.Or(waits[0], waits[1]); row.Waits != "" {
		return
	}
	filter, err := capture.FilterOf(&row.Spec, ends)
	if err != nil {
		row.Fault = err.Error()
		return
	}
	row.Link, row.Filter = at.PortName, filter
}

// attachmentOf returns the attachment of a Pod of this Node: of its first interface by name.
func (p capturePods) attachmentOf(pod derive.Object, uid types.UID) (out cni.Attachment, ok bool) {
	for _, row := range p.attachments() {
		at := row.Value
		if at.PodNamespace != pod.Namespace || at.PodName != pod.Name || at.PodUID != "" && at.PodUID != uid {
			continue
		}
		if port, _ := p.port(row.Key); !port.serves() {
			continue
		}
		if !ok || at.IfName < out.IfName {
			out, ok = at, true
		}
	}
	return out, ok
}

// capturedPod returns the Pod at whose interface packets are captured.
func capturedPod(spec *crdv1alpha1.PacketCaptureSpec) (derive.Object, error) {
	isPod := func(e *crdv1alpha1.PacketCaptureEnd) bool { return e != nil && e.Pod != nil }
	end := spec.Source
	if spec.CapturePoint == crdv1alpha1.AtDestination || spec.CapturePoint == "" && !isPod(spec.Source) {
		end = spec.Destination
	}
	if !isPod(end) {
		return derive.Object{}, fmt.Errorf("no Pod at whose interface packets are captured: write spec.source.pod or " +
			"spec.destination.pod, and a spec.capturePoint that is a Pod")
	}
	return podOfEnd(end), nil
}

func podOfEnd(e *crdv1alpha1.PacketCaptureEnd) derive.Object {
	return derive.Object{Namespace: cmp.Or(e.Pod.Namespace, "default"), Name: e.Pod.Name}
}

// nodeOfPath returns the Node of a status.filePath; "" without one.
func nodeOfPath(path string) string {
	if path == "" {
		return ""
	}
	return filepath.Base(filepath.Dir(path))
}
