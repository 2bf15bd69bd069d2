package adopt

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/wait"
)

// Sample is a sample of the keys of a source. It serves to estimate the number of rows, and to find keys that divide
// the rows evenly.
type Sample struct {
	// Keys are the sampled keys, in ascending order. Each of them stands for Every rows.
	Keys  [][]byte
	Every float64
	// RowBytes is the mean size of a key with its value, in bytes, measured on a few rows.
	RowBytes int
}

// Rows returns an estimate of the number of rows of the source: the number of sampled keys times Every.
func (s *Sample) Rows() int64 { return int64(float64(len(s.Keys)) * s.Every) }

const (
	// sampledParts is the number of parts of the source, such as partitions of a table, that are read first, with all
	// their keys. If the application chooses parts by a hash of the key, these parts represent all others.
	sampledParts = 16
	mostKeys     = 1 << 16
	sampleRows   = 5000
)

// TakeSample returns a sample of the keys of a source. It reads all keys of 16 parts of the source, such as partitions
// of a table. If these parts do not show where the keys of the other parts lie, as when each part is a day, it reads
// all parts. parallel is the number of parts that are read at the same time, and pace limits the keys read per second.
func TakeSample(ctx context.Context, s Source, parallel int, pace *wait.Pacer) (*Sample, error) {
	var mu sync.Mutex
	var seen sparse
	out := &Sample{}
	page := func(ctx context.Context, part int, span Span, limit int, values bool) ([]Row, error) {
		if err := pace.Take(ctx, limit); err != nil {
			return nil, err
		}
		rows, err := s.Page(ctx, part, span, limit, values)
		pace.Return(limit - len(rows))
		return rows, err
	}
	read := func(ctx context.Context, part int) error {
		for span := (Span{}); ; span.After = true {
			rows, err := page(ctx, part, span, sampleRows, false)
			if err != nil {
				return err
			}
			mu.Lock()
			for i := range rows {
				seen.add(rows[i].Key, mostKeys)
			}
			mu.Unlock()
			if len(rows) < sampleRows {
				return nil
			}
			span.From = bytes.Clone(rows[len(rows)-1].Key)
		}
	}
	each := func(parts []int, do func(ctx context.Context, part int) error) error {
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(parallel)
		for _, part := range parts {
			g.Go(func() error { return do(ctx, part) })
		}
		return g.Wait()
	}
	n := min(s.Parts(), sampledParts)
	var some, others []int
	for part := range s.Parts() {
		if len(some) < n && part == len(some)*s.Parts()/n {
			some = append(some, part)
		} else {
			others = append(others, part)
		}
	}
	err := each(some, func(ctx context.Context, part int) error {
		first, err := page(ctx, part, Span{}, 200, true)
		if err != nil {
			return err
		}
		size := 0
		for i := range first {
			size += len(first[i].Key) + len(first[i].Value)
		}
		mu.Lock()
		out.RowBytes = max(out.RowBytes, size/max(len(first), 1))
		mu.Unlock()
		return read(ctx, part)
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(seen.keys, bytes.Compare)
	var early []byte // if parts are chosen by a hash, all begin below this key
	if len(seen.keys) > 0 {
		early = seen.keys[len(seen.keys)/4]
	}
	var apart atomic.Bool
	err = each(others, func(ctx context.Context, part int) error {
		if apart.Load() {
			return nil
		}
		first, err := page(ctx, part, Span{}, 1, false)
		if len(first) > 0 && bytes.Compare(first[0].Key, early) > 0 {
			apart.Store(true)
		}
		return err
	})
	if err == nil && apart.Load() {
		some = append(some, others...)
		err = each(others, read)
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(seen.keys, bytes.Compare)
	out.Keys, out.Every = seen.keys, float64(seen.every)*float64(s.Parts())/float64(len(some))
	return out, nil
}

// sparse makes a sample of a stream of keys, with a bounded number of keys. It keeps every n-th key. n starts at 1.
// Each time that there are too many keys, n doubles, and every other key is dropped.
type sparse struct {
	keys  [][]byte
	every int // n; 0: no key was added yet
	skip  int // number of keys to skip before the next kept one
}

func (s *sparse) add(key []byte, most int) {
	s.every = max(s.every, 1)
	if s.skip > 0 {
		s.skip--
		return
	}
	if len(s.keys) >= most {
		s.thin()
	}
	s.keys, s.skip = append(s.keys, bytes.Clone(key)), s.every-1
}

func (s *sparse) thin() {
	s.every = max(s.every, 1) * 2
	kept := s.keys[:0]
	for i := 0; i < len(s.keys); i += 2 {
		kept = append(kept, s.keys[i])
	}
	s.keys = kept
}

// Cuts returns keys that divide the bucket into ranges of about equal size. By the estimate of the sample, each range
// has at most the number of rows in `rows`, and at most `size` bytes.
func (s *Sample) Cuts(rows, size int64) [][]byte {
	if s.RowBytes > 0 {
		rows = max(min(rows, size/int64(s.RowBytes)), 1)
	}
	return s.Streams(int(float64(s.Rows()+rows-1) / float64(rows)))
}

// Streams returns at most n-1 keys that divide all keys into n intervals with about the same number of rows. The
// intervals can be copied at the same time.
func (s *Sample) Streams(n int) (cuts [][]byte) {
	for i := 1; i < n && len(s.Keys) > 0; i++ {
		cut := s.Keys[i*len(s.Keys)/n]
		if len(cut) > 0 && (len(cuts) == 0 || !bytes.Equal(cut, cuts[len(cuts)-1])) {
			cuts = append(cuts, cut)
		}
	}
	return cuts
}
