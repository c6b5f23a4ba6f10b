package member

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
	mcsv1beta1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/pkg/multicluster/leader"
	"github.com/tombolo-net/tombolo/pkg/multicluster/member/services"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

// mcsWorld has two members of a ClusterSet on real API servers, with the real controllers, including the leader's.
// There are no Pods. The test writes the objects that Kubernetes would make for them.
type mcsWorld struct {
	*world
	members map[string]*world // by cluster ID
}

// newServices joins members. The first has ClusterIPs of IPv4 alone, the others of both versions of IP.
func newServices(t *testing.T, ids ...string) *mcsWorld {
	w, _ := newParallelWorld(t)
	own := clusterSet("")
	own.Namespace, own.Spec.ClusterID, own.Spec.Leaders[0].Secret = area, "north", ""
	w.create(w.leader, &corev1.Namespace{ObjectMeta: meta("", area)}, memberRole(), own)
	w.start(w.leaderConfig, area, "leader", leader.SetupWithManager)
	s := &mcsWorld{world: w, members: map[string]*world{}}
	for i, id := range ids {
		m := w
		if i > 0 {
			server := apiserver.New(t, apiserver.Options{CRDs: []string{"../../../deploy/crds"},
				ServiceCIDR: fmt.Sprintf("10.%[1]d.0.0/16,fd00:%[1]d::/112", 97+i)})
			m = &world{t: t, leader: w.leader, leaderConfig: w.leaderConfig, memberConfig: server.Config}
		}
		m.config = config.Default()
		m.config.PodCIDRs = []string{fmt.Sprintf("10.%d.0.0/16", 11+i)}
		scheme := Scheme()
		if err := mcsv1beta1.Install(scheme); err != nil {
			t.Fatal(err)
		}
		c, err := client.New(m.memberConfig, client.Options{Scheme: scheme})
		if err != nil {
			t.Fatal(err)
		}
		m.member = c
		account := &corev1.ServiceAccount{ObjectMeta: meta(area, id)}
		w.create(w.leader, account, &rbacv1.RoleBinding{ObjectMeta: meta(area, id),
			RoleRef:  rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: multicluster.MemberRole},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: area, Name: id}}})
		request := &authenticationv1.TokenRequest{}
		if err := w.leader.SubResource("token").Create(t.Context(), account, request); err != nil {
			t.Fatal(err)
		}
		set := clusterSet(w.leaderConfig.Host)
		set.Spec.ClusterID = id
		w.create(m.member, set, &corev1.Secret{ObjectMeta: meta("kube-system", "east-token"),
			Data: map[string][]byte{"ca.crt": w.leaderConfig.CAData, "token": []byte(request.Status.Token)}})
		m.startMember()
		s.members[id] = m
	}
	for _, m := range s.members {
		m.clusterSetIs("True True True", "")
	}
	return s
}

// everywhere checks something in every cluster until it is so.
func (s *mcsWorld) everywhere(what string, check func(ctx context.Context, in client.Client) error) {
	s.t.Helper()
	for _, id := range slices.Sorted(maps.Keys(s.members)) {
		s.eventually(what+" in "+id, func(ctx context.Context) error { return check(ctx, s.members[id].member) })
	}
}

// hello creates the Service of the conformance suite, with the EndpointSlice that Kubernetes would make for its Pods.
func (s *mcsWorld) hello(id, namespace string, change func(*corev1.Service)) *corev1.Service {
	s.t.Helper()
	to := s.members[id].member
	if err := to.Create(s.t.Context(), &corev1.Namespace{ObjectMeta: meta("", namespace)}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		s.t.Fatal(err)
	}
	o := &corev1.Service{ObjectMeta: meta(namespace, "hello"), Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "hello"}, SessionAffinity: corev1.ServiceAffinityClientIP,
		SessionAffinityConfig: &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](10)}},
		Ports: []corev1.ServicePort{{Name: "tcp", Port: 42, Protocol: corev1.ProtocolTCP, AppProtocol: ptr.To("http")},
			{Name: "udp", Port: 42, Protocol: corev1.ProtocolUDP}},
	}}
	o.Labels, o.Annotations = map[string]string{"dummy-svc": "dummy"}, map[string]string{"dummy-svc": "dummy"}
	if change != nil {
		change(o)
	}
	s.create(to, o)
	if o.Spec.Type == corev1.ServiceTypeExternalName {
		return o
	}
	labels := map[string]string{discoveryv1.LabelServiceName: "hello",
		discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}
	if o.Spec.ClusterIP == corev1.ClusterIPNone {
		labels[corev1.IsHeadlessService] = ""
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: "hello-abcde", Labels: labels},
		AddressType: discoveryv1.AddressTypeIPv4}
	for _, p := range o.Spec.Ports {
		slice.Ports = append(slice.Ports,
			discoveryv1.EndpointPort{Name: ptr.To(p.Name), Port: ptr.To[int32](8080), Protocol: ptr.To(p.Protocol)})
	}
	block := map[string]int{"east": 11, "west": 12, "south": 13}[id]
	for i := range 2 {
		slice.Endpoints = append(slice.Endpoints,
			discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.0.%d", block, i+1)},
				Hostname: ptr.To(fmt.Sprintf("hello-%d", i)), Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}})
	}
	s.create(to, slice)
	if slices.Contains(o.Spec.IPFamilies, corev1.IPv6Protocol) {
		six := slice.DeepCopy()
		six.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: "hello-six", Labels: labels}
		six.AddressType = discoveryv1.AddressTypeIPv6
		for i := range six.Endpoints {
			six.Endpoints[i].Addresses = []string{fmt.Sprintf("fd00:%d::%d", block, i+1)}
		}
		s.create(to, six)
	}
	return o
}

// export creates a ServiceExport, by the API's newer version.
func (s *mcsWorld) export(id, namespace string, labels, annotations map[string]string) {
	s.t.Helper()
	s.create(s.members[id].member, &mcsv1beta1.ServiceExport{ObjectMeta: meta(namespace, "hello"),
		Spec: mcsv1beta1.ServiceExportSpec{ExportedLabels: labels, ExportedAnnotations: annotations}})
}

