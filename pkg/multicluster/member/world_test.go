package member

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

// newWorld starts two API servers with the project's resource definitions. It returns the leader's server, so that a
// test can stop it.
func newWorld(t *testing.T) (*world, *apiserver.Server) {
	t.Helper()
	leader := apiserver.New(t, apiserver.Options{CRDs: []string{"../../../deploy/crds"}, ServiceCIDR: "10.96.0.0/16"})
	member := apiserver.New(t, apiserver.Options{CRDs: []string{"../../../deploy/crds"}, ServiceCIDR: "10.97.0.0/16"})
	w := &world{t: t, leaderConfig: leader.Config, memberConfig: member.Config, config: config.Default()}
	for _, side := range []struct {
		client *client.Client
		server *apiserver.Server
	}{{&w.leader, leader}, {&w.member, member}} {
		c, err := client.New(side.server.Config, client.Options{Scheme: Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		*side.client = c
	}
	return w, leader
}

// gatewayNode makes a Ready Node with the annotation of a Gateway.
func (w *world) gatewayNode(name, ip string) *corev1.Node {
	w.t.Helper()
	n := node(name, ip)
	w.create(w.member, n.DeepCopy())
	have := n.DeepCopy()
	w.eventually("status of Node "+name, func(ctx context.Context) error {
		if err := w.member.Get(ctx, client.ObjectKeyFromObject(n), have); err != nil {
			return err
		}
		have.Status.Addresses, have.Status.Conditions = n.Status.Addresses, n.Status.Conditions
		return w.member.Status().Update(ctx, have)
	})
	return have
}

// newParallelWorld is newWorld for a test that runs in parallel with others, since it mostly waits for its servers.
// Such a test must not count writes, because all tests of the process share the metrics.
func newParallelWorld(t *testing.T) (*world, *apiserver.Server) {
	t.Helper()
	t.Parallel()
	return newWorld(t)
}
