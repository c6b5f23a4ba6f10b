package diagnose

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"testing"
	"testing/synctest"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// answers are the answers of an agent, in order, by path. The last one stays. A nil is an error.
type answers map[string][]any

// Ask implements asker.
func (a answers) Ask(_ context.Context, path string, _ url.Values) ([]byte, error) {
	list := a[path]
	if len(list) == 0 || list[0] == nil {
		return nil, errors.New("timeout")
	}
	if len(list) > 1 {
		a[path] = list[1:]
	}
	return json.Marshal(list[0])
}

// TestAsk asks an agent twice for counters and ports.
func TestAsk(t *testing.T) {
	status := func(ready bool, u *api.Upcalls) api.Status {
		return api.Status{Ready: ready, OpenFlow: api.OpenFlow{Connected: true}, Upcalls: u}
	}
	quiet := &api.Upcalls{Missed: 10}
	before, after := &api.Upcalls{Missed: 100, Lost: 5}, &api.Upcalls{Missed: 200, Lost: 50}
	bad := api.PortList{Ports: []api.Port{{Name: "web", Error: "No such device"}}}
	for _, row := range []struct {
		name         string
		status       []any
		ports        []any
		upcalls      string // result of the check
		portsResults string
	}{
		{"nothing is lost", []any{status(true, quiet)}, []any{api.PortList{}}, Pass, Pass},
		{"an agent that is not ready loses packets", []any{status(false, before), status(false, after)},
			[]any{api.PortList{}}, Fail, Pass},
		{"an agent becomes ready and loses packets", []any{status(false, before), status(true, after)},
			[]any{api.PortList{}}, Fail, Pass},
		{"packets were lost before", []any{status(true, before)}, []any{api.PortList{}}, Pass, Pass},
		{"no counters", []any{status(true, nil)}, []any{api.PortList{}}, Unknown, Pass},
		{"no second answer", []any{status(true, before), nil}, []any{api.PortList{}}, Unknown, Pass},
		{"no second counters", []any{status(true, before), status(true, nil)}, []any{api.PortList{}}, Unknown, Pass},
		{"no ports", []any{status(true, quiet)}, nil, Pass, Unknown},
		{"a bad port", []any{status(true, quiet)}, []any{bad}, Pass, Fail},
		{"a bad port that is mended", []any{status(true, quiet)}, []any{bad, api.PortList{}}, Pass, Pass},
		{"no second ports", []any{status(true, quiet)}, []any{bad, nil}, Pass, Unknown},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := Agent{Node: "node-1"}
			a.ask(t.Context(), answers{api.PathStatus: row.status, api.PathPorts: row.ports,
				api.PathPeers: {api.PeerList{}}})
			f := Facts{Clusters: []Cluster{{Name: "east", Now: now, Agents: []Agent{a}}}}
			for _, r := range Run(f) {
				if r.Code == "TD018" && r.Status != row.upcalls || r.Code == "TD019" && r.Status != row.portsResults {
					t.Errorf("%s: %s is %s: %s", row.name, r.Code, r.Status, r.Detail)
				}
			}
		})
	}
}
