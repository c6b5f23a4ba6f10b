package lab

import (
	"context"
	"fmt"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/tombolo-net/tombolo/build/imagetar"
)

func (l *Lab) pausePath() string { return filepath.Join(l.Dir(), "pause.tar") }

// writePause makes the image that the runtime holds Pods with: no Pod starts without it.
func (l *Lab) writePause() error {
	return imagetar.Write(l.pausePath(), imagetar.Image{
		Reference:  "tombolo/pause:dev",
		Layers:     [][]imagetar.File{{{Path: "/pause", Source: filepath.Join(l.bin.Own, "pause")}}},
		Entrypoint: []string{"/pause"},
	})
}

// LoadImages brings the images of `make images` to all Nodes.
func (l *Lab) LoadImages(ctx context.Context) error {
	tars, err := filepath.Glob(filepath.Join(l.bin.Own, "images", "*.tar"))
	if err != nil {
		return err
	}
	if len(tars) == 0 {
		return fmt.Errorf("there are no images in %s: run `make images`", filepath.Join(l.bin.Own, "images"))
	}
	return l.load(ctx, tars...)
}

// LoadImage brings the images of a tar archive to all Nodes.
func (l *Lab) LoadImage(ctx context.Context, tar string) error { return l.load(ctx, tar) }

func (l *Lab) load(ctx context.Context, tars ...string) error {
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for _, c := range l.clusters {
		for _, n := range c.nodes {
			g.Go(func() error {
				for _, tar := range tars {
					if err := n.LoadImage(gctx, tar); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	return g.Wait()
}
