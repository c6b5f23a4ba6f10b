package bridge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	"github.com/tombolo-net/tombolo/pkg/ovs/schema"
)

// rows is what the database holds. They are shared with the client and never changed.
type rows struct {
	root       *schema.OpenVSwitch // nil while the database is not initialised
	bridges    map[string]*schema.Bridge
	ports      map[string]*schema.Port      // by UUID
	interfaces map[string]*schema.Interface // by UUID
	datapaths  map[string]*schema.Datapath  // by UUID, as the three below
	zones      map[string]*schema.CTZone
	timeouts   map[string]*schema.CTTimeoutPolicy
	qos        map[string]*schema.QoS
}

// edit is one change to the database, with the words for it.
type edit struct {
	text string
	ops  func(client.API) ([]ovsdb.Operation, error)
}

// desired is the state that plan compares the database with.
type desired struct {
	bridges               []Bridge
	removals              bool // ports of ours that are not desired may go
	clearsFlowRestoreWait bool
}

// plan returns the edits that turn have into want, in a fixed order. problems has, by port name, the reason why a port
// cannot be made as declared. Ports with a problem are left as they are.
//
// New ports without a requested number get the next one after last, which is returned for the next plan. If the switch
// chose the number, another transaction would be needed to keep it.
func plan(have rows, want desired, last int) (edits []edit, problems map[string]error, given int) {
	p := planner{have: have, problems: map[string]error{}, claimed: map[string]string{}, last: last}
	p.index()
	p.taken = takenNumbers(have, want.bridges)
	for _, b := range want.bridges {
		p.bridge(b, want.removals)
	}
	p.zones(want.bridges)
	if want.clearsFlowRestoreWait && have.root.OtherConfig[flowRestoreWait] != "" {
		root := &schema.OpenVSwitch{UUID: have.root.UUID}
		p.mutate("let ovs-vswitchd process packets (clear flow-restore-wait)", root,
			deleteKeys(&root.OtherConfig, flowRestoreWait)...)
	}
	return p.edits, p.problems, p.last
}

// mostNumber is the largest number for a port without a requested number. Higher numbers are for ports that request
// one.
const mostNumber = 32767

// NextNumber returns the OpenFlow port number for a new port: the first free one after last. So a number that became
// free a short time ago is not used again soon. If all are taken it returns 0, and the switch chooses.
func NextNumber(last uint32, taken func(uint32) bool) uint32 {
	for range mostNumber {
		if last++; last > mostNumber {
			last = 1
		}
		if !taken(last) {
			return last
		}
	}
	return 0
}

// takenNumbers returns the OpenFlow port numbers that ports have or request.
func takenNumbers(have rows, bridges []Bridge) map[int]bool {
	taken := map[int]bool{}
	for _, i := range have.interfaces {
		taken[value(i.OFPort)], taken[value(i.OFPortRequest)] = true, true
	}
	for _, b := range bridges {
		for _, port := range b.Ports {
			taken[int(port.OFPort)] = true
		}
	}
	return taken
}

// number returns a free number for a new port, or 0 if all are taken.
func (p *planner) number() int {
	n := int(NextNumber(uint32(p.last), func(n uint32) bool { return p.taken[int(n)] }))
	if n != 0 {
		p.last = n
		p.taken[n] = true
	}
	return n
}

const flowRestoreWait = "flow-restore-wait"

type planner struct {
	have     rows
	edits    []edit
	problems map[string]error
	claimed  map[string]string // port name -> the declared bridge that has it

	portByName map[string]*schema.Port
	ifaceOf    map[string]*schema.Interface // by name
	homes      map[string]string            // port UUID -> bridge name
	named      int                          // named UUIDs given out
	taken      map[int]bool                 // OpenFlow port numbers
	last       int                          // the number given out last
	noQueueing string                       // UUID of the row for ports with OwnQueueing, once it is needed
}

func (p *planner) index() {
	p.portByName, p.ifaceOf, p.homes = map[string]*schema.Port{}, map[string]*schema.Interface{}, map[string]string{}
	for _, port := range p.have.ports {
		p.portByName[port.Name] = port
	}
	for _, i := range p.have.interfaces {
		p.ifaceOf[i.Name] = i
	}
	for name, b := range p.have.bridges {
		for _, uuid := range b.Ports {
			p.homes[uuid] = name
		}
	}
}

