package ofconn

import (
	"slices"
	"sync"

	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
)

// request is a message that is answered.
type request struct {
	part    func([]byte) error // takes the answers' bytes instead, if there is one
	answers []ofp.Message
	err     error
	done    chan struct{}
}

// requests are the requests and bundles that wait for answers of the switch.
type requests struct {
	life *life

	mu      sync.Mutex
	pending map[uint32]*request // by transaction id
	bundles []*bundle           // that are under way
}

// expect announces a request that is about to be sent.
func (r *requests) expect(xid uint32, req *request) error {
	req.done = make(chan struct{})
	if err := r.life.ended(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending[xid] = req
	return nil
}

// forget ends what expect began.
func (r *requests) forget(xid uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pending, xid)
}

// of returns the request with a transaction id; nil without one.
func (r *requests) of(xid uint32) *request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pending[xid]
}

// finish ends a request whose last answer has come.
func (r *requests) finish(xid uint32, req *request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending[xid] == req {
		delete(r.pending, xid)
		close(req.done)
	}
}

// take passes a message to the request or the bundle that waits for it. It returns false if no request and no bundle
// waits.
func (r *requests) take(xid uint32, m ofp.Message) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	refusal, refused := m.(ofp.Error)
	if refused && slices.ContainsFunc(r.bundles, func(b *bundle) bool { return b.note(xid, refusal) }) {
		return true
	}
	req, ok := r.pending[xid]
	if !ok {
		return refused && slices.ContainsFunc(r.bundles, func(b *bundle) bool { return b.end(xid, refusal) })
	}
	if refused {
		req.err = &SwitchError{refusal}
	} else {
		req.answers = append(req.answers, m)
		if part, ok := m.(ofp.Multipart); ok && part.HasMore() {
			return true
		}
	}
	delete(r.pending, xid)
	close(req.done)
	return true
}

// begin notes a bundle whose messages may be refused from now on.
func (r *requests) begin(b *bundle) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bundles = append(r.bundles, b)
}

// end forgets a bundle.
func (r *requests) end(b *bundle) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bundles = slices.DeleteFunc(r.bundles, func(other *bundle) bool { return other == b })
}
