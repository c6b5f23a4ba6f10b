package main

import (
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
)

const root = "../../"

// TestGenerated compares the files of the repository with what the tables make.
func TestGenerated(t *testing.T) {
	files, err := render()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		have, err := os.ReadFile(root + name)
		if err != nil || string(have) != string(want) {
			t.Errorf("%s is not what deploy/boards writes: run `make generate` and commit the result (%v)", name, err)
		}
	}
}

// TestRuleFile has Prometheus read the rule file, and looks for what an operator needs of each alert.
func TestRuleFile(t *testing.T) {
	text, err := ruleFile()
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation, parser.NewParser(parser.Options{}),
		slog.New(slog.DiscardHandler))
	if len(errs) > 0 || len(groups.Groups) != 1 || len(groups.Groups[0].Rules) != len(alerts) {
		t.Fatalf("%v, %+v", errs, groups)
	}
	seen := map[string]bool{}
	for _, a := range alerts {
		wait, err := model.ParseDuration(a.For)
		switch {
		case seen[a.Name]:
			t.Errorf("%s is there twice", a.Name)
		case err != nil || time.Duration(wait) < time.Minute:
			t.Errorf("%s: for %s is less than two scrapes: %v", a.Name, a.For, err)
		case a.Severity != "critical" && a.Severity != "warning":
			t.Errorf("%s: severity %s", a.Name, a.Severity)
		case a.Meaning == "" || a.Remedy == "" || !strings.HasSuffix(a.Summary, "."):
			t.Errorf("%s: a text is missing", a.Name)
		}
		seen[a.Name] = true
	}
}

// series are the values of a case's metrics, one each minute.
type series map[string]string

