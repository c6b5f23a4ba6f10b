package agent

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// testInfoAccess writes AntreaAgentInfos as the agent on node-1. It writes its own and no other.
func testInfoAccess(t *testing.T, admin client.Client, as *rest.Config, uid types.UID) {
	as = rest.CopyConfig(as)
	as.Impersonate.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {"node-1"}}
	a := newQuietAgent(t, as, nil)
	var logged strings.Builder
	write := func(name string) {
		w, err := a.newInfo()
		if err != nil {
			t.Fatal(err)
		}
		w.Name, w.Log = name, slog.New(slog.NewTextHandler(&logged, nil))
		ctx, cancel := context.WithCancel(t.Context())
		w.Look = func(context.Context) (any, error) {
			info := a.info(ctx)
			info.Name = name
			info.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "node-1", UID: uid}}
			return info, nil
		}
		first := true
		w.State = func() string { // asked before the write, and again some seconds after
			if !first {
				cancel()
			}
			first = false
			return ""
		}
		w.Run(ctx)
	}
	write("node-1")
	if logged.Len() > 0 {
		t.Errorf("an agent cannot write its own state: %s", &logged)
	}
	write("node-2")
	if !strings.Contains(logged.String(), "agents write about their own Node alone") {
		t.Errorf("an agent writes the state of another Node's: %s", &logged)
	}
	info := &crdv1beta1.AntreaAgentInfo{}
	scheme := admin.Scheme()
	if err := crdv1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: "node-1"}, info); err != nil {
		t.Fatal(err)
	}
	if info.NodeRef.Name != "node-1" || info.PodRef.Name != "tombolo-agent-x" || len(info.AgentConditions) != 4 ||
		info.AgentConditions[0].Status != corev1.ConditionFalse || info.AgentConditions[0].Message == "" {
		t.Errorf("the API server has %+v", info)
	}
}

// newQuietAgent returns an agent that does not run.
func newQuietAgent(t *testing.T, to *rest.Config, level *slog.LevelVar) *Agent {
	t.Helper()
	a, err := newAgent(Options{
		Config: config.Default(), NodeName: "node-1", REST: to, Namespace: "kube-system", PodName: "tombolo-agent-x",
		OVSRunDir: t.TempDir(), RunDir: t.TempDir(), StateDir: t.TempDir(), Logger: slog.New(slog.DiscardHandler),
		LogLevel: level, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestLogLevel changes the level of the log through the debug API.
func TestLogLevel(t *testing.T) {
	var level slog.LevelVar
	a := newQuietAgent(t, &rest.Config{Host: "https://192.0.2.1"}, &level)
	server := httptest.NewServer(debugAPI{a}.handler())
	defer server.Close()
	ask := func(method, query string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+api.PathLogLevel+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(text))
	}
	for _, row := range []struct {
		method, query, want string
		level               slog.Level
	}{
		{http.MethodGet, "", `{"level":0}`, slog.LevelInfo},
		{http.MethodPut, "?level=4", `{"level":1}`, slog.LevelDebug},
		{http.MethodPut, "?level=10", `{"error":"level=10: want a number from 0 to 9"}`, slog.LevelDebug},
		{http.MethodPut, "?level=x", `{"error":"level=x: want a number from 0 to 9"}`, slog.LevelDebug},
		{http.MethodGet, "?level=0", `{"level":1}`, slog.LevelDebug},
		{http.MethodPut, "?level=0", `{"level":0}`, slog.LevelInfo},
	} {
		if have := ask(row.method, row.query); have != row.want || level.Level() != row.level {
			t.Errorf("%s %s: %s at %s, want %s at %s", row.method, row.query, have, level.Level(), row.want, row.level)
		}
	}
}

// TestNaming finds addresses in flows as whole words.
func TestNaming(t *testing.T) {
	names := naming([]netip.Addr{netip.MustParseAddr("10.10.1.2"), netip.MustParseAddr("fd10::2")})
	for text, want := range map[string]bool{
		"nw_dst=10.10.1.2,tp_dst=80": true, "nw_dst=10.10.1.2": true, "nw_dst=10.10.1.25": false,
		"nw_dst=110.10.1.2": false, "nw_dst=10.10.1.2/31": false, "ipv6_dst=fd10::2": true,
		"ipv6_dst=fd10::2:9": false, "ipv6_dst=afd10::2": false, "nat(dst=10.10.1.2:80)": true, "nat(dst=[fd10::2]:80)": true,
	} {
		if names(text) != want {
			t.Errorf("%s: %v", text, !want)
		}
	}
}
