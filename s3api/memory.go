package s3api

import (
	"context"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/evenkeel/evenkeel/internal/base/webguard"
)

// All requests share one budget of bytes. What a request may hold is taken of it before
// it is allocated, at once or not at all, and given back when the last byte of the answer
// has been sent: so memory is bounded whatever clients ask for and however slowly they
// read. A request never waits for bytes while it has a slot, or has other bytes.
//
// A quarter is for what is small: so puts and gets find room while pages and documents
// have all the rest.
const (
	// smallBytes is the most that counts as small.
	smallBytes = 64 << 10
	// memoryWait is how long a request waits for bytes.
	memoryWait = time.Second
	// minMemory is the least budget: less has no room for a page.
	minMemory = 16 << 20
	// freeBytes are not counted: as many are in the buffers of every connection.
	freeBytes = 4 << 10
	// shareOf and shareIn: an asker has at most so many parts in so many of the budget
	// for what is large.
	shareOf, shareIn = 3, 4
)

// requests counts what requests hold: slots and bytes, in all and by who asks.
type requests struct {
	most         int // slots
	small, large int64
	smalls       *semaphore.Weighted
	larges       *semaphore.Weighted

	mu   sync.Mutex
	used int // slots
	by   map[asker]*holding

	// turns are those of pages and documents, which keep a processor busy for long: with
	// more of them at work at once all others would wait for theirs.
	turns    *semaphore.Weighted
	ownTurns int64 // of one asker
}

// asker is who asks: the id of an access key, or where nobody is authenticated the
// address of the client.
type asker struct {
	key  string
	addr netip.Prefix
}

// holding is what one asker's requests hold.
type holding struct {
	requests int
	slots    int
	larges   *semaphore.Weighted // nil: nothing large was asked for
	turns    *semaphore.Weighted // nil: it had none
}

func newRequests(slots int, memory, turns int64) *requests {
	r := &requests{most: slots, small: memory / 4, large: memory - memory/4, by: map[asker]*holding{}}
	r.smalls, r.larges = semaphore.NewWeighted(r.small), semaphore.NewWeighted(r.large)
	r.turns, r.ownTurns = semaphore.NewWeighted(turns), max(turns*shareOf/shareIn, 1)
	return r
}

// enter begins a request of an asker; leave ends it.
func (r *requests) enter(a asker) *holding {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.by[a]
	if h == nil {
		h = &holding{}
		r.by[a] = h
	}
	h.requests++
	return h
}

func (r *requests) leave(a asker, h *holding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.requests--; h.requests == 0 {
		delete(r.by, a)
	}
}

// takeSlot gives an asker a slot, if there is one, and if it has not too many.
func (r *requests) takeSlot(h *holding) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !webguard.MayTake(h.slots, r.most-r.used) {
		return false
	}
	h.slots++
	r.used++
	return true
}

func (r *requests) freeSlot(h *holding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h.slots--
	r.used--
}

// largesOf is the share of an asker of what is large.
func (r *requests) largesOf(h *holding) *semaphore.Weighted {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.larges == nil {
		h.larges = semaphore.NewWeighted(r.large * shareOf / shareIn)
	}
	return h.larges
}

// turnsOf is the share of an asker of the turns.
func (r *requests) turnsOf(h *holding) *semaphore.Weighted {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h.turns == nil {
		h.turns = semaphore.NewWeighted(r.ownTurns)
	}
	return h.turns
}

// held is what a request has of the budget.
type held struct {
	of     *requests
	asker  asker
	mine   *holding // nil: not begun
	small  int64
	large  int64
	larges *semaphore.Weighted // the asker's share
	slot   bool
	turn   *semaphore.Weighted // the asker's; nil: no turn was taken
}

// takeTurn waits for a turn, behind those of the same asker and then behind the few of
// each other asker that may wait with it: so all askers come in turns.
func (m *held) takeTurn(ctx context.Context) error {
	own := m.of.turnsOf(m.mine)
	if err := own.Acquire(ctx, 1); err != nil {
		return err
	}
	if err := m.of.turns.Acquire(ctx, 1); err != nil {
		own.Release(1)
		return err
	}
	m.turn = own
	return nil
}

func (m *held) endTurn() {
	if m.turn != nil {
		m.of.turns.Release(1)
		m.turn.Release(1)
		m.turn = nil
	}
}

// take gets n bytes, waiting for a short time; a request takes what it may need at once.
func (m *held) take(ctx context.Context, n int64) *Error {
	if n <= smallBytes {
		if err := acquire(ctx, m.of.smalls, n); err != nil {
			return outOfMemory(err)
		}
		m.small += n
		return nil
	}
	n = min(n, m.of.large*shareOf/shareIn)
	m.larges = m.of.largesOf(m.mine)
	err := acquire(ctx, m.larges, n)
	if err == nil {
		if err = acquire(ctx, m.of.larges, n); err != nil {
			m.larges.Release(n)
		}
	}
	if err != nil {
		return outOfMemory(err)
	}
	m.large += n
	return nil
}

