package s3api

import (
	"context"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/evenkeel/evenkeel/internal/webguard"
)

// All requests share one budget of bytes. A request takes its bytes before it allocates
// them, all at once, and returns them when the last byte of its answer has been sent: so
// memory is bounded whatever clients request and however slowly they read. A request that
// has a slot, or bytes, never waits for bytes.
//
// A quarter is for small requests, so that puts and gets find room while pages and documents
// use up the rest. Of that quarter an eighth is out of reach of transfers, which may take as long as their clients
// like.
const (
	// smallBytes is the most that counts as small.
	smallBytes = 64 << 10
	// memoryWait is how long a request waits for bytes.
	memoryWait = time.Second
	// minMemory is the least budget that has room for a page.
	minMemory = 16 << 20
	// freeBytes are not counted: the buffers of every connection have as many.
	freeBytes = 4 << 10
	// shareOf and shareIn: one asker gets at most three quarters of the bytes for small requests, of those for transfers,
	// of those for large requests, and of the turns.
	shareOf, shareIn = 3, 4
)

// requests counts the slots and bytes that requests hold, in all and by asker.
type requests struct {
	most         int // slots
	small, large int64
	smalls       *semaphore.Weighted
	streams      *semaphore.Weighted // those of smalls that transfers may have
	larges       *semaphore.Weighted

	mu   sync.Mutex
	used int // slots
	by   map[asker]*holding

	// turns limit the pages and documents that are worked on at once: each keeps a
	// processor busy for long, and other requests would wait.
	turns *semaphore.Weighted

	ownSmall, ownStreams, ownLarge, ownTurns int64 // the most of one asker
}

// asker is who sends requests: an access key's id, or without authentication a client's
// address.
type asker struct {
	key  string
	addr netip.Prefix
}

// holding is what one asker's requests hold.
type holding struct {
	requests int
	slots    int
	smalls   *semaphore.Weighted
	streams  *semaphore.Weighted
	larges   *semaphore.Weighted
	turns    *semaphore.Weighted
}

func newRequests(slots int, memory, turns int64) *requests {
	r := &requests{most: slots, small: memory / 4, large: memory - memory/4, by: map[asker]*holding{}}
	r.smalls, r.larges = semaphore.NewWeighted(r.small), semaphore.NewWeighted(r.large)
	streams := r.small / 8 * 7
	r.streams, r.turns = semaphore.NewWeighted(streams), semaphore.NewWeighted(turns)
	r.ownSmall, r.ownStreams = r.small*shareOf/shareIn, streams*shareOf/shareIn
	r.ownLarge, r.ownTurns = r.large*shareOf/shareIn, max(turns*shareOf/shareIn, 1)
	return r
}

