package cleaning_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/test/race"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
)

// calls are those of cleaners for registers and bodies, of which one may fail.
type calls struct {
	mu    sync.Mutex
	n, at int
	by    string // what made that call
	fails func() error
}

func (c *calls) call() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n++; c.n != c.at {
		return nil
	}
	pc := make([]uintptr, 64)
	frames := runtime.CallersFrames(pc[:runtime.Callers(3, pc)])
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		c.by += f.Function + "\n"
	}
	return c.fails()
}

type calledRegisters struct {
	store.Registers
	c *calls
}

func (r calledRegisters) Read(ctx context.Context, t store.Table, key []byte, l store.Level) (store.Record, error) {
	if err := r.c.call(); err != nil {
		return store.Record{}, err
	}
	return r.Registers.Read(ctx, t, key, l)
}

func (r calledRegisters) Swap(
	ctx context.Context, t store.Table, key []byte, old store.Version, next store.Record,
) error {
	if err := r.c.call(); err != nil {
		return err
	}
	return r.Registers.Swap(ctx, t, key, old, next)
}

type calledBlobs struct {
	*flaky
	c *calls
}

func (b calledBlobs) List(ctx context.Context, prefix, after string, each func(string, int64) error) error {
	if err := b.c.call(); err != nil {
		return err
	}
	return b.flaky.List(ctx, prefix, after, each)
}

func (b calledBlobs) Tops(ctx context.Context, each func(top string) error) error {
	if err := b.c.call(); err != nil {
		return err
	}
	return b.flaky.Tops(ctx, each)
}

func (b calledBlobs) Delete(ctx context.Context, name string) error {
	if err := b.c.call(); err != nil {
		return err
	}
	return b.flaky.Delete(ctx, name)
}

// TestEachCallFails: whichever call of a day fails, the log says so, and the next round or audit does what was left.
// If the process ends during the call instead, this is no failure.
func TestEachCallFails(t *testing.T) {
	for at, ends := 0, false; at >= 0; at, ends = at+1, false {
		if race.Enabled && at%5 > 1 {
			continue
		}
		for range 2 {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				c := &calls{at: at, fails: func() error {
					if ends {
						cancel()
						return context.Canceled
					}
					return store.Errorf(store.Timeout, "injected")
				}}
				require.NoError(t, care.Claim(ctx, w.blobs, "0123"))
				w.orphan("videos")
				w.orphan("photos")
				_, err := w.o.Bucket("photos", objects.Never).Delete(ctx, []byte("key"))
				require.NoError(t, err)
				require.NoError(t, w.o.DeleteBucket(ctx, "photos"))
				w.regs = calledRegisters{w.s, c}
				w.o, err = objects.New(w.c, calledBlobs{w.blobs, c}, objects.Options{InlineBytes: -1})
				require.NoError(t, err)
				w.every, w.auditEvery, w.condemn = 2*time.Hour, 8*time.Hour, true
				x, running := w.cleaner(nil), sync.WaitGroup{}
				running.Go(func() { x.Run(ctx) })
				time.Sleep(29 * time.Hour)
				cancel()
				running.Wait()
				if at > c.n { // all have failed
					at = -2
				}
				log := w.lines.String()
				told := strings.Contains(c.by, ".remember\n") // that the next process audits anew, which is true
				if at <= 0 || ends && !told {
					require.NotContains(t, log, "level=WARN", "call %d: %s", at, c.by)
				} else if !ends && !strings.Contains(c.by, ".recallAll\n") && !strings.Contains(c.by, ".look\n") {
					require.Contains(t, log, "injected", "call %d: %s", at, c.by)
				}
				if !ends {
					left := append(w.bodies("videos"), w.bodies("photos")...)
					require.Equal(t, []string{w.present("videos")}, left, "call %d: %s", at, c.by)
					require.NotZero(t, x.Status(t.Context()).LastAudit.Ended)
				}
			})
			if ends = true; at <= 0 {
				break
			}
		}
	}
}
