// Command push publishes the images that `make images` wrote to a registry. It uses the credentials of `docker login`.
package main

import (
	"context"
	"errors"
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
)

// images are the images that a cluster runs; the rest of the folder is for tests.
var images = []string{"tombolo-agent", "tombolo-controller", "tombolo-ovs"}

func main() {
	registry := flag.String("registry", "", "registry and path, such as registry.example/net")
	tag := flag.String("tag", "dev", "tag of the images there")
	insecure := flag.Bool("insecure", false, "speak HTTP to the registry, without TLS")
	from := flag.String("from", "bin/images", "folder with the images")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := push(ctx, os.Stdout, *from, *registry, *tag, *insecure)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "push:", err)
		os.Exit(1)
	}
}

// push writes each image to REGISTRY/NAME:TAG and prints its digest. Layers that the registry has are not sent again.
func push(ctx context.Context, out io.Writer, from, registry, tag string, insecure bool) error {
	if registry == "" {
		return errors.New("want a registry and path: make push REGISTRY=registry.example/net")
	}
	options := []name.Option{name.StrictValidation}
	if insecure {
		options = append(options, name.Insecure)
	}
	for _, image := range images {
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
		if err := remote.Write(to, img, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
			return fmt.Errorf("push %s: %w", to, err)
		}
		fmt.Fprintf(out, "%s@%s\n", to, digest)
	}
	return nil
}
