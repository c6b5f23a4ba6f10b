package multicluster

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	kubeclient "sigs.k8s.io/controller-runtime/pkg/client"

	mcapi "github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/cli/clitest"
	"github.com/tombolo-net/tombolo/pkg/multicluster/setup"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

// TestSetupErrors: missing values and values without effect are reported before any request to a cluster, in the
// documented words.
func TestSetupErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "join.yml")
	if err := os.WriteFile(file,
		[]byte("apiVersion: multicluster.antrea.io/v1alpha1\nkind: ClusterSetJoinConfig\nclusterset: x\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		words string
		want  []string
	}{
		{"deploy leadercluster", []string{"Namespace must be specified: -n NAMESPACE"}},
		{"deploy membercluster -n a --antrea-version v9.9.9", []string{"for version v9.9.9 use its own program"}},
		{"deploy membercluster -n a --antrea-version v9.9.9 -f " + file,
			[]string{"--antrea-version has no effect with --manifest-file"}},
		{"deploy membercluster -n a --image-tag v1 -f " + file, []string{"--image-tag have no effect with --manifest-file"}},
		{"deploy followercluster", []string{"it knows leadercluster, membercluster"}},
		{"init", []string{"Namespace must be specified", "ClusterSet must be provided: --clusterset NAME",
			"ClusterID must be provided: --clusterid ID"}},
		{"join", []string{"ClusterSet must be provided", "ClusterID of leader cluster must be provided",
			"a token must be provided"}},
		{"join -f " + file,
			[]string{"antctl: read join configuration " + file +
				`: unknown key "clusterset": correct or remove it; a ClusterSetJoinConfig has the keys apiVersion, kind, ` +
				"clusterSetID, clusterID, namespace, leaderClusterID, leaderNamespace, leaderAPIServer, tokenSecretName, " +
				"tokenSecretFile\n"}},
		{"join -f /none", []string{"open /none: no such file"}},
		{"join --token-secret-file " + file, []string{"read token " + file, "want a Secret of v1"}},
		{"leave", []string{"ClusterSet must be provided"}},
		{"destroy --clusterset x", []string{"Namespace must be specified"}},
		{"create membertoken", []string{"token name must be specified", "Namespace must be specified",
			"--cluster-id must be specified"}},
		{"delete membertoken", []string{"token name must be specified", "Namespace must be specified"}},
		{"get joinconfig", []string{"Namespace must be specified"}},
		{"get membertoken", []string{"Namespace must be specified: -n NAMESPACE, or -A for all"}},
		{"get resourceexport -cluster-id x", []string{"unknown shorthand flag: 'c' in -cluster-id"}},
		{"get resourceexport -- -clusterid x", []string{"accepts at most 1 arg"}},
		{"verify", []string{
			`antctl mc does not know "verify"; it knows create, delete, deploy, destroy, get, init, join, leave`}},
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

// TestSetupContexts: commands that need a Namespace take the context's, and name the remedy for a dead API server.
func TestSetupContexts(t *testing.T) {
	kubeconfig := apiServer(t, nil) // with the context kube-system, in that Namespace
	const away = "is the API server up, and are --context and --kubeconfig the right ones?"
	for _, row := range []struct{ words, want string }{
		{"init --context kube-system", "tombolo: ClusterSet must be provided: --clusterset NAME\nClusterID must be provided"},
		{"destroy --context kube-system", "tombolo: ClusterSet must be provided: --clusterset NAME\n"},
		{"delete membertoken --context kube-system", "tombolo: token name must be specified\n"},
		{"destroy --context c", "tombolo: Namespace must be specified"},
		{"get membertoken --context c", "tombolo: Namespace must be specified"},
		{"leave --clusterset x --context off", away},
		{"leave --clusterset x --context off --dry-run", away},
		{"destroy -n area --clusterset x --context off", away},
		{"init -n area --clusterset x --clusterid y --context off", away},
		{"create membertoken x -n area --cluster-id y --context off", away},
		{"delete membertoken x -n area --context off --yes", away},
		{"get joinconfig -n area --context off", away},
		{"get membertoken -n area --context off", "are --context and --kubeconfig the right ones?"},
	} {
		t.Run(row.words, func(t *testing.T) {
			_, stderr, code := tombolo(t, append([]string{"tombolo", "mc", "-k", kubeconfig}, strings.Fields(row.words)...)...)
			if code != 1 || !strings.Contains(stderr, row.want) {
				t.Errorf("code %d, %swant %s", code, stderr, row.want)
			}
		})
	}
}

// TestResources lists exports, of all members and of one, and imports.
func TestResources(t *testing.T) {
	export := func(cluster, name string) string {
		return `{"apiVersion":"multicluster.crd.antrea.io/v1alpha1","kind":"ResourceExport",` +
			`"metadata":{"namespace":"area","name":"` + cluster + "-" + name + `"},` +
			`"spec":{"clusterID":"` + cluster + `","name":"` + name + `","namespace":"default","kind":"Service"}}`
	}
	list := func(kind string, items ...string) string {
		return `{"apiVersion":"multicluster.crd.antrea.io/v1alpha1","kind":"` + kind + `","metadata":{},"items":[` +
			strings.Join(items, ",") + `]}`
	}
	const web = `{"apiVersion":"multicluster.crd.antrea.io/v1alpha1","kind":"ResourceImport",` +
		`"metadata":{"namespace":"area","name":"default-web-service","managedFields":[{"manager":"x"}]},` +
		`"spec":{"kind":"ServiceImport","name":"web","namespace":"default",` +
		`"serviceImport":{"spec":{"type":"ClusterSetIP","ports":[{"port":80,"protocol":"TCP"}]}}}}`
	kubeconfig := apiServer(t, map[string]string{
		"/apis/multicluster.crd.antrea.io/v1alpha1/namespaces/area/resourceexports/east-web": export(
			"east", "web"),
		"/apis/multicluster.crd.antrea.io/v1alpha1/namespaces/area/resourceimports/default-web-service": web,
		"/apis/multicluster.crd.antrea.io/v1alpha1/namespaces/area/resourceexports": list("ResourceExportList",
			export("west", "web"), export("east", "web")),
		"/apis/multicluster.crd.antrea.io/v1alpha1/resourceimports": list("ResourceImportList", web),
	})
	for _, row := range []struct{ golden, words string }{
		{"resourceexport.json", "resourceexport -n area -o json"},
		{"resourceexport.yaml", "resourceexport east-web -n area -o yaml"},
		{"resourceexport-one.yaml", "re -n area --cluster-id west -o yaml"},
		{"resourceimport.json", "resourceimport default-web-service -n area -o json"},
		{"resourceimport.yaml", "resourceimports -A -o yaml"},
	} {
		t.Run(row.golden, func(t *testing.T) {
			out, stderr, code := tombolo(t,
				append([]string{"antctl", "mc", "get", "-k", kubeconfig}, strings.Fields(row.words)...)...)
			if code != 0 || stderr != "" {
				t.Fatalf("code %d: %s", code, stderr)
			}
			clitest.Golden(t, row.golden, out)
		})
	}
	for _, row := range []struct{ words, want string }{
		{"re -n area", "CLUSTER-ID NAMESPACE NAME KIND\neast area east-web Service\nwest area west-web Service"},
		{"resourceexports -n area --cluster-id east", "CLUSTER-ID NAMESPACE NAME KIND\neast area east-web Service"},
		{"resourceexport -n area -clusterid east", "CLUSTER-ID NAMESPACE NAME KIND\neast area east-web Service"},
		{"resourceexport -n area -clusterid=west", "CLUSTER-ID NAMESPACE NAME KIND\nwest area west-web Service"},
		{"resourceexport -n area --clusterid none", "No ResourceExport found in Namespace area"},
		{"ri -A", "NAMESPACE NAME KIND\narea default-web-service ServiceImport"},
	} {
		out, stderr, code := tombolo(t,
			append([]string{"antctl", "mc", "get", "-k", kubeconfig}, strings.Fields(row.words)...)...)
		var lines []string
		for line := range strings.Lines(out) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		if have := strings.Join(lines, "\n"); code != 0 || have != row.want {
			t.Errorf("%s: code %d, %s%s\nwant %s", row.words, code, stderr, have, row.want)
		}
	}
}

// TestSavedFiles: only their owner may read files with tokens, and a file that is not regular is not replaced.
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
		var out bytes.Buffer
		cmd := &cobra.Command{}
		cmd.SetOut(&out)
		err := writeSecretly(cmd, path(name), "secret", "member token")
		return out.String(), err
	}
	if err := errors.Join(os.WriteFile(path("old"), []byte("what was there before"), 0o644),
		os.WriteFile(path("target"), []byte("what was there before"), 0o644),
		os.Symlink("target", path("link")), os.Symlink("made", path("dangling")), syscall.Mkfifo(path("pipe"), 0o600),
		os.Mkdir(path("folder"), 0o755)); err != nil {
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
			out, err := save(row.name)
			if want := "Saved the member token to " + path(row.name) + "\n"; err != nil || out != want {
				t.Fatalf("%v, printed %q, want %q", err, out, want)
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
	for name, why := range map[string]string{"folder": "is a directory", "none/file": "no such file or directory",
		"new/file": "not a directory"} {
		_, err := save(name)
		if want := "save the member token to " + path(name) + ": " + why + "; name a file that can be written"; err == nil ||
			err.Error() != want {
			t.Errorf("have error %v\nwant %s", err, want)
		}
	}
	if left, err := filepath.Glob(path(".*")); err != nil || len(left) > 0 {
		t.Errorf("%v, %v are left", err, left)
	}
}

// leaderCluster is an API server of a leader or a future leader: the definitions, and the Role in a Namespace.
type leaderCluster struct {
	client     kubeclient.Client
	kubeconfig string
}

func newLeaderCluster(t *testing.T) leaderCluster {
	t.Helper()
	config := apiserver.Start(t, "../../../deploy/crds")
	apiserver.FillTokens(t, config)
	c, err := kubeclient.New(config, kubeclient.Options{Scheme: setup.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []kubeclient.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "area"}},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "area", Name: mcapi.MemberRole}}} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(api.Config{
		CurrentContext: "c", Contexts: map[string]*api.Context{"c": {Cluster: "c", AuthInfo: "u"}},
		Clusters:  map[string]*api.Cluster{"c": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos: map[string]*api.AuthInfo{"u": {Token: config.BearerToken}},
	}, path); err != nil {
		t.Fatal(err)
	}
	return leaderCluster{c, path}
}

