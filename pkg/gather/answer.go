package gather

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// Answer answers a request to the agent of a Node from the bundle. Without a cluster or a Node, it uses the only one in
// the bundle. It supports requests without a query, and queries that only select parts of an answer.
func (b *Bundle) Answer(cluster, node, path string, query url.Values) ([]byte, error) {
	file := ""
	for _, q := range questions {
		if q.path == path && !q.lines {
			file = q.file
		}
	}
	if file == "" {
		return nil, fmt.Errorf("the bundle %s has no answer for %s: agents answer it while they run, and none was asked "+
			"for "+
			"these objects; ask the agent of the Node, without --bundle", b.path, path)
	}
	folder, err := b.node(cluster, node)
	if err != nil {
		return nil, err
	}
	answer, err := b.ReadFile(folder + "/" + file)
	if err != nil {
		return nil, err
	}
	return choose(answer, path, query)
}

// node returns the folder of a Node.
func (b *Bundle) node(cluster, node string) (string, error) {
	var clusters, folders, names []string
	for _, c := range b.Manifest.Clusters {
		clusters = append(clusters, c.Name)
		if cluster != "" && c.Name != cluster {
			continue
		}
		for _, n := range c.Nodes {
			if node == "" || n == node {
				folders = append(folders, c.Folder+"/nodes/"+n)
			}
			names = append(names, c.Name+"/"+n)
		}
	}
	has := func(list []string) string {
		const most = 20
		if len(list) > most {
			return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
		}
		return strings.Join(list, ", ")
	}
	switch {
	case cluster != "" && !slices.Contains(clusters, cluster):
		return "", fmt.Errorf("the bundle %s has no cluster %s; it has %s", b.path, cluster, has(clusters))
	case len(names) == 0:
		return "", fmt.Errorf("the bundle %s has no Nodes; %s says why", b.path, ManifestName)
	case len(folders) == 0:
		return "", fmt.Errorf("the bundle %s has no Node %s; it has %s", b.path, node, has(names))
	case len(folders) > 1 && node == "":
		return "", fmt.Errorf("the bundle %s has several Nodes: choose one with --node; it has %s", b.path, has(names))
	case len(folders) > 1:
		return "", fmt.Errorf("several clusters of the bundle %s have a Node %s: choose one with --context; it has %s",
			b.path, node,
			has(clusters))
	}
	return folders[0], nil
}

// choose takes from an answer the part that a query asks for, as the agent does.
func choose(answer []byte, path string, query url.Values) ([]byte, error) {
	if len(query) == 0 {
		return answer, nil
	}
	switch path {
	case api.PathFlows:
		var list api.FlowList
		if err := json.Unmarshal(answer, &list); err != nil {
			return nil, err
		}
		kept := api.FlowList{Flows: []api.Flow{}}
		table, owner := query.Get("table"), query.Get("owner")
		for _, f := range list.Flows {
			kind, _, _ := strings.Cut(f.Owner, " ")
			if (table == "" || strings.EqualFold(table, f.Table) || table == strconv.Itoa(int(f.TableID))) &&
				(owner == "" || strings.EqualFold(owner, kind)) {
				kept.Flows = append(kept.Flows, f)
			}
		}
		if len(kept.Flows) == 0 { // it may be a mistake: only an agent knows the names without flows
			return nil, fmt.Errorf("the bundle has no flows with table %q and owner %q: look at all of them without these "+
				"flags",
				table, owner)
		}
		return json.Marshal(kept)
	case api.PathRules:
		var list api.RuleList
		if err := json.Unmarshal(answer, &list); err != nil {
			return nil, err
		}
		name := query.Get("policy")
		kept := api.RuleList{Rules: []api.Rule{}, Denied: []api.Denied{}} // the denied packets are of all policies
		for _, r := range list.Rules {
			if name == r.Policy || name == strings.TrimPrefix(r.Namespace+"/"+r.Policy, "/") {
				kept.Rules = append(kept.Rules, r)
			}
		}
		if len(kept.Rules) == 0 {
			return nil, fmt.Errorf("no policy %q has rules in the bundle: see `tombolo get policies --bundle FILE`", name)
		}
		return json.Marshal(kept)
	}
	return nil, fmt.Errorf("the bundle has no answer for %s?%s: ask the agent of the Node", path, query.Encode())
}
