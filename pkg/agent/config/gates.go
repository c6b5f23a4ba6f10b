package config

import (
	"fmt"

	"github.com/tombolo-net/tombolo/pkg/gates"
)

// gate checks one line of featureGates.
func (d *decoder) gate(line int, name string, on bool) {
	g, ok := gates.Of(name)
	key := "featureGates." + name
	switch {
	case !ok:
		// An unknown gate may belong to a later version. After a rollback it must not stop the agents of the older version.
		d.warn(line, key, "unknown feature gate"+suggest(name, gates.Names())+
			"; it has no effect: remove it or correct its name")
	case g.Locked && on != g.On:
		d.fail(line, key, fmt.Sprintf("is always %t and cannot be changed; remove it", g.On))
	case on && !g.Have:
		what := "this version does not have it; nothing is switched on"
		if name == "L7NetworkPolicy" || name == "NodeNetworkPolicy" || name == "AdminNetworkPolicy" {
			what = "what asks for it is NOT enforced by this version (docs/policy.md)"
		}
		d.warn(line, key, what)
	}
}
