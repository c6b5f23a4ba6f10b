// Package plan is what the client Pods of `tombolo benchmark` measure.
package plan

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/tombolo-net/tombolo/pkg/benchmark/load"
	"github.com/tombolo-net/tombolo/pkg/multicluster/verify/probe"
)

// Plan is the list of measurements of a client. It measures all figures of all targets in each round. So a change of
// the machines' load affects all targets alike.
type Plan struct {
	Targets []Target      `json:"targets"`
	Rounds  int           `json:"rounds"`
	Each    time.Duration `json:"each"` // how long a figure is measured
	// Rate is the most bits a second, and Connections the most new connections a second.
	Rate        int64         `json:"rate"`
	Connections int           `json:"connections"`
	Wait        time.Duration `json:"wait"` // for the first answer of each target
}

// Target is a server.
type Target struct {
	Address string `json:"address"` // host:port
	Name    string `json:"name"`    // that it answers with
}

// Round has the figures of a target in one round. Numbers have four digits, since the status of a Pod has little room.
type Round [Figures]float64

// Indices of Round.
const (
	Stream      = iota // bits a second of one stream
	Streams            // of Parallel streams
	P50                // of round trips on one connection, in seconds
	P99                //
	P999               //
	Connections        // new ones a second, each with a request
	RoundTrips         // that P50, P99 and P999 are of
	Figures
)

// Parallel is the number of streams of the figure Streams, and dialers is the number of simultaneous connections of the
// figure Connections.
const (
	Parallel = 8
	dialers  = 4
)

// Loads is how often a round puts a target under load.
const Loads = 4

const connectLimit = 5 * time.Second

// Measured is the result of a target: its rounds, or why there are no rounds.
type Measured struct {
	Rounds []Round `json:"rounds,omitempty"`
	Fault  string  `json:"fault,omitempty"`
}

// faultLimit is how long Fault may be, since a Pod's status has little room.
const faultLimit = 200

// Run waits until all targets answer, and then measures. It leaves out a target that does not answer any more.
func (p Plan) Run(ctx context.Context) []Measured {
	out := make([]Measured, len(p.Targets))
	fail := func(i int, text string) {
		out[i] = Measured{Fault: text[:min(len(text), faultLimit)]}
	}
	for i, t := range p.Targets {
		a := probe.Ask(ctx, probe.Question{Name: t.Name, Address: t.Address, Want: t.Name}, p.Wait)
		if a.Answered == 0 {
			fail(i, fmt.Sprintf("%s at %s does not answer: %s", t.Name, t.Address, a.Error))
		}
	}
	for range p.Rounds {
		for i, t := range p.Targets {
			if out[i].Fault != "" {
				continue
			}
			r, err := p.round(ctx, t)
			if err != nil {
				fail(i, fmt.Sprintf("%s at %s: %v", t.Name, t.Address, err))
				continue
			}
			out[i].Rounds = append(out[i].Rounds, r)
		}
	}
	return out
}

// round measures each figure of a target once.
func (p Plan) round(ctx context.Context, t Target) (out Round, _ error) {
	url := "http://" + t.Address
	for figure, streams := range map[int]int{Stream: 1, Streams: Parallel} {
		got, err := load.Load{Lasts: p.Each, Timeout: connectLimit, Parallel: streams}.Run(ctx,
			url+load.StreamPath+"?bytes="+strconv.FormatInt(math.MaxInt64, 10)+"&rate="+
				strconv.FormatInt(p.Rate/8/int64(streams), 10))
		if err != nil {
			return out, err
		}
		out[figure] = digits(float64(got.Bytes) * 8 / got.Seconds)
	}
	got, err := load.Load{Lasts: p.Each, Timeout: connectLimit, Parallel: 1}.Run(ctx, url+"/")
	if err != nil {
		return out, err
	}
	out[P50], out[P99], out[P999] = digits(got.P50), digits(got.P99), digits(got.P999)
	out[RoundTrips] = digits(float64(got.Requests))
	fresh := load.Load{Lasts: p.Each, Timeout: connectLimit, Parallel: dialers, Fresh: true, Most: p.Connections}
	got, err = fresh.Run(ctx, url+"/")
	if err != nil {
		return out, err
	}
	out[Connections] = digits(float64(got.Requests) / got.Seconds)
	return out, nil
}

// digits rounds to four digits.
func digits(x float64) float64 {
	out, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 4, 64), 64)
	return out
}
