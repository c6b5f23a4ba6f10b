// Package rtnetlink has requests about links that libraries do not make completely: lists that are consistent, and
// offloads in one request.
package rtnetlink

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// attempts bounds how often a list is asked for that changes each time while it is read.
const attempts = 20

// List repeats a function that lists links, addresses or routes until its list is consistent. The kernel returns a list
// in parts, and a list that has changed meanwhile may lack entries (NLM_F_DUMP_INTR, netlink.ErrDumpInterrupted).
func List[T any](list func() (T, error)) (T, error) {
	for range attempts - 1 {
		if found, err := list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return found, err
		}
	}
	return list()
}
