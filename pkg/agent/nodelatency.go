package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	statsv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/stats/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/heartbeat"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

const latenciesResource = "nodelatencystats"

// newLatencies prepares the writer of this Node's NodeLatencyStats. The first one is written when there are results.
// After the last probe it is replaced by one without results.
func newLatencies(o Options, results func() []api.ProbedNode, uid func() types.UID,
	log *slog.Logger) (*heartbeat.Writer, error) {
	written, some := false, false // whether the written object has results; whether the object of this write has
	w := &heartbeat.Writer{
		Resource: latenciesResource, GroupVersion: statsv1alpha1.GroupVersion, Name: o.NodeName,
		Owner: "tombolo-agent", Log: log,
		Look: func(context.Context) (any, error) {
			all := results()
			if len(all) == 0 && !written {
				return nil, nil
			}
			if uid() == "" {
				return nil, errors.New("this Node's object is not known yet")
			}
			some = len(all) > 0
			return latencyStats(o.NodeName, nodeOwner(o.NodeName, uid()), all), nil
		},
		Wrote:    func() { written = some },
		Interval: func() time.Duration { return latencyInterval(len(results())) },
		State: func() string {
			answered := false
			all := results()
			for _, one := range all {
				answered = answered || one.Samples > 0
			}
			return fmt.Sprint(len(all) > 0, answered)
		},
	}
	return w, w.Connect(o.REST)
}

// latencyInterval returns the time between two writes. An object has an entry for each Node, so all Nodes together
// write about one in a second.
func latencyInterval(targets int) time.Duration {
	return max(heartbeat.Every, time.Duration(targets)*time.Second)
}

// nodeOwner returns an owner reference to a Node, so that an object is deleted with its Node. It is nil if the Node is
// not known.
func nodeOwner(node string, uid types.UID) []metav1.OwnerReference {
	if uid == "" {
		return nil
	}
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: uid}}
}

// latencyStats returns the object with results, which are in the order of their Nodes.
func latencyStats(node string, owner []metav1.OwnerReference, all []api.ProbedNode) statsv1alpha1.NodeLatencyStats {
	out := statsv1alpha1.NodeLatencyStats{
		TypeMeta:   metav1.TypeMeta{APIVersion: statsv1alpha1.GroupVersion.String(), Kind: "NodeLatencyStats"},
		ObjectMeta: metav1.ObjectMeta{Name: node, OwnerReferences: owner},
	}
	for _, one := range all {
		if n := len(out.PeerNodeLatencyStats); n == 0 || out.PeerNodeLatencyStats[n-1].NodeName != one.Node {
			out.PeerNodeLatencyStats = append(out.PeerNodeLatencyStats,
				statsv1alpha1.PeerNodeLatencyStats{NodeName: one.Node})
		}
		peer := &out.PeerNodeLatencyStats[len(out.PeerNodeLatencyStats)-1]
		peer.TargetIPLatencyStats = append(peer.TargetIPLatencyStats, statsv1alpha1.TargetIPLatencyStats{
			TargetIP: one.To, LastSendTime: timeOf(one.LastSent), LastRecvTime: timeOf(one.LastReceived),
			LastMeasuredRTTNanoseconds: int64(one.LastSeconds * float64(time.Second)),
		})
	}
	return out
}

// timeOf returns a time, or nil for no time.
func timeOf(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t}
}
