// Package charts renders the charts below it as `helm template` does. The manifests of deploy/ are made of them, so
// that a cluster gets the same objects either way.
package charts

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"

	"github.com/tombolo-net/tombolo/pkg/version"
)

// Names of the charts.
const (
	Agent        = "tombolo"              // every cluster
	Multicluster = "tombolo-multicluster" // leaders and members
)

// tests is the folder of the templates of objects that `helm test` makes.
const tests = "tests/"

// File is what one template of a chart renders to.
type File struct {
	Name string // below the chart's templates, such as agent.yaml
	Text string
}

// Render renders the templates of a chart in a directory, for a Namespace. values override the chart's own. The files
// are in the order of their names, without the definitions in the chart's crds and the tests of `helm test`.
func Render(directory, name, namespace string, values map[string]any) ([]File, error) {
	return RenderAs("", directory, name, namespace, values)
}

// RenderAs is Render of the chart of a version, such as v1.2.3: with SetVersion.
func RenderAs(version, directory, name, namespace string, values map[string]any) ([]File, error) {
	c, err := loader.Load(filepath.Join(directory, name))
	if err != nil {
		return nil, fmt.Errorf("load chart %s: %w", name, err)
	}
	SetVersion(c.Metadata, version)
	return render(c, namespace, values)
}

func render(c *chart.Chart, namespace string, values map[string]any) ([]File, error) {
	all, err := renderAll(c, namespace, values)
	return slices.DeleteFunc(all, func(f File) bool { return strings.HasPrefix(f.Name, tests) }), err
}

// Tests returns the manifest of the objects that `helm test` makes for a release of a chart in a directory.
func Tests(directory, name, namespace string, values map[string]any) (string, error) {
	c, err := loader.Load(filepath.Join(directory, name))
	if err != nil {
		return "", fmt.Errorf("load chart %s: %w", name, err)
	}
	all, err := renderAll(c, namespace, values)
	return Manifest(all, func(name string) bool { return strings.HasPrefix(name, tests) }), err
}

// renderAll is render with the tests.
func renderAll(c *chart.Chart, namespace string, values map[string]any) ([]File, error) {
	name := c.Name()
	release := chartutil.ReleaseOptions{Name: name, Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(c, values, release, nil)
	if err != nil {
		return nil, fmt.Errorf("values of chart %s: %w", name, err)
	}
	texts, err := engine.Render(c, all)
	if err != nil {
		return nil, fmt.Errorf("render chart %s: %w", name, err)
	}
	var files []File
	for file, text := range texts {
		if strings.TrimSpace(text) != "" && !strings.HasPrefix(path.Base(file), "_") {
			files = append(files, File{strings.TrimPrefix(file, name+"/templates/"), text})
		}
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return files, nil
}

// SetVersion gives a chart the version of a release, such as v1.2.3, which is the tag of its images. If the version is
// not a release's, it changes nothing.
func SetVersion(m *chart.Metadata, of string) {
	if version.IsRelease(of) {
		m.Version, m.AppVersion = strings.TrimPrefix(of, "v"), of
	}
}

// All returns the objects that `helm install` creates from a chart: first the definitions of its crds, then its
// manifest.
func All(directory, name, namespace string, values map[string]any) (definitions, manifest string, _ error) {
	c, err := loader.Load(filepath.Join(directory, name))
	if err != nil {
		return "", "", fmt.Errorf("load chart %s: %w", name, err)
	}
	return allOf(c, namespace, values)
}

func allOf(c *chart.Chart, namespace string, values map[string]any) (definitions, manifest string, _ error) {
	for _, crd := range c.CRDObjects() {
		definitions += "---\n" + string(crd.File.Data)
	}
	files, err := render(c, namespace, values)
	return definitions, Manifest(files, func(string) bool { return true }), err
}

// Notes is the name of the file that Helm prints after an installation; it is not a manifest.
const Notes = "NOTES.txt"

// Manifest joins files to one manifest.
func Manifest(files []File, include func(name string) bool) string {
	var out strings.Builder
	for _, f := range files {
		if f.Name != Notes && include(f.Name) {
			out.WriteString("---\n" + strings.TrimPrefix(strings.TrimSpace(f.Text), "---\n") + "\n")
		}
	}
	return out.String()
}
