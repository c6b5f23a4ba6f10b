package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/tombolo-net/tombolo/build/debian"
	"github.com/tombolo-net/tombolo/build/imagetar"
	"github.com/tombolo-net/tombolo/build/recipe"
	"github.com/tombolo-net/tombolo/build/sbom"
)

// images writes an OCI layout with an index for each image, which lists the image of each architecture. It also writes
// the lists of the images' contents.
func (r *release) images() error {
	to, err := layout.Write(filepath.Join(r.work, "images"), empty.Index)
	if err != nil {
		return err
	}
	for _, img := range recipe.Images {
		if !slices.Contains(recipe.Published, img.Name) {
			continue
		}
		index, err := r.index(img)
		if err != nil {
			return fmt.Errorf("image %s: %w", img.Name, err)
		}
		digest, err := index.Digest()
		if err != nil {
			return err
		}
		r.digests[img.Name] = digest.String()
		if err := to.AppendIndex(index, layout.WithAnnotations(map[string]string{
			"org.opencontainers.image.ref.name": img.Name + ":" + r.Version,
			"io.containerd.image.name":          r.Registry + "/" + img.Name + ":" + r.Version,
		})); err != nil {
			return err
		}
	}
	return nil
}

// index returns the index of an image for all architectures.
func (r *release) index(img recipe.Image) (v1.ImageIndex, error) {
	about := map[string]string{
		"org.opencontainers.image.title":    img.Name,
		"org.opencontainers.image.version":  r.Version,
		"org.opencontainers.image.source":   "https://github.com/tombolo-net/tombolo",
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	index, _ := mutate.Annotations(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), about).(v1.ImageIndex)
	for _, architecture := range slices.Sorted(maps.Keys(r.Debian)) {
		root := r.Debian[architecture]
		made, err := img.Make(filepath.Join(r.Programs, "linux-"+architecture), root, r.Version)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", architecture, err)
		}
		made.Architecture, made.OCI, made.Labels, made.Created = architecture, true, about, r.Time
		built, err := imagetar.Build(made)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", architecture, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: built,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}}})
		list := sbom.Document{Name: img.Name + "-linux-" + architecture, Version: r.Version, Created: r.Time}
		if err := contents(&list, made, root, r.Programs); err != nil {
			return nil, fmt.Errorf("%s: %w", architecture, err)
		}
		if err := r.list(list); err != nil {
			return nil, err
		}
	}
	return index, nil
}

// contents adds the Go modules and Debian packages of an image's files. Files of the repository belong to neither.
func contents(list *sbom.Document, image imagetar.Image, root debian.Root, programs string) error {
	for _, files := range image.Layers {
		for _, f := range files {
			switch {
			case f.Source == "":
			case strings.HasPrefix(f.Source, programs+"/"):
				if err := list.Program(f.Source); err != nil {
					return err
				}
			case filepath.IsAbs(f.Source):
				p := root.Of(f.Source)
				if p == nil {
					return fmt.Errorf("%s is of no Debian package", f.Source)
				}
				list.Debian(*p)
			}
		}
	}
	return nil
}

// list writes the list of contents of an image or a program.
func (r *release) list(list sbom.Document) error {
	text, err := list.JSON()
	if err != nil {
		return err
	}
	return r.write(filepath.Join("sbom", list.Name+".spdx.json"), text)
}
