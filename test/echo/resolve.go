package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
)

// resolve asks for the A or the SRV records of a name. Nothing is appended to the name.
func resolve(ctx context.Context, name string, srv bool) ([]string, error) {
	name = strings.TrimSuffix(name, ".") + "."
	var out []string
	if srv {
		_, records, err := net.DefaultResolver.LookupSRV(ctx, "", "", name)
		for _, r := range records {
			out = append(out, fmt.Sprintf("%d %s", r.Port, r.Target))
		}
		slices.Sort(out)
		return out, err
	}
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", name)
	for _, a := range addresses {
		out = append(out, a.Unmap().String())
	}
	slices.Sort(out)
	return out, err
}
