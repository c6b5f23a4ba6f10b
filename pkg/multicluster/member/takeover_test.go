package member

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/services"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/leader"
)

// converges is how long likeAntrea takes for a Service. A member has enough time to see that it refuses Endpoints until
// then.
const converges = 300 * time.Millisecond

// likeAntrea acts like Antrea's leader as far as members can observe. It refuses Endpoints until it has imported their
// Service, and passes on all other exports of members. It reads no labels. The function that it returns has the longest
// time that it has refused Endpoints, which depends on the load of the machine.
func likeAntrea(t *testing.T, c client.Client) (refused func() time.Duration) {
	var (
		ctx, cancel = context.WithCancel(context.Background())
		done        = make(chan struct{})
		all         = antreaExports{services: map[string]time.Time{}, refused: map[string]time.Time{}}
	)
	go func() {
		defer close(done)
		_ = wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			list := &mcv1alpha1.ResourceExportList{}
			if c.List(ctx, list, client.InNamespace(area)) == nil {
				for i := range list.Items {
					_ = all.importLikeAntrea(ctx, c, &list.Items[i]) // tried again
				}
			}
			return false, nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return func() time.Duration { return time.Duration(all.longest.Load()) }
}

// antreaExports has since when ResourceExports of Services are known, and since when those with Endpoints are refused.
type antreaExports struct {
	services, refused map[string]time.Time
	longest           atomic.Int64 // time that Endpoints were refused
}

func (a *antreaExports) importLikeAntrea(ctx context.Context, c client.Client, re *mcv1alpha1.ResourceExport) error {
	s := re.Spec
	ri := &mcv1alpha1.ResourceImport{ObjectMeta: meta(area, re.Name)}
	if !re.DeletionTimestamp.IsZero() {
		re.Finalizers = nil
		return errors.Join(client.IgnoreNotFound(c.Delete(ctx, ri)), c.Update(ctx, re))
	}
	ri.Spec = mcv1alpha1.ResourceImportSpec{Kind: s.Kind, Namespace: s.Namespace, Name: s.Name, ClusterInfo: s.ClusterInfo}
	switch s.Kind {
	case multicluster.ServiceKind:
		if _, ok := a.services[re.Name]; !ok {
			a.services[re.Name] = time.Now()
		}
		if time.Since(a.services[re.Name]) < converges {
			return nil
		}
		ri.Spec.Kind, ri.Spec.ServiceImport = multicluster.ServiceImportKind, importOf(s.Namespace, s.Name).Spec.ServiceImport
		ri.Spec.ServiceImport.Spec.Ports = []mcsv1alpha1.ServicePort{
			{Name: "http", Protocol: corev1.ProtocolTCP, Port: s.Service.ServiceSpec.Ports[0].Port}}
	case multicluster.EndpointsKind:
		service := &mcv1alpha1.ResourceImport{ObjectMeta: meta(area,
			multicluster.ResourceExportName(s.ClusterID, s.Namespace, s.Name, multicluster.ServiceSuffix))}
		if err := c.Get(ctx, client.ObjectKeyFromObject(service), service); err != nil {
			if _, ok := a.refused[re.Name]; !ok {
				a.refused[re.Name] = time.Now()
			}
			return errors.Join(err, addCondition(ctx, c, re, mcv1alpha1.ResourceExportFailure, corev1.ConditionFalse))
		}
		ri.Spec.Endpoints = &mcv1alpha1.EndpointsImport{Subsets: s.Endpoints.Subsets}
	}
	if err := c.Create(ctx, ri); apierrors.IsAlreadyExists(err) {
		have := &mcv1alpha1.ResourceImport{}
		if err := c.Get(ctx, client.ObjectKeyFromObject(ri), have); err != nil {
			return err
		}
		have.Spec = ri.Spec
		if err := c.Update(ctx, have); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	err := addCondition(ctx, c, re, mcv1alpha1.ResourceExportSucceeded, corev1.ConditionTrue)
	if since, ok := a.refused[re.Name]; ok && err == nil {
		delete(a.refused, re.Name)
		a.longest.Store(max(a.longest.Load(), int64(time.Since(since))))
	}
	return err
}

// addCondition writes a leader's verdict as a condition, unless the condition exists.
func addCondition(ctx context.Context, c client.Client, re *mcv1alpha1.ResourceExport,
	kind mcv1alpha1.ResourceExportConditionType, status corev1.ConditionStatus) error {
	if slices.ContainsFunc(re.Status.Conditions,
		func(c mcv1alpha1.ResourceExportCondition) bool { return c.Type == kind }) {
		return nil
	}
	re.Status.Conditions = []mcv1alpha1.ResourceExportCondition{
		{Type: kind, Status: status, Reason: "ConvergeFailure", Message: "not converged"}}
	return c.Status().Update(ctx, re)
}

// TestTakeOver replaces Antrea's member, which has not left, by this controller. The objects that Antrea's member made
// belong to this controller from then on, and are deleted with it.
func TestTakeOver(t *testing.T) {
	for _, row := range []struct {
		name  string
		start func(*world) (refused func() time.Duration)
	}{
		{"under Antrea's leader", func(w *world) func() time.Duration { return likeAntrea(w.t, w.leader) }},
		{"under our leader", func(w *world) func() time.Duration {
			own := clusterSet("")
			own.Namespace, own.Spec.ClusterID, own.Spec.Leaders[0].Secret = area, "north", ""
			w.create(w.leader, own)
			w.start(w.leaderConfig, area, "leader", leader.SetupWithManager)
			return func() time.Duration { return 0 }
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w, _ := newWorld(t)
			token := w.token()
			refused := row.start(w)
			w.create(w.member, &corev1.Secret{ObjectMeta: meta("kube-system", "east-token"),
				Data: map[string][]byte{"ca.crt": w.leaderConfig.CAData, "token": token}},
				clusterSet(w.leaderConfig.Host))
			gateway := w.gatewayNode("node-1", "10.0.0.1")
			w.create(w.member, web("web")...)
			info, service := export("east-clusterinfo"), &corev1.Service{ObjectMeta: meta("default", "antrea-mc-web")}
			si := &mcsv1alpha1.ServiceImport{ObjectMeta: meta("default", "web")}
			infoIsOurs := func(ctx context.Context) error {
				if err := w.leader.Get(ctx, client.ObjectKeyFromObject(info), info); err != nil {
					return err
				}
				if g := info.Spec.ClusterInfo.GatewayInfos; len(g) != 1 || g[0].GatewayIP != "10.0.0.1" ||
					info.Labels[multicluster.LabelSourceClusterID] != "east" {
					return fmt.Errorf("labels %v, gateways %v", info.Labels, g)
				}
				return nil
			}
			isOurs := func() {
				t.Helper()
				w.clusterSetIs("True True True", "")
				w.exportIs("web", "Succeed")
				w.eventually("the ClusterInfo is this member's", infoIsOurs)
				w.eventually("the ServiceImport is this member's", func(ctx context.Context) error {
					if err := errors.Join(w.member.Get(ctx, client.ObjectKeyFromObject(si), si),
						w.member.Get(ctx, client.ObjectKeyFromObject(service), service)); err != nil {
						return err
					}
					if !services.Imported(si) || !slices.Equal(si.Spec.IPs, []string{service.Spec.ClusterIP}) ||
						!apimeta.IsStatusConditionTrue(si.Status.Conditions, "Ready") {
						return fmt.Errorf("have %v %v %v", si.Annotations, si.Spec.IPs, si.Status.Conditions)
					}
					return nil
				})
				w.writes() // it rests
				w.noEvent("NotImported", reasonResourceExportFailed.String())
				if refused() < pendingAfter { // a refusal that lasts is reported
					w.noEvent("ConvergeFailure")
				}
			}
			// As Antrea's member has them, which does not run either.
			leave := func() {
				t.Helper()
				w.stop()
				w.update(w.member, si, func() { si.Annotations, si.Status = nil, mcsv1alpha1.ServiceImportStatus{} })
				w.update(w.leader, info, func() { info.Labels, info.Spec = nil, antreaInfo().Spec })
			}
			w.startMember()
			isOurs()
			leave()
			uid, ip := si.UID, service.Spec.ClusterIP
			w.startMember()
			isOurs()
			if si.UID != uid || service.Spec.ClusterIP != ip {
				t.Errorf("the import was made anew: it has %s, and had %s", service.Spec.ClusterIP, ip)
			}

			// While neither controller runs, the Service is no longer exported.
			leave()
			w.delete(w.member, &mcsv1alpha1.ServiceExport{ObjectMeta: meta("default", "web")})
			w.delete(w.leader, export("east-default-web-service"), export("east-default-web-endpoints"))
			w.eventually("the leader imports nothing", func(ctx context.Context) error {
				list := &mcv1alpha1.ResourceImportList{}
				err := w.leader.List(ctx, list, client.InNamespace(area))
				for _, ri := range list.Items {
					if ri.Spec.Kind != multicluster.ClusterInfoKind {
						err = errors.Join(err, fmt.Errorf("ResourceImport %s is there", ri.Name))
					}
				}
				return err
			})
			w.startMember()
			w.gone(w.member, si, service)
			w.eventually("the ClusterInfo is this member's", infoIsOurs)

			// There is no Gateway any more when this member starts.
			w.stop()
			w.update(w.leader, info, func() { info.Labels, info.Spec = nil, antreaInfo().Spec })
			w.delete(w.member, gateway, &mcv1alpha1.Gateway{ObjectMeta: meta("kube-system", gateway.Name)})
			w.startMember()
			w.gone(w.leader, info)
			w.clusterSetIs("True True True", "")
			w.gatewayNode("node-1", "10.0.0.1")
			w.eventually("the ClusterInfo is this member's", infoIsOurs)
			w.delete(w.member, clusterSet(""))
			w.gone(w.leader, info)
		})
	}
}

// noEvent fails when the member has written Events with one of these reasons.
func (w *world) noEvent(reasons ...string) {
	w.t.Helper()
	list := &corev1.EventList{}
	if err := w.member.List(w.t.Context(), list); err != nil {
		w.t.Fatal(err)
	}
	for _, e := range list.Items {
		if slices.Contains(reasons, e.Reason) {
			w.t.Errorf("Event %s on %s %s: %s", e.Reason, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Message)
		}
	}
}
