package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	crdv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/test/apiserver"
	"github.com/tombolo-net/tombolo/test/kubelet"
)

// TestCaptureSpec makes specs of flags.
func TestCaptureSpec(t *testing.T) {
	for _, row := range []struct{ words, want, err string }{
		{words: "-S shop/web -n 5 -t 90s", want: `{source: {pod: {namespace: shop, name: web}}, timeout: 90,
  direction: SourceToDestination, captureConfig: {firstN: {number: 5}}}`},
		{words: "-S 192.0.2.1 -D web -n 1 -d Both -p Destination -f udp,udp_dst=53,udp_src=0x35",
			want: `{source: {ip: 192.0.2.1}, destination: {pod: {namespace: default, name: web}}, timeout: 60,
  direction: Both, capturePoint: Destination, captureConfig: {firstN: {number: 1}},
  packet: {protocol: UDP, transportHeader: {udp: {srcPort: 53, dstPort: 53}}}}`},
		{words: "-S web -D fd00::1 -n 1 -f ipv6,tcp,tcp_dst=80,tcp_flags=2,tcp_flags=0x10/0x12",
			want: `{source: {pod: {namespace: default, name: web}}, destination: {ip: "fd00::1"}, timeout: 60,
  direction: SourceToDestination, captureConfig: {firstN: {number: 1}}, packet: {ipFamily: IPv6, protocol: TCP,
  transportHeader: {tcp: {dstPort: 80, flags: [{value: 2}, {value: 16, mask: 18}]}}}}`},
		{words: "-S web -n 1 -f icmp,icmp_type=icmp-unreach,icmp_code=1",
			want: `{source: {pod: {namespace: default, name: web}}, timeout: 60, direction: SourceToDestination,
  captureConfig: {firstN: {number: 1}}, packet: {protocol: ICMP,
  transportHeader: {icmp: {messages: [{type: icmp-unreach, code: 1}]}}}}`},
		{words: "-S 192.0.2.1 -n 1", err: "neither --source nor --destination is a Pod"},
		{words: "-S web", err: "--number is missing"},
		{words: "-S web -n -1", err: "--number=-1"},
		{words: "-S web -n 1 -t 10m", err: "a capture takes from 1s to 5m0s"},
		{words: "-S web -n 1 -f tcp,tcp_dst=http", err: "tcp_dst=http: want a number from 0 to 65535"},
		{words: "-S web -n 1 -f sctp", err: "sctp is no word of a flow"},
		{words: "-S web -n 1 -f tcp,tcp_flags=syn", err: "tcp_flags=syn: want a number to 255"},
		{words: "-S web -n 1 -f tcp,,udp", err: "is no word of a flow"},
	} {
		t.Run(row.words, func(t *testing.T) {
			var f captureFlags
			timeout := captureTime
			cmd := &cobra.Command{}
			f.add(cmd)
			cmd.Flags().Int32VarP(&f.number, "number", "n", 0, "")
			cmd.Flags().DurationVarP(&timeout, "timeout", "t", captureTime, "")
			if err := cmd.ParseFlags(strings.Fields(row.words)); err != nil {
				t.Fatal(err)
			}
			have, err := f.spec(timeout)
			if row.err != "" {
				if row.err == "--number is missing" && err == nil && have.CaptureConfig.FirstN == nil {
					return // TestPacketCapture
				}
				if err == nil || !strings.Contains(err.Error(), row.err) {
					t.Errorf("error %v, want %q", err, row.err)
				}
				return
			}
			var want crdv1alpha1.PacketCaptureSpec
			if err := yaml.UnmarshalStrict([]byte(row.want), &want); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(have, &want) {
				text, _ := json.Marshal(have)
				t.Errorf("%s, %v", text, err)
			}
		})
	}
}

// captureAgent answers for the file of a capture, and writes the status of captures: `by` returns it by the beginning
// of the name. Without a status it writes none.
type captureAgent struct {
	objects ctrlclient.Client
	file    string
	by      map[string]crdv1alpha1.PacketCaptureStatus
}

