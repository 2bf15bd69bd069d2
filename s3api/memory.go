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

// These constants limit the memory for requests. All requests share one budget of bytes. A request takes all its bytes
// at once, before it allocates them, and returns them when the last byte of its answer has been sent. So memory is
// bounded, whatever clients request and however slowly they read. A request takes bytes only once, so it never waits
// for bytes while it holds bytes.
//
// A request waits for bytes for at most memoryWait. Meanwhile it holds no slot, which is the permit to be worked on.
// There is one exception: copies and reads of versions hold a slot, since their size is known late.
//
// The budget has three parts:
//
//	small requests only    1/32   puts and gets of small bodies
//	small and transfers    7/32   also bodies of any size on their way, which last as long as their clients like
//	large requests         3/4    pages and documents
//
// So small requests find room while pages, documents and transfers use up the rest.
const (
	// smallBytes is the largest memory in bytes of a small request, e.g. a put of a small body.
	smallBytes = 64 << 10
	// memoryWait is how long a request waits for memory before the server refuses the request with 503.
	memoryWait = time.Second
	// minMemory is the smallest memory in bytes with which a server may be configured. It has room for a listing page.
	minMemory = 16 << 20
	// freeBytes is the length of an answer, in bytes, up to which its memory does not count: it fits into the buffers
	// of the connection.
	freeBytes = 4 << 10
	// shareOf/shareIn (3/4) is the largest share that one client can hold. It applies to the memory for small requests,
	// for transfers and for large requests. It also applies to the turns, which are permits to work on a listing page
	// or a document.
	shareOf, shareIn = 3, 4
)

// requests counts what the server's requests hold: all of them together, and those of each client. Three things are
// counted: slots (permits to be worked on), bytes of memory, and turns (permits to build a listing page or to read a
// document).
type requests struct {
	most         int // slots
	small, large int64
	smalls       *semaphore.Weighted
	streams      *semaphore.Weighted // the part of smalls that transfers may hold
	larges       *semaphore.Weighted

	mu   sync.Mutex
	used int // slots
	by   map[asker]*holding

	// turns limits the number of listing pages and request documents that are worked on at once. Each of them keeps a
	// processor busy for long, so without a limit other requests would wait.
	turns *semaphore.Weighted

	ownSmall, ownStreams, ownLarge, ownTurns int64 // the most of each that one asker may hold
}

// asker identifies the client that sends a request, for limits on what one client may hold. It is the ID of the access
// key or, on a server without access keys, the network address.
type asker struct {
	key  string
	addr netip.Prefix
}

// holding counts what the requests of one client hold at present: slots (permits to be worked on), bytes of memory, and
// turns (permits to work on a listing page or a document).
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

// enter registers a new request, and returns the counts of what all requests of the same client hold together. The
// parameter a is the client. The caller calls leave when the request ends.
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

// takeSlot takes a slot, the permit to be worked on, for a request. The parameter h has the counts of the request's
// client. The result is false if no slot is free, or if the client has too many slots (see webguard.MayTake).
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

// held counts what one request holds at present: a slot (the permit to be worked on), bytes of memory, and a turn (the
// permit to work on a listing page or a document).
type held struct {
	of    *requests
	asker asker
	mine  *holding // of the asker; nil: the request has not begun
	small int64
	// stream is the number of bytes of memory that a transfer of a body holds. These bytes are also counted in small.
	stream int64
	large  int64
	slot   bool
	turn   bool
}

// takeTurn waits for a turn, the permit to work on a listing page or a document. First it waits for one of the turns
// that the client may have, and only then for one of all turns. So a client with many requests delays only its own.
// takeTurn fails if ctx ends first.
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

// take takes n bytes from the server's memory for requests. If the bytes are not free, take waits for at most
// memoryWait (1 s), and then returns an error. A request calls take once, with all the bytes that it may need.
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

// smalls, streams and larges return the budgets from which a request takes bytes. The budget of the request's client
// comes first: while the request waits for it, the request holds nothing of the budget that all clients share.

func (m *held) smalls() []*semaphore.Weighted {
	return []*semaphore.Weighted{m.mine.smalls, m.of.smalls}
}
func (m *held) streams() []*semaphore.Weighted {
	return []*semaphore.Weighted{m.mine.streams, m.of.streams}
}
func (m *held) larges() []*semaphore.Weighted {
	return []*semaphore.Weighted{m.mine.larges, m.of.larges}
}

// release gives n bytes back to each of the budgets.
func release(budgets []*semaphore.Weighted, n int64) {
	for _, s := range budgets {
		s.Release(n)
	}
}

// shrink gives back the memory of a large request except for n bytes, which the answer takes.
func (m *held) shrink(n int64) {
	rest := max(m.large-n, 0)
	m.large -= rest
	release(m.larges(), rest)
}

