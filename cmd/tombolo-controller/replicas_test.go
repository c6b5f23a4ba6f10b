package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/multicluster/leader"
	"github.com/tombolo-net/tombolo/test/apiserver"
	"github.com/tombolo-net/tombolo/test/child"
	"github.com/tombolo-net/tombolo/test/ports"
)

// asController makes this test's binary the controller itself, for processes of their own.
const asController = "TOMBOLO_TEST_AS_CONTROLLER"

func TestMain(m *testing.M) {
	if os.Getenv(asController) != "" {
		os.Exit(run())
	}
	os.Exit(m.Run())
}

// replica is one process of the controller.
type replica struct {
	process         *exec.Cmd
	webhook, health string
	ended           chan struct{}
	log             string
}

// TestReplicas runs two processes of the leader's controller against an API server that calls their webhooks. The other
// process takes over when the leading one is killed, and when it hangs and comes back. The webhooks answer all the
// time.
func TestReplicas(t *testing.T) {
	ctx := t.Context()
	// ClusterIPs that this process can listen at, in place of a Service proxy.
	cidr := fmt.Sprintf("127.%d.%d.0/24", 16+rand.IntN(200), rand.IntN(256))
	server := apiserver.New(t, apiserver.Options{CRDs: []string{"../../deploy/crds"}, ServiceCIDR: cidr})
	scheme, err := leader.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(server.Config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	install(t, admin)
	service := &corev1.Service{}
	if err := admin.Get(ctx, client.ObjectKey{Namespace: "area", Name: "antrea-mc-webhook-service"}, service); err != nil {
		t.Fatal(err)
	}
	var proxy balancer
	proxy.listen(t, net.JoinHostPort(service.Spec.ClusterIP, "443"))
	member := memberEast(t, admin, server.Config)

	holder := func() string {
		lease := &coordinationv1.Lease{}
		if err := admin.Get(ctx, client.ObjectKey{Namespace: "area", Name: "antrea-mc-controller"}, lease); err != nil ||
			lease.Spec.HolderIdentity == nil {
			return ""
		}
		return *lease.Spec.HolderIdentity
	}
	first := startReplica(t, server.Config, &proxy)
	eventually(t, "the first replica leads", func() error {
		if holder() == "" {
			return errors.New("nobody holds the Lease")
		}
		return nil
	})
	second := startReplica(t, server.Config, &proxy)
	for _, r := range []*replica{first, second} {
		eventually(t, "both are ready", func() error { return ready(ctx, r) })
	}

	set := &mcv1alpha2.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "area", Name: "set"},
		Spec: mcv1alpha2.ClusterSetSpec{ClusterID: "north", Leaders: []mcv1alpha2.LeaderClusterInfo{{ClusterID: "north"}}}}
	eventually(t, "the ClusterSet is admitted", func() error { return client.IgnoreAlreadyExists(admin.Create(ctx, set)) })
	if err := member.Create(ctx,
		&mcv1alpha1.MemberClusterAnnounce{ObjectMeta: metav1.ObjectMeta{Namespace: "area", Name: "member-announce-from-east"},
			ClusterID: "east", ClusterSetID: "set", LeaderClusterID: "north"}); err != nil {
		t.Fatal(err)
	}
	// serviceRange has the member announce a range, and waits until a controller hands it on.
	serviceRange := func(cidr string) {
		t.Helper()
		re := &mcv1alpha1.ResourceExport{ObjectMeta: metav1.ObjectMeta{
			Namespace: "area", Name: "east-clusterinfo", Finalizers: []string{multicluster.ResourceExportFinalizer},
			Labels: map[string]string{multicluster.LabelSourceClusterID: "east",
				multicluster.LabelSourceKind: multicluster.ClusterInfoKind},
		}, Spec: mcv1alpha1.ResourceExportSpec{ClusterID: "east", Namespace: "kube-system", Name: "east",
			Kind:        multicluster.ClusterInfoKind,
			ClusterInfo: &mcv1alpha1.ClusterInfo{ClusterID: "east", ServiceCIDR: cidr}}}
		started := time.Now()
		// The API server may still have a connection to a replica that is gone.
		eventually(t, "the member announces "+cidr, func() error {
			have := &mcv1alpha1.ResourceExport{}
			if err := member.Get(ctx, client.ObjectKeyFromObject(re), have); err != nil {
				return member.Create(ctx, re.DeepCopy())
			}
			have.Spec = re.Spec
			return member.Update(ctx, have)
		})
		eventually(t, cidr+" is handed on", func() error {
			ri := &mcv1alpha1.ResourceImport{}
			if err := admin.Get(ctx, client.ObjectKeyFromObject(re), ri); err != nil {
				return err
			}
			if ri.Spec.ClusterInfo == nil || ri.Spec.ClusterInfo.ServiceCIDR != cidr {
				return fmt.Errorf("the import has %+v", ri.Spec.ClusterInfo)
			}
			return nil
		})
		t.Logf("%s was handed on after %.1f s", cidr, time.Since(started).Seconds())
	}
	serviceRange("10.96.0.0/16")

	// From here on the webhook is asked all the time, and has to refuse.
	stop := ask(t, admin)
	led := holder()
	if err := first.process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	serviceRange("10.97.0.0/16")
	if now := holder(); now == led || now == "" {
		t.Errorf("the Lease is held by %q, as before", now)
	}

	// A third comes, the second hangs for longer than its Lease, and ends when it is back.
	third := startReplica(t, server.Config, &proxy)
	eventually(t, "the third is ready", func() error { return ready(ctx, third) })
	proxy.remove(second) // as a Service does with an endpoint that is not ready
	led = holder()
	if err := second.process.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// the signal is not waited for
	eventually(t, "the second has stopped", func() error { return stopped(second.process.Process.Pid) })
	serviceRange("10.98.0.0/16")
	if err := second.process.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-second.ended:
	case <-time.After(time.Minute):
		t.Error("the replica that lost the Lease still runs after a minute")
	}
	if now := holder(); now == led {
		t.Errorf("the Lease is held by %q again, which had lost it", now)
	}
	if asked, failed := stop(); asked == 0 || len(failed) > 2 {
		t.Errorf("of %d reviews %d were not answered, want at most one for each replica that went: %v", asked,
			len(failed), failed)
	} else {
		t.Logf("%d reviews, %d of them not answered: %v", asked, len(failed), failed)
	}
}

