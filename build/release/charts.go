package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"sigs.k8s.io/yaml"

	"github.com/tombolo-net/tombolo/deploy/charts"
	"github.com/tombolo-net/tombolo/deploy/manifest"
)

// charts writes the packages of the charts, with values that name the release's images by tag. It also writes values
// that name the images by digest.
func (r *release) charts() error {
	folder := filepath.Join(r.work, "charts")
	for _, name := range []string{charts.Agent, charts.Multicluster} {
		data, err := r.chart(name)
		if err != nil {
			return fmt.Errorf("chart %s: %w", name, err)
		}
		if err := r.write(filepath.Join("charts", name+"-"+strings.TrimPrefix(r.Version, "v")+".tgz"), data); err != nil {
			return err
		}
		if _, err := loader.LoadFile(filepath.Join(folder, name+"-"+strings.TrimPrefix(r.Version, "v")+".tgz")); err != nil {
			return fmt.Errorf("chart %s: %w", name, err)
		}
	}
	text, err := yaml.Marshal(map[string]any{"images": map[string]any{"registry": r.Registry, "digests": r.digests}})
	if err != nil {
		return err
	}
	head := "# The images of Tombolo " + r.Version + " by digest, for both charts: helm install -f images.yaml\n"
	return r.write(filepath.Join("charts", "images.yaml"), append([]byte(head), text...))
}

// chart returns the package of a chart.
func (r *release) chart(name string) ([]byte, error) {
	c, err := loader.LoadDir(filepath.Join(manifest.Charts, name))
	if err != nil {
		return nil, err
	}
	charts.SetVersion(c.Metadata, r.Version)
	metadata, err := yaml.Marshal(c.Metadata)
	if err != nil {
		return nil, err
	}
	var files []entry
	for _, f := range c.Raw {
		data := f.Data
		switch f.Name {
		case "Chart.yaml":
			data = metadata
		case "values.yaml":
			old := []byte("\n  registry: \"\" #")
			if bytes.Count(data, old) != 1 {
				return nil, fmt.Errorf("values.yaml: want one line %q", old)
			}
			data = bytes.Replace(data, old, fmt.Appendf(nil, "\n  registry: %q #", r.Registry), 1)
		}
		files = append(files, entry{name + "/" + f.Name, 0o644, data})
	}
	slices.SortFunc(files, func(a, b entry) int { // Chart.yaml is first, as Helm has it
		if first := name + "/Chart.yaml"; a.name == first || b.name == first {
			return map[bool]int{true: -1, false: 1}[a.name == first]
		}
		return strings.Compare(a.name, b.name)
	})
	return tarGz(files, r.Time)
}

// write writes a file of the release.
func (r *release) write(name string, data []byte) error {
	path := filepath.Join(r.work, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}
