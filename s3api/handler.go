package s3api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/evenkeel/evenkeel/internal/sigv4"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
)

// Options are the settings of a Handler. A field with the zero value has its default.
type Options struct {
	// Region is the region that GetBucketLocation answers and that signatures must name. Default us-east-1.
	Region string
	// HostSuffixes are host names, in lower case, in front of which a request may have a bucket's name: BUCKET.SUFFIX
	// (virtual-host style). In a request to any other host, the bucket's name is in the path (path style).
	HostSuffixes []string
	// Keys has the access keys, e.g. a KeySet. If Keys is nil, the server does not authenticate requests, and ignores
	// signatures. The method Key returns the access key with the given ID, or nil if there is none. It is called once
	// for each request, and must be safe for concurrent use.
	Keys interface {
		Key(id string) *Key
	}
	// Guard refuses requests that a web page makes a browser send. It checks the host in a request, and the origin,
	// which is the web site from which the request comes. It is used only if Keys is nil. If Guard is nil, no request
	// is refused for this reason.
	Guard interface {
		CheckHost(r *http.Request) error
		CheckOrigin(r *http.Request) error
	}
	// AllowUnsignedPayload accepts bodies that no signature covers, even over unencrypted connections from other
	// machines. It is safe only behind a proxy that ends TLS.
	AllowUnsignedPayload bool
	// RefuseSignatureV2 refuses signatures of version 2, by which some SDKs presign URLs unless they are told
	// otherwise. These signatures cover less of a request than those of version 4.
	RefuseSignatureV2 bool
	// Objects gives access to buckets of objects in the same store. With Objects, new buckets are buckets of objects,
	// except where a request asks for a plain bucket. If Objects is nil, requests to buckets of objects are refused,
	// and new buckets are plain.
	Objects *objects.Objects
	// MaxBodyBytes is the largest size in bytes of a body in a plain bucket. Default 4 KiB.
	MaxBodyBytes int64
	// MaxCuts is the largest number of cuts in one CreateBucket request, which are keys at which the new bucket is
	// divided. Default 10,000. One access key (or client address, without Keys) may make ten times MaxCuts cuts in an
	// hour.
	MaxCuts int
	// MemoryBytes is the largest memory in bytes that all requests may take together, for bodies, documents, and pages
	// until they are sent. Default 128 MiB, at least 16 MiB. A request that gets no memory within a second is answered
	// 503 SlowDown.
	MemoryBytes int64
	// SoleWriter states that all writes to the buckets go through this Handler. Only then writes with conditions, such
	// as If-Match, are accepted, and their conditions are exact.
	SoleWriter bool
	// MaxRequests is the largest number of requests that are worked on at once. Default 1024. Further requests are
	// answered 503 SlowDown. A request whose body is arriving, or whose answer is being sent, does not count. One
	// client (an access key or an address) gets at most about three quarters of MaxRequests, and less while other
	// clients have requests in work.
	//
	// With SoleWriter, MaxRequests also limits the writes that the store still works on although their requests have
	// ended.
	MaxRequests int
	// RequestTimeout is the longest time of the work for one request. Default 30 s.
	RequestTimeout time.Duration
	// MinRate is the lowest rate, in bytes per second, at which a client must transfer large data after the first
	// seconds. It holds for sending a body of more than 64 KiB and for reading an answer of more than 4 KiB. Zero
	// allows any rate. The http.Server needs a ReadTimeout and a WriteTimeout, which hold for smaller bodies and
	// answers. With or without MinRate the WriteTimeout counts from the beginning of an answer, not of its request.
	MinRate int64
	// BodyTimeout is the longest time for receiving a body, if MinRate is set. Default one minute. AnswerTimeout is the
	// longest time for sending an answer. Default two minutes.
	BodyTimeout, AnswerTimeout time.Duration
	// Busy, if not nil, is called with true when the work for a request begins, after the request's body has arrived.
	// It is called with false when the answer is ready to be sent. At all other times the server waits for the client.
	// ctx is the request's context.
	Busy func(ctx context.Context, busy bool)
	// Logger logs requests and failures. If Logger is nil, nothing is logged.
	Logger *slog.Logger
	// LogEvery makes the server log every request. Without LogEvery, only requests with the status 400 or above are
	// logged.
	LogEvery bool
	// Metrics registers the handler's Prometheus metrics. If Metrics is nil, the metrics are not registered.
	Metrics prometheus.Registerer
	// Now returns the time for Last-Modified and for checking the times of signatures. Default time.Now.
	Now func() time.Time
}

