package node

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/record"
)

// reader follows the records of the rig's agent.
type reader struct {
	t     *testing.T
	lines chan record.Event
}

// observe begins to read. query has the filters.
func (r *rig) observe(t *testing.T, query string) *reader {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(r.dir, "run", api.Socket))
	}}
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	target := "http://agent" + api.PathObserve + "?follow=true&" + query
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	out := &reader{t, make(chan record.Event, 10_000)}
	go func() {
		defer answer.Body.Close()
		for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
			var e record.Event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				t.Errorf("line %q: %v", lines.Text(), err)
				return
			}
			out.lines <- e
		}
	}()
	first := out.next("the beginning", func(e record.Event) bool { return true })
	if first.Begin == nil || first.Begin.Node != nodeName {
		t.Fatalf("the answer begins with %+v", first)
	}
	return out
}

// next returns the next event that is wanted.
func (r *reader) next(what string, wanted func(record.Event) bool) record.Event {
	r.t.Helper()
	deadline := time.After(10 * time.Second)
	var seen []string
	for {
		select {
		case e := <-r.lines:
			if wanted(e) {
				return e
			}
			text, _ := json.Marshal(e)
			seen = append(seen, string(text))
		case <-deadline:
			r.t.Fatalf("no record of %s; there were %q", what, seen)
		}
	}
}

// drop returns the record of a dropped or rejected connection.
func (r *reader) drop(from, to *pod, port uint16) *record.Record {
	r.t.Helper()
	return r.next(fmt.Sprintf("a drop from %s to %s:%d", from.name, to.name, port), func(e record.Event) bool {
		return e.Drop != nil && e.Drop.From.Pod == from.name && e.Drop.To.Pod == to.name && e.Drop.To.Port == port
	}).Drop
}

// commitFlows counts the flows of table Commit that send reports.
func commitFlows(t *testing.T, r *rig) (n int) {
	t.Helper()
	var list api.FlowList
	if err := r.debug(api.PathFlows+"?table=Commit", &list); err != nil {
		t.Fatal(err)
	}
	for _, f := range list.Flows {
		if strings.Contains(f.Actions, "controller") {
			n++
		}
	}
	return n
}