func (p *planner) bridge(b Bridge, removals bool) {
	have := p.have.bridges[b.Name]
	if b.Absent {
		if have != nil && removals {
			root := &schema.OpenVSwitch{UUID: p.have.root.UUID}
			p.mutate(fmt.Sprintf("remove bridge %s", b.Name), root,
				model.Mutation{Field: &root.Bridges, Mutator: ovsdb.MutateOperationDelete, Value: []string{have.UUID}})
		}
		return
	}
	ports := b.withLocal()
	names := slices.Sorted(maps.Keys(ports))

	if have == nil {
		p.createBridge(b, names, ports)
		return
	}
	p.updateBridge(have, b)

	var added []string
	for _, name := range names {
		port := ports[name]
		if !p.claim(b.Name, port) {
			continue
		}
		row := p.portByName[name]
		if row == nil {
			if uuid := p.createPort(b.Name, port); uuid != "" {
				added = append(added, uuid)
			}
			continue
		}
		p.updatePort(row, port, name == b.Name)
	}
	if len(added) > 0 {
		row := &schema.Bridge{UUID: have.UUID}
		p.mutate("", row, model.Mutation{Field: &row.Ports, Mutator: ovsdb.MutateOperationInsert, Value: added})
	}
	if !removals {
		return
	}
	var gone, texts []string
	for _, uuid := range have.Ports {
		row := p.have.ports[uuid]
		if row == nil || row.ExternalIDs[TypeKey] == "" {
			continue
		}
		if _, declared := ports[row.Name]; !declared {
			gone = append(gone, uuid)
			texts = append(texts, row.Name)
		}
	}
	if len(gone) > 0 {
		slices.Sort(texts)
		row := &schema.Bridge{UUID: have.UUID}
		p.mutate(fmt.Sprintf("remove %s from %s", strings.Join(texts, ", "), b.Name), row,
			model.Mutation{Field: &row.Ports, Mutator: ovsdb.MutateOperationDelete, Value: gone})
	}
}

// claim finds ports for which ovsdb-server would refuse the whole transaction, and ports that belong to another
// program.
func (p *planner) claim(bridge string, port Port) bool {
	refuse := func(format string, args ...any) bool {
		p.problems[port.Name] = fmt.Errorf("port %s of bridge %s: %w", port.Name, bridge, fmt.Errorf(format, args...))
		return false
	}
	if other, ok := p.claimed[port.Name]; ok {
		return refuse("it is declared for bridge %s too; a port can be on one bridge only", other)
	}
	p.claimed[port.Name] = bridge
	if port.OFPort > maxRequestedOFPort {
		return refuse("OpenFlow port number %d cannot be asked for, the largest is %d", port.OFPort, maxRequestedOFPort)
	}
	if port.MTU < 0 {
		return refuse("MTU %d is negative", port.MTU)
	}
	row, iface := p.portByName[port.Name], p.ifaceOf[port.Name]
	if row != nil && p.homes[row.UUID] != bridge {
		return refuse("bridge %s has a port of this name; remove it there with ovs-vsctl del-port %s", p.homes[row.UUID],
			port.Name)
	}
	if iface != nil && (row == nil || !slices.Contains(row.Interfaces, iface.UUID)) {
		return refuse("another port, a bond, has an interface of this name")
	}
	return true
}

func (p *planner) createBridge(b Bridge, names []string, ports map[string]Port) {
	row := &schema.Bridge{
		UUID:         p.name(),
		Name:         b.Name,
		DatapathType: b.DatapathType,
		Protocols:    slices.Clone(b.Protocols),
		ExternalIDs:  nonEmpty(b.ExternalIDs),
		OtherConfig:  nonEmpty(b.otherConfig()),
	}
	if b.FailMode != "" {
		row.FailMode = &b.FailMode
	}
	for _, name := range names {
		if !p.claim(b.Name, ports[name]) {
			continue
		}
		if uuid := p.createPort(b.Name, ports[name]); uuid != "" {
			row.Ports = append(row.Ports, uuid)
		}
	}
	p.create(fmt.Sprintf("add bridge %s", b.Name), row)
	root := &schema.OpenVSwitch{UUID: p.have.root.UUID}
	p.mutate("", root, model.Mutation{Field: &root.Bridges, Mutator: ovsdb.MutateOperationInsert,
		Value: []string{row.UUID}})
}

