package main

import (
	"slices"
	"testing"
	"time"
)

// TestWay reads what ovsdb-client 3.1 prints.
func TestWay(t *testing.T) {
	const (
		head = `{"data":[["83b29ca4-8abc-4f78-83ba-a596f978cd1e",`
		tail = `],"headings":["row","action","name","bfd_status"]}`
	)
	initial := head + `"initial","bfd-ac1e0001",["map",[["flap_count","1"],["state","up"]]]],` +
		`["62da536e-b619-49bb-84ca-c4e91e710d9e","initial","br0",["map",[]]]` + tail
	down := head + `"old",null,["map",[["flap_count","1"],["state","up"]]]],` +
		`["","new","bfd-ac1e0001",["map",[["flap_count","1"],["state","down"]]]]` + tail
	up := head + `"old",null,["map",[["flap_count","1"],["state","down"]]]],` +
		`["","new","bfd-ac1e0001",["map",[["flap_count","2"],["state","up"]]]]` + tail
	gone := head + `"delete","bfd-ac1e0001",["map",[["flap_count","1"],["state","up"]]]]` + tail
	for _, row := range []struct {
		name  string
		port  string
		lines []string
		want  []int // numbers of the lines with which it went down
	}{
		{"down", "bfd-ac1e0001", []string{initial, down}, []int{1}},
		{"down and again", "bfd-ac1e0001", []string{initial, down, down, up, down}, []int{1, 4}},
		{"its port is gone", "bfd-ac1e0001", []string{initial, gone}, nil},
		{"it was not up", "bfd-ac1e0001", []string{down}, nil},
		{"another way", "bfd-ac1e0002", []string{initial, down}, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			start := time.Now()
			w := way{port: row.port}
			var have []int
			for i, line := range row.lines {
				if err := w.read([]byte(line), start.Add(time.Duration(i))); err != nil {
					t.Fatal(err)
				}
			}
			for _, at := range w.downs {
				have = append(have, int(at.Sub(start)))
			}
			if !slices.Equal(have, row.want) {
				t.Errorf("it went down with the lines %v, want %v", have, row.want)
			}
			if at, ok := w.downAfter(start.Add(1)); ok != slices.ContainsFunc(row.want, func(i int) bool { return i > 1 }) ||
				ok && at.Before(start.Add(2)) {
				t.Errorf("after line 1 it went down at %v, %t", at.Sub(start), ok)
			}
		})
	}
	if err := (&way{}).read([]byte("ovsdb-client: failed"), time.Now()); err == nil {
		t.Error("a line that is no table is no error")
	}
}
