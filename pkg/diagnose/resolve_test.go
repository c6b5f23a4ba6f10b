package diagnose

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"k8s.io/utils/ptr"
)

// nameServer answers questions over TCP on loopback, as CoreDNS does for ServiceImports.
func nameServer(t *testing.T, records map[string][]dnsmessage.ResourceBody) net.Conn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		for {
			var size [2]byte
			if _, err := io.ReadFull(c, size[:]); err != nil {
				return
			}
			text := make([]byte, binary.BigEndian.Uint16(size[:]))
			if _, err := io.ReadFull(c, text); err != nil {
				return
			}
			var m dnsmessage.Message
			if err := m.Unpack(text); err != nil {
				t.Error(err)
				return
			}
			m.Response = true
			list, known := records[m.Questions[0].Name.String()]
			if !known {
				m.RCode = dnsmessage.RCodeNameError
			}
			for _, body := range list {
				_, four := body.(*dnsmessage.AResource)
				if four == (m.Questions[0].Type == dnsmessage.TypeA) {
					m.Answers = append(m.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{
						Name: m.Questions[0].Name, Class: dnsmessage.ClassINET}, Body: body})
				}
			}
			answer, err := m.AppendPack(make([]byte, 2))
			if err != nil {
				t.Error(err)
				return
			}
			binary.BigEndian.PutUint16(answer, uint16(len(answer)-2))
			if _, err := c.Write(answer); err != nil {
				return
			}
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); l.Close(); <-done })
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestNames asks for names of one and of two versions of IP, on one connection.
func TestNames(t *testing.T) {
	conn := nameServer(t, map[string][]dnsmessage.ResourceBody{
		"db.shop.svc.clusterset.local.": {&dnsmessage.AResource{A: [4]byte{10, 90, 0, 9}},
			&dnsmessage.AAAAResource{AAAA: [16]byte{0: 0xfd, 15: 9}}},
		"none.shop.svc.clusterset.local.": nil,
	})
	for _, row := range []struct {
		name       string
		want, have []string
		code       string
	}{
		{"db", []string{"10.90.0.9"}, []string{"10.90.0.9"}, ""},
		{"db", []string{"10.90.0.9", "fd00::9"}, []string{"10.90.0.9", "fd00::9"}, ""},
		{"none", []string{"10.90.0.9"}, nil, ""},
		{"missing", []string{"fd00::9"}, nil, "NameError"},
	} {
		n := ResolvedName{Namespace: "shop", Name: row.name, Want: row.want}
		if err := n.ask(conn); err != nil || !slices.Equal(n.Have, row.have) || n.Code != row.code {
			t.Errorf("%s: %+v, %v, want %v %s", row.name, n, err, row.have, row.code)
		}
	}
}

// TestAskAll keeps the answers before a connection is lost.
func TestAskAll(t *testing.T) {
	conn := nameServer(t, map[string][]dnsmessage.ResourceBody{
		"db.shop.svc.clusterset.local.": {&dnsmessage.AResource{A: [4]byte{10, 90, 0, 9}}}})
	names := []ResolvedName{{Namespace: "shop", Name: "db", Want: []string{"10.90.0.9"}},
		{Namespace: "shop", Name: strings.Repeat("x", 300), Want: []string{"10.90.0.9"}},
		{Namespace: "shop", Name: "db", Want: []string{"10.90.0.9"}}}
	askAll(conn, names)
	if names[0].Fault != "" || !slices.Equal(names[0].Have, names[0].Want) || names[1].Fault == "" ||
		names[2].Fault == "" {
		t.Errorf("%+v", names)
	}
}

// TestServes leaves out imports without ready endpoints.
func TestServes(t *testing.T) {
	f := healthy()
	c := eastOf(&f)
	if !c.serves("shop", "db") || c.serves("shop", "web") {
		t.Error("an import with a ready endpoint alone serves")
	}
	c.ImportedSlices[0].Endpoints[0].Conditions.Ready = ptr.To(false)
	if c.serves("shop", "db") {
		t.Error("an import without a ready endpoint serves")
	}
	if c.Unread[ImportedSlices] = "forbidden"; !c.serves("shop", "db") {
		t.Error("EndpointSlices that may not be read are none")
	}
}
