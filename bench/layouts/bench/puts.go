package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/bench/layouts"
)

// nameSingly is the name, in the report, of evenkeel putting entries one by one, beside evenkeel putting the same
// number in a batch.
const nameSingly = layouts.NameEvenkeel + ", one by one"

// putters is the number of workers that put at the same time. putRounds and batchRounds are the numbers of measured
// rounds, and batchPuts is the number of entries of a batch.
const (
	putters     = 64
	putRounds   = 40
	batchRounds = 20
	batchPuts   = 1280
)

// puts measures puts into a new bucket of each layout: by 1 worker, by 64 workers, and in batches. After the
// measurement, puts reads all buckets to check that every entry is present.
func (x *runner) puts(ctx context.Context, l *loaded) (err error) {
	if x.store == Pebble { // what is put one by one has to be synced
		e, opening := openEmbedded(false, x.embedded(l.set))
		if opening != nil {
			return opening
		}
		defer func() { err = errors.Join(err, e.close()) }()
		was := x.w
		x.w = e
		defer func() { x.w = was }()
	}
	s := set{name: "puts"}
	cuts := x.cuts(l.oracle)
	// The i-th put of a target: keys of the set, in no order, each with a number.
	perm := rand.New(rand.NewPCG(3, 4)).Perm(len(l.oracle.keys))
	key := func(i int64) []byte {
		k := l.oracle.keys[perm[int(i)%len(perm)]]
		return fmt.Appendf(bytes.Clone(k), ".%d", i)
	}
	var targets []*putTarget
	for _, name := range l.layouts {
		if name == nameMany {
			continue
		}
		made, err := x.prepare(ctx, s, name, nil, cuts)
		if err != nil {
			return err
		}
		targets = append(targets, &putTarget{name: name, key: key, l: made, put: made.Put})
	}
	targets = append(targets, &putTarget{
		name: nameBare, key: key, put: func(ctx context.Context, key, value []byte) error {
			return x.w.bare().put(ctx, s.name, key, value)
		},
	})
	var alone, atOnce, batches []way
	for _, t := range targets {
		alone = append(alone, way{layout: t.name, do: t.singly(1, 20)})
		atOnce = append(atOnce, way{layout: t.name, do: t.singly(putters, 5)})
		if t.l != nil {
			batches = append(batches, way{layout: t.name, do: t.batch(batchPuts)})
		}
	}
	one, err := x.prepare(ctx, set{name: "puts-one"}, layouts.NameEvenkeel, nil, nil)
	if err != nil {
		return err
	}
	into := &putTarget{name: layouts.NameEvenkeel, key: key, l: one, put: one.Put}
	targets = append(targets, into)
	for _, c := range []struct {
		measure string
		of      int
		ways    []way
		rounds  int
	}{
		{putsAlone, 20, alone, putRounds},
		// A round takes a few ms: with 40 of them runs differed by a fifth.
		{putsAtOnce, putters * 5, atOnce, 4 * putRounds},
		{putsBatch, batchPuts, batches, batchRounds},
		{putsOne, batchPuts, []way{{layout: into.name, do: into.batch(batchPuts)},
			{layout: nameSingly, do: into.singly(putters, batchPuts/putters)}}, putRounds},
	} {
		if err := x.turns(ctx, l, c.measure, c.of, c.ways, c.rounds, max(x.warmRounds()/10, 2)); err != nil {
			return err
		}
	}
	for _, t := range targets {
		if err := t.complete(ctx); err != nil {
			return fmt.Errorf("what was put into %s: %w", t.name, err)
		}
	}
	return nil
}

// putTarget is a bucket of one layout, or the database without a layout, into which puts are measured.
type putTarget struct {
	name string
	key  func(i int64) []byte
	l    layouts.Layout // nil: bare
	put  func(ctx context.Context, key, value []byte) error
	next atomic.Int64
}

// singly returns a function for one round of a measurement: several workers at once put `each` new entries each, one by
// one.
func (t *putTarget) singly(workers, each int) func(context.Context, int) (func() error, error) {
	return func(ctx context.Context, _ int) (func() error, error) {
		g, ctx := errgroup.WithContext(ctx)
		for range workers {
			g.Go(func() error {
				for range each {
					k := t.key(t.next.Add(1))
					if err := t.put(ctx, k, valueOf(k, 0)); err != nil {
						return err
					}
				}
				return nil
			})
		}
		return nil, g.Wait()
	}
}

// batch returns a function for one round of a measurement: it puts n new entries at once, in the layout's fastest way.
func (t *putTarget) batch(n int) func(context.Context, int) (func() error, error) {
	return func(ctx context.Context, _ int) (func() error, error) {
		entries := make([]layouts.Entry, n)
		for i := range entries {
			k := t.key(t.next.Add(1))
			entries[i] = layouts.Entry{Key: k, Value: valueOf(k, 0)}
		}
		return nil, t.l.Load(ctx, entries)
	}
}

// complete returns an error if the bucket does not hold exactly the entries that were put.
func (t *putTarget) complete(ctx context.Context) error {
	if t.l == nil {
		return nil
	}
	var put []layouts.Entry
	for i := range t.next.Load() {
		k := t.key(i + 1)
		put = append(put, layouts.Entry{Key: k, Value: valueOf(k, 0)})
	}
	var found pages
	if err := t.l.Scan(ctx, 4, found.add); err != nil {
		return err
	}
	return newOracle(put).complete(found.all)
}
