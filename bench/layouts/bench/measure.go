package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/bench/layouts"
)

// nameNaive is the name, in the report, of the layout with 256 hash buckets when a page reads a whole page of every
// bucket.
const nameNaive = layouts.NameHash + ", naive merge"

// The names of what is measured, as the report prints them.
const (
	firstPage   = "first page of 1000"
	deepPage    = "deep page of 1000"
	prefixPage  = "page under a prefix"
	foldedPage  = "folders and files of a folder"
	folderPage  = "1000 common prefixes"
	newestPage  = "newest 1000"
	newerPage   = "1000 before some moment"
	fullScan    = "full scan"
	parallelAll = "full scan by 4 readers"
	putsAlone   = "puts, 1 worker"
	putsAtOnce  = "puts, 64 workers"
	putsBatch   = "batch of 1280 puts"
	putsOne     = "1280 puts into one partition"
)

const pageRows = 1000

// turns measures several ways to do the same work in turns, and adds a line for each way to the report. measure is the
// name of the work, and `of` the number of rows or puts of one round. rounds is the number of measured rounds, after
// `warm` rounds that do not count. If little time is left, fewer rounds are made, and the report says so.
func (x *runner) turns(ctx context.Context, l *loaded, measure string, of int, ways []way, rounds, warm int) error {
	share := time.Until(x.deadline) / 8 // what comes later must fit in, too
	if share < time.Second {
		x.r.leftOut("%s, %s: %s: the time was up", x.store, l.name, measure)
		return nil
	}
	x.say("%s: %s", l.name, measure)
	lines, err := turns(ctx, ways, rounds, warm, share)
	if err != nil {
		return fmt.Errorf("%s: %w", measure, err)
	}
	if len(lines) > 0 && lines[0].N < rounds {
		x.r.leftOut("%s, %s: %s: %d of %d rounds", x.store, l.name, measure, rounds-lines[0].N, rounds)
	}
	for _, line := range lines {
		line.Store, line.Set, line.Measure, line.Of = x.store, l.name, measure, of
		x.r.Lines = append(x.r.Lines, line)
	}
	return nil
}

// warmRounds returns the number of rounds before the measured ones, in which a server warms up, e.g. compiles hot code.
func (x *runner) warmRounds() int {
	if x.store == Cassandra {
		return min(100, x.o.Pages)
	}
	return min(20, x.o.Pages)
}

func (x *runner) measure(ctx context.Context, l *loaded) error {
	if err := x.sizes(ctx, l); err != nil {
		return err
	}
	pages := x.o.Pages
	switch {
	case l.feed:
		return errors.Join(
			x.pages(ctx, l, newestPage, pages,
				func(*rand.Rand) layouts.Query { return layouts.Query{Reverse: true, Limit: pageRows} }),
			x.pages(ctx, l, newerPage, pages, func(r *rand.Rand) layouts.Query {
				return layouts.Query{Reverse: true, Limit: pageRows, After: l.oracle.keys[r.IntN(len(l.oracle.keys))]}
			}),
		)
	case l.name == setPaths || l.name == setTenth:
		return x.pages(ctx, l, folderPage, max(pages/10, 3), func(*rand.Rand) layouts.Query {
			return layouts.Query{Delimiter: []byte("/"), Limit: pageRows}
		})
	case l.name != setReal:
		return x.pages(ctx, l, deepPage, max(pages/4, 3), x.deep(l))
	}
	folder := func(r *rand.Rand) []byte { // of a random key
		key := l.oracle.keys[r.IntN(len(l.oracle.keys))]
		return key[:bytes.LastIndexByte(key, '/')+1]
	}
	if err := x.pages(ctx, l, firstPage, pages,
		func(*rand.Rand) layouts.Query { return layouts.Query{Limit: pageRows} }); err != nil {
		return err
	}
	if err := x.pages(ctx, l, deepPage, pages, x.deep(l)); err != nil {
		return err
	}
	if err := x.pages(ctx, l, prefixPage, pages,
		func(r *rand.Rand) layouts.Query { return layouts.Query{Prefix: folder(r), Limit: pageRows} }); err != nil {
		return err
	}
	if err := x.pages(ctx, l, foldedPage, max(pages/4, 3), func(r *rand.Rand) layouts.Query {
		parts := strings.SplitAfter(string(folder(r)), "/")
		return layouts.Query{
			Prefix: []byte(strings.Join(parts[:r.IntN(len(parts))], "")), Delimiter: []byte("/"), Limit: pageRows,
		}
	}); err != nil {
		return err
	}
	if err := x.scans(ctx, l); err != nil {
		return err
	}
	if err := x.puts(ctx, l); err != nil || x.store != Cassandra {
		return err
	}
	return x.swaps(ctx)
}

// deep returns a function that makes queries for a page after a random key. The key is chosen so that a whole page of
// keys follows.
func (x *runner) deep(l *loaded) func(r *rand.Rand) layouts.Query {
	return func(r *rand.Rand) layouts.Query {
		return layouts.Query{After: l.oracle.keys[r.IntN(max(len(l.oracle.keys)-pageRows, 1))], Limit: pageRows}
	}
}