// cases are for each alert metrics that raise it, and metrics that must not.
var cases = map[string]struct{ fires, quiet []series }{
	"TomboloAgentNotReady": {
		fires: []series{{`tombolo_agent_ready{node="a"}`: "0x400"}},
		quiet: []series{{`tombolo_agent_ready{node="a"}`: "1x400"}, {`tombolo_agent_ready{node="a"}`: "0x10 stale"}},
	},
	"TomboloSwitchDisconnected": {
		fires: []series{{`tombolo_flowsync_connected{node="a"}`: "0x400"}},
		quiet: []series{{`tombolo_flowsync_connected{node="a"}`: "1x400"}},
	},
	"TomboloObjectsNotWatched": {
		fires: []series{{`tombolo_agent_unwatched_kinds{node="a"}`: "3x400"}},
		quiet: []series{{`tombolo_agent_unwatched_kinds{node="a"}`: "0x400"}},
	},
	"TomboloFlowsRefused": {
		fires: []series{{`tombolo_flowsync_refused{node="a"}`: "1x400"}},
		quiet: []series{{`tombolo_flowsync_refused{node="a"}`: "0x400"}},
	},
	"TomboloForeignChanges": {
		fires: []series{{`tombolo_flowsync_mended_total{node="a"}`: "0+2x400"}},
		quiet: []series{{`tombolo_flowsync_mended_total{node="a"}`: "7x400"}},
	},
	"TomboloConntrackNearlyFull": {
		fires: []series{{`tombolo_conntrack_entries{node="a"}`: "81x400", `tombolo_conntrack_max{node="a"}`: "100x400"}},
		quiet: []series{{`tombolo_conntrack_entries{node="a"}`: "79x400", `tombolo_conntrack_max{node="a"}`: "100x400"}},
	},
	"TomboloWayDown": {
		fires: []series{{`tombolo_multicluster_way_up{node="a",cluster="w",to="1"}`: "0x400"}},
		quiet: []series{{`tombolo_multicluster_way_up{node="a",cluster="w",to="1"}`: "1x400"},
			{`tombolo_multicluster_way_up{node="a",cluster="w",to="1"}`: "0x300 stale"}}, // the cluster has left
	},
	"TomboloNoWayToCluster": {
		fires: []series{{`tombolo_multicluster_way_up{node="a",cluster="w",to="1"}`: "0x400",
			`tombolo_multicluster_way_up{node="a",cluster="w",to="2"}`: "0x400",
			`tombolo_multicluster_way_up{node="a",cluster="n",to="3"}`: "1x400"}},
		quiet: []series{{`tombolo_multicluster_way_up{node="a",cluster="w",to="1"}`: "0x400",
			`tombolo_multicluster_way_up{node="a",cluster="w",to="2"}`: "1x400"},
			{`tombolo_multicluster_way_up{node="a",cluster="w",to="1"}`: "0x300 stale"}},
	},
	"TomboloWayFlaps": {
		fires: []series{{`tombolo_multicluster_way_up{node="a",cluster="w",to="1"}`: "1x388 0 1 0 1 0 1 0 1 0 1 0"}},
		quiet: []series{{`tombolo_multicluster_way_up{node="a",cluster="w",to="1"}`: "1x389 0x2 1x7"}},
	},
	"TomboloWayLoss": {
		fires: []series{{`tombolo_multicluster_way_probes_lost_total{node="a",peer="w",to="1"}`: "0+1.2x400"}},
		quiet: []series{{`tombolo_multicluster_way_probes_lost_total{node="a",peer="w",to="1"}`: "0+0.5x400"},
			{`tombolo_multicluster_way_probes_lost_total{node="a",peer="w",to="1"}`: "0+60x300 stale"}},
	},
	"TomboloLeaderNotConnected": {
		fires: []series{{`tombolo_multicluster_leader_connected{pod="a"}`: "0x400"},
			{`tombolo_multicluster_leader_connected{pod="a"}`: "0x300 stale", // another replica is elected
				`tombolo_multicluster_leader_connected{pod="b"}`: "_x301 0x98"}},
		quiet: []series{{`tombolo_multicluster_leader_connected{pod="a"}`: "1x400"},
			{`tombolo_multicluster_leader_connected{pod="a"}`: "0x300 1x99"},
			{`tombolo_multicluster_leader_connected{pod="a"}`: "0x300 stale"}}, // this cluster has left
	},
	"TomboloMemberDisconnected": {
		fires: []series{{`tombolo_multicluster_member_info{peer="w",state="disconnected"}`: "1x400",
			`tombolo_multicluster_member_info{peer="n",state="connected"}`: "1x400"}},
		quiet: []series{{`tombolo_multicluster_member_info{peer="w",state="connected"}`: "1x400"},
			{`tombolo_multicluster_member_info{peer="w",state="disconnected"}`: "1x300 stale",
				`tombolo_multicluster_member_info{peer="w",state="connected"}`: "_x301 1x98"},
			{`tombolo_multicluster_member_info{peer="w",state="disconnected"}`: "1x300 stale"}}, // the cluster has left
	},
	"TomboloExportsFailed": {
		fires: []series{{`tombolo_multicluster_exports{state="failed"}`: "2x400"}},
		quiet: []series{{`tombolo_multicluster_exports{state="failed"}`: "0x400",
			`tombolo_multicluster_exports{state="pending"}`:  "3x400",
			`tombolo_multicluster_exports{state="exported"}`: "9x400"},
			{`tombolo_multicluster_exports{state="failed"}`: "2x300 0x99"},
			{`tombolo_multicluster_exports{state="failed"}`: "2x300 stale"}},
	},
	"TomboloExportsConflict": {
		fires: []series{{`tombolo_multicluster_conflicts{reason="PortConflict"}`: "1x400"}},
		quiet: []series{{`tombolo_multicluster_conflicts{reason="PortConflict"}`: "1x300 stale"}},
	},
	"TomboloImportsFailed": {
		fires: []series{{`tombolo_multicluster_imports{state="failed"}`: "1x400"}},
		quiet: []series{{`tombolo_multicluster_imports{state="failed"}`: "0x400",
			`tombolo_multicluster_imports{state="skipped"}`: "3x400"},
			{`tombolo_multicluster_imports{state="failed"}`: "1x300 stale"}},
	},
	"TomboloLeaderExportsFailed": {
		fires: []series{{`tombolo_multicluster_leader_exports{state="failed"}`: "1x400"}},
		quiet: []series{{`tombolo_multicluster_leader_exports{state="failed"}`: "1x300 0x99",
			`tombolo_multicluster_leader_exports{state="succeeded"}`: "9x400"},
			{`tombolo_multicluster_leader_exports{state="failed"}`: "1x300 stale"}},
	},
	"TomboloMulticlusterProblems": {
		fires: []series{{`tombolo_multicluster_problems{pod="a",reason="ConvergeFailure"}`: "1x400"},
			{`tombolo_multicluster_leader_problems{pod="b",reason="MultipleClusterSets"}`: "1x400"}},
		quiet: []series{{`tombolo_multicluster_problems{pod="a",reason="NamespaceNotFound"}`: "4x400"},
			{`tombolo_multicluster_problems{pod="a",reason="ConvergeFailure"}`: "1x300 stale"}},
	},
	"TomboloNodeNotAnswering": {
		fires: []series{{`tombolo_node_probes_lost_total{node="a",peer_node="b",to="1"}`: "0+1x400"}},
		quiet: []series{{`tombolo_node_probes_lost_total{node="a",peer_node="b",to="1"}`: "0+0.4x400"},
			{`tombolo_node_probes_lost_total{node="a",peer_node="b",to="1"}`: "0+1x300 stale"}},
	},
	"TomboloProblems": {
		fires: []series{{`tombolo_agent_problems{node="a",reason="X"}`: "1x400"}},
		quiet: []series{{`tombolo_agent_problems{node="a",reason="X"}`: "1x300 stale"}},
	},
	"TomboloPacketsToAgentDropped": {
		fires: []series{{`tombolo_packets_to_agent_total{node="a",kind="k",result="dropped"}`: "0+100x400"}},
		quiet: []series{{`tombolo_packets_to_agent_total{node="a",kind="k",result="dropped"}`: "0+10x400",
			`tombolo_packets_to_agent_total{node="a",kind="k",result="taken"}`: "0+1000x400"}},
	},
	"TomboloDropsRise": {
		fires: []series{{`tombolo_dropped_packets_total{node="a",reason="rule"}`: "0+60x380 22800+9000x19"}},
		quiet: []series{{`tombolo_dropped_packets_total{node="a",reason="rule"}`: "0+9000x400"},
			{`tombolo_dropped_packets_total{node="a",reason="rule"}`: "0x300 0+600x99"}},
	},
	"TomboloObserveNodesAbsent": {
		fires: []series{{`tombolo_observe_relay_nodes{state="absent"}`: "2x400"}},
		quiet: []series{{`tombolo_observe_relay_nodes{state="absent"}`: "0x400",
			`tombolo_observe_relay_nodes{state="connected"}`: "9x400"}},
	},
}

