// Command push publishes the images that `make images` wrote to a registry, or the images and charts of a release. It
// uses the credentials of `docker login`.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/tombolo-net/tombolo/build/recipe"
)

func main() {
	registry := flag.String("registry", "", "registry and path, such as registry.example/net")
	tag := flag.String("tag", "dev", "tag of the images there")
	insecure := flag.Bool("insecure", false, "speak HTTP to the registry, without TLS")
	from := flag.String("from", "bin/images", "folder with the images")
	release := flag.String("release", "", "folder of a release, whose images and charts are published instead")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var err error
	if *release != "" {
		err = pushRelease(ctx, os.Stdout, *release, strings.TrimSuffix(*registry, "/"), *insecure)
	} else {
		err = push(ctx, os.Stdout, *from, *registry, *tag, *insecure)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "push:", err)
		os.Exit(1)
	}
}

// push writes each image to REGISTRY/NAME:TAG and prints its digest. Layers that the registry has are not sent again.
func push(ctx context.Context, out io.Writer, from, registry, tag string, insecure bool) error {
	options, err := optionsOf(registry, insecure)
	if err != nil {
		return err
	}
	for _, image := range recipe.Published {
		to, err := name.NewTag(strings.TrimSuffix(registry, "/")+"/"+image+":"+tag, options...)
		if err != nil {
			return fmt.Errorf("REGISTRY %s, TAG %s: %w", registry, tag, err)
		}
		img, err := tarball.ImageFromPath(filepath.Join(from, image+".tar"), nil)
		if err != nil {
			return fmt.Errorf("read image %s: %w; make it with `make images`", image, err)
		}
		digest, err := img.Digest()
		if err != nil {
			return fmt.Errorf("read image %s: %w", image, err)
		}
		keys := remote.WithAuthFromKeychain(authn.DefaultKeychain)
		if err := remote.Write(to, img, remote.WithContext(ctx), keys); err != nil {
			return fmt.Errorf("push %s: %w", to, err)
		}
		fmt.Fprintf(out, "%s@%s\n", to, digest)
	}
	return nil
}