// later waits until an export would be younger: creation times are whole seconds.
func (s *mcsWorld) later() {
	start := time.Now().Truncate(time.Second)
	s.eventually("the next second", func(context.Context) error {
		if time.Now().Truncate(time.Second).After(start) {
			return nil
		}
		return errors.New("not yet")
	})
}

func (s *mcsWorld) unexport(id, namespace string) {
	s.t.Helper()
	s.delete(s.members[id].member, &mcsv1beta1.ServiceExport{ObjectMeta: meta(namespace, "hello")})
}

// condition waits for a condition of an export.
func (s *mcsWorld) condition(id, namespace string, kind mcsv1beta1.ServiceExportConditionType,
	status metav1.ConditionStatus, reason string) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("%s %s of %s's export", kind, status, id), func(ctx context.Context) error {
		e := &mcsv1beta1.ServiceExport{}
		if err := s.members[id].member.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "hello"}, e); err != nil {
			return err
		}
		c := apimeta.FindStatusCondition(e.Status.Conditions, string(kind))
		if c == nil || c.Status != status || c.Reason != reason {
			return fmt.Errorf("have %v", e.Status.Conditions)
		}
		return nil
	})
}

func (s *mcsWorld) conflict(namespace, reason string, ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		s.condition(id, namespace, mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionTrue, reason)
	}
}

// imported waits for the import everywhere.
func (s *mcsWorld) imported(namespace, what string, check func(*mcsv1beta1.ServiceImport) error) {
	s.t.Helper()
	s.everywhere(what, func(ctx context.Context, in client.Client) error {
		si := &mcsv1beta1.ServiceImport{}
		if err := in.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "hello"}, si); err != nil {
			return err
		}
		return check(si)
	})
}

// nothing waits until nothing of an import is left.
func (s *mcsWorld) nothing(namespace string) {
	s.t.Helper()
	s.everywhere("nothing is imported", func(ctx context.Context, in client.Client) error {
		var have []string
		imports, services, slices := &mcsv1beta1.ServiceImportList{}, &corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}
		if err := errors.Join(in.List(ctx, imports, client.InNamespace(namespace)),
			in.List(ctx, services, client.InNamespace(namespace)),
			in.List(ctx, slices, client.InNamespace(namespace), client.HasLabels{mcsv1beta1.LabelServiceName})); err != nil {
			return err
		}
		for _, o := range imports.Items {
			have = append(have, "ServiceImport "+o.Name)
		}
		for _, o := range services.Items {
			if strings.HasPrefix(o.Name, multicluster.ImportedPrefix) {
				have = append(have, "Service "+o.Name)
			}
		}
		for _, o := range slices.Items {
			have = append(have, "EndpointSlice "+o.Name)
		}
		if len(have) > 0 {
			return fmt.Errorf("have %v", have)
		}
		return nil
	})
}

