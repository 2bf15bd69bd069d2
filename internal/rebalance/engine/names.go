package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// Names is a cache that has the names of buckets by their ids. Moves work with ids; the names are for people. The
// methods of Names are safe for concurrent use.
type Names struct {
	buckets *listing.Client
	missing chan store.BucketID // buckets in log lines without a known name

	mu    sync.Mutex
	known map[store.BucketID]string
}

func newNames(c *listing.Client) *Names {
	return &Names{buckets: c, missing: make(chan store.BucketID, mostMissing), known: map[store.BucketID]string{}}
}

const (
	// mostNames is the largest number of names in memory. When it is reached, all names are forgotten.
	mostNames = 100_000
	// mostListed is the largest number of buckets that one read of the list of buckets goes through. The names of
	// further buckets may stay unknown.
	mostListed = 10_000
	// mostMissing is the length of the queue of the ids of buckets whose names are to be looked up. While it is full,
	// further ids are dropped.
	mostMissing = 128
	// firstNames is the longest time that a process spends on reading names before it begins to move ranges.
	firstNames = time.Second
	// namesEvery is the shortest pause between two reads of the list of buckets that look up names.
	namesEvery = 10 * time.Second
)

// Remember stores the name of the bucket id in the cache. If the cache is full (100,000 names), it is emptied first.
func (n *Names) Remember(id store.BucketID, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.known) >= mostNames {
		clear(n.known)
	}
	n.known[id] = name
}

// Of returns the name of the bucket id, or "" if the cache does not have the name. Of never reads the store.
func (n *Names) Of(id store.BucketID) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.known[id]
}

// Learn looks up the names of the given buckets that the cache lacks, in the stored list of buckets, and adds them to
// the cache. Learn reads only the first ten thousand buckets of the list, so some names may stay unknown.
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

// learnAll puts the names of the first ten thousand buckets into the cache, so that even the first log lines have
// names. It takes at most a second.
func (n *Names) learnAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, firstNames)
	defer cancel()
	n.read(ctx, func(info listing.BucketInfo) (more bool) {
		n.Remember(info.ID, info.Name)
		return true
	})
}

// read calls visit with each bucket in the list of buckets, in the order of names. It stops when visit returns false,
// when mostListed buckets were read, or at the first error.
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

// run looks up, until ctx ends, the names of buckets that log lines could show only by their ids. Later log lines then
// have the names.
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

// namedLog is a log handler that adds the name of the bucket to each log line that has only the id of a bucket.
type namedLog struct {
	slog.Handler
	names *Names
}

// Handle adds the name of the bucket to the log record r, if the name is known, and passes the record on. Handle never
// reads the store, as callers may hold locks. A name that is not known is looked up later, for the lines that follow.
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
