package agent

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/gates"
	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

// serveGates lists the feature gates.
func (d debugAPI) serveGates(*http.Request) (any, error) {
	list := api.GateList{}
	for _, name := range gates.Names() {
		g, _ := gates.Of(name)
		list.Gates = append(list.Gates,
			api.Gate{Name: name, On: d.agent.config.Enabled(name), Stage: g.Stage(), Absent: !g.Have})
	}
	return list, nil
}

// serveExternalIPs lists the addresses from pools that Services have.
func (d debugAPI) serveExternalIPs(r *http.Request) (any, error) {
	t := d.agent.tables.external
	if d.agent.api.addresses == nil {
		return nil, errors.New("the feature ServiceExternalIP is off: switch it on in featureGates of antrea-agent.conf")
	}
	candidates, ok := t.wanted()
	if !ok {
		return nil, errors.New("the agent does not know the addresses yet: try again")
	}
	holders, err := d.agent.api.addresses.holders(r.Context())
	if err != nil {
		return nil, err
	}
	list := api.ExternalIPList{ExternalIPs: []api.ExternalIP{}}
	for _, row := range t.services.Services.All() {
		if row.Value.Outside.Pool == "" {
			continue
		}
		for _, ip := range row.Value.Outside.Balancers {
			list.ExternalIPs = append(list.ExternalIPs, api.ExternalIP{Namespace: row.Key.Namespace, Name: row.Key.Name,
				Pool: row.Value.Outside.Pool, Address: ip.String(), Candidates: candidates[ip], Holder: holders[leaseName(ip)]})
		}
	}
	slices.SortFunc(list.ExternalIPs, func(x, y api.ExternalIP) int {
		return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name),
			strings.Compare(x.Address, y.Address))
	})
	return list, nil
}

// serveLogLevel answers with the level of the log.
func (d debugAPI) serveLogLevel(*http.Request) (any, error) {
	if d.agent.options.LogLevel == nil {
		return nil, errors.New("this agent's level of the log is fixed")
	}
	if d.agent.options.LogLevel.Level() <= slog.LevelDebug {
		return api.LogLevel{Level: 1}, nil
	}
	return api.LogLevel{}, nil
}

// setLogLevel changes the level of the log until the agent restarts.
func (d debugAPI) setLogLevel(w http.ResponseWriter, r *http.Request) {
	text := r.URL.Query().Get("level")
	n, err := strconv.ParseUint(text, 10, 8)
	var body any
	switch {
	case err != nil || n > 9:
		err = fmt.Errorf("level=%s: want a number from 0 to 9", text)
	case d.agent.options.LogLevel != nil:
		level := slog.LevelInfo
		if n > 0 {
			level = slog.LevelDebug
		}
		d.agent.options.LogLevel.Set(level)
		d.agent.log.Info("the level of the log was changed", "level", level)
	}
	if err == nil {
		body, err = d.serveLogLevel(r)
	}
	d.answerJSON(w, r.URL.Path, body, err)
}
