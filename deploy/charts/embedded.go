package charts

import (
	"embed"
	"fmt"
	"io/fs"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
)

//go:embed all:tombolo all:tombolo-multicluster
var embedded embed.FS

// Embedded returns the objects of a chart that is compiled into this program, as All does for a chart in a directory.
// The chart has the program's version if it is a release (SetVersion).
func Embedded(version, name, namespace string, values map[string]any) (definitions, manifest string, _ error) {
	var files []*loader.BufferedFile
	err := fs.WalkDir(embedded, name, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := embedded.ReadFile(path)
		files = append(files, &loader.BufferedFile{Name: strings.TrimPrefix(path, name+"/"), Data: text})
		return err
	})
	if err != nil {
		return "", "", fmt.Errorf("read chart %s: %w", name, err)
	}
	c, err := loader.LoadFiles(files)
	if err != nil {
		return "", "", fmt.Errorf("load chart %s: %w", name, err)
	}
	SetVersion(c.Metadata, version)
	return allOf(c, namespace, values)
}

// Merged returns values, completed with others for the keys that values lack. The result shares no map or list with
// them.
func Merged(values, others map[string]any) map[string]any {
	merged := map[string]any{}
	for _, from := range []map[string]any{values, others} {
		copied, _ := clone(from).(map[string]any)
		merged = chartutil.CoalesceTables(merged, copied)
	}
	return merged
}

// clone copies the maps and lists of a value.
func clone(value any) any {
	switch from := value.(type) {
	case map[string]any:
		to := make(map[string]any, len(from))
		for key, v := range from {
			to[key] = clone(v)
		}
		return to
	case []any:
		to := make([]any, len(from))
		for i, v := range from {
			to[i] = clone(v)
		}
		return to
	}
	return value
}

// OtherCNIs are the names of other CNI plugins' DaemonSets in kube-system. The chart tombolo refuses clusters that have
// one.
var OtherCNIs = []string{"antrea-agent", "aws-node", "calico-node", "canal", "cilium", "kindnet", "kube-flannel-ds",
	"kube-router", "weave-net"}
