package exportcheck

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

// These are limits for addresses of Pods. Every cluster stores the addresses of all clusters, and Nodes with stretched
// policies read them.
const (
	maxAddressBytes  = 32 << 10 // of one ResourceExport's spec.raw.data
	MaxAddressBlocks = 1_000    // that one cluster publishes
	MaxAddresses     = 20_000   // that one cluster publishes; the member keeps to it
)

// blockBits are the bits in which addresses of one block differ.
const blockBits = 8

// PodAddresses maps addresses of one cluster's Pods, in a block of 256, to the Pods' labels. Exports and imports of the
// kind carry it as JSON in spec.raw.data.
type PodAddresses struct {
	ClusterID string       `json:"clusterID"`
	Block     netip.Prefix `json:"block"`
	// Labels have the addresses of the Pods of each label identity, by its hash.
	Labels map[string][]netip.Addr `json:"labels"`
}

// BlockOf returns the block in which an address is published. The block depends only on the address, so a Pod that
// comes or goes changes one block.
func BlockOf(a netip.Addr) netip.Prefix {
	block, _ := a.Prefix(a.BitLen() - blockBits) // its only error is a negative length, of the zero address
	return block
}

var labelHash = regexp.MustCompile(`^[0-9a-f]{16}$`)

// ReadPodAddresses reads spec.raw.data.
func ReadPodAddresses(data []byte) (p PodAddresses, _ error) {
	const field = "spec.raw.data"
	if len(data) > maxAddressBytes {
		return p, Problem{field, fmt.Sprintf("has %d bytes: expected at most %d", len(data), maxAddressBytes)}
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return PodAddresses{},
			Problem{field, "is not a list of Pods' addresses: " +
				strings.ToValidUTF8(err.Error()[:min(256, len(err.Error()))], "")}
	}
	if !p.Block.IsValid() || BlockOf(p.Block.Addr()) != p.Block || p.Block.Addr().Is4In6() {
		return PodAddresses{},
			Problem{field + ".block", fmt.Sprintf("%s is not a block of %d addresses, such as 10.11.3.0/24", p.Block,
				1<<blockBits)}
	}
	seen := map[netip.Addr]bool{}
	for hash, addresses := range p.Labels {
		if !labelHash.MatchString(hash) {
			return PodAddresses{},
				Problem{field + ".labels", problem.Quoted(hash) +
					" is not the hash of a label identity: expected 16 hexadecimal digits"}
		}
		for _, a := range addresses {
			switch {
			case a.Zone() != "" || !p.Block.Contains(a):
				return PodAddresses{},
					Problem{field + ".labels." + hash, fmt.Sprintf("%s is not in the block %s", problem.Quoted(a.String()), p.Block)}
			case seen[a]:
				return PodAddresses{}, Problem{field + ".labels." + hash, fmt.Sprintf("%s is given twice: expected it once", a)}
			}
			seen[a] = true
		}
	}
	return p, nil
}

// JSON is what ReadPodAddresses reads, always the same for the same addresses.
func (p PodAddresses) JSON() []byte {
	data, err := json.Marshal(p.sorted())
	if err != nil { // texts and lists cause no error
		return nil
	}
	return data
}

// sorted has the addresses in order, and no labels without any.
func (p PodAddresses) sorted() PodAddresses {
	labels := map[string][]netip.Addr{}
	for hash, addresses := range p.Labels {
		if len(addresses) > 0 {
			labels[hash] = slices.SortedFunc(slices.Values(addresses), netip.Addr.Compare)
		}
	}
	p.Labels = labels
	return p
}

// Within parts addresses that are in some ranges from the others.
func (p PodAddresses) Within(ranges []netip.Prefix) (in PodAddresses, out []netip.Addr) {
	in = p
	in.Labels = map[string][]netip.Addr{}
	for hash, addresses := range p.Labels {
		for _, a := range addresses {
			if slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(a) }) {
				in.Labels[hash] = append(in.Labels[hash], a)
			} else {
				out = append(out, a)
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return in.sorted(), out
}

// AddressesText names the first few addresses of a list.
func AddressesText(list []netip.Addr) string {
	const most = 5
	var texts []string
	for _, a := range list[:min(len(list), most)] {
		texts = append(texts, a.String())
	}
	if more := len(list) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, ", ")
}

// Prefixes reads ranges, and leaves out invalid ones.
func Prefixes(texts []string) (out []netip.Prefix) {
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}
