// Package rtnetlink asks the kernel about links what the libraries ask for incompletely: lists as a whole, and offloads
// in one request.
package rtnetlink

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// attempts bounds how often a list is asked for that changes each time while it is read.
const attempts = 20

// List calls a function that lists links, addresses or routes until no change has come between:
// the kernel gives a list in parts, and one that has changed meanwhile may lack entries
// (NLM_F_DUMP_INTR, netlink.ErrDumpInterrupted).
func List[T any](list func() (T, error)) (T, error) {
	for range attempts - 1 {
		if found, err := list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return found, err
		}
	}
	return list()
}