// Handler is an http.Handler that serves the S3 protocol over package listing. It is safe for concurrent use. It needs
// the path of a request as the client sent it. So no http.ServeMux may be in front of the Handler, as a ServeMux cleans
// paths.
type Handler struct {
	buckets  Buckets
	o        Options
	requests *requests
	cuts     cutCounts
	lookups  *corsLookups
	metrics  *metrics
	locks    keyLocks
	late     atomic.Int64 // writes that the store works on although their requests have ended
	hostID   string
	// mostCopied is the largest size in bytes of the source of a copy, or of the range that is copied.
	mostCopied int64
}

// New returns a Handler with the options o that serves the buckets of b. Over makes b from a listing client. New
// returns an error for a negative option, and for an Options.MemoryBytes below 16 MiB.
func New(b Buckets, o Options) (*Handler, error) {
	o.Region = cmp.Or(o.Region, oldestRegion)
	o.MaxBodyBytes = cmp.Or(o.MaxBodyBytes, 4<<10)
	o.MaxCuts = cmp.Or(o.MaxCuts, 10_000)
	o.MemoryBytes = cmp.Or(o.MemoryBytes, 128<<20)
	o.MaxRequests = cmp.Or(o.MaxRequests, 1024)
	o.RequestTimeout = cmp.Or(o.RequestTimeout, 30*time.Second)
	o.BodyTimeout = cmp.Or(o.BodyTimeout, time.Minute)
	o.AnswerTimeout = cmp.Or(o.AnswerTimeout, 2*time.Minute)
	if min(o.MaxBodyBytes, int64(o.MaxCuts), int64(o.MaxRequests), o.MinRate, int64(o.RequestTimeout),
		int64(o.BodyTimeout), int64(o.AnswerTimeout)) < 0 {
		return nil, errors.New("s3api: a negative option")
	}
	if o.MemoryBytes < minMemory {
		return nil, fmt.Errorf("s3api: %d bytes of memory for requests: at least %d are needed", o.MemoryBytes, minMemory)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	m, err := newMetrics(o.Metrics)
	if err != nil {
		return nil, fmt.Errorf("s3api: %w", err)
	}
	h := &Handler{
		buckets: b, o: o, requests: newRequests(o.MaxRequests, o.MemoryBytes, o.turns()), metrics: m,
		lookups: newCORSLookups(), hostID: newID() + newID(), mostCopied: maxObjectBytes,
	}
	h.locks.locks = map[keyName]*keyLock{}
	return h, nil
}

// turns returns how many listing pages and request documents are worked on at once. With an embedded store each of them
// keeps a processor busy, so the number is small. With Cassandra they mostly wait for other machines, and the number is
// higher.
func (o *Options) turns() int64 {
	each := 16
	if o.SoleWriter {
		each = 2
	}
	return int64(each * runtime.GOMAXPROCS(0))
}

// newID returns a random ID for a request, by which the request is found in logs. The ID need not be hard to guess.
func newID() string { return fmt.Sprintf("%016X", rand.Uint64()) }

// exchange is one HTTP request together with its answer, and with the memory and the permits that the request holds.
type exchange struct {
	target
	h  *Handler
	w  http.ResponseWriter
	r  *http.Request
	op operation
	id string
	held
	end func() // ends the time for the work; nil: the work has not begun
	// who is the access key of the request, once the request is authenticated. keyID is the ID of the access key that
	// the request names.
	who   *Key
	keyID string
	// claim is what the request states about its signature. It is nil on a server without access keys.
	claim   *sigv4.Claim
	payload payload
	// status is the HTTP status of the answer, or 0 until the header is written. bytes is the number of bytes that were
	// sent.
	status int
	bytes  int
	// sending is the time that the client has to read the answer. Zero means the server's WriteTimeout (see answering).
	sending time.Duration
}

// ctx returns the request's context, which ends when the time for the request is over.
func (x *exchange) ctx() context.Context { return x.r.Context() }

// ServeHTTP serves one request of the S3 protocol. It implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	started := time.Now()
	x := &exchange{h: h, w: w, r: r, id: newID(), held: held{of: h.requests}}
	if r.ProtoMajor == 1 && r.ProtoMinor > 0 && r.ContentLength == 0 && expectsContinue(r.Header) {
		// net/http sends 100 Continue when the body is read, and so never for an empty body. AWS's clients for Python
		// expect it even for an empty body; without it they discard the next answer on the connection, and wait.
		w.WriteHeader(http.StatusContinue)
	}
	if r.ProtoMajor > 1 {
		// HTTP/2 resets a stream at its write deadline, even while the request is still worked on.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	}
	w.Header().Set("X-Amz-Request-Id", x.id)
	w.Header().Set("X-Amz-Id-2", h.hostID)
	w.Header().Set("Server", "evenkeel")

	err := h.dispatch(x)
	var answer *Error
	if err != nil {
		answer = h.translate(x, err)
		if x.status != 0 {
			// The answer has begun: only a broken connection shows that it is incomplete.
			h.finish(x, started, answer)
			panic(http.ErrAbortHandler)
		}
		h.writeError(x, answer)
	}
	h.finish(x, started, answer)
}

// expectsContinue reports whether the request's header Expect says that the client sends the body only after the answer
// "100 Continue".
func expectsContinue(h http.Header) bool {
	continues := func(e string) bool { return strings.EqualFold(e, "100-continue") }
	return slices.ContainsFunc(elements(h.Get("Expect")), continues)
}

// dispatch serves a request: it finds the operation that the request asks for, checks that the access key may use the
// operation, and runs the operation. If dispatch returns an error, the caller sends the error answer.
func (h *Handler) dispatch(x *exchange) (err error) {
	x.op.name = "unknown"
	h.metrics.inFlight.Inc()
	defer h.metrics.inFlight.Dec()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
		h.worked(x)
		if x.end != nil {
			x.end()
		}
		x.release()
	}()
	refusal := h.admit(x)
	if x.r.Method != http.MethodOptions { // a preflight looks itself
		err = h.share(x, refusal == nil)
	}
	if refusal != nil {
		return refusal
	}
	if err != nil {
		return err
	}
	x.asker = x.askerOf()
	x.mine = h.requests.enter(x.asker)
	if !x.op.later {
		if refusal := h.begin(x); refusal != nil {
			return refusal
		}
	}
	err = x.op.serve(h, x)
	if err == nil && x.status == 0 {
		x.writeHeader(http.StatusOK)
	}
	return err
}

