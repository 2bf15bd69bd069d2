package adminapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/leader"
	"github.com/evenkeel/evenkeel/internal/rebalance/repair"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// Names knows the buckets' names; listing.Client does.
type Names interface {
	BucketID(ctx context.Context, name string) (store.BucketID, error)
	Buckets(ctx context.Context, prefix, after string) iter.Seq2[listing.BucketInfo, error]
}

// Store is what a handler reads beside the manager.
type Store interface {
	store.Registers
	store.Nodes
}

// Options of a handler.
type Options struct {
	Manager *scheduler.Scheduler
	Store   Store
	Maps    scheduler.Maps
	Names   Names
	// Buckets and Rows are what is checked when somebody asks for it; nil: nothing.
	Buckets *listing.Client
	Rows    repair.Store
	// Leader says who leads, and whether it is this process; nil: it always is.
	Leader func(ctx context.Context) (h leader.Holder, known, mine bool)
	// MaxRows is the most rows that a merge may come to unless it is forced; 0: any.
	MaxRows int64
	// Balancer looks after sizes; nil: nobody does.
	Balancer *balancer.Balancer
	// Every is the pause between its looks, for the status.
	Every time.Duration
	// Now is the wall clock, time.Now if nil.
	Now func() time.Time
}

// maxBody bounds a request: a million cuts of 64 bytes.
const maxBody = 64 << 20

// New makes the handler of everything below /v1/.
func New(o Options) http.Handler {
	if o.Now == nil {
		o.Now = time.Now
	}
	h := &handler{Options: o, names: map[store.BucketID]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", h.serve(h.status))
	mux.HandleFunc("GET /v1/map", h.showMap)
	mux.HandleFunc("GET /v1/history", h.serve(h.history))
	mux.HandleFunc("POST /v1/verify", h.verify)
	mux.HandleFunc("POST /v1/backup", h.backup)
	mux.HandleFunc("POST /v1/sizes", h.sizes)
	mux.HandleFunc("GET /v1/explain", h.serve(h.leading(h.explain)))
	mux.HandleFunc("POST /v1/recount", h.recount)
	mux.HandleFunc("POST /v1/layout", h.layout)
	mux.HandleFunc("GET /v1/jobs/{id}", h.serve(h.job))
	mux.HandleFunc("POST /v1/moves", h.serve(h.moves))
	mux.HandleFunc("POST /v1/apply", h.serve(h.apply))
	mux.HandleFunc("POST /v1/pause", h.serve(h.pause))
	mux.HandleFunc("POST /v1/quiet", h.quiet)
	mux.HandleFunc("POST /v1/resume", h.serve(h.resume))
	mux.HandleFunc("POST /v1/abort", h.serve(h.leading(h.which(func(id *store.BucketID) Done {
		return Done{Dropped: o.Manager.Abort(id)}
	}))))
	mux.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
		fail(w, store.Errorf(store.NotFound, "there is no %s %s here", r.Method, r.URL.Path))
	})
	// A page in somebody's browser must not move anything.
	return http.NewCrossOriginProtection().Handler(mux)
}

type handler struct {
	Options
	mu    sync.Mutex
	names map[store.BucketID]string // as far as they were met
}

// elsewhere says that another process leads.
type elsewhere struct{ holder leader.Holder }

func (e *elsewhere) Error() string {
	if e.holder.Admin == "" {
		return fmt.Sprintf("this process does not lead: %s does, which takes no commands; wait until it has ended", &e.holder)
	}
	return fmt.Sprintf("this process does not lead: %s does, at %s", &e.holder, e.holder.Admin)
}

// fail answers an error.
func fail(w http.ResponseWriter, err error) {
	p := Problem{Error: err.Error(), Kind: store.KindOf(err).String()}
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
	var e *elsewhere
	if errors.As(err, &e) {
		code = http.StatusMisdirectedRequest
		p.Leader = leaderOf(e.holder)
	}
	answer(w, code, p)
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // the client has gone
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

// leads fails unless this process leads.
func (h *handler) leads(ctx context.Context) error {
	if h.Leader == nil {
		return nil
	}
	switch holder, known, mine := h.Leader(ctx); {
	case mine:
		return nil
	case known:
		return &elsewhere{holder}
	}
	return store.Errorf(store.Unavailable, "no process leads at present: one will in a moment, if one is left; try again")
}

// leading lets a request through if this process leads.
func (h *handler) leading(f func(r *http.Request) (any, error)) func(r *http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		if err := h.leads(r.Context()); err != nil {
			return nil, err
		}
		return f(r)
	}
}

// decode reads a request's body.
func decode(r *http.Request, v any) error {
	d := json.NewDecoder(io.LimitReader(r.Body, maxBody))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == io.EOF {
		return nil // nothing is asked for in particular
	}
	if err != nil {
		return store.Errorf(store.InvalidArgument, "the request is not understood: %w", err)
	}
	return nil
}

// bucket finds a bucket by its name, or by its id where no bucket has such a name.
func (h *handler) bucket(ctx context.Context, name string) (store.BucketID, error) {
	if name == "" {
		return store.BucketID{}, store.Errorf(store.InvalidArgument, "name a bucket")
	}
	id, err := h.Names.BucketID(ctx, name)
	if err == nil {
		h.remember(id, name)
	}
	if errors.Is(err, store.NotFound) {
		if parsed, perr := parseID(name); perr == nil {
			return parsed, nil
		}
		return id, store.Errorf(store.NotFound, "there is no bucket %q", name)
	}
	return id, err
}

func (h *handler) remember(id store.BucketID, name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	const most = 100_000
	if len(h.names) >= most {
		clear(h.names)
	}
	h.names[id] = name
}

// name is a bucket's name, as far as it is known; empty: it is not.
func (h *handler) name(id store.BucketID) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.names[id]
}

// learn looks for names of buckets among the first of all.
func (h *handler) learn(ctx context.Context, ids []store.BucketID) {
	missing := map[store.BucketID]bool{}
	for _, id := range ids {
		if h.name(id) == "" {
			missing[id] = true
		}
	}
	const most = 10_000
	n := 0
	if len(missing) == 0 {
		return
	}
	for info, err := range h.Names.Buckets(ctx, "", "") {
		if err != nil || n == most {
			return
		}
		n++
		if missing[info.ID] {
			h.remember(info.ID, info.Name)
			if delete(missing, info.ID); len(missing) == 0 {
				return
			}
		}
	}
}

// defaultMaxRows is how many rows a partition may have where nobody says.
const defaultMaxRows = 100_000

func number(r *http.Request, name string) (uint64, error) {
	s := r.URL.Query().Get(name)
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, store.Errorf(store.InvalidArgument, "%s is %q, not a number", name, s)
	}
	return n, nil
}
