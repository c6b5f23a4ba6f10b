// Package imagetar makes container images, and writes them as docker-archive tars, the form that
// `docker load` and `ctr images import` read, without a registry or a daemon. The same
// files give the same bytes.
package imagetar

import (
	"archive/tar"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// File is something in a layer: a regular file with the contents of Source, a symbolic
// link when Link is set, or else a directory.
type File struct {
	Path   string // in the image, absolute
	Source string // on this machine
	Link   string
	Mode   int64 // 0 means 0755
}

// Image is a reference ("tombolo/pause:dev") and the contents of the image. A Node stores layers that two images have
// in common once.
type Image struct {
	Reference  string
	Layers     [][]File
	Entrypoint []string
	Cmd        []string // arguments of the entrypoint if a container has no others
	Env        []string // NAME=VALUE
	// Architecture is this machine's if it is empty.
	Architecture string
	// OCI selects a manifest of the Open Container Initiative, for registries and layouts. Without it the manifest is of
	// the kind that docker-archive tars have.
	OCI     bool
	Labels  map[string]string
	Created time.Time
}

// Write writes an image's archive. It appears under its path only when it is complete.
func Write(to string, image Image) error {
	img, err := Build(image)
	if err != nil {
		return fmt.Errorf("image %s: %w", image.Reference, err)
	}
	tag, err := name.NewTag(image.Reference)
	if err != nil {
		return fmt.Errorf("image %s: %w", image.Reference, err)
	}
	temporary := fmt.Sprintf("%s.%d", to, os.Getpid())
	defer os.Remove(temporary)
	if err := tarball.WriteToFile(temporary, tag, img); err != nil {
		return fmt.Errorf("image %s: %w", image.Reference, err)
	}
	return os.Rename(temporary, to)
}

// Build makes an image in memory. The same files give the same digest.
func Build(image Image) (v1.Image, error) {
	img, kind := empty.Image, types.DockerLayer
	if image.OCI {
		img = mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), types.OCIConfigJSON)
		kind = types.OCILayer
	}
	for _, files := range image.Layers {
		data, err := layer(files)
		if err != nil {
			return nil, err
		}
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil },
			tarball.WithCompressionLevel(1), tarball.WithMediaType(kind))
		if err != nil {
			return nil, err
		}
		if img, err = mutate.AppendLayers(img, l); err != nil {
			return nil, err
		}
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", cmp.Or(image.Architecture, runtime.GOARCH)
	config.Config.Entrypoint, config.Config.Cmd = image.Entrypoint, image.Cmd
	config.Config.Labels, config.Created = image.Labels, v1.Time{Time: image.Created}
	config.Config.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, image.Env...)
	return mutate.ConfigFile(img, config)
}

// layer writes files, and the directories they need, in the order of their paths.
func layer(files []File) ([]byte, error) {
	all := map[string]File{}
	for _, f := range files {
		all[f.Path] = f
	}
	for _, f := range files {
		for dir := path.Dir(f.Path); dir != "/"; dir = path.Dir(dir) {
			if _, ok := all[dir]; !ok {
				all[dir] = File{Path: dir}
			}
		}
	}
	paths := make([]string, 0, len(all))
	for p := range all {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, p := range paths {
		if err := add(w, all[p]); err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
	}
	err := w.Close()
	return buf.Bytes(), err
}

func add(w *tar.Writer, f File) error {
	h := &tar.Header{Name: strings.TrimPrefix(f.Path, "/"), Mode: f.Mode, Format: tar.FormatPAX}
	if h.Mode == 0 {
		h.Mode = 0o755
	}
	switch {
	case f.Link != "":
		h.Typeflag, h.Linkname = tar.TypeSymlink, f.Link
	case f.Source == "":
		h.Typeflag = tar.TypeDir
		h.Name += "/"
	default:
		data, err := os.ReadFile(f.Source)
		if err != nil {
			return err
		}
		h.Typeflag, h.Size = tar.TypeReg, int64(len(data))
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	}
	return w.WriteHeader(h)
}