// slices waits until an import has these endpoints in all clusters. want has them by the exporting cluster: "ip port
// host name".
func (s *mcsWorld) slices(namespace string, want map[string][]string) {
	s.t.Helper()
	s.everywhere("EndpointSlices", func(ctx context.Context, in client.Client) error {
		l := &discoveryv1.EndpointSliceList{}
		if err := in.List(ctx, l, client.InNamespace(namespace),
			client.MatchingLabels{mcsv1beta1.LabelServiceName: "hello"}); err != nil {
			return err
		}
		have := map[string][]string{}
		for _, slice := range l.Items {
			if by := slice.Labels[discoveryv1.LabelManagedBy]; by == "" || strings.HasSuffix(by, ".k8s.io") {
				return fmt.Errorf("EndpointSlice %s is managed by %q", slice.Name, by)
			}
			id := slice.Labels[mcsv1beta1.LabelSourceCluster]
			for _, e := range slice.Endpoints {
				for _, p := range slice.Ports {
					have[id] = append(have[id],
						strings.TrimSpace(fmt.Sprintf("%s %s:%d %s", e.Addresses[0], *p.Name, *p.Port, ptr.Deref(e.Hostname, ""))))
				}
			}
			slices.Sort(have[id])
		}
		if diff := cmp.Diff(want, have); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

func sameJSON(field string, have, want any) error {
	if diff := cmp.Diff(want, have); diff != "" {
		return fmt.Errorf("%s: want -, have +:\n%s", field, diff)
	}
	return nil
}

// TestMultiClusterServices has a subtest for each row of the table in docs/multicluster-conformance.md that API servers
// alone can show. The name begins with the number of the row.
func TestMultiClusterServices(t *testing.T) {
	s := newServices(t, "east", "west")
	both := []string{"east", "west"}
	run := func(name string, f func(t *testing.T, namespace string)) {
		t.Run(name, func(t *testing.T) {
			outer := s.t
			s.t = t
			for _, m := range s.members {
				m.t = t
			}
			defer func() {
				s.t = outer
				for _, m := range s.members {
					m.t = outer
				}
			}()
			namespace, _, _ := strings.Cut(name, "_")
			namespace = "row-" + namespace
			for _, id := range both {
				if err := s.members[id].member.Create(t.Context(), &corev1.Namespace{ObjectMeta: meta("", namespace)}); err != nil {
					t.Fatal(err)
				}
			}
			f(t, namespace)
		})
	}

	run("1_an export of a ClusterIP Service, and what it is imported with (3 to 7, 16)", func(t *testing.T, ns string) {
		var o *corev1.Service
		for _, id := range both {
			o = s.hello(id, ns, func(o *corev1.Service) {
				o.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
				o.Spec.TrafficDistribution = ptr.To(corev1.ServiceTrafficDistributionPreferClose)
			})
		}
		s.export("west", ns, nil, nil)
		s.condition("west", ns, mcsv1beta1.ServiceExportConditionValid, metav1.ConditionTrue, "Succeed")
		s.condition("west", ns, mcsv1beta1.ServiceExportConditionReady, metav1.ConditionTrue, "Exported")
		s.condition("west", ns, mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionFalse, "NoConflicts")
		s.everywhere("the import is the Service's", func(ctx context.Context, in client.Client) error {
			si, old, derived := &mcsv1beta1.ServiceImport{}, &mcsv1alpha1.ServiceImport{}, &corev1.Service{}
			k := client.ObjectKey{Namespace: ns, Name: "hello"}
			if err := errors.Join(in.Get(ctx, k, si), in.Get(ctx, k, old),
				in.Get(ctx, client.ObjectKey{Namespace: ns, Name: "antrea-mc-hello"}, derived)); err != nil {
				return err
			}
			var ports []corev1.ServicePort
			for _, p := range si.Spec.Ports {
				ports = append(ports,
					corev1.ServicePort{Name: p.Name, Protocol: p.Protocol, AppProtocol: p.AppProtocol, Port: p.Port})
			}
			want := slices.Clone(o.Spec.Ports)
			for i := range want {
				want[i].TargetPort.IntVal = 0
			}
			return errors.Join(
				sameJSON("type", si.Spec.Type, mcsv1beta1.ClusterSetIP),
				sameJSON("row 3: ips", si.Spec.IPs, []string{derived.Spec.ClusterIP}),
				sameJSON("row 3: ipFamilies", si.Spec.IPFamilies, []corev1.IPFamily{corev1.IPv4Protocol}),
				sameJSON("row 4: ports", ports, want),
				sameJSON("row 5: sessionAffinity", si.Spec.SessionAffinity, o.Spec.SessionAffinity),
				sameJSON("row 5: sessionAffinityConfig", si.Spec.SessionAffinityConfig, o.Spec.SessionAffinityConfig),
				sameJSON("row 6: internalTrafficPolicy", si.Spec.InternalTrafficPolicy, o.Spec.InternalTrafficPolicy),
				sameJSON("row 7: trafficDistribution", si.Spec.TrafficDistribution, o.Spec.TrafficDistribution),
				sameJSON("by v1alpha1", string(old.Spec.Type), "ClusterSetIP"),
				sameJSON("the derived Service's affinity", derived.Spec.SessionAffinityConfig, o.Spec.SessionAffinityConfig),
				sameJSON("the derived Service's policy", derived.Spec.InternalTrafficPolicy, o.Spec.InternalTrafficPolicy),
				sameJSON("clusters", si.Status.Clusters, []mcsv1beta1.ClusterStatus{{Cluster: "west"}}),
			)
		})
		served := map[string][]string{"west": {o.Spec.ClusterIP + " tcp:42", o.Spec.ClusterIP + " udp:42"}}
		s.slices(ns, served)

		// The import, its address and its annotations live as long as the export, with or without endpoints.
		const annotation = multicluster.AnnotationRequests
		addresses, uids := map[client.Client][]string{}, map[client.Client]types.UID{}
		for _, id := range both {
			si := &mcsv1beta1.ServiceImport{ObjectMeta: meta(ns, "hello")}
			s.update(s.members[id].member, si, func() { metav1.SetMetaDataAnnotation(&si.ObjectMeta, annotation, "spread") })
			addresses[s.members[id].member], uids[s.members[id].member] = si.Spec.IPs, si.UID
		}
		slice := &discoveryv1.EndpointSlice{ObjectMeta: meta(ns, "hello-abcde")}
		for _, step := range []struct {
			what       string
			conditions discoveryv1.EndpointConditions
			want       map[string][]string
		}{
			{"its Pods end and still serve",
				discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true), Terminating: ptr.To(true)}, served},
			{"its Pods have ended", discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(false),
				Terminating: ptr.To(true)}, map[string][]string{}},
			{"other Pods start", discoveryv1.EndpointConditions{Ready: ptr.To(false)}, map[string][]string{}},
			{"they are ready", discoveryv1.EndpointConditions{Ready: ptr.To(true)}, served},
		} {
			s.update(s.members["west"].member, slice, func() {
				for i := range slice.Endpoints {
					slice.Endpoints[i].Conditions = step.conditions
				}
			})
			s.slices(ns, step.want)
			s.everywhere(step.what, func(ctx context.Context, in client.Client) error {
				si := &mcsv1beta1.ServiceImport{}
				if err := in.Get(ctx, client.ObjectKey{Namespace: ns, Name: "hello"}, si); err != nil {
					return err
				}
				return errors.Join(sameJSON("ips", si.Spec.IPs, addresses[in]), sameJSON("UID", si.UID, uids[in]),
					sameJSON("annotation", si.Annotations[annotation], "spread"))
			})
			s.condition("west", ns, mcsv1beta1.ServiceExportConditionValid, metav1.ConditionTrue, "Succeed")
			s.condition("west", ns, mcsv1beta1.ServiceExportConditionReady, metav1.ConditionTrue, "Exported")
		}
		s.unexport("west", ns)
		s.nothing(ns)
	})
	run("2_the import lives while one exporter is left", func(t *testing.T, ns string) {
		for _, id := range both {
			s.hello(id, ns, nil)
			s.export(id, ns, nil, nil)
		}
		clusters := func(want ...mcsv1beta1.ClusterStatus) func(si *mcsv1beta1.ServiceImport) error {
			return func(si *mcsv1beta1.ServiceImport) error { return sameJSON("clusters", si.Status.Clusters, want) }
		}
		s.imported(ns, "two exporters",
			clusters(mcsv1beta1.ClusterStatus{Cluster: "east"}, mcsv1beta1.ClusterStatus{Cluster: "west"}))
		s.unexport("east", ns)
		s.imported(ns, "one exporter", clusters(mcsv1beta1.ClusterStatus{Cluster: "west"}))
		s.unexport("west", ns)
		s.nothing(ns)
	})
	// follows waits until the import and the derived Service are as the Service.
	follows := func(ns, what string, o *corev1.Service) {
		s.everywhere(what, func(ctx context.Context, in client.Client) error {
			si, derived := &mcsv1beta1.ServiceImport{}, &corev1.Service{}
			if err := errors.Join(in.Get(ctx, client.ObjectKey{Namespace: ns, Name: "hello"}, si),
				in.Get(ctx, client.ObjectKey{Namespace: ns, Name: "antrea-mc-hello"}, derived)); err != nil {
				return err
			}
			return errors.Join(
				sameJSON("row 5: sessionAffinity", si.Spec.SessionAffinity, o.Spec.SessionAffinity),
				sameJSON("row 5: sessionAffinityConfig", si.Spec.SessionAffinityConfig, o.Spec.SessionAffinityConfig),
				sameJSON("row 6: internalTrafficPolicy", si.Spec.InternalTrafficPolicy, o.Spec.InternalTrafficPolicy),
				sameJSON("row 7: trafficDistribution", si.Spec.TrafficDistribution, o.Spec.TrafficDistribution),
				sameJSON("the derived Service's affinity", derived.Spec.SessionAffinity, o.Spec.SessionAffinity),
				sameJSON("the derived Service's timeout", derived.Spec.SessionAffinityConfig, o.Spec.SessionAffinityConfig),
				sameJSON("the derived Service's policy", derived.Spec.InternalTrafficPolicy, o.Spec.InternalTrafficPolicy),
			)
		})
	}
	run("3_versions of IP", func(t *testing.T, ns string) {
		const v4, v6 = corev1.IPv4Protocol, corev1.IPv6Protocol
		imports := func(what string, exported, inEast, inWest []corev1.IPFamily, ready string) {
			s.everywhere(what, func(ctx context.Context, in client.Client) error {
				si, derived, endpoints := &mcsv1beta1.ServiceImport{}, &corev1.Service{}, &services.Endpoints{}
				list := &discoveryv1.EndpointSliceList{}
				if err := errors.Join(in.Get(ctx, client.ObjectKey{Namespace: ns, Name: "hello"}, si),
					in.Get(ctx, client.ObjectKey{Namespace: ns, Name: "antrea-mc-hello"}, derived),
					in.Get(ctx, client.ObjectKey{Namespace: ns, Name: "antrea-mc-hello"}, endpoints),
					in.List(ctx, list, client.InNamespace(ns), client.MatchingLabels{mcsv1beta1.LabelServiceName: "hello"}),
				); err != nil {
					return err
				}
				families, status := inWest, "True Ready"
				if in == s.members["east"].member {
					families, status = inEast, ready
				}
				types, addresses := []corev1.IPFamily{}, 0
				for _, subset := range endpoints.Subsets {
					addresses += len(subset.Addresses)
				}
				for _, slice := range list.Items {
					types = append(types, corev1.IPFamily(slice.AddressType))
				}
				slices.Sort(types)
				usable := slices.DeleteFunc(slices.Clone(exported),
					func(f corev1.IPFamily) bool { return !slices.Contains(families, f) })
				c := apimeta.FindStatusCondition(si.Status.Conditions, string(mcsv1beta1.ServiceImportConditionReady))
				if c == nil {
					return errors.New("no condition Ready")
				}
				return errors.Join(sameJSON("ipFamilies", si.Spec.IPFamilies, families),
					sameJSON("addresses of Endpoints", addresses, len(usable)),
					sameJSON("ips", si.Spec.IPs, derived.Spec.ClusterIPs), sameJSON("EndpointSlices", types, usable),
					sameJSON("Ready", string(c.Status)+" "+c.Reason, status))
			})
		}
		o := s.hello("west", ns,
			func(o *corev1.Service) { o.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyPreferDualStack) })
		s.export("west", ns, nil, nil)
		imports("both", []corev1.IPFamily{v4, v6}, []corev1.IPFamily{v4}, []corev1.IPFamily{v4, v6}, "True Ready")
		s.update(s.members["west"].member, o, func() { o.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack) })
		imports("IPv4 alone", []corev1.IPFamily{v4}, []corev1.IPFamily{v4}, []corev1.IPFamily{v4}, "True Ready")
		west := s.members["west"].member
		s.delete(west, o)
		s.create(west, &corev1.Service{ObjectMeta: meta(ns, "hello"), Spec: corev1.ServiceSpec{Ports: o.Spec.Ports,
			Selector: o.Spec.Selector, IPFamilies: []corev1.IPFamily{v6}}})
		imports("IPv6 alone", []corev1.IPFamily{v6}, []corev1.IPFamily{v4}, []corev1.IPFamily{v6},
			"False IPFamilyNotSupported")
		s.unexport("west", ns)
		s.nothing(ns)
	})
	run("5-defaults_a Service that says nothing of affinity, policy and distribution (5 to 7)",
		func(t *testing.T, ns string) {
			o := s.hello("west", ns, func(o *corev1.Service) { o.Spec.SessionAffinity, o.Spec.SessionAffinityConfig = "", nil })
			s.export("west", ns, nil, nil)
			if o.Spec.SessionAffinity != corev1.ServiceAffinityNone ||
				ptr.Deref(o.Spec.InternalTrafficPolicy, "") != corev1.ServiceInternalTrafficPolicyCluster ||
				o.Spec.SessionAffinityConfig != nil || o.Spec.TrafficDistribution != nil {
				t.Fatalf("the API server's defaults are %v", o.Spec)
			}
			follows(ns, "defaults", o)
		})
	run("5-changes_a Service that changes after it was imported (5 to 7)", func(t *testing.T, ns string) {
		o := s.hello("west", ns, nil)
		s.export("west", ns, nil, nil)
		follows(ns, "as it is exported first", o)
		for _, change := range []struct {
			name string
			make func(*corev1.ServiceSpec)
		}{
			{"another timeout",
				func(spec *corev1.ServiceSpec) { spec.SessionAffinityConfig.ClientIP.TimeoutSeconds = ptr.To[int32](20) }},
			{"policy Local", func(spec *corev1.ServiceSpec) {
				spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
			}},
			{"a distribution", func(spec *corev1.ServiceSpec) {
				spec.TrafficDistribution = ptr.To(corev1.ServiceTrafficDistributionPreferClose)
			}},
			{"policy Cluster, no affinity, no distribution", func(spec *corev1.ServiceSpec) {
				spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyCluster)
				spec.SessionAffinity, spec.SessionAffinityConfig, spec.TrafficDistribution = corev1.ServiceAffinityNone, nil, nil
			}},
		} {
			s.update(s.members["west"].member, o, func() { change.make(&o.Spec) })
			follows(ns, change.name, o)
		}
	})
	run("1-ends_an export ends with its Service, with the Service's type, and with its Namespace",
		func(t *testing.T, ns string) {
			west := s.members["west"].member
			o := s.hello("west", ns, nil)
			s.export("west", ns, nil, nil)
			exported := func() {
				t.Helper()
				s.condition("west", ns, mcsv1beta1.ServiceExportConditionValid, metav1.ConditionTrue, "Succeed")
				s.condition("west", ns, mcsv1beta1.ServiceExportConditionReady, metav1.ConditionTrue, "Exported")
				s.imported(ns, "the import", func(si *mcsv1beta1.ServiceImport) error {
					return sameJSON("type", si.Spec.Type, mcsv1beta1.ClusterSetIP)
				})
			}
			exported()
			again := o.DeepCopy()
			again.ObjectMeta = meta(ns, "hello")
			again.Spec.ClusterIP, again.Spec.ClusterIPs = "", nil
			s.delete(west, o)
			s.condition("west", ns, mcsv1beta1.ServiceExportConditionValid, metav1.ConditionFalse, "ServiceNotFound")
			s.nothing(ns)
			s.create(west, again)
			exported()
			s.update(west, again, func() {
				again.Spec.Type, again.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.org"
				again.Spec.ClusterIP, again.Spec.ClusterIPs = "", nil
				again.Spec.SessionAffinity, again.Spec.SessionAffinityConfig = "", nil
			})
			s.condition("west", ns, mcsv1beta1.ServiceExportConditionValid, metav1.ConditionFalse, "ServiceTypeNotSupported")
			s.nothing(ns)
			s.update(west, again, func() { again.Spec.Type, again.Spec.ExternalName = corev1.ServiceTypeClusterIP, "" })
			exported()
			// There is no controller of Namespaces here. So the test deletes the objects of the Namespace, and the export last.
			s.delete(west, &corev1.Namespace{ObjectMeta: meta("", ns)}, again,
				&discoveryv1.EndpointSlice{ObjectMeta: meta(ns, "hello-abcde")})
			s.unexport("west", ns)
			s.nothing(ns)
		})
	run("8_an ExternalName Service", func(t *testing.T, ns string) {
		s.hello("east", ns, func(o *corev1.Service) {
			o.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.org"}
		})
		s.export("east", ns, nil, nil)
		s.condition("east", ns, mcsv1beta1.ServiceExportConditionValid, metav1.ConditionFalse, "ServiceTypeNotSupported")
		s.condition("east", ns, mcsv1beta1.ServiceExportConditionReady, metav1.ConditionFalse, "Failed")
		s.nothing(ns)
	})
	run("9_a headless Service, which has no IP (10), and its Pods by their host names (25 to 27)",
		func(t *testing.T, ns string) {
			for _, id := range both {
				s.hello(id, ns, func(o *corev1.Service) {
					o.Spec.ClusterIP, o.Spec.SessionAffinity, o.Spec.SessionAffinityConfig = corev1.ClusterIPNone, "", nil
				})
				s.export(id, ns, nil, nil)
				s.condition(id, ns, mcsv1beta1.ServiceExportConditionReady, metav1.ConditionTrue, "Exported")
			}
			s.imported(ns, "headless import", func(si *mcsv1beta1.ServiceImport) error {
				return errors.Join(sameJSON("type", si.Spec.Type, mcsv1beta1.Headless), sameJSON("ips", len(si.Spec.IPs), 0))
			})
			s.slices(ns, map[string][]string{
				"east": {"10.11.0.1 tcp:8080 hello-0", "10.11.0.1 udp:8080 hello-0", "10.11.0.2 tcp:8080 hello-1",
					"10.11.0.2 udp:8080 hello-1"},
				"west": {"10.12.0.1 tcp:8080 hello-0", "10.12.0.1 udp:8080 hello-0", "10.12.0.2 tcp:8080 hello-1",
					"10.12.0.2 udp:8080 hello-1"}})
			east := &discoveryv1.EndpointSlice{ObjectMeta: meta(ns, "hello-abcde")}
			pods := map[string][]string{
				"east": {"10.11.0.1 tcp:8080 hello-0", "10.11.0.1 udp:8080 hello-0"},
				"west": {"10.12.0.1 tcp:8080 hello-0", "10.12.0.1 udp:8080 hello-0", "10.12.0.2 tcp:8080 hello-1",
					"10.12.0.2 udp:8080 hello-1"}}
			s.update(s.members["east"].member, east, func() { east.Endpoints[1].Conditions.Ready = ptr.To(false) })
			s.slices(ns, pods) // a Pod that is not ready is not among them
			s.update(s.members["east"].member, east, func() { east.Endpoints[1].Conditions.Ready = ptr.To(true) })
			pods["east"] = append(pods["east"], "10.11.0.2 tcp:8080 hello-1", "10.11.0.2 udp:8080 hello-1")
			s.slices(ns, pods)
			for _, id := range both {
				s.unexport(id, ns)
			}
			s.nothing(ns)
		})
	// The older export is west's, so the order of the clusters' IDs decides nothing. endpoints returns the endpoints of
	// the import from the clusters' ClusterIPs.
	contrary := func(name string, east, west func(*corev1.Service), reason string,
		check func(*mcsv1beta1.ServiceImport) error, endpoints func(east, west string) map[string][]string) {
		run(name, func(t *testing.T, ns string) {
			there, here := s.hello("west", ns, west), s.hello("east", ns, east)
			s.export("west", ns, nil, nil)
			s.later()
			s.export("east", ns, nil, nil)
			s.conflict(ns, reason, both...)
			s.imported(ns, "the import", check)
			want := endpoints(here.Spec.ClusterIP, there.Spec.ClusterIP)
			s.slices(ns, want)
			s.imported(ns, "clusters", func(si *mcsv1beta1.ServiceImport) error {
				var have []string
				for _, c := range si.Status.Clusters {
					have = append(have, c.Cluster)
				}
				return sameJSON("status.clusters", have, slices.Sorted(maps.Keys(want)))
			})
			for _, id := range both {
				s.condition(id, ns, mcsv1beta1.ServiceExportConditionValid, metav1.ConditionTrue, "Succeed")
			}
			s.unexport("east", ns) // nothing is left to contradict
			s.condition("west", ns, mcsv1beta1.ServiceExportConditionConflict, metav1.ConditionFalse, "NoConflicts")
		})
	}
	named := func(name string, port int32) func(*corev1.Service) {
		return func(o *corev1.Service) {
			o.Spec.Ports = []corev1.ServicePort{{Name: name, Port: port, Protocol: corev1.ProtocolTCP}}
		}
	}
	ports := func(want ...string) func(*mcsv1beta1.ServiceImport) error {
		return func(si *mcsv1beta1.ServiceImport) error {
			var have []string
			for _, p := range si.Spec.Ports {
				have = append(have, fmt.Sprintf("%s:%d", p.Name, p.Port))
			}
			return sameJSON("ports", have, want)
		}
	}
	isHeadless := func(o *corev1.Service) {
		o.Spec.ClusterIP, o.Spec.SessionAffinity, o.Spec.SessionAffinityConfig = corev1.ClusterIPNone, "", nil
	}
	typeIs := func(want mcsv1beta1.ServiceImportType) func(*mcsv1beta1.ServiceImport) error {
		return func(si *mcsv1beta1.ServiceImport) error { return sameJSON("type", si.Spec.Type, want) }
	}
	contrary("11_the union of ports", named("a", 41), named("b", 42), "PortConflict",
		ports("b:42", "a:41"), func(east, west string) map[string][]string {
			return map[string][]string{"east": {east + " a:41"}, "west": {west + " b:42"}}
		})
	contrary("12_one port name, two numbers", named("tcp", 41), named("tcp", 42), "PortConflict",
		ports("tcp:42"), func(_, west string) map[string][]string {
			return map[string][]string{"west": {west + " tcp:42"}}
		})
	contrary("13_one is headless", nil, isHeadless, "TypeConflict", typeIs(mcsv1beta1.Headless),
		func(string, string) map[string][]string {
			return map[string][]string{"west": {"10.12.0.1 tcp:8080 hello-0", "10.12.0.1 udp:8080 hello-0",
				"10.12.0.2 tcp:8080 hello-1", "10.12.0.2 udp:8080 hello-1"}}
		})
	contrary("13-newer_the newer one is headless", isHeadless, nil, "TypeConflict",
		typeIs(mcsv1beta1.ClusterSetIP), func(_, west string) map[string][]string {
			return map[string][]string{"west": {west + " tcp:42", west + " udp:42"}}
		})
	run("14_labels and annotations that are exported, and no others", func(t *testing.T, ns string) {
		s.hello("east", ns, nil)
		s.export("east", ns, map[string]string{"dummy-export": "label"}, map[string]string{"dummy-export": "annotation"})
		s.imported(ns, "labels and annotations", func(si *mcsv1beta1.ServiceImport) error {
			return errors.Join(sameJSON("labels", si.Labels, map[string]string{"dummy-export": "label"}),
				sameJSON("annotations", si.Annotations,
					map[string]string{"dummy-export": "annotation", multicluster.AnnotationImportedService: "true"}))
		})
		e := &mcsv1beta1.ServiceExport{ObjectMeta: meta(ns, "hello")}
		s.update(s.members["east"].member, e, func() { e.Spec = mcsv1beta1.ServiceExportSpec{} })
		s.imported(ns, "what is not exported any more goes", func(si *mcsv1beta1.ServiceImport) error {
			return errors.Join(sameJSON("labels", len(si.Labels), 0), sameJSON("annotations", len(si.Annotations), 1))
		})
		s.update(s.members["east"].member, e, func() { e.Spec.ExportedLabels = map[string]string{"a b": "c"} })
		s.condition("east", ns, mcsv1beta1.ServiceExportConditionValid, metav1.ConditionFalse, "ExportedMetadataInvalid")
	})
	run("15_labels and annotations that differ", func(t *testing.T, ns string) {
		for _, id := range []string{"west", "east"} {
			s.hello(id, ns, nil)
			s.export(id, ns, map[string]string{"from": id}, map[string]string{"from": id})
			s.later()
		}
		s.conflict(ns, "LabelsConflict,AnnotationsConflict", both...)
		s.imported(ns, "the older export's", func(si *mcsv1beta1.ServiceImport) error {
			return errors.Join(sameJSON("labels", si.Labels["from"], "west"),
				sameJSON("annotations", si.Annotations["from"], "west"))
		})
	})
	run("16_objects of users stay as they are", func(t *testing.T, ns string) {
		mine := &mcsv1beta1.ServiceImport{ObjectMeta: meta(ns, "hello"),
			Spec: mcsv1beta1.ServiceImportSpec{Type: mcsv1beta1.ClusterSetIP, Ports: []mcsv1beta1.ServicePort{{Port: 1}}}}
		s.create(s.members["east"].member, mine)
		s.hello("west", ns, nil)
		s.export("west", ns, nil, nil)
		s.eventually("the import in west", func(ctx context.Context) error {
			return s.members["west"].member.Get(ctx, client.ObjectKey{Namespace: ns, Name: "hello"}, &mcsv1beta1.ServiceImport{})
		})
		s.members["east"].eventIs("hello", "NotImported")
		s.unexport("west", ns)
		s.eventually("the import in west is gone", func(ctx context.Context) error {
			err := s.members["west"].member.Get(ctx, client.ObjectKey{Namespace: ns, Name: "hello"}, &mcsv1beta1.ServiceImport{})
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("still there: %w", err)
			}
			return nil
		})
		if err := s.members["east"].member.Get(t.Context(), client.ObjectKeyFromObject(mine), mine); err != nil ||
			len(mine.Spec.Ports) != 1 {
			t.Errorf("the user's ServiceImport: %v, %v", mine.Spec, err)
		}
	})
	run("1000_endpoints, of which one goes: two writes a cluster", func(t *testing.T, ns string) {
		s.hello("east", ns, func(o *corev1.Service) {
			o.Spec.ClusterIP, o.Spec.SessionAffinity, o.Spec.SessionAffinityConfig = corev1.ClusterIPNone, "", nil
			o.Spec.Ports = o.Spec.Ports[:1]
		})
		list := make([]*discoveryv1.EndpointSlice, 10)
		for i := range list {
			list[i] = &discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprintf("hello-%d", i), Labels: map[string]string{
					discoveryv1.LabelServiceName: "hello", discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
					corev1.IsHeadlessService: ""}},
				AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{
					{Name: ptr.To("tcp"), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP)}}}
			for n := range 100 {
				if i == 9 && n > 97 {
					break // with the slices of hello there are 1,000
				}
				list[i].Endpoints = append(list[i].Endpoints, discoveryv1.Endpoint{Addresses: []string{
					fmt.Sprintf("10.11.%d.%d", i+1, n+1)}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}})
			}
			s.create(s.members["east"].member, list[i])
		}
		s.export("east", ns, nil, nil)
		// versions returns the versions of the imported objects in a cluster, and the number of endpoints.
		versions := func(ctx context.Context, in client.Client) (map[string]string, int, error) {
			slices, endpoints := &discoveryv1.EndpointSliceList{}, &corev1.EndpointsList{}
			if err := errors.Join(in.List(ctx, slices, client.InNamespace(ns), client.HasLabels{mcsv1beta1.LabelServiceName}),
				in.List(ctx, endpoints, client.InNamespace(ns))); err != nil {
				return nil, 0, err
			}
			have, count := map[string]string{}, 0
			for _, o := range slices.Items {
				have["EndpointSlice "+o.Name] = o.ResourceVersion
				count += len(o.Endpoints)
				if len(o.Endpoints) > 1000 {
					return nil, 0, fmt.Errorf("EndpointSlice %s has %d endpoints", o.Name, len(o.Endpoints))
				}
			}
			for _, o := range endpoints.Items {
				have["Endpoints "+o.Name] = o.ResourceVersion
				n := 0
				for _, subset := range o.Subsets {
					n += len(subset.Addresses)
				}
				if n != count {
					return nil, 0, fmt.Errorf("Endpoints have %d addresses, EndpointSlices %d", n, count)
				}
			}
			return have, count, nil
		}
		before := map[client.Client]map[string]string{}
		imported := func(want int) {
			s.everywhere(fmt.Sprintf("%d endpoints", want), func(ctx context.Context, in client.Client) error {
				have, count, err := versions(ctx, in)
				if err == nil && count != want {
					err = fmt.Errorf("%d endpoints", count)
				}
				if want == 1000 {
					before[in] = have
				}
				return err
			})
		}
		imported(1000)
		wrote := s.writesBy()
		start := time.Now()
		s.update(s.members["east"].member, list[4], func() { list[4].Endpoints = list[4].Endpoints[1:] })
		imported(999)
		t.Logf("one of 1,000 endpoints is gone everywhere after %s", time.Since(start).Round(time.Millisecond))
		s.wrote(wrote, map[string]int{"leader resourceexports": 1, "leader resourceimports": 1,
			// one is the test's
			"east endpointslices": 1 + 1, "east endpoints": 1, "west endpointslices": 1, "west endpoints": 1})
		for _, id := range both {
			have, _, err := versions(t.Context(), s.members[id].member)
			if err != nil {
				t.Fatal(err)
			}
			var changed []string
			for name, version := range have {
				if before[s.members[id].member][name] != version {
					changed = append(changed, name)
				}
			}
			if len(changed) != 2 || len(have) != len(before[s.members[id].member]) {
				t.Errorf("%s has written %v, of %d objects now %d; want one EndpointSlice and Endpoints",
					id, changed, len(before[s.members[id].member]), len(have))
			}
		}
	})
	run("ready_endpoints of a ClusterIP Service, of which one goes: one write an object", func(t *testing.T, ns string) {
		s.hello("east", ns, nil)
		unexported := s.writesBy()
		began := time.Now()
		s.export("east", ns, nil, nil)
		ready := func(want string) {
			s.everywhere(want+" ready endpoints", func(ctx context.Context, in client.Client) error {
				l := &discoveryv1.EndpointSliceList{}
				if err := in.List(ctx, l, client.InNamespace(ns),
					client.MatchingLabels{mcsv1beta1.LabelServiceName: "hello"}); err != nil {
					return err
				}
				var have []string
				for _, o := range l.Items {
					have = append(have, o.Annotations[multicluster.AnnotationReady])
				}
				return sameJSON("ready endpoints of EndpointSlices", have, []string{want})
			})
		}
		ready("2")
		s.condition("east", ns, mcsv1beta1.ServiceExportConditionReady, metav1.ConditionTrue, "Exported")
		want := map[string]int{
			"leader resourceexports": 2, "leader resourceimports": 2,
			"east services": 1, "east endpoints": 1, "east endpointslices": 1,
			"east serviceimports": 1, "east serviceimports/status": 1, "east serviceexports/status": 1,
			"west services": 1, "west endpoints": 1, "west endpointslices": 1,
			"west serviceimports": 1, "west serviceimports/status": 1,
		}
		total := 0
		for _, n := range want {
			total += n
		}
		expect(t, "writes of the controllers for one export", total, exportWrites)
		// The test's ServiceExport, and the API servers' records of the Services' addresses.
		want["east serviceexports"], want["east ipaddresses"], want["west ipaddresses"] = 1, 1, 1
		if took := time.Since(began); took > pendingAfter {
			t.Logf("exported after %s: statuses that wait for %s may have one write more", took, pendingAfter)
			have := s.writesBy()
			statuses := []string{"east serviceexports/status", "east serviceimports/status", "west serviceimports/status"}
			for _, key := range statuses {
				if have[key]-unexported[key] == 2 {
					want[key] = 2
				}
			}
			if key := "leader resourceexports/status"; have[key]-unexported[key] == 2 {
				want[key] = 2 // the leader waits as long before it reports Endpoints without their Service
			}
		}
		s.wrote(unexported, want)
		wrote := s.writesBy()
		slice := &discoveryv1.EndpointSlice{ObjectMeta: meta(ns, "hello-abcde")}
		s.update(s.members["east"].member, slice, func() { slice.Endpoints = slice.Endpoints[1:] })
		ready("1")
		// one is the test's
		s.wrote(wrote, map[string]int{"leader resourceexports": 1, "leader resourceimports": 1,
			"east endpointslices": 1 + 1, "west endpointslices": 1})
	})
}

