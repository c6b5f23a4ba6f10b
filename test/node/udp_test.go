package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

var measured = regexp.MustCompile(`(?m)^tombolo_propagation_seconds_count\{hop="endpoints_to_flows"\} [1-9]`)

// testUDP takes an endpoint off a Service while a UDP client goes on sending from one port. The
// endpoint's Pod would still answer, so that it does not is the flush's doing. The client's
// connection to the same Pod by another Service, and without any, stays.
func testUDP(t *testing.T, c *cluster) {
	objects := c.objects(t)
	r := newRig(t, c).withOVS()
	r.ready()
	sender := r.add("client")
	servers := map[string]*pod{"a": r.add("a"), "b": r.add("b")}
	for _, s := range servers {
		s.serve(t, 5353)
	}
	service := func(name, vip string) *discoveryv1.EndpointSlice {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
				Labels: map[string]string{discoveryv1.LabelServiceName: name}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(5353)), Protocol: new(corev1.ProtocolUDP)}},
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{servers["a"].ip}}, {Addresses: []string{servers["b"].ip}}},
		}
		for _, o := range []client.Object{
			&corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
				Spec: corev1.ServiceSpec{ClusterIP: vip,
					Ports: []corev1.ServicePort{{Port: 53, Protocol: corev1.ProtocolUDP}}},
			}, slice,
		} {
			if err := objects.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = objects.Delete(context.Background(), o) })
		}
		return slice
	}
	slice := service("dns", "10.97.0.53")
	service("other", "10.97.0.54")
	r.eventually("both Services have both endpoints", func() error {
		if n := strings.Count(r.flows(), "nat(dst="); n != 4 {
			return fmt.Errorf("%d buckets", n)
		}
		return nil
	})
	r.eventually("the way from the Services to the switch was measured", func() error {
		text, err := r.fetch("/metrics")
		if err == nil && !measured.Match(text) {
			err = fmt.Errorf("no count in %s", text)
		}
		return err
	})
	word := 0
	from := func(conn net.Conn) string {
		t.Helper()
		word++
		text := fmt.Sprint("word", word)
		server := ""
		r.eventually("an answer", func() error {
			answer, err := ask(conn, text, time.Second)
			server, _, _ = strings.Cut(answer, " ")
			return err
		})
		return server
	}
	open := func(address string) net.Conn {
		t.Helper()
		conn, err := sender.dial("udp4", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	set := func(names ...string) {
		t.Helper()
		slice.Endpoints = nil
		for _, name := range names {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{servers[name].ip}})
		}
		if err := objects.Update(t.Context(), slice); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		name   string
		change func(func())
	}{
		{"agent runs", func(f func()) { f() }},
		{"agent was away", func(f func()) { r.stop(); f(); r.ready() }},
	} {
		t.Run(row.name, func(t *testing.T) {
			conn := open("10.97.0.53:53")
			server := from(conn)
			another := map[string]string{"a": "b", "b": "a"}[server]
			direct := open(servers[server].ip + ":5353")
			var same net.Conn // by the other Service to the same Pod
			for same == nil {
				if conn := open("10.97.0.54:53"); from(conn) == server {
					same = conn
				}
			}
			from(direct)
			before := r.tracked(sender.ip, "10.97.0.54", servers[server].ip)
			row.change(func() { set(another) })
			r.eventually("the client's next datagram goes to the other endpoint", func() error {
				if got := from(conn); got != another {
					return fmt.Errorf("it goes to %s", got)
				}
				return nil
			})
			if after := r.tracked(sender.ip, "10.97.0.54", servers[server].ip); after < before {
				t.Errorf("%d other connections were tracked before, %d are now", before, after)
			}
			if got := from(same); got != server {
				t.Errorf("the connection by another Service has gone from %s to %s", server, got)
			}
			if got := from(direct); got != server {
				t.Errorf("the connection without a Service has gone from %s to %s", server, got)
			}
			set("a", "b")
			r.eventually("the Service has both endpoints", func() error {
				if n := strings.Count(r.flows(), "nat(dst="); n != 4 {
					return fmt.Errorf("%d buckets", n)
				}
				return nil
			})
		})
	}
	t.Run("the Service comes after the client, and is made again", func(t *testing.T) {
		conn := open("10.97.0.222:53")
		unserved := func() {
			t.Helper()
			r.eventually("the connection is forgotten, which comes after the flows are gone", func() error {
				word++
				if answer, err := ask(conn, fmt.Sprint("word", word), 100*time.Millisecond); err == nil {
					return fmt.Errorf("%q answers", answer)
				}
				return nil
			})
			for range 3 {
				word++
				if answer, err := ask(conn, fmt.Sprint("word", word), 100*time.Millisecond); err == nil {
					t.Errorf("without a Service %q answers", answer)
				}
			}
		}
		unserved()
		for range 2 {
			late := service("late", "10.97.0.222")
			from(conn)
			for _, o := range []client.Object{late, &corev1.Service{ObjectMeta: late.ObjectMeta}} {
				if err := objects.Delete(t.Context(), o); err != nil {
					t.Fatal(err)
				}
			}
			r.eventually("the Service's flows are gone", func() error {
				if strings.Contains(r.flows(), "nw_dst=10.97.0.222") {
					return errors.New("they are there")
				}
				return nil
			})
			unserved()
		}
	})
	t.Run("owners are Pods", func(t *testing.T) {
		var list api.FlowList
		if err := r.debug(api.PathFlows+"?owner=Pod", &list); err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, f := range list.Flows {
			seen[f.Owner] = true
		}
		if len(seen) != 3 || !seen["Pod default/client"] || !seen["Pod default/a"] || !seen["Pod default/b"] {
			t.Errorf("owners of flows: %v", seen)
		}
	})
	if s, err := r.status(); err != nil || len(s.Problems) > 0 {
		t.Errorf("problems: %v %v", s.Problems, err)
	}
	for _, p := range []*pod{sender, servers["a"], servers["b"]} {
		r.del(p)
	}
}

// tracked counts the UDP connections of a client to any of some addresses.
func (r *rig) tracked(client string, addresses ...string) int {
	r.t.Helper()
	n := 0
	for line := range strings.Lines(r.ovs.Appctl("dpctl/dump-conntrack")) {
		for _, a := range addresses {
			if strings.HasPrefix(line, "udp,orig=(src="+client+",dst="+a+",") {
				n++
			}
		}
	}
	return n
}
