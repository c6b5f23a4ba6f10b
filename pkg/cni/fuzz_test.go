package cni

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	cniversion "github.com/containernetworking/cni/pkg/version"

	"github.com/tombolo-net/tombolo/pkg/cni/wire"
	"github.com/tombolo-net/tombolo/pkg/ipam"
)

// FuzzExternalIDs reads external_ids as the OVSDB has them, one "key=value" a line. After they are written again,
// reading them must give the same result.
func FuzzExternalIDs(f *testing.F) {
	f.Add("web-5d8f7c-1a2b3c",
		"antrea-type=container\ncontainer-id=c1\nip-address=10.10.1.2\nattached-mac=0a:00:00:00:00:02\n"+
			"pod-name=web\npod-namespace=default")
	f.Add("web", "antrea-type=container\ncontainer-id=c1\nip-address=10.10.1.2, "+
		"fd00::2\ntombolo-prefix-length=24,64\nif-dev=net1\nnet-ns=/var/run/netns/x")
	f.Add("web",
		"antrea-type=container\ncontainer-id=c1\nip-address=,10.10.1.2/24,fe80::1%eth0,::ffff:10.0.0.1\n"+
			"tombolo-prefix-length=-1,99999999999999999999,200,1")
	f.Add("web",
		"antrea-type=container\ncontainer-id=c1\npod-name=web\ntombolo-pod-uid=6f1c7a52-0b7e-4c57-9d0a-1d2f3a4b5c6d")
	f.Add("tun0", "antrea-type=tunnel")
	f.Fuzz(func(t *testing.T, name, text string) {
		ids := map[string]string{}
		for _, line := range strings.Split(text, "\n") {
			key, value, _ := strings.Cut(line, "=")
			ids[key] = value
		}
		a, ok := FromExternalIDs(name, ids)
		if !ok {
			if !reflect.DeepEqual(a, Attachment{}) {
				t.Errorf("not a Pod's port, and yet %+v", a)
			}
			return
		}
		for _, p := range a.IPs {
			if !p.IsValid() {
				t.Errorf("invalid prefix %v of %q", p, ids[idIPs])
			}
		}
		again, ok := FromExternalIDs(name, ExternalIDs(a))
		if !ok || !reflect.DeepEqual(again, a) {
			t.Errorf("written and read again: %+v, want %+v", again, a)
		}
	})
}

