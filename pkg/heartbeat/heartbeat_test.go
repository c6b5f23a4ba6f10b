package heartbeat

import (
	"context"
	"log/slog"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

// TestLess writes the state of an agent whose policies go and whose switch stops, to a real API server. The
// later state replaces the earlier one.
func TestLess(t *testing.T) {
	admin := apiserver.Start(t, "../../deploy/crds")
	known := runtime.NewScheme()
	if err := crdv1beta1.AddToScheme(known); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(admin, client.Options{Scheme: known})
	if err != nil {
		t.Fatal(err)
	}
	now := crdv1beta1.AntreaAgentInfo{
		TypeMeta:   metav1.TypeMeta{APIVersion: crdv1beta1.GroupVersion.String(), Kind: "AntreaAgentInfo"},
		ObjectMeta: metav1.ObjectMeta{Name: "node-1"},
	}
	w := &Writer{Resource: "antreaagentinfos", Name: "node-1", Owner: "tombolo-agent",
		Look: func(context.Context) (any, error) { return now, nil }, State: func() string { return "" },
		Log: slog.New(slog.DiscardHandler)}
	if err := w.Connect(admin); err != nil {
		t.Fatal(err)
	}
	for _, to := range []struct {
		switchState crdv1beta1.OVSInfo
		policies    crdv1beta1.PolicyCounts
	}{
		{crdv1beta1.OVSInfo{Version: "3.1", BridgeName: "br-int", FlowTable: map[string]int32{"Output": 3}},
			crdv1beta1.PolicyCounts{NetworkPolicyNum: 2, AddressGroupNum: 1}},
		{crdv1beta1.OVSInfo{BridgeName: "br-int"}, crdv1beta1.PolicyCounts{}},
		{crdv1beta1.OVSInfo{}, crdv1beta1.PolicyCounts{AppliedToGroupNum: 1}},
	} {
		now.OVSInfo, now.NetworkPolicyControllerInfo = to.switchState, to.policies
		if err := w.write(t.Context()); err != nil {
			t.Fatal(err)
		}
		var have crdv1beta1.AntreaAgentInfo
		if err := c.Get(t.Context(), types.NamespacedName{Name: "node-1"}, &have); err != nil {
			t.Fatal(err)
		}
		if have.NetworkPolicyControllerInfo != to.policies || have.OVSInfo.Version != to.switchState.Version ||
			len(have.OVSInfo.FlowTable) != len(to.switchState.FlowTable) {
			t.Errorf("the API server has %+v and %+v, want %+v", have.OVSInfo, have.NetworkPolicyControllerInfo, to)
		}
	}
}
