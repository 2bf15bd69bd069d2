package adminapi

import (
	"bufio"
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

	"github.com/evenkeel/evenkeel/internal/fsck"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/rebalance/balancer"
	"github.com/evenkeel/evenkeel/rebalance/leader"
	"github.com/evenkeel/evenkeel/rebalance/manager"
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
	Manager *manager.Manager
	Store   Store
	Maps    manager.Maps
	Names   Names
	// Buckets and Rows are what is checked when somebody asks for it; nil: nothing.
	Buckets *listing.Client
	Rows    fsck.Store
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
	mux.HandleFunc("GET /v1/sizes", h.sizes)
	mux.HandleFunc("POST /v1/recount", h.recount)
	mux.HandleFunc("GET /v1/layout", h.layout)
	mux.HandleFunc("GET /v1/jobs/{id}", h.serve(h.job))
	mux.HandleFunc("POST /v1/moves", h.serve(h.moves))
	mux.HandleFunc("POST /v1/apply", h.serve(h.apply))
	mux.HandleFunc("POST /v1/pause", h.serve(h.leading(h.which(func(id *store.BucketID) Done {
		o.Manager.Pause(id)
		return Done{}
	}))))
	mux.HandleFunc("POST /v1/resume", h.serve(h.leading(h.which(func(id *store.BucketID) Done {
		o.Manager.Resume(id)
		return Done{}
	}))))
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

func (h *handler) moves(r *http.Request) (any, error) {
	var m Moves
	if err := decode(r, &m); err != nil {
		return nil, err
	}
	if !m.DryRun { // that anybody can do
		if err := h.leads(r.Context()); err != nil {
			return nil, err
		}
	}
	id, err := h.bucket(r.Context(), m.Bucket)
	if err != nil {
		return nil, err
	}
	a := manager.Ask{Kind: manager.Kind(m.Kind), Force: m.Force, MaxRows: h.MaxRows}
	for _, k := range m.Keys {
		a.Keys = append(a.Keys, k)
	}
	for _, s := range m.Spans {
		a.Spans = append(a.Spans, partmap.Span{Start: s.Start, End: s.End})
	}
	if x := m.Append; x != nil {
		a.Append = h.appends(x)
	}
	if m.PinUntil != nil {
		if !m.PinUntil.After(h.Now()) {
			return nil, store.Errorf(store.InvalidArgument, "a pin until %s is over already", m.PinUntil.UTC().Format(time.RFC3339))
		}
		a.PinUntil = m.PinUntil.Unix()
	}
	p, err := h.Manager.Plan(r.Context(), id, a)
	if err != nil {
		return nil, err
	}
	out := Answer{Bucket: m.Bucket, Epoch: p.Epoch, Moves: []Move{}, Notes: p.Notes}
	if out.Notes == nil {
		out.Notes = []string{}
	}
	for _, x := range p.Moves {
		out.Moves = append(out.Moves, move(x.Goal.Start, x.Goal.End, x.Goal.Cuts, x.Rows, x.Copies))
	}
	if x := p.Learned; x != nil {
		out.Learned = &Learned{Method: string(x.Method), How: x.How, Sure: x.Sure, FromKeys: x.Keys, RowsEach: x.Each, LateRows: int64(x.Late)}
	}
	if !m.DryRun {
		j := h.jobOf(h.Manager.Submit(id, m.Kind, p))
		out.Job = &j
	}
	return out, nil
}

// defaultMaxRows is how many rows a partition may have where nobody says.
const defaultMaxRows = 100_000

func (h *handler) appends(x *Append) *manager.Append {
	a := &manager.Append{RowsPerSecond: x.RowsPerSecond, For: time.Duration(min(x.ForS, 1e9) * float64(time.Second)), MaxRows: x.MaxRows}
	if a.MaxRows == 0 {
		a.MaxRows = h.MaxRows
	}
	if a.MaxRows == 0 {
		a.MaxRows = defaultMaxRows
	}
	for _, k := range x.Like {
		a.Like = append(a.Like, k)
	}
	return a
}

func (h *handler) job(r *http.Request) (any, error) {
	j, ok := h.Manager.Job(r.PathValue("id"))
	if !ok {
		return nil, store.Errorf(store.NotFound, "this process knows no job %s: it was started again, or another one leads now. What had begun goes on; status shows it", r.PathValue("id"))
	}
	return h.jobOf(j), nil
}

func (h *handler) which(f func(*store.BucketID) Done) func(r *http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		var which Which
		if err := decode(r, &which); err != nil {
			return nil, err
		}
		var id *store.BucketID
		if which.Bucket != "" {
			found, err := h.bucket(r.Context(), which.Bucket)
			if err != nil {
				return nil, err
			}
			id = &found
		}
		if which.DryRun {
			return Done{}, nil
		}
		return f(id), nil
	}
}