func (p *planner) createPort(bridge string, port Port) string {
	iface := &schema.Interface{
		UUID:    p.name(),
		Name:    port.Name,
		Type:    port.Type,
		Options: maps.Clone(port.Options),
		BFD:     maps.Clone(port.BFD),
	}
	request := int(port.OFPort)
	if request == 0 && port.Name != bridge { // the local port has a number of its own
		request = p.number()
	}
	if request != 0 {
		iface.OFPortRequest = &request
	}
	if port.MAC != "" {
		iface.MAC = &port.MAC
	}
	if port.MTU != 0 {
		iface.MTURequest = &port.MTU
	}
	row := &schema.Port{UUID: p.name(), Name: port.Name, Interfaces: []string{iface.UUID},
		ExternalIDs: nonEmpty(port.ExternalIDs)}
	if port.OwnQueueing {
		row.QoS = p.ownQueueing()
	}
	p.create("", iface)
	p.create(fmt.Sprintf("add port %s to %s", port.Name, bridge), row)
	return row.UUID
}

// noopQueueing is the type of QoS with which ovs-vswitchd leaves the queueing discipline of a device alone
// (ovs-vswitchd.conf.db(5), table QoS).
const noopQueueing = "linux-noop"

func (p *planner) leavesQueueing(uuid string) bool {
	row := p.have.qos[uuid]
	return row != nil && row.Type == noopQueueing
}

// ownQueueing returns the row for ports with OwnQueueing. All of them share one row, which stays when no port needs it
// any more.
func (p *planner) ownQueueing() *string {
	if p.noQueueing == "" {
		for _, uuid := range sortedKeys(p.have.qos) {
			if p.leavesQueueing(uuid) {
				p.noQueueing = uuid
				return &p.noQueueing
			}
		}
		row := &schema.QoS{UUID: p.name(), Type: noopQueueing}
		p.create("", row)
		p.noQueueing = row.UUID
	}
	return &p.noQueueing
}

// otherConfig is the bridge's other_config with the keys that have a field of their own.
func (b Bridge) otherConfig() map[string]string {
	if b.HardwareAddr == "" {
		return b.OtherConfig
	}
	config := map[string]string{"hwaddr": b.HardwareAddr}
	maps.Copy(config, b.OtherConfig)
	return config
}

func (p *planner) updateBridge(have *schema.Bridge, b Bridge) {
	row := &schema.Bridge{UUID: have.UUID}
	var fields []any
	var words []string
	if b.DatapathType != "" && b.DatapathType != have.DatapathType {
		row.DatapathType = b.DatapathType
		fields = append(fields, &row.DatapathType)
		words = append(words, "datapath_type="+b.DatapathType)
	}
	if b.FailMode != "" && (have.FailMode == nil || *have.FailMode != b.FailMode) {
		row.FailMode = &b.FailMode
		fields = append(fields, &row.FailMode)
		words = append(words, "fail_mode="+b.FailMode)
	}
	if len(b.Protocols) > 0 && !sameSet(b.Protocols, have.Protocols) {
		row.Protocols = slices.Clone(b.Protocols)
		fields = append(fields, &row.Protocols)
		words = append(words, "protocols="+strings.Join(b.Protocols, ","))
	}
	what := "set bridge " + b.Name
	p.update(what, words, row, fields)
	p.merge(what+" external_ids", row, &row.ExternalIDs, have.ExternalIDs, b.ExternalIDs)
	p.merge(what+" other_config", row, &row.OtherConfig, have.OtherConfig, b.otherConfig())
}

