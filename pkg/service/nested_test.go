package service

import (
	"fmt"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// nested makes n Services of width ports, each with an endpoint of its own and the next
// Service's ports as endpoints.
func nested(n, width int) View {
	var v View
	for i := range n {
		name := fmt.Sprintf("s%03d", i)
		var ports []string
		for w := range width {
			port := fmt.Sprintf("p%d/TCP/%d", w, 80+w)
			ports = append(ports, port)
			for to := range width {
				// One slice for each port of the next Service: a slice has one number per name.
				target := fmt.Sprintf("p%d/TCP/%d", w, 80+to)
				endpoints := []discoveryv1.Endpoint{ready(fmt.Sprintf("10.10.0.%d", i+1))}
				if i+1 < n {
					endpoints = append(endpoints, ready(fmt.Sprintf("10.96.1.%d", i+2)))
				}
				s := slice(name, target, endpoints...)
				s.Name += fmt.Sprintf("-%d", to)
				v.Slices = append(v.Slices, s)
			}
		}
		v.Services = append(v.Services, svc(name, fmt.Sprintf("10.96.1.%d", i+1), ports...))
	}
	return v
}

// TestNestingEnds plans chains and nets of Services, which any user that may write EndpointSlices can make. A chain of
// 65 once caused a division by zero, and a net of 20 never ended.
func TestNestingEnds(t *testing.T) {
	for _, test := range []struct{ n, width int }{{100, 1}, {20, 4}} {
		frontends, problems := Plan(nested(test.n, test.width))
		if want := test.n * test.width; len(frontends) != want {
			t.Errorf("%d Services with %d ports: %d frontends, want %d", test.n, test.width, len(frontends), want)
		}
		for _, f := range frontends {
			if len(f.Endpoints) == 0 {
				t.Errorf("%s has no endpoints, want those that are within the bounds", f)
			}
			for _, e := range f.Endpoints {
				if e.Weight == 0 || strings.HasPrefix(e.Addr.String(), "10.96.") {
					t.Errorf("%s has the endpoint %s with weight %d", f, e.Addr, e.Weight)
				}
			}
		}
		reported := map[string]bool{}
		for _, p := range problems {
			if p.Reason.String() != "EndpointNesting" {
				t.Errorf("want problems of nesting, got %v", p)
			}
			if reported[p.Object.String()+p.Message] {
				t.Errorf("reported twice: %v", p)
			}
			reported[p.Object.String()+p.Message] = true
		}
		if len(reported) == 0 {
			t.Error("no Problem says that endpoints are left out")
		}
	}
}
