package sim

import (
	"bytes"
	"context"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/evenkeel/evenkeel/store"
)

// stageBlobs are the bodies of objects in memory, in one store for both data centres. Calls wait for their turn in the
// scheduler, and may fail.
type stageBlobs struct {
	g    *stage
	free bool

	mu    sync.Mutex
	m     map[string][]byte
	r     *rand.Rand
	quiet bool
}

func (s *stageBlobs) calm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quiet = true
}

// call runs f for the operation op when it is the caller's turn, or fails before or after f.
func (s *stageBlobs) call(ctx context.Context, op string, f func() error) error {
	if s.free {
		return f()
	}
	if err := ctx.Err(); err != nil {
		return store.Wrap(op, err)
	}
	if !s.g.s.gate(ctx, op) {
		return store.Errorf(store.Unavailable, "%s: %w", op, errStopped)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fails, before := !s.quiet && s.g.c.faulty() && s.r.Float64() < 0.03, s.r.IntN(2) == 0
	if fails && before {
		return store.Errorf(store.Unavailable, "%s: injected", op)
	}
	if err := f(); err != nil || !fails {
		return err
	}
	return store.Errorf(store.Unavailable, "%s: injected, the answer is lost", op)
}

func (s *stageBlobs) Create(ctx context.Context, name string, body io.Reader, _ int64) error {
	b, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	return s.call(ctx, "create a body", func() error {
		if _, there := s.m[name]; there {
			return store.Errorf(store.InvalidArgument, "body %s was written before", name)
		}
		s.m[name] = b
		return nil
	})
}

func (s *stageBlobs) Open(ctx context.Context, name string, offset, n int64) (r io.ReadCloser, size int64, err error) {
	err = s.call(ctx, "open a body", func() error {
		b, there := s.m[name]
		if !there {
			return store.Errorf(store.NotFound, "no body %s", name)
		}
		r, size = io.NopCloser(io.NewSectionReader(bytes.NewReader(b), offset, n)), int64(len(b))
		return nil
	})
	return r, size, err
}

func (s *stageBlobs) Delete(ctx context.Context, name string) error {
	return s.call(ctx, "delete a body", func() error {
		delete(s.m, name)
		return nil
	})
}

func (s *stageBlobs) List(ctx context.Context, prefix, after string, each func(name string, size int64) error) error {
	sizes := map[string]int64{}
	err := s.call(ctx, "list bodies", func() error {
		for name, b := range s.m {
			if strings.HasPrefix(name, prefix) && name > after {
				sizes[name] = int64(len(b))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		if err := each(name, sizes[name]); err != nil {
			return err
		}
	}
	return nil
}
