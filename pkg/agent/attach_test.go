package agent

import (
	"testing"

	"github.com/tombolo-net/tombolo/pkg/agent/config"
	"github.com/tombolo-net/tombolo/pkg/cni"
	"github.com/tombolo-net/tombolo/pkg/ovs/bridge"
)

// TestAttachmentChangesPort attaches an interface again under another port name. The earlier port is no longer desired.
func TestAttachmentChangesPort(t *testing.T) {
	tables := newTables(config.Default(), ownName)
	tables.kinds.Loaded()
	tables.loaded()
	a := newAttachments(nil, tables, func() map[string]bridge.PortState { return nil })
	ports := func(want ...string) {
		t.Helper()
		tables.engine.Pass()
		var have []string
		for _, row := range tables.pods.attachments.All() {
			have = append(have, string(row.Key))
		}
		if len(have) != len(want) || len(want) > 0 && have[0] != want[0] || len(tables.pods.numbers.All()) != len(want) ||
			len(a.numbers) != len(want) {
			t.Errorf("ports %q with numbers %v, want %q", have, tables.pods.numbers.All(), want)
		}
	}
	a.restore(cni.Attachment{ContainerID: "c1", IfName: "eth0", PortName: "web-a1b2c3"})
	ports("web-a1b2c3")
	a.restore(cni.Attachment{ContainerID: "c1", IfName: "eth0", PortName: "shop-d4e5f6"})
	ports("shop-d4e5f6")
	a.leave("c1", "eth0")
	ports()
}