// install makes what the manifest has but for the Deployment.
func install(t *testing.T, admin client.Client) {
	t.Helper()
	manifest, err := os.ReadFile("../../deploy/multicluster/v1.5/antrea-multicluster-leader-namespaced.yml")
	if err != nil {
		t.Fatal(err)
	}
	if err := admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "area"}}); err != nil {
		t.Fatal(err)
	}
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(bytes.ReplaceAll(manifest, []byte("changeme"),
		[]byte("area"))), 4096)
	for {
		o := &unstructured.Unstructured{}
		if err := documents.Decode(&o.Object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		if o.GetKind() == "" || o.GetKind() == "Deployment" {
			continue
		}
		if err := client.IgnoreAlreadyExists(admin.Create(t.Context(), o)); err != nil {
			t.Fatalf("create %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

// memberEast acts as a member's ServiceAccount.
func memberEast(t *testing.T, admin client.Client, config *rest.Config) client.Client {
	t.Helper()
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "area", Name: "member-east"}},
		&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "area", Name: "member-east"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: multicluster.MemberRole},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "area", Name: "member-east"}}},
	} {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	as := rest.CopyConfig(config)
	as.Impersonate.UserName = "system:serviceaccount:area:member-east"
	c, err := client.New(as, client.Options{Scheme: admin.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// startReplica runs a process of the controller as the manifest's ServiceAccount until the test ends. more are lines of
// its configuration.
func startReplica(t *testing.T, server *rest.Config, proxy *balancer, more ...string) *replica {
	t.Helper()
	dir := t.TempDir()
	r := &replica{webhook: freeAddress(t), health: freeAddress(t), ended: make(chan struct{}),
		log: filepath.Join(dir, "log")}
	host, port, err := net.SplitHostPort(r.webhook)
	if err != nil {
		t.Fatal(err)
	}
	// Antrea's files have leaderElect: false, and our manifests two replicas: still only one of them writes.
	config := fmt.Sprintf(
		"health: {healthProbeBindAddress: %q}\nwebhook: {host: %q, port: %s}\nleaderElection: {leaderElect: false, "+
			"leaseDuration: 6s, renewDeadline: 4s, retryPeriod: 1s}\n%s\n", r.health, host, port, strings.Join(more, "\n"))
	access := clientcmdapi.NewConfig()
	access.Clusters["c"] = &clientcmdapi.Cluster{Server: server.Host, CertificateAuthorityData: server.CAData}
	access.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: server.BearerToken,
		Impersonate: "system:serviceaccount:area:antrea-mc-controller"}
	access.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	access.CurrentContext = "x"
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "config"), []byte(config), 0o600),
		clientcmd.WriteToFile(*access, filepath.Join(dir, "kubeconfig"))); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(r.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	r.process = exec.Command("/proc/self/exe", "leader", "--config="+filepath.Join(dir, "config"))
	r.process.Env = append(os.Environ(), asController+"=1", "POD_NAMESPACE=area",
		"KUBECONFIG="+filepath.Join(dir, "kubeconfig"))
	r.process.Stdout, r.process.Stderr = log, log
	// It has a process group of its own: when the shell that began a group ends, the kernel continues the group's
	// stopped processes.
	r.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := child.Start(r.process); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = r.process.Wait() // it ends by being killed, or by losing the Lease
		close(r.ended)
	}()
	t.Cleanup(func() {
		_ = r.process.Process.Kill()
		<-r.ended
		if t.Failed() {
			text, _ := os.ReadFile(r.log)
			t.Logf("replica %d:\n%s", r.process.Process.Pid, text[max(0, len(text)-4000):])
		}
	})
	proxy.add(r)
	return r
}

