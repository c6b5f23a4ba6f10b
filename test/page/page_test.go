package page

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/observe/record"
	"github.com/tombolo-net/tombolo/pkg/observe/ui"
)

var update = flag.Bool("update", false, "write docs/map.png again")

// install copies a folder with a package-lock.json, and installs what it names.
func install(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == "node_modules" {
				return fs.SkipDir
			}
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), text, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Minute)
	defer stop()
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-progress", "--prefer-offline")
	npm.Dir = to
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("npm ci in %s: %v\n%s", from, err, out)
	}
	return to
}

// TestBuilt builds the page from web/ again, and compares the result with the committed files.
func TestBuilt(t *testing.T) {
	web, out := install(t, "../../web"), t.TempDir()
	build := exec.CommandContext(t.Context(), "node", filepath.Join(web, "build.mjs"), out)
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the page: %v\n%s", err, text)
	}
	const committed = "../../pkg/observe/ui/dist"
	for _, pair := range [][2]string{{out, committed}, {committed, out}} {
		entries, err := os.ReadDir(pair[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			built, err := os.ReadFile(filepath.Join(pair[0], e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			if text, err := os.ReadFile(filepath.Join(pair[1], e.Name())); err != nil || !bytes.Equal(text, built) {
				t.Errorf("%s differs from the file in %s (%v): run `make page`, and commit the result", e.Name(), pair[1], err)
			}
		}
	}
}

// TestLocks checks that the lock files name no registry: a mirror's name means nothing elsewhere.
func TestLocks(t *testing.T) {
	for _, file := range []string{"package-lock.json", "../../web/package-lock.json"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte(`"resolved"`)) || bytes.Count(text, []byte(`"integrity"`)) == 0 {
			t.Errorf("%s has entries \"resolved\", or no hashes", file)
		}
	}
}

// recorder emits lines once. Their time is ahead of the page's, so that a slow page takes them for new ones too.
type recorder []ui.Line

func (r recorder) Records(ctx context.Context, connections bool, emit func(ui.Line)) {
	for _, l := range r {
		for _, to := range []**record.Record{&l.Drop, &l.Connection} {
			if *to != nil {
				now := **to
				now.Time, *to = time.Now().UTC().Add(10*time.Minute), &now
			}
		}
		if l.Connection == nil || connections {
			emit(l)
		}
	}
	<-ctx.Done()
}

// recorded are a drop by isolation, a drop by a rule, a connection, and lost records, of packets of a Pod to a Pod.
func recorded(cluster, name, to string) recorder {
	drop := record.Record{Node: "node-2", Verdict: record.Dropped, Protocol: "TCP",
		From: record.End{Namespace: "shop", Pod: name, IP: "10.101.2.7", Port: 41022},
		To:   record.End{Namespace: "pay", Pod: to, IP: "10.101.3.9", Port: 5432}, Reason: "isolated", Count: 3,
		Message: "The Pod is isolated by NetworkPolicy pay/ledger; no rule allows the packet.", Table: "IngressRule"}
	byRule := drop
	byRule.Reason, byRule.Message, byRule.Count = "policy", "", 1
	byRule.Rule = &record.Rule{Policy: "ClusterNetworkPolicy strict", Name: "ingress[0]"}
	byRule.From = record.End{IP: "10.102.0.4", Port: 5353, Cluster: "west"}
	connection := drop
	connection.Verdict, connection.Reason, connection.Message, connection.Service = record.Allowed, "", "", "shop/web"
	return recorder{{Cluster: cluster, Drop: &drop}, {Cluster: cluster, Drop: &byRule},
		{Cluster: cluster, Connection: &connection},
		{Cluster: cluster, Node: "node-1", Missing: "7 records are lost: the switch's meter has dropped copies"}}
}

// shown is a fixture that a server shows.
type shown struct {
	hub    *ui.Hub
	server *ui.Server
	end    context.CancelFunc
}

func show(t *testing.T, s []ui.Snapshot, answers Answers, r ...ui.Recorder) *shown {
	t.Helper()
	w := &shown{hub: ui.NewHub()}
	w.hub.Set(time.Now(), ui.Build(s))
	var err error
	if w.server, err = ui.Listen(0, w.hub, r...); err != nil {
		t.Fatal(err)
	}
	w.server.AnswerWith(answers)
	ctx, end := context.WithCancel(t.Context())
	w.end = end
	ended := make(chan error)
	go func() { ended <- w.server.Serve(ctx) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return w
}

// TestPage opens fixtures in Chromium: by mouse and keyboard, light and dark, with faults, without clusters, with
// hostile names, with 100 clusters. Pictures are in bin/page.
func TestPage(t *testing.T) {
	many := New(Size{Clusters: 100, Gateways: 16, Nodes: 10})
	SetWay(&many[7], "node-2", "10.10.0.3", mcv1alpha1.WayDown)
	pages := map[string]*shown{"three": show(t, Three(), Answers{"ledger-0"},
		recorded("shop/east", "web-5d4f7", "ledger-0")), "cut": show(t, Cut(), Answers{}),
		"hostile": show(t, Hostile(), Answers{bad}, recorded(bad+"/"+bad, bad, "ledger'; touch owned; #")),
		"empty":   show(t, nil, Answers{}), "many": show(t, many, Answers{}), "ends": show(t, Three(), Answers{}),
		"well": show(t, New(Size{Clusters: 3, Gateways: 1, Nodes: 1}), Answers{})}
	urls := map[string]string{}
	for name, p := range pages {
		urls[name] = p.server.URL()
	}
	urls["bare"], _, _ = strings.Cut(urls["three"], "#")
	shots, err := filepath.Abs("../../bin/page")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(shots, 0o755); err != nil {
		t.Fatal(err)
	}
	arguments, err := json.Marshal(map[string]any{"urls": urls, "shots": shots})
	if err != nil {
		t.Fatal(err)
	}
	modules := install(t, ".")
	// This ends a browser that hangs. Each step of drive.mjs has a limit of its own. While a lab runs, all of them take
	// minutes.
	ctx, stop := context.WithTimeout(t.Context(), 15*time.Minute)
	defer stop()
	drive := exec.CommandContext(ctx, "node", "drive.mjs", string(arguments))
	drive.Dir = modules
	drive.Stderr = os.Stderr
	stdout, err := drive.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdin, err := drive.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := drive.Start(); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct {
			Name, Do, Why string
			OK            bool
			Seconds       float64
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("%v in %s", err, lines.Text())
		}
		switch line.Do {
		case "":
			names[line.Name] = true
			t.Run(line.Name, func(t *testing.T) {
				if !line.OK {
					t.Errorf("%s; pictures are in %s", line.Why, shots)
				}
				t.Logf("%.1f s", line.Seconds)
			})
			continue
		case "way up":
			s := Three()
			SetWay(&s[0], "node-1", "10.3.0.2", mcv1alpha1.WayUp)
			pages["three"].hub.Set(time.Now(), ui.Build(s))
		case "Node not ready":
			s := New(Size{Clusters: 3, Gateways: 1, Nodes: 1})
			s[0].Nodes[0].Ready = "False"
			pages["well"].hub.Set(time.Now(), ui.Build(s))
		case "API server silent":
			s := New(Size{Clusters: 3, Gateways: 1, Nodes: 1})
			s[0].Reach = ui.Silent
			pages["well"].hub.Set(time.Now(), ui.Build(s))
		case "no ways":
			s := New(Size{Clusters: 3, Gateways: 1, Nodes: 1})
			s[0].Gateways[0].Status.Ways = nil
			pages["well"].hub.Set(time.Now(), ui.Build(s))
		case "end":
			pages["ends"].end()
		default:
			t.Fatalf("the page's test asks for %q", line.Do)
		}
		if _, err := io.WriteString(stdin, "done\n"); err != nil {
			t.Fatal(err)
		}
	}
	if err := lines.Err(); err != nil {
		t.Error(err)
	}
	if err := drive.Wait(); err != nil {
		t.Errorf("drive.mjs: %v", err)
	}
	if !names["end"] || len(names) < 15 {
		t.Errorf("%d checks ran, want 15: %v", len(names), names)
	}
	picture, err := os.ReadFile(filepath.Join(shots, "map.png"))
	if err != nil {
		t.Fatal(err)
	}
	if len(picture) > 150_000 {
		t.Errorf("the picture of the README has %d bytes, want 150,000 at most", len(picture))
	}
	if *update {
		if err := os.WriteFile("../../docs/map.png", picture, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
