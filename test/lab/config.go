// Package lab makes whole Kubernetes clusters on one machine: real control planes, and Nodes that are network, mount,
// PID and UTS namespaces with a real kubelet and containerd each. It needs root, and only binaries of `make
// lab-binaries`.
//
// All parts of a lab can be found from its name, from any working directory: network namespaces called <lab>-..., the
// processes inside them, its directory, its cgroups and its link to the host. It keeps no record of process IDs, so
// Down works from any state. A name is not enough: objects to kill or remove have to carry the lab's mark, or be the
// recorded namespace (owned.go).
package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/family"
)

// Config describes the lab to make.
type Config struct {
	Name     string   // "demo" when empty; a word of lower-case letters and digits
	Dir      string   // where it keeps its files; /var/lib/tombolo-lab/<Name> when empty
	Clusters []string // their names, in the order of their addresses
	Nodes    int      // Nodes in each cluster, called node-1, node-2, ...
	// Subnets is how many subnets the Nodes of a cluster are in, with the router between them: 1 when zero, or 2. Then
	// Nodes with even numbers are in the second one.
	Subnets int
	// Families are the versions of IP of Pods and Services: one value for all clusters, or one for each in their order.
	// Without any it is IPv4 alone.
	Families []family.Families
	Progress func(string) `json:"-"` // called with each step; may be nil
	// NodeGrace is how long a Node may send no heartbeat before its Pods count as not ready. Zero stands for
	// DefaultNodeGrace.
	NodeGrace time.Duration
	// Charts are the clusters in which Install uses the charts; the others get the manifests.
	Charts []string
	// ProxyAll makes agents serve NodePorts and other Services from outside. Clusters without kube-proxy need it.
	ProxyAll bool
	// TrafficMode is the agents' trafficEncapMode; encap when empty.
	TrafficMode string
	// Tenants has agents serve networks of tenants.
	Tenants bool
	// Encrypted has traffic between the clusters encrypted.
	Encrypted bool
	// BFD is how Gateways watch each other; DefaultBFD when zero.
	BFD BFD
	// ActiveGateways is the member controllers' activeGateways; their default when zero.
	ActiveGateways int
}

// BFD is the agents' multicluster.bfd.
type BFD struct {
	Interval   time.Duration
	Multiplier int
}

// DefaultBFD has a longer time for ways than separate machines need. All Nodes are on one machine, on which an Open
// vSwitch sometimes gets no processor time for a second. If a way were found down by mistake, its translated
// connections would break.
var DefaultBFD = BFD{Interval: 500 * time.Millisecond, Multiplier: 6}

