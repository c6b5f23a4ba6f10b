package node

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/observe/record"
)

// sums prints sums of records: at the end, and with --follow at intervals. Each cluster has its own, since both ends of
// a connection between two clusters have a record of it.
type sums struct {
	observeOptions
	clusters   map[string]*clusterSums
	out, notes io.Writer
	due        time.Time // of the next table
}

// maxMerged is the largest number of records that wait for the matching records of other Nodes. Further records are
// counted without them.
const maxMerged = 100_000

type clusterSums struct {
	merger record.Merger
	record.Sums
}

// sumLine is a sum as JSON.
type sumLine struct {
	Context string    `json:"context,omitempty"`
	Time    time.Time `json:"time"`
	By      []string  `json:"by"`
	record.Sum
}

func (s *sums) add(cluster string, e record.Event) error {
	if e.Record() == nil {
		return s.print(e, s.notes, s.notes)
	}
	if s.clusters == nil {
		s.clusters = map[string]*clusterSums{}
	}
	c := s.clusters[cluster]
	if c == nil {
		c = &clusterSums{Sums: record.Sums{By: s.by}}
		s.clusters[cluster] = c
	}
	c.merger.Add(e, time.Now())
	if c.merger.Len() >= maxMerged {
		c.take(c.merger.All())
	}
	return nil
}

func (s *sums) tick(now time.Time) error {
	for _, c := range s.clusters {
		c.take(c.merger.Due(now))
	}
	if now.Before(s.due) {
		return nil
	}
	err := s.show(now)
	for _, c := range s.clusters {
		c.Sums = record.Sums{By: s.by}
	}
	s.due = now.Add(s.every)
	return err
}

func (s *sums) end() error {
	for _, c := range s.clusters {
		c.take(c.merger.All())
	}
	return s.show(time.Now())
}

func (c *clusterSums) take(list []record.Event) {
	for _, e := range list {
		c.Add(e)
	}
}

// show prints the sums as a table, or a JSON object a line.
func (s *sums) show(now time.Time) error {
	names := slices.Sorted(maps.Keys(s.clusters))
	if s.output == "json" {
		lines := json.NewEncoder(s.out)
		for _, name := range names {
			for _, sum := range s.clusters[name].List() {
				if err := lines.Encode(sumLine{name, now, s.by, sum}); err != nil {
					return err
				}
			}
		}
		return nil
	}
	var heading []string
	if len(names) > 1 {
		heading = append(heading, "CONTEXT")
	}
	for _, key := range s.by {
		heading = append(heading, strings.ToUpper(key))
	}
	heading = append(heading, "DROPPED")
	if s.connections {
		heading = append(heading, "BEGAN", "ENDED", "SENT", "RECEIVED")
	}
	t := cli.Rows{heading}
	for _, name := range names {
		for _, sum := range s.clusters[name].List() {
			var row []string
			if len(names) > 1 {
				row = append(row, name)
			}
			for _, v := range sum.Values {
				row = append(row, strings.Map(printable, v))
			}
			counts := []uint64{sum.Dropped, sum.Began, sum.Ended, sum.Sent, sum.Received}
			for _, n := range counts[:len(heading)-len(row)] {
				row = append(row, strconv.FormatUint(n, 10))
			}
			t.Add(row...)
		}
	}
	t.Fill("-")
	if s.follow {
		if _, err := fmt.Fprintln(s.out, clock(now)); err != nil {
			return err
		}
	}
	if len(t) == 1 {
		_, err := fmt.Fprintln(s.notes, "no records")
		return err
	}
	return t.Write(s.out, "  ")
}
