package adminapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/store"
)

// maxBody is the largest body of a request in bytes: 64 MiB, enough for a million keys of 64 bytes at which to cut.
const maxBody = 64 << 20

// New returns the HTTP handler of the admin API of the Rebalancer r. It serves all paths below /v1/.
func New(r *engine.Rebalancer) http.Handler {
	o := r.Options()
	h := &handler{
		Rebalancer: r, o: o, maps: mapclient.Of(o.Buckets), seen: map[store.BucketID]kept{},
		planning: make(chan struct{}, 1),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", h.serve(h.status))
	mux.HandleFunc("GET /v1/buckets", h.serve(h.watched(h.buckets)))
	mux.HandleFunc("GET /v1/shape", h.serve(h.watched(h.shape)))
	mux.HandleFunc("GET /v1/ranges", h.serve(h.watched(h.ranges)))
	mux.HandleFunc("GET /v1/usage", h.serve(h.watched(h.usage)))
	mux.HandleFunc("GET /v1/heat", h.serve(h.watched(h.heat)))
	mux.HandleFunc("GET /v1/moves", h.serve(h.watched(h.moved)))
	mux.HandleFunc("GET /v1/cluster", h.serve(h.cluster))
	mux.HandleFunc("GET /v1/events", h.events)
	mux.HandleFunc("POST /v1/plan", h.serve(decoded(h.plan)))
	mux.HandleFunc("GET /v1/map", h.showMap)
	mux.HandleFunc("GET /v1/history", h.serve(h.history))
	mux.HandleFunc("POST /v1/verify", h.verify)
	mux.HandleFunc("POST /v1/backup", h.backup)
	mux.HandleFunc("POST /v1/sizes", h.sizes)
	mux.HandleFunc("GET /v1/explain", h.serve(h.watched(h.explain)))
	mux.HandleFunc("POST /v1/recount", h.recount)
	mux.HandleFunc("POST /v1/retention", h.serve(decoded(h.oldKeys)))
	mux.HandleFunc("POST /v1/layout", h.layout)
	mux.HandleFunc("GET /v1/jobs/{id}", h.serve(h.job))
	mux.HandleFunc("POST /v1/moves", h.serve(decoded(h.moves)))
	mux.HandleFunc("POST /v1/apply", h.serve(decoded(h.apply)))
	mux.HandleFunc("POST /v1/pause", h.serve(decoded(h.pause)))
	mux.HandleFunc("POST /v1/quiet", h.quiet)
	mux.HandleFunc("POST /v1/resume", h.serve(decoded(h.resume)))
	mux.HandleFunc("POST /v1/abort", h.serve(decoded(h.abort)))
	mux.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, store.Errorf(store.NotFound, "there is no %s %s here", r.Method, r.URL.Path))
	})
	// A page in a browser must not move anything.
	return http.NewCrossOriginProtection().Handler(mux)
}

type handler struct {
	*engine.Rebalancer
	o    engine.Options
	maps *mapclient.Client

	looking  sync.Mutex // held while figures are read
	seen     map[store.BucketID]kept
	planning chan struct{} // one plan at a time
	streams  streams
	listed   listing
}

// fail answers an HTTP request with the error err, as a Problem in JSON. The HTTP status follows from the kind of the
// error. If only another process, which leads, can serve the request, the answer names this process.
func fail(w http.ResponseWriter, err error) {
	p := problemOf(err)
	code := http.StatusInternalServerError
	switch store.KindOf(err) {
	case store.InvalidArgument:
		code = http.StatusBadRequest
	case store.NotFound:
		code = http.StatusNotFound
	case store.Conflict:
		code = http.StatusConflict
	case store.Unavailable, store.Timeout:
		code = http.StatusServiceUnavailable
	}
	if e, ok := errors.AsType[*engine.NotLeading](err); ok {
		code = http.StatusMisdirectedRequest
		p.Leader = leaderOf(e.Leader)
	}
	answer(w, code, p)
}

func problemOf(err error) *Problem {
	return &Problem{Error: err.Error(), Kind: store.KindOf(err).Error()}
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // an error means that the client has gone
}

