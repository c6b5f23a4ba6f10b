package node

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// testBandwidth lets a limited Pod send and receive. A transfer may not take less time than the limit and its burst
// allow, also after the Pod has removed the filter of its own interface. A machine without processor time only makes
// it slower.
func testBandwidth(t *testing.T, c *cluster) {
	const (
		rate  = 16_000_000 // bits a second
		burst = 512 << 10  // the default
		size  = 2 << 20    // bytes, 0.79 s beyond the burst
	)
	r := newRig(t, c).withOVS()
	r.ready()
	other, limited := r.add("other"), r.sandbox("limited")
	limited.runtime = fmt.Sprintf(`{"bandwidth":{"ingressRate":%d,"egressRate":%[1]d}}`, rate)
	if err := r.attach(limited); err != nil {
		t.Fatal(err)
	}
	transfer := func(what string, from, to *pod, share float64) {
		t.Helper()
		least := time.Duration(float64(size-burst) * 8 / (rate * share) * float64(time.Second))
		if took := transferred(t, from, to, size); took < least {
			t.Errorf("%s: %d bytes took %s, want %s or more", what, size, took, least)
		}
	}
	transfer("to the Pod", other, limited, 1)
	transfer("from the Pod", limited, other, 1)
	if err := limited.within(func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.QdiscDel(&netlink.GenericQdisc{QdiscType: "tbf", QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}})
	}); err != nil {
		t.Fatal(err)
	}
	<-time.After(time.Second) // the switch's meter has its whole burst again
	transfer("from the Pod without its filter", limited, other, 1.1)
}

// transferred sends bytes over TCP and returns the time until the last one has arrived.
func transferred(t *testing.T, from, to *pod, size int64) time.Duration {
	t.Helper()
	var server net.Listener
	if err := to.within(func() (err error) {
		server, err = net.Listen("tcp4", ":0")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client, err := from.dial("tcp4", fmt.Sprintf("%s:%d", to.ip, server.Addr().(*net.TCPAddr).Port))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := server.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	began := time.Now()
	deadline := began.Add(time.Minute)
	sent := make(chan error, 1)
	go func() {
		_, err := client.Write(make([]byte, size))
		sent <- errors.Join(err, client.SetWriteDeadline(deadline), client.(*net.TCPConn).CloseWrite())
	}()
	if err := conn.SetReadDeadline(deadline); err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, conn)
	took := time.Since(began)
	if err := errors.Join(err, <-sent); err != nil || n != size {
		t.Fatalf("%d of %d bytes arrived: %v", n, size, err)
	}
	return took
}
