package webhook_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	multiclusterconfig "github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/multicluster/leader"
)

// antrea is a member as Antrea v2.4's controller acts, with the token of its ServiceAccount. The cluster has a Gateway,
// no podCIDRs, and Pods in a network that all clusters reach (endpointIPType PodIP).
type antrea struct {
	client    client.Client
	id        string
	namespace string // of its controller
	finalizer string
}

// clusterInfo has no labels.
func (a *antrea) clusterInfo(gatewayIP string) *mcv1alpha1.ResourceExport {
	return &mcv1alpha1.ResourceExport{
		ObjectMeta: metav1.ObjectMeta{Namespace: area, Name: a.id + multicluster.ClusterInfoSuffix,
			Finalizers: []string{a.finalizer}},
		Spec: mcv1alpha1.ResourceExportSpec{ClusterID: a.id, Kind: multicluster.ClusterInfoKind, Namespace: a.namespace,
			Name: a.id,
			ClusterInfo: &mcv1alpha1.ClusterInfo{ClusterID: a.id, ServiceCIDR: "10.96.0.0/16",
				GatewayInfos: []mcv1alpha1.GatewayInfo{{GatewayIP: gatewayIP}}}},
	}
}

func (a *antrea) export(kind, suffix string) *mcv1alpha1.ResourceExport {
	return &mcv1alpha1.ResourceExport{
		ObjectMeta: metav1.ObjectMeta{Namespace: area, Name: a.id + "-default-web" + suffix,
			Finalizers: []string{a.finalizer}, Labels: map[string]string{
				multicluster.LabelSourceClusterID: a.id, multicluster.LabelSourceKind: kind,
				multicluster.LabelSourceNamespace: "default", multicluster.LabelSourceName: "web",
			}},
		Spec: mcv1alpha1.ResourceExportSpec{ClusterID: a.id, Kind: kind, Namespace: "default", Name: "web"},
	}
}

// service has the node port of the exported Service, too.
func (a *antrea) service() *mcv1alpha1.ResourceExport {
	re := a.export(multicluster.ServiceKind, multicluster.ServiceSuffix)
	re.Spec.Service = &mcv1alpha1.ServiceExport{
		ServiceSpec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: "TCP",
			NodePort: 30080}}}}
	return re
}

// endpoints repeat the endpoints of an EndpointSlice: the first, then the first two, and so on.
func (a *antrea) endpoints(ips ...string) *mcv1alpha1.ResourceExport {
	re := a.export(multicluster.EndpointsKind, multicluster.EndpointsSuffix)
	re.Spec.Endpoints = &mcv1alpha1.EndpointsExport{}
	var list []corev1.EndpointAddress
	for i, ip := range ips {
		list = append(list, corev1.EndpointAddress{IP: ip})
		re.Spec.Endpoints.Subsets = append(re.Spec.Endpoints.Subsets,
			corev1.EndpointSubset{Addresses: list[:i+1],
				Ports: []corev1.EndpointPort{{Name: "http", Port: 8080, Protocol: "TCP"}}})
	}
	return re
}

// label has no finalizer.
func (a *antrea) label(text string) *mcv1alpha1.ResourceExport {
	return &mcv1alpha1.ResourceExport{
		ObjectMeta: metav1.ObjectMeta{Namespace: area, Name: a.id + "-" + multicluster.LabelHash(text),
			Labels: map[string]string{multicluster.LabelSourceKind: multicluster.LabelIdentityKind,
				multicluster.LabelSourceClusterID: a.id}},
		Spec: mcv1alpha1.ResourceExportSpec{ClusterID: a.id, Kind: multicluster.LabelIdentityKind,
			LabelIdentity: &mcv1alpha1.LabelIdentityExport{NormalizedLabel: text}},
	}
}

// replace writes a new object with the version and the finalizers of the old one.
func (a *antrea) replace(ctx context.Context, re *mcv1alpha1.ResourceExport) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		have := &mcv1alpha1.ResourceExport{}
		if err := a.client.Get(ctx, client.ObjectKeyFromObject(re), have); err != nil {
			return err
		}
		is := re.DeepCopy()
		is.ResourceVersion, is.Finalizers = have.ResourceVersion, have.Finalizers
		return a.client.Update(ctx, is)
	})
}

// change writes the old object with a new spec.
func (a *antrea) change(ctx context.Context, re *mcv1alpha1.ResourceExport) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		have := &mcv1alpha1.ResourceExport{}
		if err := a.client.Get(ctx, client.ObjectKeyFromObject(re), have); err != nil {
			return err
		}
		have.Spec = re.Spec
		return a.client.Update(ctx, have)
	})
}

// touch writes the whole announcement.
func (a *antrea) touch(ctx context.Context) error {
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		have := announcement(a.id)
		if err := a.client.Get(ctx, client.ObjectKeyFromObject(have), have); err != nil {
			return err
		}
		metav1.SetMetaDataAnnotation(&have.ObjectMeta, multicluster.AnnotationTouchTimestamp, time.Now().Format(time.RFC3339))
		return a.client.Update(ctx, have)
	})
}

