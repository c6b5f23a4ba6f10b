package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tombolo-net/tombolo/test/scenario"
)

const unplugged = "a cluster unplugged, another one serves too"

// unplug cuts west off all networks while it serves a Service together with north. It prints for how long new
// connections still go to west, how long after the reconnection west has its share again, and the losses meanwhile.
func unplug(ctx context.Context, s *scenario.Scenario) (err error) {
	exporters := []string{"west", scenario.Leader}
	for _, cluster := range exporters {
		if err := errors.Join(s.Nginx(ctx, cluster, 1), s.Export(ctx, cluster)); err != nil {
			return err
		}
		defer func() {
			for _, kind := range []string{"serviceexport", "deployment", "service"} {
				if _, deleteErr := s.Kubectl(ctx, cluster, "delete", kind, "nginx", "-n", "default"); deleteErr != nil {
					err = errors.Join(err, deleteErr)
				}
			}
		}()
	}
	ip, err := s.ImportedIP(ctx, "east", "antrea-mc-nginx", len(exporters), time.Minute)
	if err != nil {
		return err
	}
	if err := errors.Join(s.PairSettled(ctx), reachable(ctx, s, true, time.Minute)); err != nil {
		return err
	}
	load := s.Load(ctx, "http://"+ip+"/")
	time.Sleep(4 * time.Second) // all of it runs
	cut, back, err := cutWest(ctx, s)
	seen, loadErr := load()
	if err := errors.Join(err, loadErr); err != nil {
		return err
	}
	west := scenario.ClusterID("west") + "/"
	const before = 3 * time.Second
	if _, share, ok := seen.Answers(west, shareOf100, cut.Add(-before)); !ok || share > before {
		return errors.New("west had no share of the requests before")
	}
	first, share, ok := seen.Answers(west, shareOf100, back)
	returned := fmt.Sprintf("it answers again after %.1f s and has its share after %.1f s", first.Seconds(),
		share.Seconds())
	if !ok {
		returned = fmt.Sprintf("it has not had its share again for %.0f s", time.Since(back).Seconds())
	}
	lost, of := seen.Between(cut.Add(-scenario.GiveUp), back) // also requests that were under way
	lostAfter, ofAfter := seen.Between(back, time.Now())
	fmt.Printf("%s: requests go to it for %.1f s, new ones lost meanwhile %d, %d; once it is plugged in again %s, new "+
		"ones lost then %d, %d; long ones broken %d of %d\n",
		unplugged, seen.Away(cut).Seconds(), lost, of, returned, lostAfter, ofAfter, seen.Broken, scenario.LongOnes)
	return nil
}

// shareOf100 is the least number of a hundred new connections that one of two clusters with equal shares gets.
const shareOf100 = 33

// cutWest cuts all of west's Nodes off until east has found west gone, and reconnects them until east has found west
// back.
func cutWest(ctx context.Context, s *scenario.Scenario) (cut, back time.Time, err error) {
	const more = 5 * time.Second // clients are watched for so long after each of both
	nodes := s.Lab.Cluster("west").Nodes()
	cut = time.Now()
	for _, n := range nodes {
		err = errors.Join(err, n.Cut())
	}
	if err == nil {
		err = reachable(ctx, s, false, 45*time.Second) // less than what Nodes may be silent
		time.Sleep(more)
	}
	back = time.Now()
	for _, n := range nodes {
		err = errors.Join(err, n.Heal())
	}
	if err == nil {
		err = reachable(ctx, s, true, time.Minute)
		time.Sleep(more)
	}
	return cut, back, err
}

// reachable waits until east's ClusterSet reports that west is not gone, or that it is.
func reachable(ctx context.Context, s *scenario.Scenario, want bool, limit time.Duration) error {
	return scenario.Eventually(ctx, limit, func(ctx context.Context) error {
		reason, err := s.Kubectl(ctx, "east", "get", "clusterset", "-n", scenario.MemberNamespace, "-o",
			`jsonpath={range .items[*].status.clusterStatuses[?(@.clusterID=="`+scenario.ClusterID("west")+
				`")].conditions[?(@.type=="Reachable")]}{.reason}{end}`)
		if have := reason != "ClusterGone"; err == nil && have != want {
			err = fmt.Errorf("east's condition Reachable of west has the reason %q", reason)
		}
		return err
	})
}
