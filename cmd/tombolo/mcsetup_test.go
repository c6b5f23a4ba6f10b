package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
)

// TestSetupErrors: what is missing or has no effect is said before anything is asked of a cluster, in the documented words.
func TestSetupErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "join.yml")
	if err := os.WriteFile(file, []byte("apiVersion: multicluster.antrea.io/v1alpha1\nkind: ClusterSetJoinConfig\nclusterset: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		words string
		want  []string
	}{
		{"deploy leadercluster", []string{"Namespace must be specified"}},
		{"deploy membercluster -n a --antrea-version v9.9.9", []string{"for version v9.9.9 use its own program"}},
		{"deploy membercluster -n a --antrea-version v9.9.9 -f " + file, []string{"--antrea-version has no effect with --manifest-file"}},
		{"deploy membercluster -n a --image-tag v1 -f " + file, []string{"--image-tag have no effect with --manifest-file"}},
		{"deploy followercluster", []string{"it knows leadercluster, membercluster"}},
		{"init", []string{"Namespace must be specified", "ClusterSet must be provided", "ClusterID must be provided"}},
		{"join", []string{"ClusterSet must be provided", "ClusterID of leader cluster must be provided", "a token must be provided"}},
		{"join -f " + file, []string{"read join configuration " + file, `unknown field "clusterset"`}},
		{"join -f /none", []string{"open /none: no such file"}},
		{"join --token-secret-file " + file, []string{"read token " + file, "want a Secret of v1"}},
		{"leave", []string{"ClusterSet must be provided"}},
		{"destroy --clusterset x", []string{"Namespace must be specified"}},
		{"create membertoken", []string{"token name must be specified", "Namespace must be specified", "--cluster-id must be specified"}},
		{"delete membertoken", []string{"token name must be specified", "Namespace must be specified"}},
		{"get joinconfig", []string{"Namespace must be specified"}},
		{"get membertoken", []string{"Namespace must be specified"}},
		{"get resourceexport x -A", []string{"a resource cannot be retrieved by name across all Namespaces"}},
	} {
		t.Run(row.words, func(t *testing.T) {
			_, stderr, code := tombolo(t, append([]string{"antctl", "mc", "-k", "/none"}, strings.Fields(row.words)...)...)
			if code != 1 {
				t.Errorf("code %d", code)
			}
			for _, want := range row.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("%q is not in %s", want, stderr)
				}
			}
		})
	}
}

// TestResources lists exports, of all members and of one, and imports.
func TestResources(t *testing.T) {
	export := func(cluster, name string) string {
		return `{"apiVersion":"multicluster.crd.antrea.io/v1alpha1","kind":"ResourceExport","metadata":{"namespace":"area","name":"` + cluster + "-" + name + `"},"spec":{"clusterID":"` + cluster + `","name":"` + name + `","namespace":"default","kind":"Service"}}`
	}
	kubeconfig := apiServer(t, map[string]string{
		"/apis/multicluster.crd.antrea.io/v1alpha1/namespaces/area/resourceexports": `{"apiVersion":"multicluster.crd.antrea.io/v1alpha1","kind":"ResourceExportList","metadata":{},"items":[` + export("west", "web") + "," + export("east", "web") + `]}`,
		"/apis/multicluster.crd.antrea.io/v1alpha1/resourceimports": `{"apiVersion":"multicluster.crd.antrea.io/v1alpha1","kind":"ResourceImportList","metadata":{},"items":[
			{"apiVersion":"multicluster.crd.antrea.io/v1alpha1","kind":"ResourceImport","metadata":{"namespace":"area","name":"default-web-service"},"spec":{"kind":"ServiceImport"}}]}`,
	})
	for _, row := range []struct{ words, want string }{
		{"re -n area", "CLUSTER-ID NAMESPACE NAME KIND\neast area east-web Service\nwest area west-web Service"},
		{"resourceexports -n area --cluster-id east", "CLUSTER-ID NAMESPACE NAME KIND\neast area east-web Service"},
		{"resourceexport -n area --clusterid none", "No ResourceExport found in Namespace area"},
		{"ri -A", "NAMESPACE NAME KIND\narea default-web-service ServiceImport"},
	} {
		out, stderr, code := tombolo(t, append([]string{"antctl", "mc", "get", "-k", kubeconfig}, strings.Fields(row.words)...)...)
		var lines []string
		for line := range strings.Lines(out) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		if have := strings.Join(lines, "\n"); code != 0 || have != row.want {
			t.Errorf("%s: code %d, %s%s\nwant %s", row.words, code, stderr, have, row.want)
		}
	}
}

