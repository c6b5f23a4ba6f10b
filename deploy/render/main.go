// Command render writes the files that are derived from the charts of deploy/charts and the custom resource definitions
// of deploy/crds. These are the manifests of deploy/agent and deploy/multicluster, and in the charts their definitions
// and the schemas of their values. With another folder as the argument it writes only the manifests, and bases for
// kustomize. Run it from the top of the repository.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tombolo-net/tombolo/build/keys"
	"github.com/tombolo-net/tombolo/deploy/charts"
	"github.com/tombolo-net/tombolo/deploy/manifest"
	"github.com/tombolo-net/tombolo/pkg/gates"
)

func main() {
	var r manifest.Renderer
	out := flag.String("out", "deploy", "folder to write the manifests to")
	flag.StringVar(&r.Registry, "registry", "",
		"registry and path of the images; without one they are those that Nodes were given, and not pulled")
	flag.StringVar(&r.Tag, "tag", "", "tag of the images, instead of the charts'")
	flag.Parse()
	var err error
	if *out == "deploy" && r.Registry == "" && r.Tag == "" {
		err = derived(*out) // first: the schemas are of the values that charts are rendered with
	}
	if err == nil {
		err = r.Write(*out)
	}
	if err == nil && *out != "deploy" {
		err = manifest.Kustomize(*out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "render:", err)
		os.Exit(1)
	}
}

// derived writes the files of the charts that are made from other sources to a folder: resource definitions, schemas,
// and the names of feature gates.
func derived(out string) error {
	to := filepath.Join(out, "charts")
	for name, chart := range map[string]string{
		charts.Agent + "/crds/policies.yaml":            charts.Agent,
		charts.Multicluster + "/crds/multicluster.yaml": charts.Multicluster,
	} {
		text, err := manifest.ChartDefinitions(chart)
		if err != nil {
			return err
		}
		if err := manifest.WriteFile(filepath.Join(to, name), manifest.Mark+text); err != nil {
			return err
		}
	}
	for name, values := range map[string]struct {
		schema   schema
		declared func(root string) ([]keys.Key, error)
	}{
		charts.Agent:        {agentSchema(), keys.Agent},
		charts.Multicluster: {controllerSchema(), keys.Controller},
	} {
		if err := complete(name, values.declared, values.schema); err != nil {
			return err
		}
		text, err := json.MarshalIndent(map[string]any{
			"$schema": "https://json-schema.org/draft-07/schema#", "title": "Values of chart " + name,
			"type": "object", "additionalProperties": false, "properties": values.schema,
		}, "", "  ")
		if err != nil {
			return err
		}
		if err := manifest.WriteFile(filepath.Join(to, name, "values.schema.json"), string(text)+"\n"); err != nil {
			return err
		}
	}
	names := strings.Join(gates.Names(), "\n") + "\n"
	return manifest.WriteFile(filepath.Join(to, charts.Agent, "feature-gates.txt"), names)
}