// shrink gives back all that is large beyond n bytes.
func (m *held) shrink(n int64) {
	if rest := m.large - n; rest > 0 {
		m.large -= rest
		m.of.larges.Release(rest)
		m.larges.Release(rest)
	}
}

func (m *held) release() {
	if m.mine == nil {
		return
	}
	m.endTurn()
	m.freeSlot()
	m.shrink(0)
	if m.small > 0 {
		m.of.smalls.Release(m.small)
	}
	m.of.leave(m.asker, m.mine)
	m.mine = nil
}

func (m *held) freeSlot() {
	if m.slot {
		m.of.freeSlot(m.mine)
		m.slot = false
	}
}

func acquire(ctx context.Context, s *semaphore.Weighted, n int64) error {
	if s.TryAcquire(n) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, memoryWait)
	defer cancel()
	return s.Acquire(ctx, n)
}

func slowDown(message string) *Error {
	return &Error{Code: "SlowDown", Status: http.StatusServiceUnavailable, RetryAfter: retryAfter, Message: message}
}

func outOfMemory(cause error) *Error {
	e := slowDown("The requests under way have all the memory that there is for requests. " +
		"Please reduce your request rate, and read answers faster.")
	e.Cause = cause
	return e
}

// askerOf tells who asks.
func (x *exchange) askerOf() asker {
	if x.who != allKeys {
		return asker{key: x.who.ID}
	}
	return asker{addr: webguard.Client(x.r.RemoteAddr)}
}

// begin ends the wait for the client: the work for the request begins, within its time.
func (h *Handler) begin(x *exchange) *Error {
	if x.slot {
		return nil
	}
	if !h.requests.takeSlot(x.mine) {
		return slowDown("Too many requests are being served, or too many of yours. Please reduce your request rate.")
	}
	x.slot = true
	// A client that has ended its sending side still waits for its answer, but net/http
	// cancels the request: so the time is the limit, and for what may take long a while
	// after that.
	came := x.r.Context()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(came), h.o.RequestTimeout)
	x.end = cancel
	if x.op.long {
		if h.o.MinRate > 0 {
			// The deadline of the body would look like the client's leaving.
			_ = http.NewResponseController(x.w).SetReadDeadline(time.Time{})
		}
		stop := context.AfterFunc(came, func() { time.AfterFunc(leftTime, cancel) })
		x.end = func() {
			stop()
			cancel()
		}
	}
	x.r = x.r.WithContext(ctx)
	if h.o.Busy != nil {
		h.o.Busy(came, true)
	}
	if x.op.turns {
		if err := x.takeTurn(ctx); err != nil {
			e := slowDown("Too many listings and documents are being worked for. Please reduce your request rate.")
			e.Cause = err
			return e
		}
	}
	return nil
}

// leftTime is how long a read goes on after its client has left, or has only ended its
// sending side.
const leftTime = time.Second

// worked ends the work for a request: what is left is to send the answer, n bytes. So
// one that is read slowly takes bytes, but no slot.
func (h *Handler) worked(x *exchange, n int) {
	if !x.slot {
		return
	}
	x.endTurn()
	x.freeSlot()
	if h.o.Busy != nil {
		h.o.Busy(x.r.Context(), false)
	}
	h.allowSending(x, n)
}

// allowSending gives a client the time to read n bytes.
func (h *Handler) allowSending(x *exchange, n int) {
	if h.o.MinRate > 0 && n > freeBytes {
		_ = http.NewResponseController(x.w).SetWriteDeadline(time.Now().Add(min(h.timeFor(int64(n)), h.o.AnswerTimeout)))
	}
}

// slackTime is what a transfer may take beyond what its bytes take.
const slackTime = 10 * time.Second

func (h *Handler) timeFor(n int64) time.Duration {
	return slackTime + time.Duration(float64(n)/float64(h.o.MinRate)*float64(time.Second))
}

// receive reads a body of at most limit bytes, and then begins the work: while a client
// sends, its request takes no slot. need is how much memory a body of n bytes takes, with
// what is made of it.
func (h *Handler) receive(x *exchange, limit int64, need func(n int64) int64) ([]byte, *Error) {
	n := limit
	if x.r.ContentLength >= 0 {
		n = min(n, x.r.ContentLength)
	}
	if n > 0 {
		if refusal := x.take(x.r.Context(), need(n)); refusal != nil {
			return nil, refusal
		}
	}
	if h.o.MinRate > 0 && n > smallBytes {
		// net/http has set a deadline for small ones.
		until := time.Now().Add(min(h.timeFor(n), h.o.BodyTimeout))
		_ = http.NewResponseController(x.w).SetReadDeadline(until)
	}
	body, refusal := readBody(x.r, x.payload, limit)
	if refusal == nil {
		refusal = h.begin(x)
	}
	return body, refusal
}

// itself: a body that is kept as it came.
func itself(n int64) int64 { return n }

// asDocument: a small document, decoded as a whole.
func asDocument(n int64) int64 { return 24 * n }
