package member

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
	"github.com/tombolo-net/tombolo/test/apiserver"
)

// newWorld starts two API servers with the project's resource definitions, and returns the
// leader's so that it can be stopped.
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
