package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"helm.sh/helm/v3/pkg/chart/loader"
)

// Media types of charts in registries.
const (
	chartConfig  types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	chartContent types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// These annotations of images in a release's layout (build/release) have NAME:VERSION, and REGISTRY/NAME:VERSION.
const (
	refName        = "org.opencontainers.image.ref.name"
	containerdName = "io.containerd.image.name"
)

// pushRelease publishes the images of a release with all architectures, and its charts to REGISTRY/charts. It prints
// the digests. It refuses a release of another registry.
func pushRelease(ctx context.Context, out io.Writer, folder, registry string, insecure bool) error {
	options, err := optionsOf(registry, insecure)
	if err != nil {
		return err
	}
	index, err := layout.ImageIndexFromPath(filepath.Join(folder, "images"))
	if err != nil {
		return fmt.Errorf("read the images of release %s: %w; make it with `make release`", folder, err)
	}
	list, err := index.IndexManifest()
	if err != nil {
		return fmt.Errorf("read the images of release %s: %w", folder, err)
	}
	for _, d := range list.Manifests {
		image := d.Annotations[refName]
		if made := strings.TrimSuffix(d.Annotations[containerdName], "/"+image); made != registry {
			return fmt.Errorf("REGISTRY %s: release %s was made for %s, which its manifests and charts name: push it there, "+
				"or make a release with REGISTRY=%s", registry, folder, cmp.Or(made, "no registry"), registry)
		}
	}
	access := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	for _, d := range list.Manifests {
		to, err := name.NewTag(registry+"/"+d.Annotations[refName], options...)
		if err != nil {
			return fmt.Errorf("REGISTRY %s: %w", registry, err)
		}
		image, err := index.ImageIndex(d.Digest)
		if err != nil {
			return fmt.Errorf("read image %s: %w", to.RepositoryStr(), err)
		}
		if err := remote.WriteIndex(to, image, access...); err != nil {
			return fmt.Errorf("push %s: %w", to, err)
		}
		fmt.Fprintf(out, "%s@%s\n", to, d.Digest)
	}
	packages, err := filepath.Glob(filepath.Join(folder, "charts", "*.tgz"))
	if err != nil {
		return err
	}
	for _, file := range packages {
		chart, about, err := readChart(file)
		if err != nil {
			return err
		}
		to, err := name.NewTag(registry+"/charts/"+about, options...)
		if err != nil {
			return fmt.Errorf("chart %s: %w", file, err)
		}
		if err := remote.Write(to, chart, access...); err != nil {
			return fmt.Errorf("push %s: %w", to, err)
		}
		digest, err := chart.Digest()
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s@%s\n", to, digest)
	}
	return nil
}

// optionsOf returns how names of a registry are read. It has to be named.
func optionsOf(registry string, insecure bool) ([]name.Option, error) {
	if registry == "" {
		return nil, errors.New("want a registry and path: make push REGISTRY=registry.example/net")
	}
	options := []name.Option{name.StrictValidation}
	if insecure {
		options = append(options, name.Insecure)
	}
	return options, nil
}

// helmChart is a package of a chart in the form that registries take: one layer, and the chart's metadata as
// configuration.
type helmChart struct {
	config, manifest []byte
	layer            v1.Layer
}

// readChart reads a package, and returns its name and version as NAME:VERSION.
func readChart(file string) (v1.Image, string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, "", err
	}
	c, err := loader.LoadArchive(bytes.NewReader(data))
	if err != nil {
		return nil, "", fmt.Errorf("chart %s: %w", file, err)
	}
	h := helmChart{layer: static.NewLayer(data, chartContent)}
	if h.config, err = json.Marshal(c.Metadata); err != nil {
		return nil, "", err
	}
	layer, err := partial.Descriptor(h.layer)
	if err != nil {
		return nil, "", err
	}
	config, size, err := v1.SHA256(bytes.NewReader(h.config))
	if err != nil {
		return nil, "", err
	}
	h.manifest, err = json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
		Config: v1.Descriptor{MediaType: chartConfig, Size: size, Digest: config},
		Layers: []v1.Descriptor{*layer},
		Annotations: map[string]string{
			"org.opencontainers.image.title": c.Metadata.Name, "org.opencontainers.image.version": c.Metadata.Version,
			"org.opencontainers.image.description": c.Metadata.Description,
		},
	})
	if err != nil {
		return nil, "", err
	}
	image, err := partial.CompressedToImage(h)
	// A tag has no "+".
	return image, c.Metadata.Name + ":" + strings.ReplaceAll(c.Metadata.Version, "+", "_"), err
}

func (helmChart) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }
func (h helmChart) RawConfigFile() ([]byte, error)    { return h.config, nil }
func (h helmChart) RawManifest() ([]byte, error)      { return h.manifest, nil }
func (h helmChart) LayerByDigest(digest v1.Hash) (partial.CompressedLayer, error) {
	if have, err := h.layer.Digest(); err != nil || have != digest {
		return nil, fmt.Errorf("the chart has no layer %s", digest)
	}
	return h.layer, nil
}
