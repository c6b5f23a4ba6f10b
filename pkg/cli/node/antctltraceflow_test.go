package node

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

// TestTraceflowObject runs the command at a real API server, where a relay writes the status of some objects.
func TestTraceflowObject(t *testing.T) {
	config := apiserver.Start(t, "../../../deploy/crds")
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), crdv1beta1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	objects, err := ctrlclient.New(config, ctrlclient.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}}
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "x"}}
	for _, o := range []ctrlclient.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, pod} {
		if err := objects.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	specs := make(chan crdv1beta1.TraceflowSpec, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	defer func() {
		cancel()
		<-ended
	}()
	go func() { // the relay
		defer close(ended)
		for ctx.Err() == nil {
			var list crdv1beta1.TraceflowList
			if objects.List(ctx, &list) == nil {
				for _, o := range list.Items {
					if o.Status.Phase != "" || strings.HasPrefix(o.Name, "shop-alone") {
						continue
					}
					o.Status = crdv1beta1.TraceflowStatus{Phase: crdv1beta1.TraceflowSucceeded,
						CapturedPacket: &crdv1beta1.CapturedPacket{SrcIP: "10.1.0.5"},
						Results:        []crdv1beta1.TraceflowNodeResult{{Node: "n1", Role: "Sender"}}}
					if strings.HasPrefix(o.Name, "shop-bad") {
						o.Status = crdv1beta1.TraceflowStatus{Phase: crdv1beta1.TraceflowFailed, Reason: "there is no such Pod"}
					}
					if objects.Status().Update(ctx, &o) == nil {
						specs <- o.Spec
					}
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	kubeconfig := captureKubeconfig(t, config)
	for _, row := range []struct {
		words, out, err, spec string
		code, left            int
	}{
		{words: "-S shop/web -D shop/db -L --dropped-only -f tcp,tcp_dst=80 -t 5s", out: "capturedPacket:",
			spec: `{source: {namespace: shop, pod: web}, destination: {namespace: shop, pod: db}, liveTraffic: true,
  droppedOnly: true, timeout: 5, packet: {transportHeader: {tcp: {dstPort: 80}}}}`},
		{words: "-D service/shop/db -S web -L -f icmp6", out: "phase: Succeeded",
			spec: `{source: {namespace: default, pod: web}, destination: {namespace: shop, service: db}, liveTraffic: true,
  timeout: 20, packet: {ipv6Header: {nextHeader: 58}, transportHeader: {icmp: {}}}}`},
		{words: "-S 10.1.0.5 -D 192.0.2.7 --nowait -f udp,udp_dst=53", out: "Traceflow Name: 10-1-0-5-192-0-2-7-", left: 1,
			spec: `{source: {namespace: default, ip: 10.1.0.5}, destination: {namespace: default, ip: 192.0.2.7}, timeout: 20,
  packet: {ipHeader: {protocol: 17}, transportHeader: {udp: {dstPort: 53}}}}`},
		{words: "-S shop/bad -D shop/nobody -L", code: 1, err: "the Traceflow has failed: there is no such Pod", left: 1,
			spec: `{source: {namespace: shop, pod: bad}, destination: {namespace: shop, service: nobody}, liveTraffic: true,
  timeout: 20}`},
		{words: "-S shop/web -D shop/db -L -t 10m", code: 1, err: "a Traceflow takes from 1s to 5m0s", left: 1},
		{words: "-S shop/web -D shop/db --nowait --dropped-only", code: 1, err: "is for --live-traffic", left: 1},
		{words: "-S shop/web -D shop/db -L -f tcp,tcp_dst=http", code: 1, err: `"http" is no port`, left: 1},
		{words: "-S shop/web -D shop/db -L -f sctp", code: 1, err: "packets of tcp, udp and icmp", left: 1},
		{words: "-S shop/web -D shop/db -L -f tp_dst=80", code: 1, err: "a port needs its protocol", left: 1},
	} {
		out, stderr, code := tombolo(t, append([]string{"antctl", "traceflow", "-k", kubeconfig},
			strings.Fields(row.words)...)...)
		if code != row.code || !strings.Contains(out, row.out) || !strings.Contains(stderr, row.err) {
			t.Errorf("%s: code %d, %q, %q", row.words, code, out, stderr)
		}
		var list crdv1beta1.TraceflowList
		if err := objects.List(t.Context(), &list); err != nil || len(list.Items) != row.left {
			t.Errorf("%s: %d Traceflows are left, want %d: %v", row.words, len(list.Items), row.left, err)
		}
		if row.spec == "" {
			continue
		}
		var want crdv1beta1.TraceflowSpec
		if err := yaml.UnmarshalStrict([]byte(row.spec), &want); err != nil {
			t.Fatal(err)
		}
		have, _ := yaml.Marshal(<-specs)
		if text, _ := yaml.Marshal(want); string(have) != string(text) {
			t.Errorf("%s: have\n%s\nwant\n%s", row.words, have, text)
		}
	}
	limited, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	alone := &crdv1beta1.Traceflow{ObjectMeta: metav1.ObjectMeta{Name: "shop-alone"}}
	if err := objects.Create(limited, alone); err != nil {
		t.Fatal(err)
	}
	if err := waitTraceflow(limited, objects, alone, time.Millisecond); err == nil ||
		!strings.Contains(err.Error(), "no replica of the relay has taken the Traceflow") {
		t.Errorf("without a relay: %v", err)
	}
}