// slow returns the number of rounds in which a layout takes part that is very slow for a measure. The result 0 means
// all rounds.
func slow(layout, measure string, rounds int) int {
	switch {
	case layout == nameNaive:
		return min(20, rounds)
	case layout == layouts.NameHash && measure == folderPage:
		return min(3, rounds)
	case layout == layouts.NameHash && measure == foldedPage:
		return min(10, rounds)
	}
	return 0
}

// pages measures how long each layout takes to read pages of one kind. query returns the query of a round, made from
// random numbers, so that all layouts read the same pages. measure is the name of the kind of page.
func (x *runner) pages(
	ctx context.Context, l *loaded, measure string, rounds int, query func(*rand.Rand) layouts.Query,
) error {
	of := func(round int) layouts.Query { return query(rand.New(rand.NewPCG(7, uint64(round)))) }
	var ways []way
	add := func(name string, timed, counted layouts.Layout, meter *layouts.Meter) {
		ways = append(ways, way{
			layout: name, rounds: slow(name, measure, rounds),
			do: func(ctx context.Context, round int) (func() error, error) {
				q := of(round)
				items, err := timed.List(ctx, q)
				return func() error { return l.oracle.check(q, items) }, err
			},
			counted: func(ctx context.Context, round int) (layouts.Work, error) {
				before := meter.Work()
				_, err := counted.List(ctx, of(round))
				return meter.Work().Since(before), err
			},
		})
	}
	for _, name := range l.layouts {
		if name == nameMany && measure != firstPage && measure != deepPage {
			continue
		}
		add(name, l.timed[name], l.counted[name], l.meters[name])
		if name == layouts.NameHash && (measure == firstPage || measure == deepPage) && l.name == setReal {
			o := layouts.HashOptions{Naive: true}
			m := &layouts.Metered{Store: x.w.rows(name)}
			id := bucketOf(l.name, name)
			add(nameNaive, layouts.NewHash(x.w.rows(name), id, o), layouts.NewHash(m, id, o), &m.Meter)
		}
	}
	if q := of(0); !q.Reverse && len(q.Delimiter) == 0 && len(q.Prefix) == 0 {
		ways = append(ways, way{layout: nameBare, do: func(ctx context.Context, round int) (func() error, error) {
			q := of(round)
			rows, err := x.w.bare().page(ctx, l.name, q.After, nil, q.Limit)
			return func() error {
				items := make([]layouts.Item, len(rows))
				for i := range rows {
					items[i].Entry = rows[i]
				}
				return l.oracle.check(q, items)
			}, err
		}})
	}
	return x.turns(ctx, l, measure, 0, ways, rounds, min(x.warmRounds(), rounds))
}

// scanRounds is the number of rounds in which all entries are read, enough rounds to tell how much the times vary.
const scanRounds = 15

// scans measures how long each layout takes to read all entries, by one reader and by four readers at once.
func (x *runner) scans(ctx context.Context, l *loaded) error {
	const readers = 4
	for _, n := range []int{1, readers} {
		measure := fullScan
		if n > 1 {
			measure = parallelAll
		}
		var ways []way
		add := func(name string, scan func(ctx context.Context, each func([]layouts.Entry) error) error) {
			ways = append(ways, way{layout: name, do: func(ctx context.Context, _ int) (func() error, error) {
				var found pages
				err := scan(ctx, found.add)
				return func() error { return l.oracle.complete(found.all) }, err
			}})
		}
		for _, name := range l.layouts {
			if name == nameMany {
				continue
			}
			add(name, func(ctx context.Context, each func([]layouts.Entry) error) error {
				return l.timed[name].Scan(ctx, n, each)
			})
		}
		add(nameBare, func(ctx context.Context, each func([]layouts.Entry) error) error {
			return x.bareScan(ctx, l, n, each)
		})
		if err := x.turns(ctx, l, measure, len(l.oracle.keys), ways, scanRounds, 1); err != nil {
			return err
		}
	}
	return nil
}

// bareScan reads all entries of a set from the database without a layout. Several readers read an equal part of the
// keys each, and call `each` with every page.
func (x *runner) bareScan(ctx context.Context, l *loaded, readers int, each func([]layouts.Entry) error) error {
	cuts := layouts.EvenCuts(l.oracle.keys, readers)
	g, ctx := errgroup.WithContext(ctx)
	for i := range len(cuts) + 1 {
		var after, end []byte
		if i > 0 {
			after = l.oracle.keys[l.oracle.at(cuts[i-1])-1]
		}
		if i < len(cuts) {
			end = cuts[i]
		}
		g.Go(func() error {
			for {
				page, err := x.w.bare().page(ctx, l.name, after, end, layouts.ScanPage)
				if err != nil {
					return err
				}
				if err := each(page); err != nil || len(page) < layouts.ScanPage {
					return err
				}
				after = page[len(page)-1].Key
			}
		})
	}
	return g.Wait()
}