// enter begins a request of an asker; leave ends it.
func (r *requests) enter(a asker) *holding {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.by[a]
	if h == nil {
		h = &holding{
			smalls: semaphore.NewWeighted(r.ownSmall), streams: semaphore.NewWeighted(r.ownStreams),
			larges: semaphore.NewWeighted(r.ownLarge), turns: semaphore.NewWeighted(r.ownTurns),
		}
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

// takeSlot takes a slot if there is one and the asker does not have too many.
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

// held is what a request holds.
type held struct {
	of    *requests
	asker asker
	mine  *holding // nil: not begun
	small int64
	// stream are the bytes of small that are those of a transfer.
	stream int64
	large  int64
	slot   bool
	turn   bool
}

// takeTurn waits for a turn: first behind requests of the same asker, then behind the few of
// each other asker that have come this far. So all askers take turns.
func (m *held) takeTurn(ctx context.Context) error {
	if err := m.mine.turns.Acquire(ctx, 1); err != nil {
		return err
	}
	if err := m.of.turns.Acquire(ctx, 1); err != nil {
		m.mine.turns.Release(1)
		return err
	}
	m.turn = true
	return nil
}

func (m *held) endTurn() {
	if m.turn {
		m.of.turns.Release(1)
		m.mine.turns.Release(1)
		m.turn = false
	}
}

// take takes n bytes and waits for them for memoryWait at most. A request calls it once,
// with all that it may need.
func (m *held) take(ctx context.Context, n int64) *Error {
	budgets := m.larges()
	switch {
	case n > smallBytes:
		n = min(n, m.of.ownLarge)
	case n == streamBytes:
		budgets = append(m.streams(), m.smalls()...)
	default:
		budgets = m.smalls()
	}
	for i, s := range budgets {
		if err := acquire(ctx, s, n); err != nil {
			release(budgets[:i], n)
			return outOfMemory(err)
		}
	}
	switch {
	case n > smallBytes:
		m.large += n
	case n == streamBytes:
		m.stream += n
		m.small += n
	default:
		m.small += n
	}
	return nil
}

// The budgets that a request takes bytes from, first that of its asker: who waits for the others' keeps none of them.

func (m *held) smalls() []*semaphore.Weighted {
	return []*semaphore.Weighted{m.mine.smalls, m.of.smalls}
}
func (m *held) streams() []*semaphore.Weighted {
	return []*semaphore.Weighted{m.mine.streams, m.of.streams}
}
func (m *held) larges() []*semaphore.Weighted {
	return []*semaphore.Weighted{m.mine.larges, m.of.larges}
}

func release(budgets []*semaphore.Weighted, n int64) {
	for _, s := range budgets {
		s.Release(n)
	}
}

// shrink returns all large bytes beyond n.
func (m *held) shrink(n int64) {
	rest := max(m.large-n, 0)
	m.large -= rest
	release(m.larges(), rest)
}

// release returns all bytes; slot and turn were returned when the work ended.
func (m *held) release() {
	if m.mine == nil {
		return
	}
	m.shrink(0)
	release(m.smalls(), m.small)
	release(m.streams(), m.stream)
	m.small, m.stream = 0, 0
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

func slowDown(cause error, message string) *Error {
	return &Error{
		Code: "SlowDown", Status: http.StatusServiceUnavailable, RetryAfter: retryAfter, Message: message, Cause: cause,
	}
}

func outOfMemory(cause error) *Error {
	return slowDown(cause, "The requests under way have all the memory that there is for requests. "+
		"Please reduce your request rate, and read answers faster.")
}

func (x *exchange) askerOf() asker {
	if x.who != allKeys {
		return asker{key: x.who.ID}
	}
	return asker{addr: webguard.Client(x.r.RemoteAddr)}
}

// begin begins the work for a request, and its time: the client has sent all that the work
// needs.
func (h *Handler) begin(x *exchange) *Error {
	if !h.requests.takeSlot(x.mine) {
		return slowDown(nil, "Too many requests are being served, or too many of yours. Please reduce your request rate.")
	}
	x.slot = true
	// net/http cancels a request when its client has ended its sending side, although such a
	// client still waits for the answer. So only the timeout ends the work, and for what may
	// take long leftTime after the client has left.
	came := x.r.Context()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(came), h.o.RequestTimeout)
	x.end = cancel
	if x.op.long {
		if h.o.MinRate > 0 {
			// The deadline of the body would look as if the client had left.
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
			return slowDown(err, "Too many listings and documents are being worked for. Please reduce your request rate.")
		}
	}
	return nil
}

// beginWith takes n bytes, and begins the work.
func (h *Handler) beginWith(x *exchange, n int64) *Error {
	if refusal := x.take(x.ctx(), n); refusal != nil {
		return refusal
	}
	return h.begin(x)
}

// leftTime is how long a read goes on after its client has left, or has only ended its
// sending side.
const leftTime = time.Second

// worked ends the work for a request: it remains to send the answer. So an answer that is read
// slowly takes bytes, but no slot.
func (h *Handler) worked(x *exchange) {
	if !x.slot {
		return
	}
	x.endTurn()
	x.freeSlot()
	if h.o.Busy != nil {
		h.o.Busy(x.r.Context(), false)
	}
}

// sends ends the work for a request whose answer has n bytes.
func (h *Handler) sends(x *exchange, n int) {
	h.worked(x)
	x.sending = 0
	if h.o.MinRate > 0 && n > freeBytes {
		x.sending = min(h.timeFor(int64(n)), h.o.AnswerTimeout)
	}
}

// answering begins the time for an answer. net/http lets the server's WriteTimeout begin with the request's header: a
// body that comes slowly, or long work, would leave no time for the answer.
func (x *exchange) answering() {
	after := x.sending
	if after == 0 {
		server, _ := x.r.Context().Value(http.ServerContextKey).(*http.Server)
		if server == nil || server.WriteTimeout <= 0 {
			return
		}
		after = server.WriteTimeout
	}
	_ = http.NewResponseController(x.w).SetWriteDeadline(time.Now().Add(after))
}

// slackTime is how long a transfer may take beyond the time for its bytes.
const slackTime = 10 * time.Second

func (h *Handler) timeFor(n int64) time.Duration {
	return slackTime + time.Duration(float64(n)/float64(h.o.MinRate)*float64(time.Second))
}

// receive reads a body of at most limit bytes, and then begins the work: a request takes no
// slot while its body arrives. need returns the memory for a body of n bytes and what is
// made of it.
func (h *Handler) receive(x *exchange, limit int64, need func(n int64) int64) ([]byte, *Error) {
	b, refusal := h.open(x, limit, need)
	if refusal != nil {
		return nil, refusal
	}
	data, refusal := b.all()
	if refusal == nil {
		refusal = h.begin(x)
	}
	return data, refusal
}

// open takes the memory for a body of at most limit bytes, and begins to read it.
func (h *Handler) open(x *exchange, limit int64, need func(n int64) int64) (*body, *Error) {
	n := limit
	if x.r.ContentLength >= 0 {
		// Memory is allocated for what is announced, which may be more than comes.
		announced, _ := strconv.ParseInt(x.r.Header.Get("X-Amz-Decoded-Content-Length"), 10, 64)
		n = min(n, max(x.r.ContentLength, announced))
	}
	if n > 0 {
		if refusal := x.take(x.r.Context(), need(n)); refusal != nil {
			return nil, refusal
		}
	}
	if h.o.MinRate > 0 && n > smallBytes {
		// net/http has set a deadline for small bodies.
		until := time.Now().Add(min(h.timeFor(n), h.o.BodyTimeout))
		_ = http.NewResponseController(x.w).SetReadDeadline(until)
	}
	if x.r.ProtoMajor == 1 {
		x.answering() // 100 Continue, which is sent when the body is read, must not come too late
	}
	return openBody(x.r, x.payload, limit)
}

// The memory that a body of n bytes needs: as it is, and decoded as a small document.
func itself(n int64) int64     { return n }
func asDocument(n int64) int64 { return 24 * n }