// made lists what commands have made in the Namespace.
func (l leaderCluster) made(t *testing.T) string {
	t.Helper()
	var all []string
	for kind, list := range map[string]kubeclient.ObjectList{"ClusterSet": &mcv1alpha2.ClusterSetList{},
		"Secret": &corev1.SecretList{}, "ServiceAccount": &corev1.ServiceAccountList{},
		"RoleBinding": &rbacv1.RoleBindingList{}} {
		if err := l.client.List(t.Context(), list, kubeclient.InNamespace("area")); err != nil {
			t.Fatal(err)
		}
		if err := meta.EachListItem(list, func(o runtime.Object) error {
			all = append(all, kind+" "+o.(kubeclient.Object).GetName())
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// TestLeaderFiles writes files for members. If a file cannot be written, no object is left in the cluster.
func TestLeaderFiles(t *testing.T) {
	l := newLeaderCluster(t)
	dir := t.TempDir()
	mc := func(words ...string) (string, string, int) {
		t.Helper()
		return tombolo(t, append([]string{"antctl", "mc", "-k", l.kubeconfig}, words...)...)
	}
	for _, words := range []string{
		"init -n area --clusterset set --clusterid leader -j FILE",
		"init -n area --clusterset set --clusterid leader --create-token -j FILE",
		"create membertoken east-token -n area --cluster-id east -o FILE",
	} {
		file := filepath.Join(dir, "none", "file")
		out, stderr, code := mc(strings.Fields(strings.Replace(words, "FILE", file, 1))...)
		if want := "to " + file + ": no such file or directory; name a file that can be written\n"; code != 1 ||
			!strings.HasSuffix(stderr, want) || !strings.Contains(out, "deleted again") {
			t.Errorf("%s: code %d, %s%s\nwant %s", words, code, out, stderr, want)
		}
		if made := l.made(t); made != "" {
			t.Errorf("%s: %s are left", words, made)
		}
	}

	file := filepath.Join(dir, "join.yml")
	if err := os.WriteFile(file, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	out, stderr, code := mc("init", "-n", "area", "--clusterset", "set", "--clusterid", "leader", "--create-token",
		"-j", file)
	want := `ClusterSet "set" created in Namespace area
ServiceAccount "default-member-token" created in Namespace area
RoleBinding "default-member-token" created in Namespace area
Secret "default-member-token" created in Namespace area
Saved the join configuration to ` + file + `
Successfully initialized ClusterSet set
Token default-member-token is good for the first cluster ID that joins with it, and for no other from then on: ` +
		"`mc create membertoken`" + ` makes one for each further member
`
	if code != 0 || out != want {
		t.Fatalf("code %d, %s%s\nwant %s", code, stderr, out, want)
	}
	account := &corev1.ServiceAccount{}
	if err := l.client.Get(t.Context(), kubeclient.ObjectKey{Namespace: "area", Name: "default-member-token"},
		account); err != nil {
		t.Fatal(err)
	}
	if id, bound := account.Annotations[mcapi.AnnotationClusterID]; bound {
		t.Errorf("the default token is bound to %q before any member has joined", id)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the join configuration has mode %v, %v", info.Mode(), err)
	}
	r, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	join, err := setup.ReadJoinConfig(r)
	if err != nil || join.Secret == nil || join.Secret.Name != "default-member-token" ||
		join.Secret.Type != corev1.SecretTypeOpaque || len(join.Secret.Data["token"]) == 0 || join.ClusterSetID != "set" ||
		join.LeaderNamespace != "area" {
		t.Fatalf("%v: the join configuration is %+v", err, join)
	}

	if _, stderr, code = mc("create", "membertoken", "east-token", "-n", "area", "--cluster-id", "east", "-o",
		file); code != 0 {
		t.Fatal(stderr)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("the token's file has mode %v, %v", info.Mode(), err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "area", Name: "east-token"}}
	if err := l.client.Patch(t.Context(), secret, kubeclient.RawPatch(types.MergePatchType, // as kubectl apply leaves it
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, corev1.LastAppliedConfigAnnotation,
			`{"stringData":{"token":"`+string(join.Secret.Data["token"])+`"}}`))); err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"table", "json", "yaml"} {
		out, stderr, code := mc("get", "membertoken", "-n", "area", "-o", format)
		if code != 0 || !strings.Contains(out, "east-token") || !strings.Contains(out, "default-member-token") {
			t.Errorf("-o %s: code %d, %s%s", format, code, stderr, out)
		}
		for key, value := range join.Secret.Data {
			if strings.Contains(out, base64.StdEncoding.EncodeToString(value)) || strings.Contains(out, string(value)) ||
				regexp.MustCompile(`\bdata\b`).MatchString(out) {
				t.Errorf("-o %s prints the token's %s:\n%s", format, key, out)
			}
		}
	}
	before := l.made(t)
	out, stderr, code = mc("destroy", "--clusterset", "set", "-n", "area", "--dry-run")
	const removal = `ClusterSet "set" in Namespace area would be deleted
Secret "default-member-token" in Namespace area would be deleted
Secret "east-token" in Namespace area would be deleted
RoleBinding "default-member-token" in Namespace area would be deleted
RoleBinding "east-token" in Namespace area would be deleted
ServiceAccount "default-member-token" in Namespace area would be deleted
ServiceAccount "east-token" in Namespace area would be deleted
`
	if code != 0 || stderr != "" || out != removal || l.made(t) != before {
		t.Errorf("a dry run of destroy: code %d, %s%s\n%s are left of %s", code, stderr, out, l.made(t), before)
	}
	out, stderr, code = mc("delete", "membertoken", "east-token", "-n", "area", "--dry-run")
	if code != 0 || stderr != "" || strings.Count(out, `"east-token" in Namespace area would be deleted`) != 3 ||
		l.made(t) != before {
		t.Errorf("a dry run of delete: code %d, %s%s\n%s are left of %s", code, stderr, out, l.made(t), before)
	}
	if _, stderr, code = mc("destroy", "--clusterset", "other", "-n", "area", "--dry-run"); code != 1 ||
		!strings.Contains(stderr, "there is no ClusterSet other in Namespace area, but set") {
		t.Errorf("a dry run of another ClusterSet: code %d, %s", code, stderr)
	}
	out, stderr, code = mc("destroy", "--clusterset", "set", "-n", "area", "-v")
	if code != 0 || l.made(t) != "" {
		t.Errorf("destroy: code %d, %s%s\n%s are left", code, stderr, out, l.made(t))
	}
	if !regexp.MustCompile(
		`(?m)^DELETE https://127.0.0.1:\d+/apis/multicluster.crd.antrea.io/v1alpha2/namespaces/area/clustersets/set\?timeout=30s: 200 OK in \S+s$`).MatchString(stderr) {
		t.Errorf("-v does not print what is asked and answered:\n%s", stderr)
	}
}