// TestAntreaMember has a member of Antrea v2.4, and an older one than v2.2, join, export and leave.
func TestAntreaMember(t *testing.T) {
	for name, finalizer := range map[string]string{"v2.4": multicluster.ResourceExportFinalizer,
		"before v2.2": multicluster.ResourceExportFinalizerOld} {
		t.Run(name, func(t *testing.T) { antreaMember(t, finalizer) })
	}
}

func antreaMember(t *testing.T, finalizer string) {
	s := start(t)
	ctx, admin := t.Context(), s.admin
	east := &antrea{client: member(t, admin, s.config, "member-east"), id: "east", namespace: "kube-system",
		finalizer: finalizer}
	mgr := s.manager(t, ctrl.Options{})
	if err := leader.SetupWithManager(mgr, multiclusterconfig.Default(), area); err != nil {
		t.Fatal(err)
	}
	run(t, mgr)

	// imported waits until the member reads an import so; empty for none.
	imported := func(what, name, want string) {
		t.Helper()
		eventually(t, fmt.Sprintf("%s: import %s is not %q", what, name, want), func() bool {
			ri := &mcv1alpha1.ResourceImport{}
			err := east.client.Get(ctx, client.ObjectKey{Namespace: area, Name: name}, ri)
			if want == "" {
				return apierrors.IsNotFound(err)
			}
			return err == nil && importText(ri) == want
		})
	}
	gone := func(o client.Object) {
		t.Helper()
		eventually(t, o.GetName()+" is not gone",
			func() bool { return apierrors.IsNotFound(admin.Get(ctx, client.ObjectKeyFromObject(o), o)) })
	}
	const label = "ns:kubernetes.io/metadata.name=default&pod:app=web"
	of := func(gateway string) string { return "ClusterInfo east 10.96.0.0/16 [] " + gateway }
	labelImport := multicluster.LabelHash(label)

	walk(t, []step{
		{"the ClusterSet", func() error { return admin.Create(ctx, clusterSet("set")) }, ""},
		{"announcement without a time stamp", func() error { return east.client.Create(ctx, announcement("east")) }, ""},
		{"Service", func() error { return east.client.Create(ctx, east.service()) }, ""},
		{"Endpoints", func() error { return east.client.Create(ctx, east.endpoints("10.10.1.1", "10.10.1.2")) }, ""},
	})
	const service, endpoints = "default-web-service", "default-web-endpoints"
	// Endpoints outside of all announced ranges are imported as long as no cluster announces any, and then stay.
	imported("before the ClusterInfo", endpoints, "Endpoints default/web 10.10.1.1 10.10.1.2")
	walk(t, []step{
		{"ClusterInfo", func() error { return east.client.Create(ctx, east.clusterInfo("192.168.77.101")) }, ""},
		{"label identity", func() error { return east.client.Create(ctx, east.label(label)) }, ""},
		{"sign of life", func() error { return east.touch(ctx) }, ""},
		{"exports", func() error {
			return east.client.List(ctx, &mcv1alpha1.ResourceExportList{}, client.InNamespace(area))
		}, ""},
		{"delete what is not there", func() error {
			return client.IgnoreNotFound(east.client.Delete(ctx,
				&mcv1alpha1.ResourceExport{ObjectMeta: metav1.ObjectMeta{Namespace: area, Name: "east-default-x-service"}}))
		}, ""},
	})
	imported("joined", service, "ServiceImport default/web http/TCP/80")
	imported("joined", endpoints, "Endpoints default/web 10.10.1.1 10.10.1.2")
	imported("joined", "east-clusterinfo", of("192.168.77.101"))
	imported("joined", labelImport, "LabelIdentity "+label)

	// Its Gateway moves: Antrea changes the ClusterInfo, or deletes it and makes it again.
	walk(t, []step{{"another gateway", func() error { return east.change(ctx, east.clusterInfo("192.168.77.102")) }, ""}})
	imported("another gateway", "east-clusterinfo", of("192.168.77.102"))
	walk(t, []step{{"another gateway, without labels",
		func() error { return east.replace(ctx, east.clusterInfo("192.168.77.103")) }, ""}})
	imported("another gateway, without labels", "east-clusterinfo", of("192.168.77.103"))
	walk(t, []step{{"no gateway", func() error { return east.client.Delete(ctx, east.clusterInfo("")) }, ""}})
	imported("no gateway", "east-clusterinfo", "")
	gone(east.clusterInfo(""))
	imported("no gateway", endpoints, "Endpoints default/web 10.10.1.1 10.10.1.2")
	walk(t, []step{{"a gateway again",
		func() error { return east.client.Create(ctx, east.clusterInfo("192.168.77.104")) }, ""}})
	imported("a gateway again", "east-clusterinfo", of("192.168.77.104"))
	east.namespace = "antrea"
	walk(t, []step{{"the controller moves",
		func() error { return east.change(ctx, east.clusterInfo("192.168.77.105")) }, ""}})
	imported("the controller moves", "east-clusterinfo", of("192.168.77.105"))
	info := east.clusterInfo("")
	if err := admin.Get(ctx, client.ObjectKeyFromObject(info), info); err != nil {
		t.Fatal(err)
	}
	if info.Labels[multicluster.LabelSourceClusterID] != "east" ||
		info.Labels[multicluster.LabelSourceKind] != multicluster.ClusterInfoKind {
		t.Errorf("the stored ClusterInfo has labels %v, want east's", info.Labels)
	}

	walk(t, []step{{"other endpoints", func() error { return east.replace(ctx, east.endpoints("10.96.0.11")) }, ""}})
	imported("other endpoints", endpoints, "Endpoints default/web 10.96.0.11")
	walk(t, []step{
		{"no Endpoints", func() error { return east.client.Delete(ctx, east.endpoints()) }, ""},
		{"no Service", func() error { return east.client.Delete(ctx, east.service()) }, ""},
	})
	imported("no Service", endpoints, "")
	imported("no Service", service, "")
	gone(east.endpoints())
	gone(east.service())

	// It leaves: what it still exports goes with its announcement.
	walk(t, []step{{"leave", func() error { return east.client.Delete(ctx, announcement("east")) }, ""}})
	gone(announcement("east"))
	for _, name := range []string{"east-clusterinfo", labelImport} {
		imported("left", name, "")
	}
	gone(east.clusterInfo(""))
	gone(east.label(label))

	// It joins again where the mutating webhook is not installed, and is expelled: its ClusterInfo is stored without
	// labels.
	var configurations admissionregistrationv1.MutatingWebhookConfigurationList
	if err := admin.List(ctx, &configurations); err != nil {
		t.Fatal(err)
	}
	for _, c := range configurations.Items {
		c.Webhooks = slices.DeleteFunc(c.Webhooks,
			func(w admissionregistrationv1.MutatingWebhook) bool { return w.Name == "mresourceexport.kb.io" })
		if err := admin.Update(ctx, &c); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "ClusterInfos are still labelled", func() bool {
		re := east.clusterInfo("192.168.77.101")
		return admin.Create(ctx, re, client.DryRunAll) == nil && len(re.Labels) == 0
	})
	walk(t, []step{
		{"join anew", func() error { return east.client.Create(ctx, announcement("east")) }, ""},
		{"ClusterInfo without labels",
			func() error { return east.client.Create(ctx, east.clusterInfo("192.168.77.101")) }, ""},
		{"another gateway", func() error { return east.change(ctx, east.clusterInfo("192.168.77.102")) }, ""},
		{"labels of another cluster", func() error {
			re := east.clusterInfo("192.168.77.102")
			re.Labels = map[string]string{multicluster.LabelSourceClusterID: "west"}
			return east.replace(ctx, re)
		}, `label sourceClusterID is "west", want "east"`},
	})
	imported("without labels", "east-clusterinfo", of("192.168.77.102"))
	info = east.clusterInfo("")
	if err := admin.Get(ctx, client.ObjectKeyFromObject(info), info); err != nil || len(info.Labels) > 0 {
		t.Fatalf("the stored ClusterInfo has labels %v, want none: %v", info.Labels, err)
	}
	walk(t, []step{{"expel", func() error { return admin.Delete(ctx, announcement("east")) }, ""}})
	gone(announcement("east"))
	gone(east.clusterInfo(""))
	imported("expelled", "east-clusterinfo", "")
}

// importText is what members read of an import.
func importText(ri *mcv1alpha1.ResourceImport) string {
	text := []string{ri.Spec.Kind}
	switch {
	case ri.Spec.ServiceImport != nil:
		text = append(text, ri.Spec.Namespace+"/"+ri.Spec.Name)
		for _, p := range ri.Spec.ServiceImport.Spec.Ports {
			text = append(text, fmt.Sprintf("%s/%s/%d", p.Name, p.Protocol, p.Port))
		}
	case ri.Spec.Endpoints != nil:
		text = append(text, ri.Spec.Namespace+"/"+ri.Spec.Name)
		for _, subset := range ri.Spec.Endpoints.Subsets {
			for _, a := range subset.Addresses {
				text = append(text, a.IP)
			}
		}
	case ri.Spec.ClusterInfo != nil:
		info := ri.Spec.ClusterInfo
		text = append(text, info.ClusterID, info.ServiceCIDR, fmt.Sprint(info.PodCIDRs))
		for _, g := range info.GatewayInfos {
			text = append(text, g.GatewayIP)
		}
	case ri.Spec.LabelIdentity != nil:
		text = append(text, ri.Spec.LabelIdentity.Label)
	}
	return strings.Join(text, " ")
}