// admit finds out what a request asks for, and checks that the access key may use the operation. It does no I/O.
func (h *Handler) admit(x *exchange) *Error {
	t, refusal := parseTarget(x.r, h.o.HostSuffixes)
	x.target = t
	if refusal != nil {
		return refusal
	}
	x.op = operationFor(x.r.Method, t, x.r.Header)
	if x.r.Method == http.MethodOptions { // browsers sign no preflights
		x.who = allKeys
		if h.o.Keys != nil {
			return nil
		}
		return h.refusePages(x)
	}
	if refusal := h.authenticate(x); refusal != nil {
		return refusal
	}
	if refusal := h.settle(x); refusal != nil {
		return refusal
	}
	if x.op.serve == nil {
		return notOperation(x.op.name)
	}
	if name := refusedHeader(x.op, x.r.Header); name != "" {
		return notImplemented(x.op.name + " with the header " + name)
	}
	for _, name := range []string{"X-Amz-Expected-Bucket-Owner", "X-Amz-Source-Expected-Bucket-Owner"} {
		if owner := x.r.Header.Get(name); owner != "" && owner != ownerID {
			return accessDenied("%s is not %s: all buckets belong to that one here.", name, ownerID)
		}
	}
	return cmp.Or(x.authorize(), x.op.refuseParams(t.query), x.refuseUnsigned())
}

// translate returns the error answer of S3 for err, any error of serving the request.
func (h *Handler) translate(x *exchange, err error) *Error {
	var e *Error
	for _, u := range uploadErrors {
		if errors.Is(err, u.is) {
			e = u.answer()
			e.Cause = err
			return e
		}
	}
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, listing.ErrNoSuchBucket):
		e = noSuchBucket(x.bucket)
	case errors.Is(err, listing.ErrNotFound):
		e = noSuchKey()
	case errors.Is(err, listing.ErrBucketExists):
		e = refuse(http.StatusConflict, "BucketAlreadyOwnedByYou", "The bucket exists already, and you own it.")
	case errors.Is(err, listing.ErrNotEmpty):
		e = refuse(http.StatusConflict, "BucketNotEmpty", "The bucket you tried to delete is not empty.")
	case errors.Is(err, listing.ErrBadToken):
		e = badToken()
	default:
		return fromStore(err, x.op.write)
	}
	e.Cause = err
	return e
}

// writeError sends the error answer e: an XML document, or only the headers for HEAD.
func (h *Handler) writeError(x *exchange, e *Error) {
	header := x.w.Header()
	if e.RetryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(e.RetryAfter))
	}
	for _, d := range e.Details {
		if d.Name == "Region" {
			header.Set("X-Amz-Bucket-Region", d.Value) // HEAD has no document
		}
	}
	if x.r.Method == http.MethodHead {
		x.writeHeader(e.Status)
		return
	}
	path, _ := splitTarget(x.r)
	b := newXML()
	defer b.free()
	b.raw("<Error>") // without a namespace
	b.text("Code", e.Code)
	b.text("Message", e.Message)
	for _, d := range e.Details {
		b.text(d.Name, d.Value)
	}
	b.text("Resource", path)
	b.text("RequestId", x.id)
	b.text("HostId", h.hostID)
	b.raw("</Error>")
	_ = x.writeXML(e.Status, b)
}

