package policystatus

import (
	"context"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/heartbeat"
	"github.com/tombolo-net/tombolo/pkg/version"
)

const (
	// infoName is the documented name of the only AntreaControllerInfo.
	infoName = "antrea-controller"
	// webhookService is the Service of the webhooks.
	webhookService = "tombolo-policy-webhook"
)

// Process is where this controller runs. Pod and Node may be empty.
type Process struct{ Namespace, Pod, Node string }

// addInfo adds the writer of the AntreaControllerInfo. Of several replicas the leading one writes.
func (c *controller) addInfo(mgr ctrl.Manager, at Process, log *slog.Logger) error {
	w := &heartbeat.Writer{
		Resource: "antreacontrollerinfos", Name: infoName, Owner: controllerName, Log: log,
		Look:  func(context.Context) (any, error) { return c.info(at), nil },
		State: func() string { return fmt.Sprint(c.watcher.Listed()) },
	}
	if err := w.Connect(mgr.GetConfig()); err != nil {
		return err
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		w.Run(ctx)
		return nil
	}))
}

// info returns the state of this controller.
func (c *controller) info(at Process) crdv1beta1.AntreaControllerInfo {
	healthy := crdv1beta1.InfoCondition{Type: crdv1beta1.ControllerHealthy, Status: corev1.ConditionTrue,
		LastHeartbeatTime: metav1.Now()}
	for _, w := range c.watcher.Status() {
		if w.Waiting != "" {
			healthy.Status, healthy.Reason, healthy.Message = corev1.ConditionFalse, reasonNotWatched.String(),
				w.Kind+": "+w.Waiting
			break
		}
	}
	return crdv1beta1.AntreaControllerInfo{
		TypeMeta:   metav1.TypeMeta{APIVersion: crdv1beta1.GroupVersion.String(), Kind: "AntreaControllerInfo"},
		ObjectMeta: metav1.ObjectMeta{Name: infoName},
		Version:    version.String(),
		PodRef:     corev1.ObjectReference{Kind: "Pod", Namespace: at.Namespace, Name: at.Pod},
		NodeRef:    corev1.ObjectReference{Kind: "Node", Name: at.Node},
		ServiceRef: corev1.ObjectReference{Kind: "Service", Namespace: at.Namespace, Name: webhookService},

		NetworkPolicyControllerInfo: crdv1beta1.PolicyCounts{NetworkPolicyNum: int32(c.tables.steps.Len())},
		ConnectedAgentNum:           int32(c.tables.reporting.Len()),
		ControllerConditions:        []crdv1beta1.InfoCondition{healthy},
	}
}
