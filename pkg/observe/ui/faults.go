package ui

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Fault is a failed check of `tombolo diagnose`.
type Fault struct {
	Contexts []string // of the clusters that it is about, as in Access.Name
	Problem  Problem
}

// Diagnosis looks for faults while pages are open.
type Diagnosis struct {
	look    func(context.Context) []Fault
	open    func() bool
	changed func()

	mu     sync.Mutex
	faults []Fault
}

const (
	// lookEvery is the least time between two looks.
	lookEvery = 10 * time.Second
	// lookShare is the share of the time that looks may take, as its inverse. A look asks each Node.
	lookShare = 5
	// pagesEvery is how often a Diagnosis asks whether a page is open.
	pagesEvery = time.Second
)

// NewDiagnosis returns a Diagnosis. The function look returns the faults that there are now, the cause before its
// effects. The function open reports whether a page is open, and changed is called after a look that found other
// faults than the one before.
func NewDiagnosis(look func(context.Context) []Fault, open func() bool, changed func()) *Diagnosis {
	return &Diagnosis{look: look, open: open, changed: changed}
}

// Faults returns the faults of the last look; none if no page has been open since.
func (d *Diagnosis) Faults() []Fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.faults
}

// Run looks until ctx ends.
func (d *Diagnosis) Run(ctx context.Context) {
	for {
		pause := pagesEvery
		if d.open() {
			start := time.Now()
			faults := d.look(ctx)
			pause = max(lookEvery, (lookShare-1)*time.Since(start))
			if ctx.Err() != nil {
				return
			}
			d.set(faults)
		} else {
			d.set(nil)
		}
		if !d.wait(ctx, pause) {
			return
		}
	}
}

// wait waits for some time, or until the last page has closed. It returns false if ctx ended.
func (d *Diagnosis) wait(ctx context.Context, pause time.Duration) bool {
	for end := time.Now().Add(pause); time.Now().Before(end); {
		if !wait(ctx, min(pagesEvery, time.Until(end)), nil) {
			return false
		}
		if !d.open() {
			return true
		}
	}
	return true
}

func (d *Diagnosis) set(faults []Fault) {
	d.mu.Lock()
	changed := !slices.EqualFunc(faults, d.faults, func(a, b Fault) bool {
		return a.Problem == b.Problem && slices.Equal(a.Contexts, b.Contexts)
	})
	d.faults = faults
	d.mu.Unlock()
	if changed {
		d.changed()
	}
}