// exportWrites is how many writes of the controllers one export may cost, with a leader and two members.
const exportWrites = 15

// atRest returns an error unless all members are at rest, and each export of a Service or its Endpoints has an import
// or a condition.
func (s *mcsWorld) atRest(ctx context.Context) error {
	for id, m := range s.members {
		if err := m.atRest(ctx); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
	}
	exports, imports := &mcv1alpha1.ResourceExportList{}, &mcv1alpha1.ResourceImportList{}
	if err := errors.Join(s.leader.List(ctx, exports, client.InNamespace(area)),
		s.leader.List(ctx, imports, client.InNamespace(area))); err != nil {
		return err
	}
	suffixes := map[string]string{multicluster.ServiceKind: multicluster.ServiceSuffix,
		multicluster.EndpointsKind: multicluster.EndpointsSuffix}
	for _, re := range exports.Items {
		suffix, judged := suffixes[re.Spec.Kind]
		name := multicluster.ResourceImportName(re.Spec.Namespace, re.Spec.Name, suffix)
		if judged && len(re.Status.Conditions) == 0 &&
			!slices.ContainsFunc(imports.Items, func(ri mcv1alpha1.ResourceImport) bool { return ri.Name == name }) {
			return fmt.Errorf("ResourceExport %s has no condition and no import", re.Name)
		}
	}
	return nil
}

