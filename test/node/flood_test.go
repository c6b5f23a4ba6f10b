package node

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofconn"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// testFlood has a Pod send datagrams to a Service without endpoints as fast as it can. The agent is
// asked about no more of them than packetInRate allows, and meanwhile attaches a Pod and programs
// a Service.
func testFlood(t *testing.T, c *cluster) {
	const rate = 100
	r := newRig(t, c).withOVS()
	r.edit = func(c *config.Config) { c.PacketInRate = rate }
	r.ready()
	service := func(name, ip string) {
		t.Helper()
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.ServiceSpec{
			ClusterIP: ip, Ports: []corev1.ServicePort{{Port: 53, Protocol: corev1.ProtocolUDP}},
		}}
		if _, err := c.client.CoreV1().Services("default").Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.client.CoreV1().Services("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil &&
				t.Context().Err() == nil {
				t.Error(err)
			}
		})
		r.eventually("the switch knows Service "+name, func() error {
			if !strings.Contains(r.flows(), "nw_dst="+ip) {
				return errors.New("it has no flow for it")
			}
			return nil
		})
	}
	service("nobody", "10.97.0.99")
	flooder := r.add("flooder")

	// A second connection gets what the agent's gets.
	var packets atomic.Uint64
	conn, err := ofconn.Connect(t.Context(), ofconn.UnixDialer(filepath.Join(r.runDir, "br-int.mgmt")), nil,
		func(_ uint32, m ofp.Message) {
			if _, ok := m.(ofp.PacketIn2); ok {
				packets.Add(1)
			}
		})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.Send(ofp.SetPacketInFormat{Format: ofp.PacketInNXM2}, ofp.SetConfig{MissSendLen: 0xffff}); err != nil {
		t.Fatal(err)
	}
	if err := conn.Barrier(t.Context()); err != nil {
		t.Fatal(err)
	}

	var socket net.PacketConn
	if err := flooder.within(func() (err error) { socket, err = net.ListenPacket("udp4", ":0"); return err }); err != nil {
		t.Fatal(err)
	}
	var sent atomic.Uint64
	stop := make(chan struct{})
	var flooding sync.WaitGroup
	flooding.Go(func() {
		to := &net.UDPAddr{IP: net.IPv4(10, 97, 0, 99), Port: 53}
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := socket.WriteTo([]byte("flood"), to); err == nil {
				sent.Add(1)
			}
		}
	})
	begin := time.Now()
	end := sync.OnceFunc(func() { close(stop); flooding.Wait(); socket.Close() })
	t.Cleanup(end)
	r.eventually("the flood is there", func() error {
		if n := sent.Load(); n < 200*rate || time.Since(begin) < 2*time.Second {
			return fmt.Errorf("%d datagrams were sent", n)
		}
		return nil
	})
	bystander := time.Now()
	r.add("bystander")
	service("meanwhile", "10.97.0.98")
	t.Logf("a Pod was attached and a Service programmed in %s", time.Since(bystander).Round(time.Millisecond))
	end()
	took := time.Since(begin)

	asked := packets.Load()
	t.Logf("%d datagrams in %s, the agent was asked about %d", sent.Load(), took.Round(time.Millisecond), asked)
	// The meter's burst is added once.
	if most := uint64(rate*took.Seconds()*1.05) + 2*rate; asked == 0 || asked > most {
		t.Errorf("%d packets came to the agent, want at most %d", asked, most)
	}
	if s, err := r.status(); err != nil || !s.Ready || !s.OpenFlow.Connected {
		t.Errorf("status after the flood: %+v %v", s, err)
	}
	r.eventually("a datagram is refused again", func() error {
		conn, err := flooder.dial("udp4", "10.97.0.99:53")
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		if _, err := conn.Write([]byte("anybody?")); err != nil {
			return err
		}
		if _, err := conn.Read(make([]byte, 10)); !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("want a refusal, got %w", err)
		}
		return nil
	})
}