// release gives back all memory that the request holds, at the end of the request. Its slot (the permit to be worked
// on) and its turn were given back when the work ended.
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

// acquire takes n bytes from the budget s, and waits for them for at most memoryWait (1 s).
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

// askerOf returns the client that has sent the request.
func (x *exchange) askerOf() asker {
	if x.who != allKeys {
		return asker{key: x.who.ID}
	}
	return asker{addr: webguard.Client(x.r.RemoteAddr)}
}

// begin begins the work for a request: the request takes a slot (the permit to be worked on), and the time for the work
// starts. The client must have sent everything that the work needs. begin returns an error if the server is too busy.
func (h *Handler) begin(x *exchange) *Error {
	if !h.requests.takeSlot(x.mine) {
		return slowDown(nil, "Too many requests are being served, or too many of yours. Please reduce your request rate.")
	}
	x.slot = true
	// net/http cancels a request when its client has closed its sending side, although such a client still waits for
	// the answer. So only the timeout ends the work. A long read ends also leftTime after its client has left.
	came := x.r.Context()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(came), h.o.RequestTimeout)
	x.end = cancel
	if x.op.long {
		if h.o.MinRate > 0 {
			// When the read deadline of the body passes, net/http cancels the request as if the client had left.
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

// beginWith takes n bytes of memory for a request, and then begins the work for the request. It returns an error if the
// server has no memory left, or is too busy.
func (h *Handler) beginWith(x *exchange, n int64) *Error {
	if refusal := x.take(x.ctx(), n); refusal != nil {
		return refusal
	}
	return h.begin(x)
}

// leftTime is how long a long read, such as a listing, goes on after its client has left. A client has left if it has
// closed the connection or has stopped sending.
const leftTime = time.Second

// worked ends the work for a request whose answer remains to be sent. It gives back the request's slot, the permit to
// be worked on, for use by another request. The request keeps its memory while the client reads the answer.
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

// sends ends the work for a request whose answer has n bytes. It also sets the time in which the client has to read the
// answer.
func (h *Handler) sends(x *exchange, n int) {
	h.worked(x)
	x.sending = 0
	if h.o.MinRate > 0 && n > freeBytes {
		x.sending = min(h.timeFor(int64(n)), h.o.AnswerTimeout)
	}
}

// answering sets the deadline until which the client must have read the answer. It is called when the answer begins.
// The deadline of the http.Server, WriteTimeout, counts from the request's header. After a slow body or long work, it
// would leave no time for the answer.
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

// slackTime is the time that a client gets for a body or an answer in any case. The time that the bytes take at the
// rate Options.MinRate is added.
const slackTime = 10 * time.Second

// timeFor returns the time in which a client must transfer n bytes: slackTime, and the time that the bytes take at the
// rate Options.MinRate.
func (h *Handler) timeFor(n int64) time.Duration {
	return slackTime + time.Duration(float64(n)/float64(h.o.MinRate)*float64(time.Second))
}

// receive reads a request's body of at most limit bytes, and then begins the work. need returns the memory in bytes for
// a body of n bytes and for everything that is made from the body. While the body arrives, the request holds memory,
// but no slot (the permit to be worked on).
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

// open takes the memory for a request's body, and returns a reader of the body. A body above limit bytes is an error.
// need returns the memory in bytes for a body of n bytes.
func (h *Handler) open(x *exchange, limit int64, need func(n int64) int64) (*body, *Error) {
	n := limit
	if x.r.ContentLength >= 0 {
		// Memory is allocated by the announced length, which may be more than the bytes that arrive.
		announced, _ := strconv.ParseInt(x.r.Header.Get("X-Amz-Decoded-Content-Length"), 10, 64)
		n = min(n, max(x.r.ContentLength, announced))
	}
	if n > 0 {
		if refusal := x.take(x.r.Context(), need(n)); refusal != nil {
			return nil, refusal
		}
	}
	if h.o.MinRate > 0 && n > smallBytes {
		// The deadline that net/http has set is one for small bodies.
		until := time.Now().Add(min(h.timeFor(n), h.o.BodyTimeout))
		_ = http.NewResponseController(x.w).SetReadDeadline(until)
	}
	if x.r.ProtoMajor == 1 {
		x.answering() // 100 Continue, which is sent when the body is read, must not come too late
	}
	return openBody(x.r, x.payload, limit)
}

// itself returns how much memory, in bytes, a request takes for a body of n bytes that is kept as it is.
func itself(n int64) int64 { return n }

// asDocument returns how much memory, in bytes, a request takes for a body of n bytes that is a small XML document and
// is decoded.
func asDocument(n int64) int64 { return 24 * n }
