package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/vishvananda/netns"
	"k8s.io/client-go/rest"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/hostnet"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/ovs/ovstest"
)

// TestMetricsCanBeOff requests the metrics with enablePrometheusMetrics at its default, and off.
func TestMetricsCanBeOff(t *testing.T) {
	for enabled, want := range map[bool]int{true: http.StatusOK, false: http.StatusNotFound} {
		a := &Agent{config: config.Default(), options: Options{Gatherer: prometheus.NewRegistry()}}
		if !enabled {
			a.config.EnablePrometheusMetrics = false
		}
		answer := httptest.NewRecorder()
		debugAPI{a}.handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if answer.Code != want {
			t.Errorf("enablePrometheusMetrics %t: answer %d, want %d", enabled, answer.Code, want)
		}
	}
}

// TestFlowsOfNothing requests unknown tables and owners. The error lists the existing ones.
func TestFlowsOfNothing(t *testing.T) {
	for query, want := range map[string]string{
		"table=Clasify":           "the tables are Classify, ARP",
		"table=256":               "or a number to 255",
		"owner=Polity":            "the kinds are Multicluster, Node, Pod, Policy, Service",
		"table=arp&owner=pod":     "",
		"table=200&owner=Service": "",
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		err = knownFilters(q.Get("table"), q.Get("owner"))
		if want == "" && err == nil {
			continue
		}
		if err == nil || want == "" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", query, err, want)
		}
	}
}

// TestStatusShowsConfigurationWarnings requests the status of an agent whose file has a key without effect.
func TestStatusShowsConfigurationWarnings(t *testing.T) {
	c, warnings, err := config.Parse([]byte("nodePortLocal:\n  enable: true\n"))
	if err != nil || len(warnings) != 1 {
		t.Fatalf("warnings %v, error %v: want one warning", warnings, err)
	}
	a, err := newAgent(Options{
		Config: c, Warnings: warnings, NodeName: "node-1", REST: &rest.Config{Host: "https://192.0.2.1"},
		Namespace: "kube-system",
		OVSRunDir: t.TempDir(), RunDir: t.TempDir(), StateDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler),
		Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := debugAPI{a}.serveStatus(httptest.NewRequest(http.MethodGet, "/v1/status", nil))
	if err != nil {
		t.Fatal(err)
	}
	problems := answer.(api.Status).Problems
	if len(problems) != 1 || problems[0].Object != "file antrea-agent.conf" ||
		problems[0].Field != "nodePortLocal.enable" ||
		problems[0].Reason != "ConfigurationIgnored" || problems[0].Message != warnings[0].Message {
		t.Errorf("problems %+v, want the warning %s", problems, warnings[0])
	}
}

// TestStatusTellsOfTheHost removes the gateway port from the host's network stack. The status reports that routes to it
// are missing.
func TestStatusTellsOfTheHost(t *testing.T) {
	a, err := newAgent(Options{
		Config: config.Default(), NodeName: "node-1", REST: &rest.Config{Host: "https://192.0.2.1"}, Namespace: "kube-system",
		OVSRunDir: t.TempDir(), RunDir: t.TempDir(), StateDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler),
		Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	// The test has a namespace of its own. The thread ends with the goroutine that entered it.
	made := make(chan netns.NsHandle)
	go func() {
		runtime.LockOSThread()
		ns, err := netns.New()
		if err != nil {
			t.Errorf("make a network namespace (as root): %v", err)
		}
		made <- ns
	}()
	ns := <-made
	if t.Failed() {
		return
	}
	defer ns.Close()
	a.host = hostnet.New(hostnet.Options{Namespace: &ns})
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- a.host.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	}()
	a.host.Set(hostnet.Desired{Links: []hostnet.Link{{Name: "antrea-gw0", Up: true}}})
	ovstest.Eventually(t, "the status names the link", func() error {
		answer, err := debugAPI{a}.serveStatus(httptest.NewRequest(http.MethodGet, "/v1/status", nil))
		if err != nil {
			return err
		}
		if text := fmt.Sprint(answer.(api.Status).Problems); !strings.Contains(text, "antrea-gw0") {
			return fmt.Errorf("problems: %s", text)
		}
		return nil
	})
}