const (
	// DefaultName is the lab's name if the caller gives no name.
	DefaultName = "demo"

	// DefaultNodeGrace is short, so that tests in which a Node fails are.
	DefaultNodeGrace = 16 * time.Second

	stateRoot = "/var/lib/tombolo-lab"
	maxLabs   = 16 // labs side by side: each has a /20 of 172.30.0.0/16
	maxNodes  = 99
	// maxSubnets is the most subnets of eth1 in a cluster.
	maxSubnets = 2
	// Subnets 14 and 15 of the lab's /20 are etcd's and the host's.
	maxClusters = 14
)

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9]{0,15}$`)

func (c *Config) check() error {
	if c.Name == "" {
		c.Name = DefaultName
	}
	if c.NodeGrace == 0 {
		c.NodeGrace = DefaultNodeGrace
	}
	if c.Subnets == 0 {
		c.Subnets = 1
	}
	if c.TrafficMode == "" {
		c.TrafficMode = config.Encap
	}
	if c.BFD == (BFD{}) {
		c.BFD = DefaultBFD
	}
	if c.Dir == "" {
		c.Dir = filepath.Join(stateRoot, c.Name)
	}
	dir, err := resolve(c.Dir)
	if err != nil {
		return fmt.Errorf("directory of lab %s: %w", c.Name, err)
	}
	c.Dir = dir
	if own := filepath.Join(stateRoot, c.Name); dir != own && (dir == stateRoot || strings.HasPrefix(dir, stateRoot+"/")) {
		return fmt.Errorf("directory %s is where this machine's labs are recorded: name one outside %s, or none for %s", dir,
			stateRoot, own)
	}
	if !nameForm.MatchString(c.Name) {
		return fmt.Errorf("lab name %q: use up to 16 lower-case letters and digits, a letter first", c.Name)
	}
	if len(c.Clusters) == 0 || len(c.Clusters) > maxClusters {
		return fmt.Errorf("lab %s has %d clusters: want 1 to %d", c.Name, len(c.Clusters), maxClusters)
	}
	for i, name := range c.Clusters {
		if !nameForm.MatchString(name) {
			return fmt.Errorf("cluster name %q: use up to 16 lower-case letters and digits, a letter first", name)
		}
		if slices.Contains(c.Clusters[:i], name) {
			return fmt.Errorf("cluster %s is named twice", name)
		}
	}
	if n := len(c.Families); n > 1 && n != len(c.Clusters) {
		return fmt.Errorf("lab %s has IP families of %d clusters, and %d clusters: give one value, or one for each cluster",
			c.Name, n, len(c.Clusters))
	}
	if c.Subnets < 1 || c.Subnets > maxSubnets {
		return fmt.Errorf("lab %s has %d subnets in each cluster: want 1 to %d", c.Name, c.Subnets, maxSubnets)
	}
	if c.Nodes < 1 || c.Nodes > maxNodes {
		return fmt.Errorf("lab %s has %d Nodes in each cluster: want 1 to %d", c.Name, c.Nodes, maxNodes)
	}
	return nil
}

// resolve returns the absolute path of a directory, without symbolic links. The directory may not exist yet. Commands
// about the lab may run in other working directories.
func resolve(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) && dir != "/" {
		parent, err := resolve(filepath.Dir(dir))
		return filepath.Join(parent, filepath.Base(dir)), err
	}
	return real, err
}

// record is what lab.json keeps.
type record struct {
	Config
	Index    int // which /20 of 172.30.0.0/16
	Binaries binaries
}

func recordPath(name string) string { return filepath.Join(stateRoot, name, "lab.json") }

// claim makes the lab's directory, and chooses an index that no other lab has and to whose range the machine has no
// route.
func claim(c Config, bin binaries) (record, error) {
	var r record
	err := machine.locked(func() (err error) {
		r, err = claimLocked(c, bin)
		return err
	})
	return r, err
}

func claimLocked(c Config, bin binaries) (record, error) {
	if _, err := os.Lstat(filepath.Join(stateRoot, c.Name)); err == nil {
		return record{}, fmt.Errorf("lab %s exists: take it down first, or choose another name", c.Name)
	}
	used, err := usedIndexes()
	if err != nil {
		return record{}, err
	}
	for index := range maxLabs {
		if used[index] {
			continue
		}
		r := record{Config: c, Index: index, Binaries: bin}
		if err := makeOwnDir(c.Dir, c.Name); err != nil {
			return record{}, err
		}
		if err := errors.Join(machine.makeMountPoints(), machine.raiseLimit()); err != nil {
			return record{}, err
		}
		if link := filepath.Join(stateRoot, c.Name); link != c.Dir {
			if err := os.Symlink(c.Dir, link); err != nil {
				return record{}, err
			}
		}
		text, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return record{}, err
		}
		return r, os.WriteFile(recordPath(c.Name), text, 0o644)
	}
	return record{}, fmt.Errorf("no range of 172.30.0.0/16 is free for lab %s: take another lab down (see %s)", c.Name,
		stateRoot)
}

func usedIndexes() (map[int]bool, error) {
	used, err := routedIndexes()
	if err != nil {
		return nil, err
	}
	names, err := Names()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if r, err := readRecord(name); err == nil {
			used[r.Index] = true
		}
	}
	return used, nil
}

// Names returns the labs that exist on this machine, in whatever state.
func Names() ([]string, error) { return machine.names() }

func readRecord(name string) (record, error) {
	text, err := os.ReadFile(recordPath(name))
	if errors.Is(err, fs.ErrNotExist) {
		return record{}, fmt.Errorf("there is no lab %s: `tombolo-lab up` makes one", name)
	}
	if err != nil {
		return record{}, err
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return record{}, fmt.Errorf("read %s: %w", recordPath(name), err)
	}
	return r, nil
}
