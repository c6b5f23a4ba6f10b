package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	crdv1beta1 "github.com/tombolo-net/tombolo/pkg/apis/crd/v1beta1"
	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/cluster/policystatus"
	"github.com/tombolo-net/tombolo/pkg/policy"
	"github.com/tombolo-net/tombolo/test/apiserver"
	"github.com/tombolo-net/tombolo/test/child"
)

// A cluster whose Nodes report: each has a Pod that 100 policies are applied to.
const (
	statusNodes    = 1000
	statusPolicies = 100
	statusRate     = 100 // reports a second, which is what agents keep to (docs/policy-status.md)
)

// BenchmarkTableStatus runs the policy controller, a process of its own, at a real API server with reports of 1,000
// Nodes. All Nodes come to enforce 100 policies, then one policy changes everywhere, then nothing happens.
func BenchmarkTableStatus(b *testing.B) {
	ctx := b.Context()
	config := apiserver.Start(b, "../../deploy/crds")
	scheme, err := policystatus.Scheme()
	if err != nil {
		b.Fatal(err)
	}
	api, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		b.Fatal(err)
	}
	each := func(n int, do func(i int) error) {
		b.Helper()
		var g errgroup.Group
		g.SetLimit(16)
		for i := range n {
			g.Go(func() error { return do(i) })
		}
		if err := g.Wait(); err != nil {
			b.Fatal(err)
		}
	}
	node := func(i int) string { return fmt.Sprintf("node-%04d", i) }
	each(statusNodes, func(i int) error {
		return api.Create(ctx,
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: node(i),
				Labels: map[string]string{"app": fmt.Sprint(i % 50)}},
				Spec: corev1.PodSpec{NodeName: node(i), Containers: []corev1.Container{{Name: "c", Image: "i"}}}})
	})
	policies := make([]*crdv1beta1.ClusterNetworkPolicy, statusPolicies)
	each(statusPolicies, func(i int) error {
		policies[i] = &crdv1beta1.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("policy-%03d", i)},
			Spec: crdv1beta1.PolicySpec{
				Priority: 5, AppliedTo: []crdv1beta1.AppliedTo{{PodSelector: &metav1.LabelSelector{}}},
				Ingress: []crdv1beta1.Rule{{Action: crdv1beta1.ActionDrop}},
			}}
		return api.Create(ctx, policies[i])
	})
	controller := startPolicyController(b, config.Host, config.BearerToken, config.CAData)
	watched, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		b.Fatal(err)
	}
	events, err := watched.Watch(ctx, &crdv1beta1.ClusterNetworkPolicyList{})
	if err != nil {
		b.Fatal(err)
	}
	defer events.Stop()
	var writes atomic.Int64 // of statuses
	realized := make(chan string, 1<<16)
	go func() {
		for e := range events.ResultChan() {
			if p, ok := e.Object.(*crdv1beta1.ClusterNetworkPolicy); ok && p.Status.Phase != "" {
				writes.Add(1)
				if p.Status.Phase == crdv1beta1.PhaseRealized && p.Status.ObservedGeneration == p.Generation &&
					p.Status.DesiredNodesRealized == statusNodes {
					realized <- fmt.Sprint(p.Name, " ", p.Generation)
				}
			}
		}
	}()
	until := func(want map[string]bool) {
		b.Helper()
		deadline := time.After(3 * time.Minute)
		for len(want) > 0 {
			select {
			case key := <-realized:
				delete(want, key)
			case <-deadline:
				b.Fatalf("%d policies are not Realized", len(want))
			}
		}
	}
	row := func(name string, do func() time.Duration) {
		cpu, wrote, began := cpuOf(b, controller.Process.Pid), writes.Load(), time.Now()
		took := do()
		elapsed := time.Since(began)
		used := cpuOf(b, controller.Process.Pid) - cpu
		fmt.Printf("| %s | after the last report %.1f s; %d status writes; controller %.2f s CPU in %.0f s (%.1f %% of a "+
			"core) |\n",
			name, took.Seconds(), writes.Load()-wrote, used.Seconds(), elapsed.Seconds(), 100*used.Seconds()/elapsed.Seconds())
	}
	row(fmt.Sprintf("%d Nodes report %d policies each for the first time", statusNodes, statusPolicies),
		func() time.Duration {
			versions, want := map[string]string{}, map[string]bool{}
			for _, p := range policies {
				versions["acnp/"+p.Name] = string(policy.VersionOf(p))
				want[p.Name+" 1"] = true
			}
			paced(b, func(i int) error {
				return api.Create(ctx, &tombolov1alpha1.NodePolicyReport{ObjectMeta: metav1.ObjectMeta{Name: node(i)},
					Policies: versions})
			})
			last := time.Now()
			until(want)
			return time.Since(last)
		})
	row("one policy changes everywhere", func() time.Duration {
		p := policies[0]
		if err := api.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			b.Fatal(err)
		}
		p.Spec.Priority = 6
		if err := api.Update(ctx, p); err != nil {
			b.Fatal(err)
		}
		patch := fmt.Appendf(nil, `{"policies":{"acnp/%s":"%s"}}`, p.Name, policy.VersionOf(p))
		paced(b, func(i int) error {
			return api.Patch(ctx, &tombolov1alpha1.NodePolicyReport{ObjectMeta: metav1.ObjectMeta{Name: node(i)}},
				client.RawPatch(types.MergePatchType, patch))
		})
		last := time.Now()
		until(map[string]bool{p.Name + " 2": true})
		return time.Since(last)
	})
	row("nothing happens for 20 seconds", func() time.Duration {
		time.Sleep(20 * time.Second)
		return 0
	})
	_ = controller.Process.Signal(syscall.SIGTERM)
	_ = controller.Wait()
	fmt.Printf("| memory at most | %d MB |\n", controller.ProcessState.SysUsage().(*syscall.Rusage).Maxrss/1024)
}

// paced does something for each Node at the rate that agents keep to.
func paced(b *testing.B, do func(i int) error) {
	b.Helper()
	ticker := time.NewTicker(time.Second / statusRate)
	defer ticker.Stop()
	var g errgroup.Group
	for i := range statusNodes {
		<-ticker.C
		g.Go(func() error { return do(i) })
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
}

func startPolicyController(b *testing.B, host, token string, ca []byte) *exec.Cmd {
	b.Helper()
	dir := b.TempDir()
	binary, kubeconfig := filepath.Join(dir, "tombolo-controller"), filepath.Join(dir, "kubeconfig")
	if out, err := exec.CommandContext(b.Context(), "go", "build", "-o", binary,
		"../../cmd/tombolo-controller").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: host, CertificateAuthorityData: ca}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: token}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*c, kubeconfig); err != nil {
		b.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(b.Context()), binary, "policy", "--health", "0", "--webhook-host",
		"127.0.0.1", "--webhook-port", "19443")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "POD_NAMESPACE=kube-system")
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		b.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := child.Start(cmd); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		if b.Failed() {
			text, _ := os.ReadFile(log.Name())
			b.Logf("the controller's log ends:\n%s", text[max(0, len(text)-3000):])
		}
	})
	return cmd
}

// cpuOf is the time that a process has used, of both modes.
func cpuOf(b *testing.B, pid int) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ") // its name may hold anything
	fields := strings.Fields(rest)
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * time.Second / 100 // of proc(5): clock ticks
}
