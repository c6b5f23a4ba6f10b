package lab

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/build/imagetar"
)

// TestLab brings one cluster of one Node up, uses it as users do, and takes it down: once
// in good order, once after everything was killed. The lab's directory is given as a relative
// path, and everything after Up is done from the root directory, which is in no repository.
func TestLab(t *testing.T) {
	name := fmt.Sprintf("test%d", os.Getpid())
	before, err := Snapshot(name)
	if err != nil {
		t.Fatal(err)
	}
	repo, err := Repo()
	if err != nil {
		t.Fatal(err)
	}
	parent := t.TempDir()
	t.Setenv(EnvRepo, repo)
	t.Setenv(EnvBinaries, filepath.Join(repo, "bin/kubernetes"))
	t.Chdir(parent)
	up(t, name, "files")
	t.Chdir("/")
	t.Setenv(EnvRepo, "")
	t.Setenv(EnvBinaries, "")
	l, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(parent, "files"); l.Dir() != want {
		t.Errorf("the lab is in %s, want %s", l.Dir(), want)
	}
	c := l.Cluster("one")
	n := c.Node("node-1")
	ctx := t.Context()

	if err := n.LoadImage(ctx, echoImage(t, l)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.KubectlInput(ctx, pod, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	kubectl(t, c, "wait", "--for=condition=Ready", "pod/echo", "--timeout=60s")

	t.Run("exec", func(t *testing.T) {
		out := kubectl(t, c, "exec", "echo", "--", "/echo", "get", "http://"+l.Outside()+":8080/", "--count", "3")
		if !strings.Contains(out, "3  outside/outside/outside\n3 answered, 0 failed") {
			t.Errorf("the host outside did not answer as expected:\n%s", out)
		}
	})
	t.Run("logs", func(t *testing.T) {
		if out := kubectl(t, c, "logs", "echo"); !strings.Contains(out, "one/node-1/echo serves HTTP") {
			t.Errorf("log: %q", out)
		}
	})
	t.Run("port-forward", func(t *testing.T) { portForward(t, c) })
	t.Run("stock kubectl finds the context", func(t *testing.T) {
		if out := strings.TrimSpace(kubectl(t, c, "config", "current-context")); out != "one" {
			t.Errorf("current context is %q, want one", out)
		}
	})
	t.Run("tun in a privileged container", func(t *testing.T) {
		out, err := n.Exec(ctx, "sh", "-c", "ls -l /proc/$(pgrep -x echo)/root/dev/net/tun")
		if err != nil || !strings.HasPrefix(out, "c") {
			t.Errorf("/dev/net/tun: %q %v", out, err)
		}
	})
	t.Run("before others", func(t *testing.T) {
		files, err := filepath.Glob("/sys/fs/cgroup/*" + cgroupOf(name) + "/cpu.shares")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range append(files, "/sys/fs/cgroup"+cgroupOf(name)+"/cpu.weight") {
			value, err := os.ReadFile(file)
			if got := strings.TrimSpace(string(value)); err == nil && (got == "10240" || got == "1000") {
				return
			}
		}
		t.Errorf("neither %v nor cpu.weight says that the lab goes before others", files)
	})
	t.Run("cut and heal", func(t *testing.T) { cutAndHeal(t, l, n) })
	t.Run("the API server stops and starts", func(t *testing.T) {
		if err := c.StopAPIServer(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Kubectl(ctx, "get", "nodes", "--request-timeout=2s"); err == nil {
			t.Error("kubectl works without an API server")
		}
		waited := make(chan error, 1)
		go func() {
			_, err := c.Kubectl(ctx, "get", "nodes")
			waited <- err
		}()
		if err := c.StartAPIServer(ctx); err != nil {
			t.Fatal(err)
		}
		if err := <-waited; err != nil {
			t.Errorf("a kubectl that found no API server was not tried again until there was one: %v", err)
		}
	})
	t.Run("power", func(t *testing.T) { power(t, l, c, n) })

	down(t, name)
	unchanged(t, before)
	if entries, err := os.ReadDir(parent); err != nil || len(entries) > 0 {
		t.Errorf("below the directory that the lab was made in there is still %v, %v", entries, err)
	}

	t.Setenv(EnvRepo, repo)
	t.Run("after kill -9 of everything", func(t *testing.T) {
		for _, p := range up(t, name, "").places() {
			if err := killInside(ctx, p, nil); err != nil {
				t.Fatal(err)
			}
		}
		down(t, name)
		unchanged(t, before)
	})
}

const pod = `
apiVersion: v1
kind: Pod
metadata: {name: echo, namespace: default}
spec:
  hostNetwork: true
  tolerations: [{operator: Exists}]
  terminationGracePeriodSeconds: 1
  containers:
    - name: echo
      image: tombolo/echo:dev
      imagePullPolicy: Never
      args: [serve]
      securityContext: {privileged: true}
      env:
        - {name: CLUSTER, value: one}
        - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
`

func up(t *testing.T, name, dir string) *Lab {
	t.Helper()
	t.Cleanup(func() { down(t, name) })
	l, err := Up(t.Context(), Config{Name: name, Dir: dir, Clusters: []string{"one"}, Nodes: 1,
		Progress: func(s string) { t.Log(s) }})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func down(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := Remove(ctx, name); err != nil {
		t.Error(err)
	}
}

func kubectl(t *testing.T, c *Cluster, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func echoImage(t *testing.T, l *Lab) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "echo.tar")
	err := imagetar.Write(path, imagetar.Image{
		Reference:  "tombolo/echo:dev",
		Layers:     [][]imagetar.File{{{Path: "/echo", Source: filepath.Join(l.bin.Own, "echo")}}},
		Entrypoint: []string{"/echo"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func portForward(t *testing.T, c *Cluster) {
	cmd := c.KubectlCommand(t.Context(), "port-forward", "pod/echo", ":8080")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	port := regexp.MustCompile(`127\.0\.0\.1:(\d+)`).FindStringSubmatch(line)
	if port == nil {
		t.Fatalf("kubectl port-forward says %q, %v", line, err)
	}
	resp, err := http.Get("http://127.0.0.1:" + port[1] + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasPrefix(string(body), "one/node-1/echo\n") {
		t.Errorf("answer through port-forward: %q, %v", body, err)
	}
}

func cutAndHeal(t *testing.T, l *Lab, n *Node) {
	// The kubelet's port, on the transport network.
	ask := func(context.Context) error {
		return l.router().do(func() error {
			conn, err := net.DialTimeout("tcp", n.InternalIP()+":10250", time.Second)
			if err != nil {
				return err
			}
			return conn.Close()
		})
	}
	if err := eventually(t.Context(), bootLimit, ask); err != nil {
		t.Fatalf("before the cut: %v", err)
	}
	if err := n.Cut(Transport); err != nil {
		t.Fatal(err)
	}
	if err := ask(t.Context()); err == nil {
		t.Error("the Node answers over a cable that was cut")
	}
	if err := n.Heal(Transport); err != nil {
		t.Fatal(err)
	}
	if err := eventually(t.Context(), bootLimit, ask); err != nil {
		t.Errorf("after healing: %v", err)
	}
}

// power cuts the Node's power, sees that it is noticed, and boots it again: the Pod is
// back without anyone's help.
func power(t *testing.T, l *Lab, c *Cluster, n *Node) {
	ctx := t.Context()
	if err := n.KillAll(ctx); err != nil {
		t.Fatal(err)
	}
	if n.On() {
		t.Error("the Node is on after its power was cut")
	}
	if pids, err := nodeInits(l.Name()); err != nil || len(pids) != 0 {
		t.Errorf("first processes after the cut: %v, %v", pids, err)
	}
	kubectl(t, c, "wait", "--for=condition=Ready=Unknown", "node/node-1", "--timeout=3m")
	if err := n.PowerOn(ctx); err != nil {
		t.Fatal(err)
	}
	err := eventually(ctx, bootLimit, func(ctx context.Context) error {
		_, err := c.Kubectl(ctx, "exec", "echo", "--", "/echo", "get", "http://127.0.0.1:8080/")
		return err
	})
	if err != nil {
		t.Errorf("the Pod after the Node's boot: %v", err)
	}
}

func unchanged(t *testing.T, before Traces) {
	t.Helper()
	if err := before.Compare(t.Context()); err != nil {
		t.Error(err)
	}
}