// ready asks a replica as the kubelet does.
func ready(ctx context.Context, r *replica) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.health+"/readyz", nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("readyz: %s", answer.Status)
	}
	return nil
}

// ask has the API server call the webhook until the returned function is called. That returns the number of calls, and
// all results other than a refusal.
func ask(t *testing.T, admin client.Client) func() (asked int, failed []string) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	var asked int
	var failed []string
	go func() {
		defer close(done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			another := &mcv1alpha2.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "area", Name: "another"},
				Spec: mcv1alpha2.ClusterSetSpec{ClusterID: "north", Leaders: []mcv1alpha2.LeaderClusterInfo{{ClusterID: "north"}}}}
			err := admin.Create(ctx, another, client.DryRunAll)
			asked++
			if ctx.Err() == nil && (err == nil || !strings.Contains(err.Error(), "multiple ClusterSets in a Namespace")) {
				failed = append(failed, fmt.Sprint(err))
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}()
	return func() (int, []string) {
		cancel()
		<-done
		return asked, failed
	}
}

// balancer is the Service of the webhooks: a connection goes to one of the replicas that answer.
type balancer struct {
	mu       sync.Mutex
	replicas []*replica
	next     int
}

func (b *balancer) add(r *replica) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replicas = append(b.replicas, r)
}

func (b *balancer) remove(r *replica) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var rest []*replica
	for _, other := range b.replicas {
		if other != r {
			rest = append(rest, other)
		}
	}
	b.replicas = rest
}

func (b *balancer) listen(t *testing.T, address string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go b.serve(t.Context(), conn)
		}
	}()
}

func (b *balancer) serve(ctx context.Context, in net.Conn) {
	defer in.Close()
	b.mu.Lock()
	b.next++
	var order []*replica
	for i := range b.replicas {
		order = append(order, b.replicas[(b.next+i)%len(b.replicas)])
	}
	b.mu.Unlock()
	for _, r := range order {
		if ready(ctx, r) != nil {
			continue
		}
		out, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.webhook)
		if err != nil {
			continue
		}
		defer out.Close()
		go func() {
			_, _ = io.Copy(out, in)
			_ = out.Close()
		}()
		_, _ = io.Copy(in, out)
		return
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", ports.Free(t))
}

func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 90*time.Second, true,
		func(context.Context) (bool, error) {
			last = f()
			return last == nil, nil
		})
	if err != nil {
		t.Fatalf("%s: %v", what, errors.Join(last, err))
	}
}

// stopped returns an error unless all threads of a process are stopped. SIGSTOP stops a thread when it next leaves the
// kernel.
func stopped(pid int) error {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return err
	}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if _, after, _ := strings.Cut(string(text), ") "); !strings.HasPrefix(after, "T") { // state; proc(5)
			return fmt.Errorf("a thread runs: %s", text)
		}
	}
	return nil
}
