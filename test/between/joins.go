package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	tombolov1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/tombolo/v1alpha1"
	"github.com/tombolo-net/tombolo/pkg/benchmark/load"
	"github.com/tombolo-net/tombolo/test/scenario"
)

// joinNetworks are two networks of tenants. Each has a Namespace in one cluster.
const joinNetworks = `
apiVersion: tombolo.io/v1alpha1
kind: TenantNetwork
metadata: {namespace: antrea-multicluster, name: east}
spec:
  connections: [both]
  members: [{clusterID: test-cluster-east, namespaceSelector: {}}]
---
apiVersion: tombolo.io/v1alpha1
kind: TenantNetwork
metadata: {namespace: antrea-multicluster, name: west}
spec:
  connections: [both]
  members: [{clusterID: test-cluster-west, namespaceSelector: {}}]
`

const (
	joins       = 100                    // that are measured
	joinLimit   = 30 * time.Second       // of one join
	joinApart   = 300 * time.Millisecond // without an answer: the networks are apart
	joinP99     = 300 * time.Millisecond
	joinAsking  = "10ms" // between two requests
	joinTimeout = "400ms"
)

// joined prints how long the join of two networks takes. The time begins with the request to the leader's API server,
// and ends when a packet passes from a Pod of east to a Pod of west.
func (b bench) joined(ctx context.Context) error {
	if err := errors.Join(b.Pair(ctx, "node-2", "node-1"), b.PairSettled(ctx)); err != nil {
		return err
	}
	if err := b.Apply(ctx, scenario.Leader, joinNetworks); err != nil {
		return err
	}
	for _, cluster := range []string{"east", "west"} {
		if err := b.Apply(ctx, cluster, fmt.Sprintf(`
apiVersion: v1
kind: Namespace
metadata:
  name: tenant
  labels: {core.juniper.net/isolated-namespace: "true"}
  annotations: {tombolo.io/tenant-network: %s}
`, cluster)); err != nil {
			return err
		}
		if err := b.ClientPod(ctx, cluster, "tenant/client", "node-2"); err != nil {
			return err
		}
	}
	ip, err := b.Kubectl(ctx, "west", "get", "pod", "client", "-n", "tenant", "-o", "jsonpath={.status.podIP}")
	if err != nil {
		return err
	}
	config, err := b.Lab.Cluster(scenario.Leader).RESTConfig()
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := tombolov1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	leader, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	asks := b.Lab.Cluster("east").KubectlCommand(ctx, "exec", "-i", "-n", "tenant", "client", "--", "/echo", "watch",
		"http://"+ip+":8080/", "--stdin", "--fresh", "--interval", joinAsking, "--timeout", joinTimeout)
	out, err := asks.StdoutPipe()
	if err != nil {
		return err
	}
	in, err := asks.StdinPipe()
	if err != nil {
		return err
	}
	if err := asks.Start(); err != nil {
		return err
	}
	passed := answers(out)
	defer func() {
		_ = in.Close()
		stop()
		for range passed { // until it has ended
		}
		_ = asks.Wait()
	}()
	var took []time.Duration
	for range joins + 1 {
		one, err := b.join(ctx, leader, passed)
		if err != nil {
			return fmt.Errorf("join %d: %w", len(took), err)
		}
		took = append(took, one)
	}
	took = took[1:] // the first one fills caches
	slices.Sort(took)
	p50, p99 := load.Percentile(took, 500), load.Percentile(took, 990)
	verdict := "met"
	if p99 > joinP99 {
		verdict = "NOT MET"
	}
	fmt.Printf("\na join in the leader until packets pass from east to west, %d times: p50 %d ms, p99 %d ms, <= %d ms: "+
		"%s\n", joins, p50.Milliseconds(), p99.Milliseconds(), joinP99.Milliseconds(), verdict)
	return nil
}

// join joins the networks, and parts them again. It returns how long the join took.
func (b bench) join(ctx context.Context, leader client.Client, passed <-chan time.Time) (took time.Duration, _ error) {
	connection := &tombolov1alpha1.NetworkConnection{
		ObjectMeta: metav1.ObjectMeta{Namespace: scenario.LeaderNamespace, Name: "both"},
		Spec:       tombolov1alpha1.NetworkConnectionSpec{Mesh: []string{"east", "west"}},
	}
	began := time.Now()
	if err := leader.Create(ctx, connection); err != nil {
		return 0, err
	}
	limit := time.After(joinLimit)
	for took == 0 {
		select {
		case at, ok := <-passed:
			if !ok {
				return 0, errors.New("the client has ended")
			}
			took = max(at.Sub(began), 0)
		case <-limit:
			return 0, fmt.Errorf("no packet passes within %s", joinLimit)
		}
	}
	if err := leader.Delete(ctx, connection); err != nil {
		return 0, err
	}
	for {
		select {
		case _, ok := <-passed:
			if !ok {
				return 0, errors.New("the client has ended")
			}
		case <-time.After(joinApart):
			return took, nil
		case <-limit:
			return 0, fmt.Errorf("packets pass %s after the join was removed", joinLimit)
		}
	}
}

// answers returns the times at which requests began that were answered.
func answers(out io.Reader) <-chan time.Time {
	passed := make(chan time.Time, 1000)
	go func() {
		defer close(passed)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			fields := strings.Fields(lines.Text())
			if len(fields) < 3 || fields[2] != "ok" {
				continue
			}
			if at, err := time.Parse(time.RFC3339Nano, fields[0]); err == nil {
				passed <- at
			}
		}
	}()
	return passed
}