// writeHeader sends the status and the headers of the answer, and sets the deadline for the client to read the answer.
func (x *exchange) writeHeader(status int) {
	x.status = status
	x.answering()
	x.w.WriteHeader(status)
}

// done ends a request whose answer has no body. If err is nil, done sends the given HTTP status. It returns err.
func (x *exchange) done(status int, err error) error {
	if err == nil {
		x.writeHeader(status)
	}
	return err
}

// writeDocument answers a request with the status 200 and an XML document. root is the name of the document's root
// element, and write appends the content of this element.
func (x *exchange) writeDocument(root string, write func(b *xmlBuffer)) error {
	b := newXML()
	defer b.free()
	b.root(root)
	write(b)
	b.close(root)
	return x.writeXML(http.StatusOK, b)
}

// writeXML answers a request with the given HTTP status and an XML document, which consists of parts. If a part has an
// error, writeXML returns the error and sends nothing. It also returns an error of sending.
func (x *exchange) writeXML(status int, parts ...*xmlBuffer) error {
	n := 0
	for _, b := range parts {
		if b.err != nil {
			return b.err
		}
		n += len(b.b)
	}
	x.h.sends(x, n)
	header := x.w.Header()
	header.Set("Content-Type", "application/xml")
	header.Set("Content-Length", strconv.Itoa(n))
	x.writeHeader(status)
	for _, b := range parts {
		if err := x.write(b.b); err != nil {
			return err
		}
	}
	return nil
}

// write sends b as the next bytes of the answer's body. It returns an error if the client is gone.
func (x *exchange) write(b []byte) error {
	n, err := x.w.Write(b)
	x.bytes += n
	if err != nil {
		return &Error{Code: "ClientGone", Status: x.status, Message: "the answer could not be sent", Cause: err}
	}
	return nil
}

// finish records a request that has ended in the metrics, its trace span and the log. started is when the request
// began. failure is the error answer of the request, or nil if the request succeeded. A success is logged only if
// Options.LogEvery is set.
func (h *Handler) finish(x *exchange, started time.Time, failure *Error) {
	took := time.Since(started)
	code := ""
	if failure != nil {
		code = failure.Code
	}
	h.metrics.observe(x.op, x.status, code, took)
	span := trace.SpanFromContext(x.ctx())
	if span.IsRecording() {
		h.describe(x, span, code)
	}
	if failure == nil && !h.o.LogEvery {
		return
	}
	level := slog.LevelInfo
	attrs := []slog.Attr{
		slog.String("id", x.id), slog.String("operation", x.op.name), slog.String("method", x.r.Method),
		slog.String("uri", loggedURI(x.r)), slog.Int("status", x.status), slog.Int("bytes", x.bytes),
		slog.Duration("took", took), slog.String("client", x.r.RemoteAddr), slog.String("agent", x.r.UserAgent()),
	}
	if x.keyID != "" {
		attrs = append(attrs, slog.String("key", x.keyID))
	}
	if at := span.SpanContext(); at.IsValid() {
		attrs = append(attrs, slog.String("trace", at.TraceID().String()))
	}
	if failure != nil {
		attrs = append(attrs, slog.String("code", failure.Code))
		if failure.Cause != nil {
			attrs = append(attrs, slog.String("error", failure.Cause.Error()))
		}
		if failure.Status >= 500 && failure.Status != http.StatusNotImplemented {
			level = slog.LevelError
		}
	}
	h.o.Logger.LogAttrs(context.WithoutCancel(x.ctx()), level, "request", attrs...)
}

// describe sets the name and the attributes of the request's trace span: the operation, the status, the bucket and the
// request's ID. It leaves out keys of objects.
func (h *Handler) describe(x *exchange, span trace.Span, code string) {
	name := x.op.name
	if x.op.serve == nil {
		name = "other"
	}
	span.SetName(name)
	span.SetAttributes(attribute.Int("http.response.status_code", x.status), attribute.String("aws.s3.bucket", x.bucket),
		attribute.String("aws.request_id", x.id))
	if code != "" {
		span.SetAttributes(attribute.String("error.type", code))
	}
	if x.status >= 500 {
		span.SetStatus(codes.Error, code)
	}
}

// loggedURI returns the URI of a request for the log. It leaves out the query of a presigned URL, because whoever reads
// the log could use the signature in the query.
func loggedURI(r *http.Request) string {
	path, query := splitTarget(r)
	switch {
	case query == "":
		return path
	case strings.Contains(query, "Signature="): // or X-Amz-Signature=
		return path + "?…"
	}
	return path + "?" + query
}
