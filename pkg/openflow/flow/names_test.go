package flow

import (
	"testing"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// TestNames checks allowed names. The test of tombolo openflow dump --names shows on a real switch that ovs-ofctl
// --names prints flows in the same way.
func TestNames(t *testing.T) {
	names := NewNames(map[ofp.Port]string{
		1: "p1", 2: "", 3: "eth-x", 4: "twice", 5: "twice", 6: "1st", 7: `a"b<ü`, 8: "LOCAL", ofp.PortLocal: "br0",
	}, map[ofp.Table]string{0: "Classify", 1: "my table"})
	for _, row := range []struct{ text, want string }{
		{"in_port=1,actions=output:2", "table=Classify, in_port=p1 actions=output:2"},
		{"table=1,in_port=LOCAL,actions=3,4,5,6,7,8,IN_PORT",
			`table="my table", in_port=LOCAL actions=output:"eth-x",output:4,output:5,output:"1st",` +
				`output:"a\"b<ü",output:LOCAL,IN_PORT`},
		{"table=2,ip,actions=resubmit(1,0),resubmit(,1),resubmit:1,ct(table=1)",
			"table=2, ip actions=resubmit(p1,Classify),resubmit(,\"my table\"),resubmit:p1,ct(table=\"my table\")"},
	} {
		f, err := ParseFlow(row.text)
		if err != nil {
			t.Fatal(err)
		}
		if got := names.Flow(f); got != row.want {
			t.Errorf("%s\n is   %s\n want %s", row.text, got, row.want)
		}
		if got := (*Names)(nil).Flow(f); got != f.String() {
			t.Errorf("without names %s\n is %s", f, got)
		}
	}
}