// TestSavedFiles: files with tokens are their owner's alone, and what is no regular file is not replaced.
func TestSavedFiles(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	mode := func(name string) os.FileMode {
		t.Helper()
		info, err := os.Lstat(path(name))
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode()
	}
	save := func(name string) (string, error) {
		t.Helper()
		var said bytes.Buffer
		cmd := &cobra.Command{}
		cmd.SetOut(&said)
		err := writeSecretly(cmd, path(name), "secret", "member token")
		return said.String(), err
	}
	if err := errors.Join(os.WriteFile(path("old"), []byte("what was there before"), 0o644), os.WriteFile(path("target"), []byte("what was there before"), 0o644),
		os.Symlink("target", path("link")), os.Symlink("made", path("dangling")), syscall.Mkfifo(path("pipe"), 0o600), os.Mkdir(path("folder"), 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name, file string      // the file that has the text then
		mode       os.FileMode // of what is named
	}{
		{"new", "new", 0o600},
		{"old", "old", 0o600},
		{"link", "target", os.ModeSymlink | 0o777},
		{"dangling", "made", os.ModeSymlink | 0o777},
	} {
		t.Run(row.name, func(t *testing.T) {
			said, err := save(row.name)
			if want := "Saved the member token to " + path(row.name) + "\n"; err != nil || said != want {
				t.Fatalf("%v, said %q, want %q", err, said, want)
			}
			if text, err := os.ReadFile(path(row.file)); err != nil || string(text) != "secret" {
				t.Errorf("%s has %q, %v", row.file, text, err)
			}
			if mode(row.name) != row.mode || mode(row.file) != 0o600 {
				t.Errorf("modes are %v and %v, want %v and -rw-------", mode(row.name), mode(row.file), row.mode)
			}
		})
	}
	t.Run("pipe", func(t *testing.T) {
		read := make(chan string, 1)
		go func() {
			text, err := os.ReadFile(path("pipe"))
			read <- fmt.Sprint(string(text), err)
		}()
		if _, err := save("pipe"); err != nil {
			t.Fatal(err)
		}
		if have := <-read; have != "secret<nil>" || mode("pipe") != os.ModeNamedPipe|0o600 {
			t.Errorf("read %s from the pipe, which is now %v", have, mode("pipe"))
		}
	})
	t.Run("standard output", func(t *testing.T) { // as with -o /dev/stdout > redirected
		out, err := os.Create(path("redirected"))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		if err := os.Symlink(path("redirected"), path("stdout")); err != nil {
			t.Fatal(err)
		}
		cmd := &cobra.Command{}
		cmd.SetOut(out)
		fmt.Fprintln(out, "before")
		if err := writeSecretly(cmd, path("stdout"), "secret\n", "member token"); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(out, "after")
		if text, err := os.ReadFile(path("redirected")); err != nil || string(text) != "before\nsecret\nafter\n" {
			t.Errorf("the output is %q, %v", text, err)
		}
	})
	for name, why := range map[string]string{"folder": "is a directory", "none/file": "no such file or directory", "new/file": "not a directory"} {
		_, err := save(name)
		if want := "save the member token to " + path(name) + ": " + why + "; name a file that can be written"; err == nil || err.Error() != want {
			t.Errorf("have error %v\nwant %s", err, want)
		}
	}
	if left, err := filepath.Glob(path(".*")); err != nil || len(left) > 0 {
		t.Errorf("%v, %v are left", err, left)
	}
}