func (a *captureAgent) serve(t *testing.T) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "t")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "debug.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == api.PathLiveCapture {
			_, _ = io.WriteString(w, "live "+r.URL.Query().Get("spec"))
			return
		}
		if r.URL.Path != api.PathCapture {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = io.WriteString(w, a.file+r.URL.Query().Get("name"))
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			var list crdv1alpha1.PacketCaptureList
			if a.objects.List(ctx, &list) == nil {
				for _, p := range list.Items {
					for prefix, status := range a.by {
						if strings.HasPrefix(p.Name, prefix) && len(p.Status.Conditions) == 0 {
							p.Status = status
							_ = a.objects.Status().Update(ctx, &p)
						}
					}
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	return socket
}

func captureStatus(n int32, file, started, complete, message string) (out crdv1alpha1.PacketCaptureStatus) {
	add := func(name, reason string, is bool) {
		status := map[bool]metav1.ConditionStatus{true: metav1.ConditionTrue, false: metav1.ConditionFalse}[is]
		out.Conditions = append(out.Conditions, crdv1alpha1.PacketCaptureCondition{Type: name, Status: status,
			Reason: reason, Message: message, LastTransitionTime: metav1.Now()})
	}
	out.NumberCaptured, out.FilePath = n, file
	add(crdv1alpha1.PacketCaptureStarted, started, started == crdv1alpha1.ReasonStarted)
	if complete != "" {
		add(crdv1alpha1.PacketCaptureComplete, complete, true)
	}
	return out
}

// TestPacketCapture runs the commands at a real API server. A capture is created, awaited, fetched through the API
// server, and deleted.
func TestPacketCapture(t *testing.T) {
	config := apiserver.Start(t, "../../../deploy/crds")
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), crdv1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	objects, err := ctrlclient.New(config, ctrlclient.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	const file = "agent-of-node-1:/var/run/tombolo/captures/node-1/u.pcapng"
	a := &captureAgent{objects, "pcapng of ", map[string]crdv1alpha1.PacketCaptureStatus{
		"shop-good":  captureStatus(2, file, crdv1alpha1.ReasonStarted, crdv1alpha1.ReasonSucceed, ""),
		"shop-late":  captureStatus(1, file, crdv1alpha1.ReasonStarted, crdv1alpha1.ReasonTimeout, "1 packets within 1s"),
		"shop-quiet": captureStatus(0, file, crdv1alpha1.ReasonStarted, crdv1alpha1.ReasonTimeout, "0 packets within 1s"),
		"shop-full":  captureStatus(9, file, crdv1alpha1.ReasonStarted, crdv1alpha1.ReasonFailed, "there is no room"),
		"shop-absent": captureStatus(0, "", crdv1alpha1.ReasonFailed, crdv1alpha1.ReasonFailed,
			"there is no Pod shop/absent"),
		"shop-slow": captureStatus(0, file, crdv1alpha1.ReasonStarted, "", ""),
	}}
	socket := a.serve(t)
	(&kubelet.Kubelet{
		Exec: func(_, _, _ string, command []string, stdout, stderr io.Writer) int {
			root := cli.Root(command[0], "")
			root.AddCommand(Commands()...)
			stdin, end := io.Pipe() // it does not end before the connection does
			defer end.Close()
			root.SetIn(stdin)
			return cli.Run(t.Context(), root, append(command[1:], "--socket", socket), stdout, stderr)
		},
	}).Start(t, config, "node-1")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "agent-of-node-1",
		Labels: map[string]string{"app": "tombolo", "component": "tombolo-agent"}}}
	pod.Spec.NodeName, pod.Spec.Containers = "node-1", []corev1.Container{{Name: "tombolo-agent", Image: "x"}}
	if err := objects.Create(t.Context(), pod); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	kubeconfig, dir := captureKubeconfig(t, config), t.TempDir()
	left := func(want int) {
		t.Helper()
		var list crdv1alpha1.PacketCaptureList
		if err := objects.List(t.Context(), &list); err != nil || len(list.Items) != want {
			t.Errorf("%d PacketCaptures are left, want %d: %v", len(list.Items), want, err)
		}
	}
	for _, row := range []struct {
		words string
		code  int
		out   string // the beginning
		err   string
		file  bool
	}{
		{words: "-S shop/good -D shop/db -n 2 -f tcp,tcp_dst=80", out: "Packet File: " + dir + "/shop-good-shop-db-",
			file: true},
		{words: "-S shop/late -n 2 -t 1s", out: "Packet File: ", err: "1 packets within 1s", file: true},
		{words: "-S shop/quiet -n 2 -t 1s", code: 1, err: "no packet was captured: 0 packets within 1s"},
		{words: "-S shop/full -n 100", code: 1, out: "Packet File: ", file: true,
			err: "the file has the first 9 packets: there is no room"},
		{words: "-S shop/absent -n 1", code: 1, err: "no packet was captured: there is no Pod shop/absent"},
		{words: "-S shop/gateless -n 1 -t 1s", code: 1, err: "set the feature gate PacketCapture to true"},
		{words: "-S shop/good", code: 1, err: "--number is missing"},
		{words: "-S shop/good -n 1 -d Up", code: 1, err: "spec.direction"},
	} {
		out, stderr, code := tombolo(t, append([]string{"antctl", "packetcapture", "-k", kubeconfig, "-o", dir},
			strings.Fields(row.words)...)...)
		if code != row.code || !strings.HasPrefix(out, row.out) || !strings.Contains(stderr, row.err) {
			t.Errorf("%s: code %d, %q, %q", row.words, code, out, stderr)
		}
		left(0)
		path := strings.TrimSpace(strings.TrimPrefix(out, "Packet File: "))
		if !row.file {
			continue
		}
		text, err := os.ReadFile(path)
		if name := strings.TrimSuffix(filepath.Base(path), ".pcapng"); err != nil || string(text) != "pcapng of "+name {
			t.Errorf("%s: the file is %q, %v", row.words, text, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: the file has the mode %v, %v", row.words, info.Mode(), err)
		}
	}
	// An interrupt deletes the object.
	ctx, interrupt := context.WithCancel(t.Context())
	root := cli.Root("antctl", "")
	root.AddCommand(Documented()...)
	ended := make(chan int)
	go func() {
		ended <- cli.Run(ctx, root, []string{"packetcapture", "-k", kubeconfig, "-S", "shop/slow", "-n", "1"}, io.Discard,
			io.Discard)
	}()
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		var list crdv1alpha1.PacketCaptureList
		if err := objects.List(t.Context(), &list); err == nil && len(list.Items) == 1 {
			break
		}
	}
	interrupt()
	if code := <-ended; code == 0 {
		t.Error("an interrupt is a success")
	}
	left(0)
	// With --nowait the object stays, and the file is fetched later.
	out, stderr, code := tombolo(t, "antctl", "pc", "-k", kubeconfig, "-S", "shop/good", "-n", "2", "--nowait")
	name, ok := strings.CutPrefix(strings.TrimSpace(out), "PacketCapture Name: ")
	if code != 0 || !ok {
		t.Fatalf("code %d, %q, %q", code, out, stderr)
	}
	for until := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		out, stderr, code = tombolo(t, "tombolo", "capture", "fetch", name, "-k", kubeconfig, "-o", dir)
		if code == 0 {
			break
		} else if time.Now().After(until) || !strings.Contains(stderr, "has no file: it has not begun") {
			t.Fatalf("code %d, %q, %q", code, out, stderr)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, name+".pcapng")); err != nil {
		t.Error(err)
	}
	left(1)
	for words, want := range map[string]string{
		"fetch none -k " + kubeconfig: "not found", "fetch": "NAME of a PacketCapture",
		"fetch " + name + " -k " + kubeconfig + " -o /nowhere/at/all": "keep the file",
	} {
		if _, stderr, code := tombolo(t, append([]string{"tombolo", "capture"}, strings.Fields(words)...)...); code == 0 ||
			!strings.Contains(stderr, want) {
			t.Errorf("%s: code %d, %q", words, code, stderr)
		}
	}
	testLiveCapture(t, objects, kubeconfig, socket)
	if _, stderr, code := tombolo(t, "antctl", "pc", "--socket", socket, "-S", "shop/good", "-n", "2"); code == 0 ||
		!strings.Contains(stderr, "run it on a machine with a kubeconfig") {
		t.Errorf("in a Pod: code %d, %q", code, stderr)
	}
}

