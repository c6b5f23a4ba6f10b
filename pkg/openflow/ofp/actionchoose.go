package ofp

import (
	"errors"
	"fmt"
	"math/bits"
)

// HashFields selects the parts of a packet that a [Multipath] or [BundlePorts] hashes (nicira-ext.h, NX_HASH_FIELDS_*).
type HashFields uint16

// Inputs of a hash.
const (
	HashEthSrc HashFields = iota
	HashSymmetricL4
	HashSymmetricL3L4
	HashSymmetricL3L4UDP
	HashIPSrc
	HashIPDst
	HashSymmetricL3
)

// MultipathAlgorithm is how a [Multipath] gets from a hash to a link (NX_MP_ALG_*).
type MultipathAlgorithm uint16

// Algorithms of a Multipath.
const (
	MultipathModulo MultipathAlgorithm = iota
	MultipathThreshold
	MultipathHRW
	MultipathIterHash
)

// Multipath hashes the packet and writes the number of one of MaxLink+1 links, from 0, to Dst
// (NXAST_MULTIPATH).
type Multipath struct {
	Fields    HashFields
	Basis     uint16
	Algorithm MultipathAlgorithm
	MaxLink   uint16
	Arg       uint32
	Dst       Bits
}

// BundleAlgorithm is how a [BundlePorts] chooses (NX_BD_ALG_*).
type BundleAlgorithm uint16

// Algorithms of a BundlePorts.
const (
	BundleActiveBackup BundleAlgorithm = iota
	BundleHRW
)

// maxMembers is how many ports a BundlePorts has at most (bundle.h).
const maxMembers = 2048

// BundlePorts chooses one of Members that is up and sends the packet there (NXAST_BUNDLE). If Dst.Width is not 0, it
// writes the member's number to Dst instead (NXAST_BUNDLE_LOAD).
type BundlePorts struct {
	Fields    HashFields
	Basis     uint16
	Algorithm BundleAlgorithm
	Dst       Bits
	Members   []Port
}

func (a Multipath) check() error {
	switch {
	case a.Fields > HashSymmetricL3:
		return fmt.Errorf("multipath: hash %d does not exist", a.Fields)
	case a.Algorithm > MultipathIterHash:
		return fmt.Errorf("multipath: algorithm %d does not exist", a.Algorithm)
	}
	if err := a.Dst.writable(); err != nil {
		return fmt.Errorf("multipath: %w", err)
	}
	if err := a.Dst.narrow(); err != nil {
		return fmt.Errorf("multipath: %w", err)
	}
	if need := bits.Len16(a.MaxLink); a.Dst.Width < need {
		return fmt.Errorf("multipath: %d links need %d bits, %s gives %d", int(a.MaxLink)+1, need, a.Dst.Field, a.Dst.Width)
	}
	return nil
}

func (a Multipath) appendTo(e *encoder) {
	s := e.nicira(nxMultipath)
	e.u16(uint16(a.Fields))
	e.u16(a.Basis)
	e.zero(2)
	e.u16(uint16(a.Algorithm))
	e.u16(a.MaxLink)
	e.u32(a.Arg)
	e.zero(2)
	e.u16(a.Dst.ofsNbits())
	e.nxHeader(a.Dst.Field)
	e.actionEnd(s)
}

func (d *decoder) multipath() Action {
	a := Multipath{Fields: HashFields(d.u16("fields")), Basis: d.u16("basis")}
	d.skip(2)
	a.Algorithm, a.MaxLink, a.Arg = MultipathAlgorithm(d.u16("algorithm")), d.u16("max_link"), d.u32("arg")
	d.skip(2)
	a.Dst.setOfsNbits(d.u16("ofs_nbits"))
	if a.Dst.Field = d.field("destination"); a.Dst.Field == 0 {
		return nil
	}
	return a
}

func (a BundlePorts) check() error {
	switch {
	case a.Fields > HashSymmetricL3:
		return fmt.Errorf("bundle: hash %d does not exist", a.Fields)
	case a.Algorithm > BundleHRW:
		return fmt.Errorf("bundle: algorithm %d does not exist", a.Algorithm)
	case len(a.Members) > maxMembers:
		return fmt.Errorf("bundle: %d members are more than %d", len(a.Members), maxMembers)
	}
	for _, p := range a.Members {
		if p == PortAny {
			continue
		}
		if err := p.valid(); err != nil {
			return fmt.Errorf("bundle: %w", err)
		}
		if p == PortController {
			return errors.New("bundle: the controller cannot be a member")
		}
	}
	if a.Dst.Width == 0 {
		return nil
	}
	if err := a.Dst.writable(); err != nil {
		return fmt.Errorf("bundle_load: %w", err)
	}
	if err := a.Dst.narrow(); err != nil {
		return fmt.Errorf("bundle_load: %w", err)
	}
	if a.Dst.Width < 16 {
		return fmt.Errorf("bundle_load: a port has 16 bits, %s gives %d", a.Dst.Field, a.Dst.Width)
	}
	return nil
}

func (a BundlePorts) appendTo(e *encoder) {
	sub := nxBundle
	if a.Dst.Width != 0 {
		sub = nxBundleLoad
	}
	s := e.nicira(sub)
	e.u16(uint16(a.Algorithm))
	e.u16(uint16(a.Fields))
	e.u16(a.Basis)
	e.nxHeader(NXMInPort) // the kind of member
	e.u16(uint16(len(a.Members)))
	if a.Dst.Width != 0 {
		e.u16(a.Dst.ofsNbits())
		e.nxHeader(a.Dst.Field)
		e.zero(4)
	} else {
		e.zero(10)
	}
	for _, p := range a.Members {
		e.port16(p)
	}
	e.actionEnd(s)
}

func (d *decoder) bundle(sub uint16) Action {
	a := BundlePorts{Algorithm: BundleAlgorithm(d.u16("algorithm")), Fields: HashFields(d.u16("fields")),
		Basis: d.u16("basis")}
	if f := d.field("member type"); d.ok() && f != NXMInPort {
		d.fail("member type", "%s are no members, want ports", f)
	}
	n := int(d.u16("n_members"))
	if sub == nxBundleLoad {
		a.Dst.setOfsNbits(d.u16("ofs_nbits"))
		if a.Dst.Field = d.field("destination"); a.Dst.Field == 0 {
			return nil
		}
		d.skip(4)
	} else {
		d.skip(10)
	}
	if d.left() < 2*n {
		d.fail("members", "%d members need %d bytes, %d are left", n, 2*n, d.left())
	}
	for range min(n, d.left()/2) {
		a.Members = append(a.Members, port32(d.u16("member")))
	}
	return a
}
