package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/test/scenario"
)

// gateways adds a Gateway in east and one in west, and cuts one of west off under requests.
func (d *demo) gateways(ctx context.Context) error {
	section("A second Gateway in east and west, and one of west that fails")
	for _, cluster := range []string{"east", "west"} {
		fmt.Printf("-- %s: kubectl annotate node node-2 multicluster.antrea.io/gateway=true\n", cluster)
		if err := d.world.ChooseGateway(ctx, cluster, "node-2"); err != nil {
			return err
		}
	}
	// A server in west that no failure of node-1 touches.
	if err := d.world.ClientPod(ctx, "west", "steady", "node-2"); err != nil {
		return err
	}
	if _, err := d.world.Kubectl(ctx, "west", "label", "pod", "steady", "-n", "default", "run=steady"); err != nil {
		return err
	}
	if err := d.world.ExportPods(ctx, "west", "steady", "run: steady"); err != nil {
		return err
	}
	ip, err := d.world.ImportedIP(ctx, "east", "antrea-mc-steady", 1, 3*time.Minute)
	if err != nil {
		return err
	}
	far := map[string]string{"east": scenario.ClusterID("west"), "west": scenario.ClusterID("east")}
	for cluster, peer := range far {
		if err := scenario.Eventually(ctx, 2*time.Minute,
			func(ctx context.Context) error { return d.watched(ctx, cluster, peer) }); err != nil {
			return err
		}
	}
	out, err := d.ask(ctx, "east", "get", "peers")
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	fmt.Printf("-- east/node-2: tombolo get peers\n%s", out)

	load := d.world.Load(ctx, "http://"+ip+"/")
	time.Sleep(3 * time.Second) // all of it runs
	failing := d.world.Lab.Cluster("west").Node("node-1")
	failed := time.Now()
	if err := failing.Cut(); err != nil {
		return err
	}
	time.Sleep(4 * time.Second)
	seen, err := load()
	if err := errors.Join(err, failing.Heal()); err != nil {
		return err
	}
	if lost, of := seen.Between(failed.Add(3*time.Second), failed.Add(4*time.Second)); 2*lost >= of {
		return fmt.Errorf(
			"3 s after west/node-1 was cut off %d of %d new connections are lost: the way by west/node-2 is not taken", lost, of)
	}
	_, before := seen.Before(failed)
	lost, after := seen.After(failed)
	fmt.Printf("-- 200 new connections a second and %d that stay, from default/client in east; after %d of them "+
		"west/node-1 is cut off\n", scenario.LongOnes, before)
	fmt.Printf("new connections failed for %d ms (%d of %d), then went by west/node-2 (BFD: 100 ms x 3)\n",
		seen.Away(failed).Milliseconds(), lost, after)
	fmt.Printf("of the connections that stay %d broke: those to a ClusterIP on the lost way, which their Gateway "+
		"translates, wait for it for ten seconds; those between Pods would take the other way\n", seen.Broken)
	return nil
}

// watched is an error until node-2 has two ways to a peer that are up.
func (d *demo) watched(ctx context.Context, cluster, peer string) error {
	out, err := d.ask(ctx, cluster, "get", "peers", "-o", "json")
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	var list api.PeerList
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return fmt.Errorf("peers of %s/node-2: %w", cluster, err)
	}
	up := 0
	for _, p := range list.Peers {
		for _, w := range p.Ways {
			if p.Name == peer && w.State == "up" {
				up++
			}
		}
	}
	if up != 2 {
		return fmt.Errorf("%s/node-2 has %d ways to %s that are up, want 2", cluster, up, peer)
	}
	return nil
}