// FuzzNetConf reads network configurations. A refusal has a code and a reason.
func FuzzNetConf(f *testing.F) {
	f.Add([]byte(`{"cniVersion":"1.1.0","name":"tombolo","type":"tombolo"}`))
	f.Add([]byte(
		`{"cniVersion":"0.3.0","name":"n","type":"tombolo","mtu":1400,"dns":{"nameservers":["10.96.0.10"]},
			"runtimeConfig":{"dns":{"servers":[]}}}`))
	f.Add([]byte(
		`{"cniVersion":"1.0.0","name":"n","ipam":{"type":"host-local","ranges":[[{"subnet":"10.0.0.0/24"}]]},
			"prevResult":{"ips":[{"address":"10.0.0.2/24"}]}}`))
	f.Add([]byte(
		`{"cniVersion":"0.4.0","name":"n","prevResult":{"cniVersion":"0.4.0","interfaces":[{"name":"eth0"}],
			"ips":[{"version":"4","address":"10.0.0.2/24","interface":9}]}}`))
	f.Add(
		[]byte(`{"cniVersion":"1.1.0","name":"n","cni.dev/valid-attachments":[{"containerID":"a","ifname":"eth0"},null]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, failed := parseConf(b)
		checkRefusal(t, failed)
		if failed != nil {
			return
		}
		checkRefusal(t, c.checkAdd())
		prev, failed := c.prevResult()
		checkRefusal(t, failed)
		if failed == nil && prev == nil {
			t.Error("neither a previous result nor an error")
		}
		if _, err := json.Marshal(c.dns()); err != nil {
			t.Error(err)
		}
	})
}

func checkRefusal(t *testing.T, e *types.Error) {
	t.Helper()
	if e != nil && (e.Code == 0 || e.Msg == "") {
		t.Errorf("a refusal without code or message: %+v", e)
	}
}

// podNetns stands for the path of a Pod's network namespace in the bodies of FuzzRequests.
const podNetns = "NETNS"

// FuzzRequests sends bodies to each of the server's paths, with a real network namespace as the Pod's. DEL must undo
// all effects.
func FuzzRequests(f *testing.F) {
	paths := []string{wire.PathAdd, wire.PathDel, wire.PathCheck, wire.PathStatus, wire.PathGC}
	body := func(q wire.Request, config string) []byte {
		q.Config = json.RawMessage(config)
		b, err := json.Marshal(q)
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	full := wire.Request{ContainerID: "c1", Netns: podNetns, IfName: "eth0",
		Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web"}
	uid := full
	uid.Args += ";K8S_POD_UID=6f1c7a52-0b7e-4c57-9d0a-1d2f3a4b5c6d;K8S_POD_UID="
	const conf = `{"cniVersion":"1.1.0","name":"tombolo","type":"tombolo"}`
	for i := range paths {
		f.Add(uint8(i), body(full, conf))
		f.Add(uint8(i), body(uid, conf))
		f.Add(uint8(i), body(wire.Request{},
			`{"cniVersion":"1.1.0","name":"n","prevResult":{"cniVersion":"1.1.0","ips":[{"address":"10.10.1.2/24"}]}}`))
		f.Add(uint8(i), []byte(
			`{"config":{"cniVersion":"0.3.1","name":"n","mtu":577,
				"cni.dev/valid-attachments":[{"containerID":"c1","ifname":"eth0"}]}}`))
	}
	long := full
	long.IfName, long.Args = "an-interface-with-a-long-name", "K8S_POD_NAMESPACE=a/b;K8S_POD_NAME=../x/y;;=;K8S_POD_NAME"
	f.Add(uint8(0), body(long, conf))

	dir := f.TempDir()
	store, err := ipam.Open(filepath.Join(dir, "ipam.json"))
	if err != nil {
		f.Fatal(err)
	}
	node := newFakeNode("10.10.1.0/24")
	server := NewServer(Options{Node: node, IPAM: store, Socket: filepath.Join(dir, "cni.sock")})
	handler := server.handler()
	pod := makeNetns(f, filepath.Join(dir, "netns"))

	f.Fuzz(func(t *testing.T, path uint8, body []byte) {
		to := paths[int(path)%len(paths)]
		body = bytes.ReplaceAll(body, []byte(podNetns), []byte(pod))
		if q, err := wire.Decode(bytes.NewReader(body)); err == nil && q.Netns != pod {
			if _, err := os.Stat(q.Netns); err == nil {
				return // something of the machine: not to be touched
			}
		}
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, to, bytes.NewReader(body)))
		switch answer.Code {
		case http.StatusOK:
			if to == wire.PathAdd {
				checkResult(t, body, answer.Body.Bytes())
				checkUID(t, body, store, node)
			}
		case http.StatusUnprocessableEntity:
			var e types.Error
			if err := json.Unmarshal(answer.Body.Bytes(), &e); err != nil {
				t.Errorf("the refusal is not JSON: %v\n%s", err, answer.Body)
			}
			checkRefusal(t, &e)
			if keys := store.Keys(); to == wire.PathAdd && len(keys) > 0 {
				t.Errorf("ADD was refused and left addresses with %v", keys)
			}
		default:
			t.Errorf("status %d", answer.Code)
		}
		for _, k := range store.Keys() {
			record, _ := store.Get(k)
			_, podName, _ := strings.Cut(record.Owner, "/")
			if err := server.remove(t.Context(), k, podName); err != nil {
				t.Errorf("DEL of %v: %v", k, err)
			}
		}
		if keys, attached := store.Keys(), node.Attachments(); len(keys)+len(attached) > 0 {
			t.Errorf("after DEL there are still %v and %v", keys, attached)
		}
	})
}

// checkUID compares the recorded UID of the Pod with the UID that the runtime gave.
func checkUID(t *testing.T, body []byte, store *ipam.Store, node *fakeNode) {
	t.Helper()
	q, err := wire.Decode(bytes.NewReader(body))
	if err != nil {
		t.Fatalf("ADD took what is no request: %v", err)
	}
	want := parseArgs(q.Args).uid
	if len(want) > maxUID {
		t.Errorf("ADD took a UID of %d characters", len(want))
	}
	record, _ := store.Get(ipam.Key{ContainerID: q.ContainerID, IfName: q.IfName})
	for _, a := range node.Attachments() {
		if ids := ExternalIDs(a); string(a.PodUID) != want || ids[idPodUID] != want || record.PodUID != want {
			t.Errorf("UID %q: attached %q, external_ids %q, record %q", want, a.PodUID, ids[idPodUID], record.PodUID)
		}
	}
}

// checkResult reads the answer of ADD, in the requested version.
func checkResult(t *testing.T, body, answer []byte) {
	t.Helper()
	q, err := wire.Decode(bytes.NewReader(body))
	if err != nil {
		t.Fatalf("ADD took what is no request: %v", err)
	}
	c, failed := parseConf(q.Config)
	if failed != nil {
		t.Fatalf("ADD took what is no network configuration: %v", failed)
	}
	versioned, err := cniversion.NewResult(c.CNIVersion, answer)
	if err != nil {
		t.Fatalf("%v\n%s", err, answer)
	}
	r, err := types100.NewResultFromResult(versioned)
	if err != nil {
		t.Fatalf("%v\n%s", err, answer)
	}
	within := netip.MustParsePrefix("10.10.1.0/24")
	if !slices.ContainsFunc(r.IPs, func(ip *types100.IPConfig) bool {
		addr, ok := netip.AddrFromSlice(ip.Address.IP.To4())
		return ok && within.Contains(addr)
	}) {
		t.Errorf("no address of %s in %s", within, answer)
	}
}
