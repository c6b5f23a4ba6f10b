package scenario

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Pair joins the clusters, and makes Gateways in each (in the leader only the first). It runs a Pod client in east and
// a Pod server in west, both on one Node. The server is exported as Service server in Namespace default.
func (s *Scenario) Pair(ctx context.Context, node string, gateways ...string) error {
	if err := errors.Join(s.Access(ctx), s.Join(ctx)); err != nil {
		return err
	}
	for _, cluster := range s.Members() {
		nodes := gateways
		if cluster == Leader {
			nodes = nodes[:1]
		}
		if err := s.ChooseGateway(ctx, cluster, nodes...); err != nil {
			return err
		}
	}
	if err := errors.Join(s.ClientPod(ctx, "east", "client", node), s.ClientPod(ctx, "west", "server", node)); err != nil {
		return err
	}
	return s.ExportPods(ctx, "west", "server", "app: client")
}

// PairURL is where the client finds the server.
func (s *Scenario) PairURL(ctx context.Context) (string, error) {
	ip, err := s.ImportedIP(ctx, "east", "antrea-mc-server", 1, bootLimit)
	return "http://" + ip + "/", err
}

// PairSettled waits until requests are answered, one after the other, for some seconds.
func (s *Scenario) PairSettled(ctx context.Context) error {
	url, err := s.PairURL(ctx)
	if err != nil {
		return err
	}
	return Eventually(ctx, bootLimit, func(ctx context.Context) error {
		out, err := s.Exec(ctx, "east", "client", "/echo", "get", url, "--count", "100", "--interval", "50ms",
			"--timeout", "2s")
		if err == nil && !strings.Contains(out, "100 answered, 0 failed") {
			err = errors.New("not all are answered")
		}
		if err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
}