// spoof sends a datagram to port 9 from an address that is not the Pod's.
func spoof(t *testing.T, p *pod, to string) {
	t.Helper()
	if err := p.within(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		foreign, err := netlink.ParseAddr("192.0.2.9/32")
		if err != nil {
			return err
		}
		if err := errors.Join(netlink.LinkSetUp(lo), netlink.AddrAdd(lo, foreign)); err != nil {
			return err
		}
		conn, err := net.DialUDP("udp4", &net.UDPAddr{IP: foreign.IP}, &net.UDPAddr{IP: net.ParseIP(to), Port: 9})
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Write([]byte("x"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// testObserved has connections and drops of each kind, and reads their records.
func testObserved(t *testing.T, c *cluster) {
	objects := c.objects(t)
	create := func(o client.Object) {
		t.Helper()
		if err := objects.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = objects.Delete(context.Background(), o, client.GracePeriodSeconds(0)) })
	}
	r := newRig(t, c).withOVS()
	r.ready()
	sender, server := r.startAs("seen-client", "seen-client"), r.startAs("seen-server", "seen-server")
	server.serve(t, 8080)
	server.serve(t, 8081)
	r.eventually("the server answers", func() error { return connects(sender, server.ip+":8080") })
	service := func(name, vip string, endpoints ...string) {
		t.Helper()
		create(&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:       corev1.ServiceSpec{ClusterIP: vip, Ports: []corev1.ServicePort{{Port: 80}}},
		})
		if len(endpoints) > 0 {
			create(&discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
					Labels: map[string]string{discoveryv1.LabelServiceName: name}},
				AddressType: discoveryv1.AddressTypeIPv4,
				Ports:       []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)}},
				Endpoints:   []discoveryv1.Endpoint{{Addresses: endpoints}},
			})
		}
	}
	service("seen", "10.97.0.71", server.ip)
	service("seen-empty", "10.97.0.72")
	r.eventually("the Service is served", func() error { return connects(sender, "10.97.0.71:80") })

	t.Run("connections", func(t *testing.T) {
		before := commitFlows(t, r)
		lines := r.observe(t, "connections=true&last=0&from=default/seen-client")
		r.eventually("the switch reports connections", func() error {
			if commitFlows(t, r) == before {
				return errors.New("its flows are the same")
			}
			return nil
		})
		if err := connects(sender, "10.97.0.71:80"); err != nil {
			t.Fatal(err)
		}
		e := lines.next("a connection to the Service", func(e record.Event) bool {
			return e.Connection != nil && e.Connection.Service == "default/seen"
		}).Connection
		if e.Verdict != record.Allowed || e.Asked != "10.97.0.71:80" || e.To.Pod != "seen-server" || e.To.Port != 8080 ||
			e.From.IP != sender.ip || e.Protocol != "TCP" || !e.First || e.Node != nodeName {
			t.Errorf("the connection is %+v", e)
		}
	})
	r.eventually("without a reader the switch reports no connections", func() error {
		if flows := commitFlows(t, r); flows != 0 {
			return fmt.Errorf("%d flows report", flows)
		}
		return nil
	})

	lines := r.observe(t, "last=0")
	t.Run("Service without endpoints", func(t *testing.T) {
		_ = connects(sender, "10.97.0.72:80")
		e := lines.next("a refused connection", func(e record.Event) bool {
			return e.Drop != nil && e.Drop.Service == "default/seen-empty"
		}).Drop
		if e.Verdict != record.Rejected || e.Reason != record.NoEndpoints {
			t.Errorf("the record is %+v", e)
		}
	})
	t.Run("rule that drops", func(t *testing.T) {
		pods := &metav1.LabelSelector{MatchLabels: map[string]string{"role": "seen-server"}}
		create(&crdv1beta1.ClusterNetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "seen-drop"},
			Spec: crdv1beta1.PolicySpec{
				Priority:  5,
				AppliedTo: []crdv1beta1.AppliedTo{{PodSelector: pods}},
				Ingress: []crdv1beta1.Rule{{
					Name: "no-8081", Action: crdv1beta1.ActionDrop,
					Ports: []crdv1beta1.Port{{Port: new(intstr.FromInt32(8081))}},
				}},
			},
		})
		r.eventually("the rule holds", func() error { return refuses(sender, server.ip+":8081") })
		e := lines.drop(sender, server, 8081)
		if e.Reason != record.ByPolicy || e.Rule == nil || e.Rule.Name != "no-8081" || e.Verdict != record.Dropped {
			t.Errorf("the record is %+v, its rule %+v", e, e.Rule)
		}
	})
	t.Run("isolation", func(t *testing.T) {
		policies := c.client.NetworkingV1().NetworkPolicies("default")
		deny := &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "seen-default-deny"},
			Spec: networkingv1.NetworkPolicySpec{
				PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"role": "seen-server"}},
				PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			},
		}
		if _, err := policies.Create(t.Context(), deny, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		r.t.Cleanup(func() { _ = policies.Delete(context.Background(), deny.Name, metav1.DeleteOptions{}) })
		r.eventually("the Pod is isolated", func() error { return refuses(sender, server.ip+":8080") })
		e := lines.drop(sender, server, 8080)
		want := "isolated for ingress by NetworkPolicy default/seen-default-deny; no rule allows"
		if e.Reason != record.Isolated || e.Message != want {
			t.Errorf("the record is %+v; its message should be %q", e, want)
		}
	})
	t.Run("address of another", func(t *testing.T) {
		spoof(t, sender, server.ip)
		e := lines.next("a packet with a foreign source", func(e record.Event) bool {
			return e.Drop != nil && e.Drop.Table == "Classify" && e.Drop.To.Port == 9
		}).Drop
		if e.Reason != record.NotAdmitted {
			t.Errorf("the record is %+v", e)
		}
	})
	t.Run("repeats", func(t *testing.T) {
		for range 40 {
			conn, err := sender.dial("udp", server.ip+":8080")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			conn.Close()
		}
		sum := uint64(0)
		for sum < 40 {
			sum += lines.next("repeats", func(e record.Event) bool {
				return e.Drop != nil && e.Drop.Protocol == "UDP" && e.Drop.To.Port == 8080
			}).Drop.Count
		}
		if sum != 40 {
			t.Errorf("40 datagrams are %d in the records", sum)
		}
	})
	t.Run("metric", func(t *testing.T) {
		text, err := r.fetch("/metrics")
		if err != nil {
			t.Fatal(err)
		}
		for _, reason := range []string{record.Isolated, record.ByPolicy, record.NotAdmitted, record.NoEndpoints} {
			if !strings.Contains(string(text), fmt.Sprintf("tombolo_dropped_packets_total{reason=%q}", reason)) {
				t.Errorf("the metric has no packets with the reason %s", reason)
			}
		}
	})
	t.Run("history", func(t *testing.T) {
		text, err := r.fetch(api.PathObserve + "?since=5m&reason=isolated&protocol=TCP")
		if err != nil {
			t.Fatal(err)
		}
		if n := len(strings.Split(strings.TrimSpace(string(text)), "\n")); n < 2 {
			t.Errorf("the history has %d lines: %s", n, text)
		}
		if _, err := r.fetch(api.PathObserve + "?verdikt=dropped"); err == nil {
			t.Error("an unknown filter is taken")
		}
	})
}
