package rebalance

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/wait"
)

// Names are the names of buckets by their ids, as far as they were met. Ids are what moves work with;
// names are for people. Its methods are safe for concurrent use.
type Names struct {
	buckets *listing.Client
	missing chan store.BucketID // those that lines of the log lack the names of

	mu    sync.Mutex
	known map[store.BucketID]string
}

func newNames(c *listing.Client) *Names {
	return &Names{buckets: c, missing: make(chan store.BucketID, mostMissing), known: map[store.BucketID]string{}}
}

const (
	// mostNames bounds the names that are kept.
	mostNames = 100_000
	// mostListed bounds the names that are read at once.
	mostListed = 10_000
	// mostMissing bounds the buckets whose names the log waits for.
	mostMissing = 128
	// firstNames bounds the time for the names that are read before the work begins.
	firstNames = time.Second
	// namesEvery is the least pause between two reads for the log.
	namesEvery = 10 * time.Second
)

// Remember keeps a name.
func (n *Names) Remember(id store.BucketID, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.known) >= mostNames {
		clear(n.known)
	}
	n.known[id] = name
}

// Of returns a bucket's name; empty if it is not known.
func (n *Names) Of(id store.BucketID) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.known[id]
}

// Learn looks up the names of buckets that are not known, among the first ten thousand.
func (n *Names) Learn(ctx context.Context, ids []store.BucketID) {
	missing := map[store.BucketID]bool{}
	for _, id := range ids {
		if n.Of(id) == "" {
			missing[id] = true
		}
	}
	if len(missing) == 0 {
		return
	}
	n.read(ctx, func(info listing.BucketInfo) (more bool) {
		if missing[info.ID] {
			n.Remember(info.ID, info.Name)
			delete(missing, info.ID)
		}
		return len(missing) > 0
	})
}

// learnAll looks up the first ten thousand names, before there is any line about their buckets.
func (n *Names) learnAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstNames)
	defer cancel()
	n.read(ctx, func(info listing.BucketInfo) (more bool) {
		n.Remember(info.ID, info.Name)
		return true
	})
}

// read reads the list of buckets, while visit wants more of it.
func (n *Names) read(ctx context.Context, visit func(info listing.BucketInfo) (more bool)) {
	read := 0
	for info, err := range n.buckets.Buckets(ctx, "", "") {
		if err != nil || read == mostListed {
			return
		}
		if read++; !visit(info) {
			return
		}
	}
}

// run looks up what lines of the log lack, until ctx ends.
func (n *Names) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-n.missing:
			ids := []store.BucketID{id}
			for range len(n.missing) {
				ids = append(ids, <-n.missing)
			}
			n.Learn(ctx, ids)
			if wait.Sleep(ctx, namesEvery) != nil {
				return
			}
		}
	}
}

// namedLog adds the names of buckets to lines that have their ids.
type namedLog struct {
	slog.Handler
	names *Names
}

// Handle never reads the store: callers may hold locks. A name that is not known yet is in later lines.
func (l *namedLog) Handle(ctx context.Context, r slog.Record) error {
	name := ""
	r.Attrs(func(a slog.Attr) bool {
		if a.Key != "bucket" || a.Value.Kind() != slog.KindString {
			return true
		}
		id, err := uuid.Parse(a.Value.String())
		if err != nil {
			return false
		}
		if name = l.names.Of(store.BucketID(id)); name == "" {
			select {
			case l.names.missing <- store.BucketID(id):
			default: // a later line asks again
			}
		}
		return false
	})
	if name != "" {
		r = r.Clone()
		r.AddAttrs(slog.String("name", name))
	}
	return l.Handler.Handle(ctx, r)
}

func (l *namedLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &namedLog{l.Handler.WithAttrs(attrs), l.names}
}

func (l *namedLog) WithGroup(name string) slog.Handler {
	return &namedLog{l.Handler.WithGroup(name), l.names}
}