// zones compares the timeouts of the zones that the bridges name. Bridges of one type share a datapath. If they have
// different timeouts for a zone, the last bridge decides.
func (p *planner) zones(bridges []Bridge) {
	want := map[string]map[uint16]map[string]int{}
	for _, b := range bridges {
		if len(b.ZoneTimeouts) == 0 {
			continue
		}
		kind := cmp.Or(b.DatapathType, "system")
		if want[kind] == nil {
			want[kind] = map[uint16]map[string]int{}
		}
		maps.Copy(want[kind], b.ZoneTimeouts)
	}
	for _, kind := range sortedKeys(want) {
		dp := p.have.datapaths[p.have.root.Datapaths[kind]]
		added := map[int]string{}
		for _, number := range sortedKeys(want[kind]) {
			what := fmt.Sprintf("set timeouts of zone %d of datapath %s", number, kind)
			if uuid := p.zone(what, dp, int(number), want[kind][number]); uuid != "" {
				added[int(number)] = uuid
			}
		}
		switch {
		case dp == nil:
			row := &schema.Datapath{UUID: p.name(), CTZones: added}
			p.create("", row)
			root := &schema.OpenVSwitch{UUID: p.have.root.UUID}
			p.mutate("", root, model.Mutation{
				Field: &root.Datapaths, Mutator: ovsdb.MutateOperationInsert, Value: map[string]string{kind: row.UUID},
			})
		case len(added) > 0:
			row := &schema.Datapath{UUID: dp.UUID}
			p.mutate("", row, model.Mutation{Field: &row.CTZones, Mutator: ovsdb.MutateOperationInsert, Value: added})
		}
	}
}

// zone gives one zone its timeouts, and returns the row's name when it had to be created.
func (p *planner) zone(what string, dp *schema.Datapath, number int, timeouts map[string]int) (created string) {
	words := strings.Trim(fmt.Sprint(timeouts), "map[]")
	var zone *schema.CTZone
	if dp != nil {
		zone = p.have.zones[dp.CTZones[number]]
	}
	if zone != nil && zone.TimeoutPolicy != nil {
		if have := p.have.timeouts[*zone.TimeoutPolicy]; have != nil {
			if !maps.Equal(have.Timeouts, timeouts) {
				row := &schema.CTTimeoutPolicy{UUID: have.UUID, Timeouts: maps.Clone(timeouts)}
				p.update(what, []string{words}, row, []any{&row.Timeouts})
			}
			return ""
		}
	}
	policy := &schema.CTTimeoutPolicy{UUID: p.name(), Timeouts: maps.Clone(timeouts)}
	p.create("", policy)
	if zone != nil {
		row := &schema.CTZone{UUID: zone.UUID, TimeoutPolicy: &policy.UUID}
		p.update(what, []string{words}, row, []any{&row.TimeoutPolicy})
		return ""
	}
	row := &schema.CTZone{UUID: p.name(), TimeoutPolicy: &policy.UUID}
	p.create(what+": "+words, row)
	return row.UUID
}

func (p *planner) updatePort(have *schema.Port, port Port, local bool) {
	row := &schema.Port{UUID: have.UUID}
	p.merge(fmt.Sprintf("set port %s external_ids", port.Name), row, &row.ExternalIDs, have.ExternalIDs, port.ExternalIDs)

	if port.OwnQueueing && (have.QoS == nil || !p.leavesQueueing(*have.QoS)) {
		row.QoS = p.ownQueueing()
		p.update("set port "+port.Name, []string{"qos=" + noopQueueing}, row, []any{&row.QoS})
	}
	iface := p.ifaceOf[port.Name]
	if iface == nil || len(have.Interfaces) != 1 {
		// Another program made it a bond: restore its one interface.
		uuid := ""
		if iface != nil {
			uuid = iface.UUID
		} else {
			created := &schema.Interface{UUID: p.name(), Name: port.Name, Type: port.Type}
			p.create("", created)
			uuid = created.UUID
		}
		row.Interfaces = []string{uuid}
		p.update("set port "+port.Name, []string{"interfaces=" + port.Name}, row, []any{&row.Interfaces})
		if iface == nil {
			return // the rest follows when the row exists
		}
	}
	p.updateInterface(iface, port, local)
}