// writesBy returns the writes that each API server has served, by kind of object and subresource. It waits until all
// are at rest and there has been no write for a second. It counts writes that changed nothing or were refused too. The
// controllers' own counters do not suffice: if a process has several controllers, it registers the counter of one.
// writesBy omits announcements, Leases and Events, which never stop. It also omits the access rights that a test
// creates when it starts a controller.
func (s *mcsWorld) writesBy() map[string]int {
	s.t.Helper()
	omitted := []string{"memberclusterannounces", "leases", "events", "serviceaccounts",
		"roles", "rolebindings", "clusterroles", "clusterrolebindings"}
	servers := map[string]*rest.Config{"leader": s.leaderConfig}
	for id, m := range s.members {
		servers[id] = m.memberConfig
	}
	count := func() map[string]int {
		out := map[string]int{}
		for name, config := range servers {
			for resource, n := range writesServed(s.t, config) {
				if !slices.Contains(omitted, resource) {
					out[name+" "+resource] = n
				}
			}
		}
		return out
	}
	last, since := count(), time.Now()
	s.eventually("nobody writes", func(ctx context.Context) error {
		if err := s.atRest(ctx); err != nil {
			since = time.Now()
			return err
		}
		if time.Since(since) < time.Second {
			return errors.New("somebody has written")
		}
		// An API server has megabytes of metrics, so count does not run at each look.
		now := count()
		if !maps.Equal(now, last) {
			last, since = now, time.Now()
			return errors.New("somebody has written")
		}
		return nil
	})
	return last
}

