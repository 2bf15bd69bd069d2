package adopt

import (
	"bytes"
	"context"
	"slices"

	"golang.org/x/sync/errgroup"
)

// Sample is what a source looks like.
type Sample struct {
	// Keys ascend; each stands for Every rows.
	Keys  [][]byte
	Every float64
	// RowBytes are those of keys and values, on average of a few rows.
	RowBytes int
}

// Rows estimates the rows of the source.
func (s *Sample) Rows() int64 { return int64(float64(len(s.Keys)) * s.Every) }

const (
	// sampledParts is how many parts are read, all keys of each: parts by a hash are samples of each other.
	sampledParts = 16
	mostKeys     = 1 << 16
	sampleRows   = 5000
)

// TakeSample reads the keys of some parts.
func TakeSample(ctx context.Context, s Source, parallel int) (*Sample, error) {
	parts := min(s.Parts(), sampledParts)
	seen := make([]sparse, parts)
	sizes := make([]int, parts)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i := range parts {
		part := i * s.Parts() / parts
		g.Go(func() (err error) {
			first, err := s.Page(gctx, part, Span{}, 200, true)
			for j := range first {
				sizes[i] += (len(first[j].Key) + len(first[j].Value)) / len(first)
			}
			for span := (Span{}); err == nil; span.After = true {
				var page []Row
				page, err = s.Page(gctx, part, span, sampleRows, false)
				for j := range page {
					seen[i].add(page[j].Key, mostKeys/parts)
				}
				if len(page) < sampleRows {
					break
				}
				span.From = bytes.Clone(page[len(page)-1].Key)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	every := 1
	for i := range seen {
		every = max(every, seen[i].every)
	}
	out := &Sample{Every: float64(every) * float64(s.Parts()) / float64(parts), RowBytes: slices.Max(sizes)}
	for i := range seen {
		for seen[i].every < every {
			seen[i].thin()
		}
		out.Keys = append(out.Keys, seen[i].keys...)
	}
	slices.SortFunc(out.Keys, bytes.Compare)
	return out, nil
}

// sparse keeps every n-th key of a stream; n doubles where they are too many.
type sparse struct {
	keys  [][]byte
	every int // 0: nothing was added yet
	skip  int // before the next one that is kept
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

// Cuts divides the keys into ranges of at most so many rows, by the sample, and bytes, if all rows are as large as
// those that were measured.
func (s *Sample) Cuts(rows, size int64) [][]byte {
	if s.RowBytes > 0 {
		rows = max(min(rows, size/int64(s.RowBytes)), 1)
	}
	return s.Streams(int(float64(s.Rows()+rows-1) / float64(rows)))
}

// Streams returns at most n-1 cuts, for streams of about the same length.
func (s *Sample) Streams(n int) (cuts [][]byte) {
	for i := 1; i < n && len(s.Keys) > 0; i++ {
		cut := s.Keys[i*len(s.Keys)/n]
		if len(cut) > 0 && (len(cuts) == 0 || !bytes.Equal(cut, cuts[len(cuts)-1])) {
			cuts = append(cuts, cut)
		}
	}
	return cuts
}