// at is the minute at which the alerts are evaluated.
const at = 399

// TestAlerts evaluates each alert with Prometheus' own engine.
func TestAlerts(t *testing.T) {
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	check := func(a alert, s series, fires bool) {
		t.Helper()
		var script strings.Builder
		script.WriteString("load 1m\n")
		for name, values := range s {
			fmt.Fprintf(&script, "  %s %s\n", name, values)
		}
		want := 0
		if fires {
			want = 1
		}
		fmt.Fprintf(&script, "\neval instant at %dm count(%s) or vector(0)\n  {} %d\n", at, a.Expr, want)
		promqltest.RunTest(t, script.String(), engine)
	}
	for _, a := range alerts {
		c, ok := cases[a.Name]
		if !ok || len(c.fires) == 0 || len(c.quiet) == 0 {
			t.Errorf("%s has no case that raises it, or none that does not", a.Name)
		}
		t.Run(a.Name, func(t *testing.T) {
			for _, s := range c.fires {
				check(a, s, true)
			}
			for _, s := range c.quiet {
				check(a, s, false)
			}
		})
	}
}

// metric finds names of metrics in queries.
var metric = regexp.MustCompile(`tombolo_[a-z_]+`)

// TestQueries parses all queries, and looks for their metrics in the source.
func TestQueries(t *testing.T) {
	known := declared(t)
	parse := parser.NewParser(parser.Options{})
	all := map[string]string{}
	for _, a := range alerts {
		all[a.Name] = a.Expr
	}
	for _, b := range boards {
		for _, p := range b.Panels {
			for i, q := range p.Queries {
				all[fmt.Sprintf("%s: %s %d", b.UID, p.Title, i)] = strings.NewReplacer("$__rate_interval", "5m", "$node",
					".*").Replace(q.Expr)
			}
		}
	}
	for name, expr := range all {
		if _, err := parse.ParseExpr(expr); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, m := range metric.FindAllString(expr, -1) {
			if !known[strings.TrimSuffix(m, "_bucket")] {
				t.Errorf("%s: no program has the metric %s", name, m)
			}
		}
	}
}