func (p *planner) updateInterface(have *schema.Interface, port Port, local bool) {
	row := &schema.Interface{UUID: have.UUID}
	var fields []any
	var words []string
	set := func(field any, word string) {
		fields = append(fields, field)
		words = append(words, word)
	}
	if have.Type != port.Type {
		row.Type = port.Type
		set(&row.Type, "type="+port.Type)
	}
	if !maps.Equal(have.Options, port.Options) {
		row.Options = maps.Clone(port.Options)
		if row.Options == nil {
			row.Options = map[string]string{}
		}
		set(&row.Options, "options="+text(port.Options))
	}
	if !maps.Equal(have.BFD, port.BFD) {
		row.BFD = maps.Clone(port.BFD)
		if row.BFD == nil {
			row.BFD = map[string]string{}
		}
		set(&row.BFD, "bfd="+text(port.BFD))
	}
	request := int(port.OFPort)
	if request == 0 && !local && have.OFPortRequest == nil && have.OFPort != nil && *have.OFPort > 0 &&
		*have.OFPort <= maxRequestedOFPort {
		request = *have.OFPort // pin what the switch chose
	}
	if request != 0 && (have.OFPortRequest == nil || *have.OFPortRequest != request) {
		row.OFPortRequest = &request
		set(&row.OFPortRequest, "ofport_request="+strconv.Itoa(request))
	}
	if port.MAC != "" && (have.MAC == nil || !strings.EqualFold(*have.MAC, port.MAC)) {
		row.MAC = &port.MAC
		set(&row.MAC, "mac="+port.MAC)
	}
	if port.MTU != 0 && (have.MTURequest == nil || *have.MTURequest != port.MTU) {
		row.MTURequest = &port.MTU
		set(&row.MTURequest, "mtu_request="+strconv.Itoa(port.MTU))
	}
	p.update("set interface "+port.Name, words, row, fields)
}

// merge sets the keys in want to their values, and removes keys whose desired value is empty.
func (p *planner) merge(what string, row model.Model, column *map[string]string, have, want map[string]string) {
	insert := map[string]string{}
	var drop, words []string
	for _, k := range slices.Sorted(maps.Keys(want)) {
		v, old := want[k], have[k]
		_, exists := have[k]
		if v == old && (v != "" || !exists) {
			continue
		}
		if exists {
			drop = append(drop, k)
		}
		if v != "" {
			insert[k] = v
		}
		words = append(words, k+"="+v)
	}
	if len(words) == 0 {
		return
	}
	var mutations []model.Mutation
	if len(drop) > 0 {
		mutations = append(mutations, deleteKeys(column, drop...)...)
	}
	if len(insert) > 0 {
		mutations = append(mutations, model.Mutation{Field: column, Mutator: ovsdb.MutateOperationInsert, Value: insert})
	}
	p.mutate(what+": "+strings.Join(words, " "), row, mutations...)
}

func deleteKeys(column *map[string]string, keys ...string) []model.Mutation {
	return []model.Mutation{{Field: column, Mutator: ovsdb.MutateOperationDelete, Value: keys}}
}

func (p *planner) create(text string, m model.Model) {
	p.edits = append(p.edits, edit{text, func(c client.API) ([]ovsdb.Operation, error) { return c.Create(m) }})
}

func (p *planner) mutate(text string, m model.Model, mutations ...model.Mutation) {
	p.edits = append(p.edits,
		edit{text, func(c client.API) ([]ovsdb.Operation, error) { return c.Where(m).Mutate(m, mutations...) }})
}

func (p *planner) update(what string, words []string, m model.Model, fields []any) {
	if len(fields) == 0 {
		return
	}
	p.edits = append(p.edits, edit{what + ": " + strings.Join(words, " "), func(c client.API) ([]ovsdb.Operation, error) {
		return c.Where(m).Update(m, fields...)
	}})
}

// name returns a fresh name for a row that the transaction creates.
func (p *planner) name() string {
	p.named++
	return "row" + strconv.Itoa(p.named)
}

func nonEmpty(m map[string]string) map[string]string {
	m = maps.Clone(m)
	maps.DeleteFunc(m, func(_, v string) bool { return v == "" })
	return m
}

func sameSet(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}

func text(m map[string]string) string {
	var words []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		words = append(words, k+":"+m[k])
	}
	return strings.Join(words, ",")
}
