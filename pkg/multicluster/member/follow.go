package member

import (
	"context"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/tombolo-net/tombolo/pkg/multicluster/member/membership"

	"github.com/tombolo-net/tombolo/pkg/multicluster/config"
)

// configPoll is how often the configuration file is read. Reading works the same for a plain file, for a file that an
// editor replaces, and for the links with which a kubelet replaces a whole ConfigMap. A watch has to treat each of them
// differently.
const configPoll = 2 * time.Second

// follower runs a controller with the configuration of its file. If the configuration changes, it starts another
// controller in the same process. The state of a controller follows from existing objects. So a restart withdraws
// nothing, and no traffic passes through the controller.
type follower struct {
	file   string // empty to keep the configuration
	config config.Config
	log    *slog.Logger
	make   func(config.Config) *controller
}

// Start runs until ctx ends. The manager calls it.
func (f *follower) Start(ctx context.Context) error {
	cfg := f.config
	if f.file != "" {
		if now, err := config.Load(f.file); err == nil {
			cfg = now // it may have changed while another replica was elected
		}
	}
	for {
		c := f.make(cfg)
		run, cancel := context.WithCancel(ctx)
		var next *config.Config
		var following sync.WaitGroup
		if f.file != "" {
			following.Go(func() {
				next = f.follow(run, cfg, c)
				cancel()
			})
		}
		err := c.Start(run)
		cancel()
		following.Wait()
		if err != nil || next == nil || ctx.Err() != nil {
			return err
		}
		f.log.Info("the configuration has changed", "file", f.file)
		cfg = *next
	}
}

// follow reads the file until its configuration for the controller changes, and returns the new one. It returns nil
// when ctx ends. It ignores a file that cannot be read.
func (f *follower) follow(ctx context.Context, now config.Config, c *controller) *config.Config {
	tick := time.NewTicker(configPoll)
	defer tick.Stop()
	refused, warned := "", now
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		next, err := config.Load(f.file)
		switch {
		case err != nil && err.Error() != refused:
			refused = err.Error()
			f.log.Warn("the configuration is not taken over: the controller goes on with the one that it had", "err", err)
			c.tables.reach.Refused.Set(membership.Here, refused)
		case err == nil && refused != "":
			refused = ""
			c.tables.reach.Refused.Delete(membership.Here)
		}
		if err != nil {
			continue
		}
		if process := config.ProcessOf(next); !reflect.DeepEqual(process, config.ProcessOf(warned)) {
			f.log.Warn(
				"health, metrics, webhook and leaderElection of the configuration take effect when this process starts again",
				"file", f.file)
			warned = next
		}
		if !reflect.DeepEqual(config.MemberOf(next), config.MemberOf(now)) {
			return &next
		}
	}
}