// testLiveCapture writes streams of the agent: through the API server, and at its socket.
func testLiveCapture(t *testing.T, objects ctrlclient.Client, kubeconfig, socket string) {
	t.Helper()
	if err := objects.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}); err != nil {
		t.Fatal(err)
	}
	for name, node := range map[string]string{"web": "node-1", "new": ""} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
		p.Spec.NodeName, p.Spec.Containers = node, []corev1.Container{{Name: "c", Image: "x"}}
		if err := objects.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "web.pcapng")
	at, through := " --socket "+socket, " -k "+kubeconfig
	for _, row := range []struct {
		words, out, err string
		code            int
	}{
		{words: "--pod shop/web -w -" + through, out: `live {"timeout":60,"captureConfig":{"firstN":null},"source":{"pod":{` +
			`"namespace":"shop","name":"web"}},"direction":"Both"}`},
		{words: "-D shop/web -n 5 -d SourceToDestination -w -" + at, out: `live {"timeout":60,"captureConfig":{"firstN":{` +
			`"number":5}},"destination":{"pod":{"namespace":"shop","name":"web"}},"direction":"SourceToDestination"}`},
		{words: "--pod shop/web -w " + file + through, err: "writing to " + file},
		{words: "--pod shop/web" + at, err: "--write is missing", code: 1},
		{words: "-w -" + at, err: "is a Pod", code: 1},
		{words: "--pod shop/web -S shop/web -w -" + at, err: "leave out the one", code: 1},
		{words: "--pod shop/none -w -" + through, err: "find Pod shop/none", code: 1},
		{words: "--pod shop/new -w -" + through, err: "Pod shop/new is on no Node yet", code: 1},
		{words: "--pod shop/web -w /nowhere/at/all" + at, err: "keep the packets", code: 1},
		{words: "--pod shop/web -w - --socket /nowhere", err: "/nowhere", code: 1},
	} {
		out, stderr, code := tombolo(t, append([]string{"tombolo", "capture"}, strings.Fields(row.words)...)...)
		if code != row.code || out != row.out || !strings.Contains(stderr, row.err) {
			t.Errorf("%s: code %d, %q, %q", row.words, code, out, stderr)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.HasPrefix(string(text), "live {") {
		t.Errorf("the file has %q, %v", text, err)
	}
}

// captureKubeconfig writes a kubeconfig for an API server.
func captureKubeconfig(t *testing.T, to *rest.Config) string {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.CurrentContext = "east"
	c.Clusters["east"] = &clientcmdapi.Cluster{Server: to.Host, CertificateAuthorityData: to.CAData}
	c.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: to.BearerToken}
	c.Contexts["east"] = &clientcmdapi.Context{Cluster: "east", AuthInfo: "admin"}
	path := filepath.Join(t.TempDir(), "config")
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(fmt.Errorf("write a kubeconfig: %w", err))
	}
	return path
}