func (h *handler) status(r *http.Request) (any, error) {
	s := h.Manager.Status()
	out := Status{Leading: s.Running, Paused: s.Paused, Rate: s.Rate, MostRate: s.MostRate, Buckets: []Bucket{}, Jobs: []Job{}}
	if h.Leader != nil {
		if holder, known, _ := h.Leader(r.Context()); known {
			out.Leader = leaderOf(holder)
		}
	}
	var ids []store.BucketID
	for _, b := range s.Buckets {
		ids = append(ids, b.ID)
	}
	for _, j := range s.Jobs {
		ids = append(ids, j.Bucket)
	}
	var sizes balancer.Status
	if h.Balancer != nil {
		sizes = h.Balancer.Status()
	}
	for _, w := range sizes.Round.Why {
		ids = append(ids, w.Bucket)
	}
	h.learn(r.Context(), ids)
	for _, b := range s.Buckets {
		x := Bucket{Name: h.name(b.ID), ID: b.ID.String(), Epoch: b.Epoch, State: b.State.String(), Ranges: b.Ranges, Batches: []Batch{},
			Goals: b.Goals, Running: b.Running, Paused: b.Paused, Failures: []Failure{}}
		if b.Epoch == 0 {
			x.State = "" // not looked at yet
		}
		for _, batch := range b.Batches {
			p := batch.Progress
			x.Batches = append(x.Batches, Batch{ID: batch.ID, Phase: batch.Phase.String(), Ranges: batch.Ranges, Copied: p.Copied, Verified: p.Verified, Mended: p.Mended, Searched: p.Searched, Swept: p.Swept})
		}
		for _, f := range b.Failures {
			x.Failures = append(x.Failures, Failure{At: f.At, Error: f.Err.Error()})
		}
		out.Buckets = append(out.Buckets, x)
	}
	for _, j := range s.Jobs {
		out.Jobs = append(out.Jobs, h.jobOf(j))
	}
	out.Scan = Scan{Roots: s.Scan.Roots, Found: s.Scan.Found, Began: moment(s.Scan.Began), Ended: moment(s.Scan.Ended), Error: text(s.Scan.Err)}
	out.Round = h.round(&sizes)
	return out, nil
}

// round is the last look at sizes.
func (h *handler) round(s *balancer.Status) Round {
	r := &s.Round
	out := Round{
		Every: h.Every.String(), Began: moment(r.Began), Ended: moment(r.Ended), Everything: r.Everything, Buckets: r.Buckets, Ranges: r.Ranges,
		Waiting: s.Waiting, Counted: s.Recounts, Rows: s.Read,
		Decided: map[string]int64{}, Moved: map[string]int64{}, Why: []Reason{}, Error: text(r.Err),
	}
	for d, n := range s.Decided {
		out.Decided[fmt.Sprintf("%s: %s", d.Kind, d.Why)] += n
	}
	for k, n := range s.Moved {
		out.Moved[string(k)] += n
	}
	for _, w := range r.Why {
		why := string(w.Verdict.Why)
		if w.Verdict.Text != "" {
			why += ": " + w.Verdict.Text
		}
		out.Why = append(out.Why, Reason{Bucket: h.name(w.Bucket), ID: w.Bucket.String(), Span: Span{Start: w.Start, End: w.End}, Text: why})
	}
	return out
}

// rootAt finds the root of an epoch; 0: the newest.
func (h *handler) rootAt(ctx context.Context, id store.BucketID, epoch uint64) (*partmap.Root, error) {
	root, err := h.Maps.Load(ctx, id)
	if err != nil || epoch == 0 || root.Epoch == epoch {
		return root, err
	}
	if epoch > root.Epoch {
		return nil, store.Errorf(store.NotFound, "the newest epoch is %d", root.Epoch)
	}
	old, err := h.Store.History(ctx, id, epoch+1, 1)
	if err != nil {
		return nil, err
	}
	if len(old) == 0 || old[0].Epoch != epoch {
		return nil, store.Errorf(store.NotFound, "epoch %d is not kept any more", epoch)
	}
	return partmap.DecodeRoot(id, old[0])
}

