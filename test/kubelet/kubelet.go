// Package kubelet serves the part of a kubelet's API that a real kube-apiserver uses for logs, exec and port-forward.
// With it tests without containers read logs, run commands in Pods and reach their ports.
package kubelet

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// Kubelet has the Pods' programs.
type Kubelet struct {
	// Log writes the log of a container. An error is the kubelet's answer.
	Log func(namespace, pod, container string, previous bool, w io.Writer) error
	// Exec runs a command in a container, and returns its exit code.
	Exec func(namespace, pod, container string, command []string, stdout, stderr io.Writer) int
	// Dial connects to a port of a Pod.
	Dial func(namespace, pod, port string) (net.Conn, error)
}

// Start serves until the test ends, as the kubelet of these Nodes, which it creates.
func (k *Kubelet) Start(t testing.TB, config *rest.Config, nodes ...string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.log)
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", k.exec)
	mux.HandleFunc("/portForward/{namespace}/{pod}", k.forward)
	server := httptest.NewTLSServer(mux) // the API server does not check the kubelets' certificates by default
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range nodes {
		node, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
		node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(number)
		if _, err := client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func (k *Kubelet) log(w http.ResponseWriter, r *http.Request) {
	err := k.Log(r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container"),
		r.URL.Query().Get("previous") == "true", w)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (k *Kubelet) exec(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	wanted := 1 // the stream of errors
	for _, name := range []string{"input", "output", "error"} {
		if query.Get(name) == "1" {
			wanted++
		}
	}
	if _, err := httpstream.Handshake(r, w, []string{"v5.channel.k8s.io", "v4.channel.k8s.io"}); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	arrived := make(chan httpstream.Stream, 4)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, replied <-chan struct{}) error {
		go func() {
			<-replied
			arrived <- s
		}()
		return nil
	})
	if conn == nil {
		return // it has answered
	}
	defer func() { _ = conn.Close() }()
	streams := map[string]io.Writer{"stdout": io.Discard, "stderr": io.Discard}
	for range wanted {
		select {
		case s := <-arrived:
			streams[s.Headers().Get("streamType")] = s
			if kind := s.Headers().Get("streamType"); kind == "stdout" || kind == "stderr" {
				defer s.Close()
			}
		case <-time.After(10 * time.Second):
			return
		}
	}
	code := k.Exec(r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container"), query["command"],
		streams["stdout"], streams["stderr"])
	status := metav1.Status{Status: metav1.StatusSuccess}
	if code != 0 {
		status = metav1.Status{Status: metav1.StatusFailure, Reason: "NonZeroExitCode", Details: &metav1.StatusDetails{
			Causes: []metav1.StatusCause{{Type: "ExitCode", Message: strconv.Itoa(code)}}}}
	}
	text, err := json.Marshal(status)
	if end, ok := streams["error"]; err == nil && ok {
		_, err = end.Write(text)
	}
	if err != nil && !errors.Is(err, io.ErrClosedPipe) && !strings.Contains(err.Error(), "closed") {
		panic(err)
	}
}

// forward copies the streams of forwarded ports to connections and back.
func (k *Kubelet) forward(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	arrived := make(chan httpstream.Stream, 16)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, replied <-chan struct{}) error {
		go func() {
			<-replied
			arrived <- s
		}()
		return nil
	})
	if conn == nil {
		return // it has answered
	}
	defer func() { _ = conn.Close() }()
	// These are the two streams of a connection, by its number. The stream of errors may arrive after the stream of data.
	errs, data := map[string]httpstream.Stream{}, map[string]httpstream.Stream{}
	for {
		select {
		case <-conn.CloseChan():
			return
		case s := <-arrived:
			id, of := s.Headers().Get("requestID"), data
			if s.Headers().Get("streamType") == "error" {
				of = errs
			}
			of[id] = s
			failed, stream := errs[id], data[id]
			if failed == nil || stream == nil {
				continue
			}
			to, err := k.Dial(r.PathValue("namespace"), r.PathValue("pod"), stream.Headers().Get("port"))
			if err != nil {
				_, _ = io.WriteString(failed, err.Error())
				_ = failed.Close()
				_ = stream.Close()
				continue
			}
			defer to.Close()
			go func() {
				_, _ = io.Copy(to, stream)
				_ = to.Close()
			}()
			go func() {
				_, _ = io.Copy(stream, to)
				_ = failed.Close()
				_ = stream.Close()
			}()
		}
	}
}
