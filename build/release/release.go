package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/tombolo-net/tombolo/build/debian"
	"github.com/tombolo-net/tombolo/build/sbom"
	"github.com/tombolo-net/tombolo/deploy/manifest"
	"github.com/tombolo-net/tombolo/pkg/version"
)

// Inputs are what a release is made of.
type Inputs struct {
	Version   string                 // such as v1.2.3
	Registry  string                 // and path, where the images will be
	Time      time.Time              // of all files: of the commit
	Programs  string                 // folder with a folder for each platform, such as linux-arm64
	Platforms []string               // of the command line, such as darwin-arm64
	Debian    map[string]debian.Root // packages by architecture; images have these architectures
	Downloads string                 // URL where the files of cli/ will be; without it there is no plugin's manifest
	Key       ssh.Signer             // nil: the sums are not signed
	Out       string
}

// release is a release that is being made.
type release struct {
	Inputs
	work    string            // folder of files, until all are there
	digests map[string]string // of images
	sums    map[string]string // of the command line's archives, by platform
}

// Make makes a release. Its folder appears when it is complete.
func Make(in Inputs) error {
	switch {
	case !version.IsRelease(in.Version):
		return fmt.Errorf("VERSION %q: want a version such as v1.2.3 or v1.2.3-rc.1", in.Version)
	case in.Registry == "":
		return errors.New("REGISTRY is empty: name the host and path of the images, such as registry.example/net")
	case in.Downloads != "" && !strings.HasPrefix(in.Downloads, "https://"):
		return fmt.Errorf("DOWNLOADS %q: want the URL of the folder that will have the files of cli/, such as "+
			"https://downloads.example/%s", in.Downloads, in.Version)
	}
	r := &release{Inputs: in, work: in.Out + ".partial", digests: map[string]string{}, sums: map[string]string{}}
	r.Registry = strings.TrimSuffix(in.Registry, "/")
	if err := os.RemoveAll(r.work); err != nil {
		return err
	}
	for _, step := range []func() error{r.images, r.manifests, r.charts, r.commands, r.krew, r.sign} {
		if err := step(); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(in.Out); err != nil {
		return err
	}
	return os.Rename(r.work, in.Out)
}

// manifests writes the manifests with the version and the digests of images.
func (r *release) manifests() error {
	out := filepath.Join(r.work, "manifests")
	err := manifest.Renderer{Registry: r.Registry, Version: r.Version, Digests: r.digests}.Write(out)
	if err != nil {
		return err
	}
	return manifest.Kustomize(out)
}

// commands writes the archives of the command line, one for each platform.
func (r *release) commands() error {
	license, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	for _, platform := range r.Platforms {
		program, pack, end := "tombolo", tarGz, ".tar.gz"
		if strings.HasPrefix(platform, "windows-") {
			program, pack, end = "tombolo.exe", zipped, ".zip"
		}
		file := filepath.Join(r.Programs, platform, program)
		data, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("the command line for %s: %w", platform, err)
		}
		packed, err := pack([]entry{{"LICENSE", 0o644, license}, {program, 0o755, data}}, r.Time)
		if err != nil {
			return err
		}
		r.sums[platform] = fmt.Sprintf("%x", sha256.Sum256(packed))
		if err := r.write(filepath.Join("cli", "tombolo-"+r.Version+"-"+platform+end), packed); err != nil {
			return err
		}
		list := sbom.Document{Name: "tombolo-" + platform, Version: r.Version, Created: r.Time}
		if err := list.Program(file); err != nil {
			return err
		}
		if err := r.list(list); err != nil {
			return err
		}
	}
	return nil
}

// plugin is the template of the plugin's manifest for krew.
const plugin = "deploy/krew/tombolo.yaml"

// krew writes the manifest of the plugin for kubectl, if it is known where the archives will be, and the release has
// archives for all platforms of the template.
func (r *release) krew() error {
	if r.Downloads == "" {
		return nil
	}
	text, err := os.ReadFile(plugin)
	if err != nil {
		return err
	}
	values := []string{"{{VERSION}}", r.Version, "{{DOWNLOADS}}", strings.TrimSuffix(r.Downloads, "/")}
	for platform, sum := range r.sums {
		values = append(values, "{{SHA256_"+strings.ToUpper(strings.ReplaceAll(platform, "-", "_"))+"}}", sum)
	}
	filled := strings.NewReplacer(values...).Replace(string(text))
	if strings.Contains(filled, "{{SHA256_") {
		return nil
	}
	return r.write(filepath.Join("krew", filepath.Base(plugin)), []byte(filled))
}

// sign writes the checksums of all files, and their signature.
func (r *release) sign() error {
	var names []string
	err := filepath.WalkDir(r.work, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	slices.SortFunc(names, cmp.Compare)
	var sums bytes.Buffer
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(r.work, name)
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), filepath.ToSlash(relative))
	}
	if err := r.write("SHA256SUMS", sums.Bytes()); err != nil || r.Key == nil {
		return err
	}
	signed, err := signature(r.Key, sums.Bytes())
	if err != nil {
		return fmt.Errorf("sign: %w", err)
	}
	return r.write("SHA256SUMS.sig", signed)
}