func (h *handler) serve(f func(r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		if err != nil {
			fail(w, err)
			return
		}
		answer(w, http.StatusOK, v)
	}
}

// watched returns a handler that calls f only if this process can answer the request, and otherwise returns an error.
// To answer, the process must watch the sizes of ranges, and lead the moves of the bucket in the request. If the
// request names no bucket, the process need lead only one shard (a group of buckets).
func (h *handler) watched(f func(r *http.Request) (any, error)) func(r *http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		if err := h.leads(r.Context(), r.URL.Query().Get("bucket")); err != nil {
			return nil, err
		}
		return f(r)
	}
}

// decoded returns a handler that decodes the body of a request from JSON, and calls f with the decoded value.
func decoded[T any](f func(r *http.Request, body T) (any, error)) func(r *http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		var body T
		if err := decode(r, &body); err != nil {
			return nil, err
		}
		return f(r, body)
	}
}

// decode decodes the body of a request from JSON into v. If the body is empty, v stays as it is. An unknown field is an
// error of kind InvalidArgument.
func decode(r *http.Request, v any) error {
	d := json.NewDecoder(io.LimitReader(r.Body, maxBody))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == io.EOF {
		return nil // an empty body is the zero request
	}
	if err != nil {
		return store.Errorf(store.InvalidArgument, "the request is not understood: %w", err)
	}
	return nil
}

// bucket returns the id of the bucket with the given name. The name may also be the text of an id, so that operators
// can reach buckets without a name. A bucket of that name comes first.
func (h *handler) bucket(ctx context.Context, name string) (store.BucketID, error) {
	if name == "" {
		return store.BucketID{}, store.Errorf(store.InvalidArgument, "name a bucket")
	}
	id, err := h.o.Buckets.BucketID(ctx, name)
	if err == nil {
		h.Names().Remember(id, name)
	}
	if errors.Is(err, store.NotFound) {
		if parsed, perr := uuid.Parse(name); perr == nil {
			return store.BucketID(parsed), nil
		}
		return id, store.Errorf(store.NotFound, "there is no bucket %q", name)
	}
	return id, err
}

// asked returns the name and the id of the bucket that the HTTP request names. It fails if there is no such bucket. It
// also fails if q.err is set, i.e. if another parameter of the request is wrong.
func (h *handler) asked(r *http.Request, q *params) (name string, id store.BucketID, err error) {
	name = q.Get("bucket")
	if err = q.err; err == nil {
		id, err = h.bucket(r.Context(), name)
	}
	return name, id, err
}

// nameOf returns the name of the bucket id, or the id as a text if the name is not known.
func (h *handler) nameOf(id store.BucketID) string { return cmp.Or(h.Names().Of(id), id.String()) }

// params are the query parameters of an HTTP request. The field err is the error about the first wrong parameter, or
// nil if no wrong parameter was read.
type params struct {
	url.Values
	err error
}

func paramsOf(r *http.Request) *params { return &params{Values: r.URL.Query()} }

func (p *params) bad(format string, args ...any) {
	p.err = cmp.Or(p.err, store.Errorf(store.InvalidArgument, format, args...))
}

// number returns the named parameter of a request, which must be a number. It returns 0 if the request does not have
// the parameter.
func (p *params) number(name string) uint64 {
	s := cmp.Or(p.Get(name), "0")
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		p.bad("%s is %q, not a number", name, s)
	}
	return n
}

// limit returns the named parameter of a request, which bounds the number of elements in the answer. If the parameter
// is 0 or absent, the result is the argument usual. The result is never above `most`.
func (p *params) limit(name string, usual, most int) int {
	return int(min(cmp.Or(p.number(name), uint64(usual)), uint64(most)))
}

// time returns the named parameter of a request, which must be a time, in RFC 3339 or Unix seconds. If the parameter is
// absent, the result is the argument usual.
func (p *params) time(name string, usual time.Time) time.Time {
	s := p.Get(name)
	if s == "" {
		return usual
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		p.bad("%s is %q, not a time like 2026-03-01T12:00:00Z or Unix seconds", name, s)
	}
	return time.Unix(n, 0)
}