// wrote compares the writes since writesBy. It waits for writes that are missing: an event may be on its way.
func (s *mcsWorld) wrote(before, want map[string]int) {
	s.t.Helper()
	s.eventually("writes (-want +have)", func(context.Context) error {
		have := s.writesBy()
		for key := range have {
			if have[key] -= before[key]; have[key] == 0 {
				delete(have, key)
			}
		}
		diff := cmp.Diff(want, have)
		for key, n := range have {
			if n > want[key] {
				s.t.Fatalf("more writes of %s than expected (-want +have):\n%s", key, diff)
			}
		}
		if diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

// requestTotal begins the lines of metrics about requests. servedRequest is the rest of such a line about a write.
const requestTotal = "apiserver_request_total"

var servedRequest = regexp.MustCompile(
	`^\{code="2.*\bresource="([^"]*)".*\bsubresource="([^"]*)".*\bverb="(?:POST|PUT|PATCH|APPLY|DELETE)"[^}]*\} (\S+)$`)

// writesServed returns the writes that an API server has accepted, by resource. It omits a write that was refused
// because it was based on an older version, since such a write changes nothing.
func writesServed(t *testing.T, config *rest.Config) map[string]int {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	answer, err := client.Get(config.Host + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("metrics of the API server: %s: %v", answer.Status, err)
	}
	out := map[string]int{}
	for line := range strings.Lines(string(text)) {
		line, is := strings.CutPrefix(strings.TrimSuffix(line, "\n"), requestTotal)
		if !is {
			continue
		}
		found := servedRequest.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		n, err := strconv.ParseFloat(found[3], 64)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimSuffix(found[1]+"/"+found[2], "/")] += int(n)
	}
	return out
}
