package probe

import "time"

const (
	// sizeEvery is how often the largest packet is measured.
	sizeEvery = 30 * time.Second
	// sizeTries is how many probes of one size have to be lost before the size counts as too large.
	sizeTries = 3
	// sizePause is the time between these probes.
	sizePause = 100 * time.Millisecond
	// maxSearches is how many ways are measured at the same time.
	maxSearches = 4
)

// sizing finds the largest packet that passes a way. It tries the MTU first, then the size that passed earlier. After
// that it halves the range between a size that passes and a size that does not.
type sizing struct {
	mtu   int
	known int       // the result; 0 before the first one
	doubt int       // a smaller result of the last measurement, which counts if the next one confirms it
	at    time.Time // of the result
	next  time.Time // the next measurement

	// These are of the measurement that goes on.
	active    bool
	low, high int // low passes; no size above high does
	size      int // that is tried now
	tries     int
	tryAt     time.Time
}

// begin starts a measurement.
func (s *sizing) begin(now time.Time) {
	s.active, s.low, s.high = true, smallSize, s.mtu
	s.next = now.Add(sizeEvery)
	s.try(s.mtu, now)
}

func (s *sizing) try(size int, now time.Time) { s.size, s.tries, s.tryAt = size, 0, now }

// due reports whether a probe of the present size has to be sent.
func (s *sizing) due(now time.Time) bool {
	if !s.active || s.tries == sizeTries || now.Before(s.tryAt) {
		return false
	}
	s.tries++
	s.tryAt = now.Add(sizePause)
	return true
}

// passed takes a size that has passed.
func (s *sizing) passed(size int, now time.Time) {
	if !s.active || size <= s.low || size > s.high {
		return
	}
	s.low = size
	s.proceed(now)
}

// missed is called when a probe was lost. pending is the number of probes of the same size whose result is still open.
func (s *sizing) missed(size, pending int, now time.Time) {
	if !s.active || size != s.size || s.tries < sizeTries || pending > 0 {
		return
	}
	s.high = size - 1
	s.proceed(now)
}

// proceed chooses the next size, or ends the measurement.
func (s *sizing) proceed(now time.Time) {
	switch {
	case s.low >= s.high && s.low < s.mtu && s.low != s.known && s.low != s.doubt:
		// A machine that stood still for a second has lost all probes of a size too.
		s.active, s.doubt, s.next = false, s.low, now
	case s.low >= s.high:
		s.active, s.known, s.doubt, s.at = false, s.low, 0, now
	case s.low < s.doubt && s.doubt <= s.high:
		s.try(s.doubt, now)
	case s.low > 0 && s.low == s.doubt:
		s.try(s.doubt+1, now)
	case s.low < s.known && s.known <= s.high:
		s.try(s.known, now)
	case s.low == s.known: // usually nothing has changed
		s.try(s.known+1, now)
	default:
		s.try((s.low+s.high+1)/2, now)
	}
}

// drop ends a measurement without a result.
func (s *sizing) drop() { s.active = false }

// forget drops the result, too.
func (s *sizing) forget() { *s = sizing{mtu: s.mtu} }