// showMap answers a map as it is read, so that its size does not matter.
func (h *handler) showMap(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("bucket")
	epoch, err := number(r, "epoch")
	if err != nil {
		fail(w, err)
		return
	}
	id, err := h.bucket(r.Context(), name)
	var root *partmap.Root
	if err == nil {
		root, err = h.rootAt(r.Context(), id, epoch)
	}
	if err == nil && root.State == partmap.Deleted {
		err = store.Errorf(store.NotFound, "bucket %q is deleted", name)
	}
	if err != nil {
		fail(w, err)
		return
	}
	read := func(n store.NodeID) ([]byte, error) { return h.Store.Node(r.Context(), id, n) }
	out := bufio.NewWriter(w)
	begun := false
	for rg, err := range partmap.Ranges(root, read, nil, nil) {
		if err != nil {
			if store.KindOf(err) == store.NotFound && epoch > 0 {
				err = store.Errorf(store.NotFound, "parts of epoch %d are not kept any more", epoch)
			}
			if !begun {
				fail(w, err)
				return
			}
			// Too late for an answer of its own: cut off, it is no JSON.
			panic(http.ErrAbortHandler)
		}
		p := Partition{ID: rg.Partition.String(), Start: rg.Start, End: rg.End, Phase: rg.Phase.String(), SweepPending: rg.SweepPending}
		if !rg.To.IsZero() {
			p.To = rg.To.String()
		}
		if rg.PinUntil > 0 {
			until := time.Unix(rg.PinUntil, 0).UTC()
			p.PinnedUntil = &until
		}
		line, err := marshal(p)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		if begun {
			_, _ = out.WriteString(",\n")
		} else {
			w.Header().Set("Content-Type", "application/json")
			bucket, _ := marshal(name)
			fmt.Fprintf(out, `{"bucket":%s,"epoch":%d,"partitions":[`+"\n", bucket, root.Epoch)
			begun = true
		}
		_, _ = out.Write(line)
	}
	_, _ = out.WriteString("\n]}\n")
	_ = out.Flush() // the client has gone
}

func (h *handler) history(r *http.Request) (any, error) {
	const most = 1000
	limit, err := number(r, "limit")
	if err != nil {
		return nil, err
	}
	if limit == 0 || limit > most {
		limit = most
	}
	name := r.URL.Query().Get("bucket")
	id, err := h.bucket(r.Context(), name)
	if err != nil {
		return nil, err
	}
	root, err := h.Maps.Load(r.Context(), id)
	if err != nil {
		return nil, err
	}
	out := History{Bucket: name, Epochs: []Epoch{epochOf(root)}}
	if limit == 1 {
		return out, nil
	}
	old, err := h.Store.History(r.Context(), id, root.Epoch, int(limit)-1)
	if err != nil {
		return nil, err
	}
	for _, rec := range old {
		root, err := partmap.DecodeRoot(id, rec)
		if err != nil {
			return nil, err
		}
		out.Epochs = append(out.Epochs, epochOf(root))
	}
	return out, nil
}

func epochOf(r *partmap.Root) Epoch {
	e := Epoch{Epoch: r.Epoch, Changed: time.UnixMicro(r.ChangedAt).UTC(), State: r.State.String(), Ranges: r.Ranges, Batches: []Batch{}}
	for _, b := range r.Batches {
		e.Batches = append(e.Batches, Batch{ID: b.ID, Phase: b.Phase.String(), Ranges: b.Ranges})
	}
	return e
}

func move(start, end []byte, cuts [][]byte, rows, copies int64) Move {
	m := Move{Start: start, End: end, Cuts: []Key{}, Rows: rows, Copies: copies}
	for _, c := range cuts {
		m.Cuts = append(m.Cuts, c)
	}
	return m
}

// jobOf is a job for JSON.
func (h *handler) jobOf(j manager.Job) Job {
	out := Job{ID: j.ID, Bucket: h.name(j.Bucket), What: j.What, State: "waiting", Asked: j.Asked, Ended: moment(j.Ended),
		Phase: j.Phase, Rows: j.Rows, Copied: j.Copied, Verified: j.Verified, Searched: j.Searched, Goals: []Goal{}, Error: text(j.Err())}
	if out.Bucket == "" {
		out.Bucket = j.Bucket.String()
	}
	for i := range j.Goals {
		g := &j.Goals[i]
		if g.Stage != manager.Waiting {
			out.State = "running"
		}
		out.Goals = append(out.Goals, Goal{Move: move(g.Goal.Start, g.Goal.End, g.Goal.Cuts, g.Within, g.Rows), Stage: string(g.Stage), Batch: g.Batch, Error: text(g.Err)})
	}
	if out.Ended != nil {
		out.State = "done"
		if out.Error != "" {
			out.State = "failed"
		}
	}
	return out
}

func leaderOf(h leader.Holder) *Leader {
	return &Leader{ID: h.ID.String(), Name: h.Name, Admin: h.Admin, Since: h.Since, Until: h.Until}
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

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
