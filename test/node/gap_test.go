package node

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var (
	gapConnections = flag.Int("gap.connections", 100_000, "connections of BenchmarkTableGap")
	gapTime        = flag.Duration("gap.time", 10*time.Second, "how long each row of BenchmarkTableGap takes")
	gapLists       = flag.Bool("gap.lists", false,
		"BenchmarkTableGap lists the connections once a second, as agents did while policies changed")
)

// BenchmarkTableGap prints the longest time for which a Node forwards nothing, with many connections: at rest, and
// while policies change ten times a second.
func BenchmarkTableGap(b *testing.B) {
	r := newRig(b, newCluster(b)).withOVS()
	r.ready()
	client, server, filler := r.add("client"), r.add("server"), r.add("filler")
	for _, p := range []*pod{client, server, filler} {
		r.inAPI(p)
	}
	g := &gap{r: r, from: client, to: server}
	policy := func(port int) {
		p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "gap"}}
		p.Spec.PodSelector.MatchLabels = map[string]string{"app": "server"}
		p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{},
			{Ports: []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt(port))}}}}
		api := r.cluster.client.NetworkingV1().NetworkPolicies("default")
		if _, err := api.Update(b.Context(), p, metav1.UpdateOptions{}); err != nil {
			if _, err := api.Create(b.Context(), p, metav1.CreateOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	}
	policy(1)
	g.open(b)
	n := g.fill(b, filler, *gapConnections)
	fmt.Printf("\nagent, userspace datapath, %d connections: the longest time without a datagram, of 1,000 a second\n\n",
		n)
	fmt.Printf("%-58s %14s  %-16s %-8s\n", "what", "figure", "must be", "")
	report := func(what, limit string, longest time.Duration, lost int64) {
		row(what, fmt.Sprintf("%.1f ms", float64(longest.Microseconds())/1000), limit, longest <= 5*time.Millisecond,
			fmt.Sprintf("%d lost, %d tracked", lost, g.tracked()))
	}
	longest, lost := g.measure(func(context.Context) {})
	report("policies at rest", "", longest, lost)
	longest, lost = g.measure(func(ctx context.Context) {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for i := 2; ctx.Err() == nil; i++ {
			policy(i)
			if *gapLists && i%10 == 0 {
				_ = r.ovs.Appctl("dpctl/dump-conntrack", "netdev@ovs-netdev", "zone=65520")
			}
			<-tick.C
		}
	})
	report("a policy changes ten times a second", "<= 5 ms", longest, lost)
	fmt.Println()
}

// inAPI makes a Pod's object, with a label that is its name.
func (r *rig) inAPI(p *pod) {
	r.t.Helper()
	api := r.cluster.client.CoreV1().Pods("default")
	o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: p.name,
		Labels: map[string]string{"app": p.name}}}
	o.Spec.NodeName, o.Spec.Containers = nodeName, []corev1.Container{{Name: "c", Image: "i"}}
	o, err := api.Create(r.t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	o.Status.PodIP, o.Status.PodIPs = p.ip, []corev1.PodIP{{IP: p.ip}}
	if _, err := api.UpdateStatus(r.t.Context(), o, metav1.UpdateOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// gap measures how long nothing arrives of a steady stream between two Pods.
type gap struct {
	r        *rig
	from, to *pod
	sender   net.Conn
	arrivals chan time.Time
}

func (g *gap) open(b *testing.B) {
	b.Helper()
	var server net.PacketConn
	err := g.to.within(func() (err error) { server, err = net.ListenPacket("udp4", ":5353"); return err })
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { server.Close() })
	g.arrivals = make(chan time.Time, 1<<20)
	go func() {
		buf := make([]byte, 100)
		for {
			if _, _, err := server.ReadFrom(buf); err != nil {
				return
			}
			g.arrivals <- time.Now()
		}
	}()
	if g.sender, err = g.from.dial("udp4", g.to.ip+":5353"); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { g.sender.Close() })
	g.r.eventually("the stream passes", func() error {
		_, _ = g.sender.Write([]byte("x"))
		select {
		case <-g.arrivals:
			return nil
		case <-time.After(100 * time.Millisecond):
			return fmt.Errorf("nothing arrives")
		}
	})
}

// tracked is how many connections the switch tracks.
func (g *gap) tracked() int {
	n, err := strconv.Atoi(strings.TrimSpace(g.r.ovs.Appctl("dpctl/ct-get-nconns", "netdev@ovs-netdev")))
	if err != nil {
		g.r.t.Fatal(err)
	}
	return n
}

// fill has a Pod send datagrams from many ports, each a connection of its own, until the switch tracks them.
func (g *gap) fill(b *testing.B, from *pod, n int) int {
	b.Helper()
	var raw *net.IPConn
	err := from.within(func() (err error) {
		raw, err = net.ListenIP("ip4:17", &net.IPAddr{IP: net.ParseIP(from.ip)})
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { raw.Close() })
	g.r.eventually("the connections are there", func() error {
		for i := range n {
			d := make([]byte, 12)
			binary.BigEndian.PutUint16(d, uint16(1024+i%60_000))
			binary.BigEndian.PutUint16(d[2:], uint16(6000+i/60_000))
			binary.BigEndian.PutUint16(d[4:], 12)
			_, _ = raw.WriteTo(d, &net.IPAddr{IP: net.ParseIP(g.to.ip)})
			if i%50 == 0 {
				<-time.After(time.Millisecond)
			}
		}
		if have := g.tracked(); have < n*95/100 {
			return fmt.Errorf("%d of %d", have, n)
		}
		return nil
	})
	return g.tracked()
}

// measure returns the longest time between two arrivals while something goes on, and how many datagrams were lost.
func (g *gap) measure(while func(context.Context)) (longest time.Duration, lost int64) {
	ctx, cancel := context.WithTimeout(g.r.t.Context(), *gapTime)
	defer cancel()
	for len(g.arrivals) > 0 {
		<-g.arrivals
	}
	done := make(chan struct{})
	go func() { while(ctx); close(done) }()
	sent, got := int64(0), int64(0)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	var last time.Time
	take := func(at time.Time) {
		if got++; !last.IsZero() {
			longest = max(longest, at.Sub(last))
		}
		last = at
	}
	for ctx.Err() == nil {
		select {
		case <-tick.C:
			if _, err := g.sender.Write([]byte("x")); err == nil {
				sent++
			}
		case at := <-g.arrivals:
			take(at)
		}
	}
	<-done
	for end := time.After(100 * time.Millisecond); ; {
		select {
		case at := <-g.arrivals:
			take(at)
			continue
		case <-end:
		}
		return longest, sent - got
	}
}
