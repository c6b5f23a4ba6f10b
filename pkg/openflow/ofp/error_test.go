package ofp

import (
	"reflect"
	"testing"
)

func TestErrorNames(t *testing.T) {
	for _, test := range []struct {
		err  Error
		name string
	}{
		{Error{ErrType: 4, Code: 9}, "OFPBMC_BAD_PREREQ"},
		{Error{ErrType: 17, Code: 18}, "OFPBFC_SCHED_PAST"},
		{Error{ErrType: ErrTypeExperimenter, Code: 19, Experimenter: nxVendor}, "NXTTMFC_TABLE_FULL"},
		{Error{ErrType: ErrTypeExperimenter, Code: 2310, Experimenter: onfVendor}, "OFPBFC_MSG_UNSUP"},
		{Error{ErrType: ErrTypeExperimenter, Code: 2, Experimenter: 0x1234}, "experimenter 0x00001234 error 2"},
		{Error{ErrType: 99, Code: 7}, "error type 99 code 7"},
	} {
		if have := test.err.Name(); have != test.name {
			t.Errorf("%+v is called %s, want %s", test.err, have, test.name)
		}
	}
	for kind, want := range map[ErrorType]string{0: "OFPET_HELLO_FAILED", 4: "OFPET_BAD_MATCH", 17: "OFPET_BUNDLE_FAILED",
		0xffff: "OFPET_EXPERIMENTER", 18: "error_type_18"} {
		if have := kind.String(); have != want {
			t.Errorf("error type %d is called %s, want %s", uint16(kind), have, want)
		}
	}
	for key, name := range errorNames {
		want := Error{ErrType: key[0], Code: key[1]}
		if e, ok := ErrorByName(name); !ok || !reflect.DeepEqual(e, want) {
			t.Errorf("%s is %+v, want %+v", name, e, want)
		}
		if want.Meaning() == "" {
			t.Errorf("%s has no meaning in words", name)
		}
		if int(key[0]) >= len(errorTypes) {
			t.Errorf("%s: type %d has no name", name, key[0])
		}
	}
	for code, name := range niciraErrors {
		if e, ok := ErrorByName(name); !ok || e.Code != code || e.Experimenter != nxVendor {
			t.Errorf("%s is %+v, want Nicira's %d", name, e, code)
		} else if e.Meaning() == "" {
			t.Errorf("%s has no meaning in words", name)
		}
	}
	for name := range errorMeanings {
		if _, ok := ErrorByName(name); !ok {
			t.Errorf("%s has a meaning and no number", name)
		}
	}
	if _, ok := ErrorByName("OFPBMC_BAD_WEATHER"); ok {
		t.Error("an error that does not exist is found")
	}
}

// TestOffender brings back what was refused: whole, cut, of another version, or not at all.
func TestOffender(t *testing.T) {
	encode := func(m Message) []byte {
		t.Helper()
		b, err := AppendMessage(nil, 77, m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	flow := FlowMod{Table: 3, BufferID: NoBuffer, OutPort: PortAny, OutGroup: GroupAny}
	whole := encode(flow)
	old := append([]byte(nil), whole...)
	old[0] = 4
	for _, test := range []struct {
		name string
		data []byte
		want Offender
		text string
	}{
		{"whole", whole, Offender{6, TypeFlowMod, "flow_mod", 77, len(whole), true, flow},
			"the switch refused flow_mod: OFPBMC_BAD_PREREQ (a field is matched without what gives it a meaning)"},
		{"cut", whole[:len(whole)-1], Offender{6, TypeFlowMod, "flow_mod", 77, len(whole), false, nil}, ""},
		{"whole, with bytes after it", append(whole[:len(whole):len(whole)], 1, 2),
			Offender{6, TypeFlowMod, "flow_mod", 77, len(whole), true, flow}, ""},
		{"another version", old, Offender{4, TypeFlowMod, "flow_mod", 77, len(whole), true, nil}, ""},
		{"multipart", encode(TableDescRequest{}), Offender{6, TypeMultipartRequest, "multipart_request (table_desc)", 77, 16,
			true, TableDescRequest{}},
			"the switch refused multipart_request (table_desc): OFPBMC_BAD_PREREQ (a field is matched without what gives it a " +
				"meaning)"},
		{"Nicira's", encode(TLVTableRequest{}), Offender{6, TypeExperimenter, "experimenter (NXT_TLV_TABLE_REQUEST)", 77, 16,
			true, TLVTableRequest{}}, ""},
		{"an experimenter's", encode(Experimenter{Vendor: 0x1234, Subtype: 5}),
			Offender{6, TypeExperimenter, "experimenter (0x1234, type 5)", 77, 16, true,
				Experimenter{Vendor: 0x1234, Subtype: 5}}, ""},
		{"an experimenter's multipart", encode(IPFIXFlowRequest{}),
			Offender{6, TypeMultipartRequest, "multipart_request (experimenter 0x2320, type 4)", 77, 24, true,
				IPFIXFlowRequest{}}, ""},
		{"in a bundle", encode(BundleAdd{ID: 5, Message: flow})[:64],
			Offender{6, TypeBundleAdd, "bundle_add_message (flow_mod)", 77, 16 + len(whole), false, nil}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			refusal := Error{ErrType: 4, Code: 9, Data: test.data}
			have, ok := refusal.Offender()
			if !ok || !reflect.DeepEqual(have, test.want) {
				t.Errorf("offender is %+v, %v\nwant %+v", have, ok, test.want)
			}
			if text := refusal.Error(); test.text != "" && text != test.text {
				t.Errorf("have %s\nwant %s", text, test.text)
			}
			_, again, err := DecodeMessage(encode(refusal))
			if err != nil || !reflect.DeepEqual(again, refusal) {
				t.Errorf("the error comes back as %+v, %v", again, err)
			}
		})
	}
	for _, m := range []Error{{ErrType: 0, Data: []byte("no common version")}, {ErrType: 1, Data: []byte{6, 14}},
		{ErrType: 1}} {
		if o, ok := m.Offender(); ok {
			t.Errorf("%+v names the offender %+v", m, o)
		}
	}
}
