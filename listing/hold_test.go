package listing_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// slow is a store whose puts and deletes wait for leave, if it is set, and whose slices,
// once so many are done, never come to an end.
type slow struct {
	store.Store
	leave  chan struct{}
	slices atomic.Int64
}

func (s *slow) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	if s.leave != nil {
		<-s.leave
	}
	return s.Store.Put(ctx, p, rows...)
}

func (s *slow) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	if s.leave != nil {
		<-s.leave
	}
	return s.Store.Delete(ctx, p, key, ts)
}

func (s *slow) Remove(ctx context.Context, p store.Partition, b store.Bounds, ts store.Timestamp) error {
	if s.leave != nil {
		<-s.leave
	}
	return s.Store.Remove(ctx, p, b, ts)
}

func (s *slow) Slice(ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions) (store.Page, error) {
	if s.slices.Add(-1) < 0 {
		<-ctx.Done()
		return store.Page{}, ctx.Err()
	}
	return s.Store.Slice(ctx, p, b, o)
}

// slowThen is a slow store that can be given up by itself.
type slowThen struct{ *slow }

func (s slowThen) PutThen(ctx context.Context, p store.Partition, ended func(), rows ...store.Row) error {
	for i := range rows {
		rows[i].Key, rows[i].Value = bytes.Clone(rows[i].Key), bytes.Clone(rows[i].Value)
	}
	done := make(chan error, 1)
	go func() {
		defer ended()
		done <- s.Put(context.WithoutCancel(ctx), p, rows...)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func newSlow(t *testing.T) (*slow, *listing.Client, *listing.Bucket, store.BucketID) {
	s := &slow{Store: memstore.New()}
	c, b, id := overSlow(t, s, s)
	return s, c, b, id
}

// overSlow makes a client over a slow store, or over what is around it.
func overSlow(t *testing.T, s *slow, around store.Store) (*listing.Client, *listing.Bucket, store.BucketID) {
	s.slices.Store(1 << 40)
	c, err := listing.New(around, listing.Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "b"))
	for info, err := range c.Buckets(t.Context(), "", "") {
		require.NoError(t, err)
		return c, c.Bucket("b"), info.ID
	}
	panic("no bucket")
}

// nextEpoch changes the map and begins to wait for the leases of the old one.
func nextEpoch(t *testing.T, s store.Store, c *listing.Client, id store.BucketID) (waited chan error) {
	root, err := mapclient.Of(c).Load(t.Context(), id)
	require.NoError(t, err)
	e := partmap.NewEdit(
		root, mapclient.Of(c).Stamp(), func(n store.NodeID) ([]byte, error) { return s.Node(t.Context(), id, n) },
	)
	_, err = e.Begin(partmap.Move{Parts: []partmap.Part{{To: store.PartitionID{1}}}})
	require.NoError(t, err)
	change, err := e.Change()
	require.NoError(t, err)
	require.NoError(t, mapclient.Of(c).Swap(t.Context(), change))
	waited = make(chan error, 1)
	go func() { waited <- mapclient.Of(c).Wait(t.Context(), id) }()
	return waited
}

func TestLeaseIsHeldUntilTheWriteHasEnded(t *testing.T) {
	for name, write := range map[string]func(context.Context, *listing.Bucket, []byte) error{
		"Put": func(ctx context.Context, b *listing.Bucket, key []byte) error { return b.Put(ctx, key, nil) },
		"PutBatch": func(ctx context.Context, b *listing.Bucket, key []byte) error {
			return b.PutBatch(ctx, []listing.Entry{{Key: key}})
		},
		"Delete": func(ctx context.Context, b *listing.Bucket, key []byte) error { return b.Delete(ctx, key) },
		"DeleteRange of few": func(ctx context.Context, b *listing.Bucket, key []byte) error {
			return b.DeleteRange(ctx, key, nil)
		},
		"DeleteRange of all": func(ctx context.Context, b *listing.Bucket, key []byte) error {
			return b.DeleteRange(ctx, nil, nil)
		},
		"Bring": func(ctx context.Context, b *listing.Bucket, key []byte) error {
			m, err := door.Bucket(b).Mark(ctx)
			require.NoError(t, err)
			return door.Bucket(b).Bring(ctx, m, []store.Row{{Key: key, Value: []byte{}}})
		},
	} {
		for _, then := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/then=%v", name, then), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := &slow{Store: memstore.New()}
					var around store.Store = s
					if then {
						around = slowThen{s}
					}
					c, b, id := overSlow(t, s, around)
					if strings.HasPrefix(name, "Delete") {
						require.NoError(t, b.Put(t.Context(), []byte("k"), nil))
					}
					s.leave = make(chan struct{})
					ctx, giveUp := context.WithCancelCause(t.Context())
					answer, key := make(chan error), []byte("k")
					go func() { answer <- write(ctx, b, key) }()
					synctest.Wait()
					giveUp(errTired)
					err := <-answer
					require.ErrorIs(t, err, listing.ErrOutcomeUnknown)
					require.ErrorIs(t, err, errTired)
					clear(key) // it is the caller's again
					waited, ended := nextEpoch(t, s, c, id), door.UnderWay(err)
					synctest.Wait()
					require.Empty(t, waited, "the write is still on its way")
					require.NotNil(t, ended)
					select {
					case <-ended:
						require.FailNow(t, "the write is still on its way")
					default:
					}
					close(s.leave)
					require.NoError(t, <-waited)
					<-ended
					_, err = b.Get(t.Context(), []byte("k"))
					if strings.HasPrefix(name, "Delete") {
						require.ErrorIs(t, err, listing.ErrNotFound)
					} else {
						require.NoError(t, err, "it came to its end")
					}
				})
			})
		}
	}
}

var errTired = errors.New("tired of waiting")

// hasty is a store that gives puts up by itself, as one whose disk is full.
type hasty struct{ *slow }

func (s hasty) PutThen(ctx context.Context, p store.Partition, ended func(), rows ...store.Row) error {
	if s.leave == nil {
		defer ended()
		return s.Put(ctx, p, rows...)
	}
	go func() {
		defer ended()
		_ = s.Put(context.WithoutCancel(ctx), p, rows...)
	}()
	return store.Errorf(store.Unavailable, "the disk is full")
}

// TestLeaseIsHeldThoughTheStoreGivesUp: also where the caller would have waited for
// ever, the end of the call is not the end of the write.
func TestLeaseIsHeldThoughTheStoreGivesUp(t *testing.T) {
	for name, write := range map[string]func(*listing.Bucket) error{
		"Put": func(b *listing.Bucket) error { return b.Put(context.Background(), []byte("k"), nil) },
		"PutBatch": func(b *listing.Bucket) error {
			return b.PutBatch(context.Background(), []listing.Entry{{Key: []byte("k")}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &slow{Store: memstore.New()}
				c, b, id := overSlow(t, s, hasty{s})
				s.leave = make(chan struct{})
				err := write(b)
				require.ErrorIs(t, err, listing.ErrOutcomeUnknown)
				waited := nextEpoch(t, s, c, id)
				synctest.Wait()
				require.Empty(t, waited, "the write is still on its way")
				close(s.leave)
				<-door.UnderWay(err)
				require.NoError(t, <-waited)
				_, err = b.Get(t.Context(), []byte("k"))
				require.NoError(t, err)
			})
		})
	}
}

// TestUnderWayIsNothingWithoutAWrite: failures that leave nothing behind.
func TestUnderWayIsNothingWithoutAWrite(t *testing.T) {
	_, _, b, _ := newSlow(t)
	require.Nil(t, door.UnderWay(nil))
	require.Nil(t, door.UnderWay(b.Put(t.Context(), nil, nil)))
	ended, end := context.WithCancel(t.Context())
	end()
	require.Nil(t, door.UnderWay(b.Put(ended, []byte("k"), nil)))
}

func TestNoLeaseWhileTheConsumerWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, b, id := newSlow(t)
		var entries []listing.Entry
		for i := range 3000 {
			entries = append(entries, listing.Entry{Key: []byte{byte(i >> 8), byte(i)}})
		}
		require.NoError(t, b.PutBatch(t.Context(), entries))
		n := 0
		for _, err := range b.All(t.Context(), listing.Query{}) {
			require.NoError(t, err)
			if n++; n == 1 {
				synctest.Wait() // the next page has been read
				require.NoError(t, <-nextEpoch(t, s, c, id))
			}
		}
		require.Equal(t, len(entries), n)
	})
}

// No operation leaves a lease behind: a mover waits for none.
func TestOperationsReleaseTheirLeases(t *testing.T) {
	key := []byte("k")
	for what, do := range map[string]func(ctx context.Context, c *listing.Client, b *listing.Bucket) error{
		"put":    func(ctx context.Context, _ *listing.Client, b *listing.Bucket) error { return b.Put(ctx, key, nil) },
		"delete": func(ctx context.Context, _ *listing.Client, b *listing.Bucket) error { return b.Delete(ctx, key) },
		"batch": func(ctx context.Context, _ *listing.Client, b *listing.Bucket) error {
			return b.PutBatch(ctx, []listing.Entry{{Key: key}})
		},
		"delete range": func(ctx context.Context, _ *listing.Client, b *listing.Bucket) error {
			return errors.Join(b.DeleteRange(ctx, key, nil), b.Put(ctx, key, nil), b.DeleteRange(ctx, nil, nil))
		},
		"bring": func(ctx context.Context, _ *listing.Client, b *listing.Bucket) error {
			m, err := door.Bucket(b).Mark(ctx)
			return errors.Join(err, door.Bucket(b).Bring(ctx, m, []store.Row{{Key: key, Value: []byte("v")}}))
		},
		"get": func(ctx context.Context, _ *listing.Client, b *listing.Bucket) error {
			_, err := b.Get(ctx, key)
			return err
		},
		"list": func(ctx context.Context, _ *listing.Client, b *listing.Bucket) error {
			_, err := b.List(ctx, listing.Query{})
			return err
		},
		"all": func(ctx context.Context, _ *listing.Client, b *listing.Bucket) error {
			for _, err := range b.All(ctx, listing.Query{}) {
				return err
			}
			return errors.New("nothing")
		},
		"split points": func(ctx context.Context, _ *listing.Client, b *listing.Bucket) error {
			_, err := b.SplitPoints(ctx, listing.Query{}, 3)
			return err
		},
		"deletion of a bucket with entries": func(ctx context.Context, c *listing.Client, _ *listing.Bucket) error {
			if err := c.DeleteBucket(ctx, "b"); !errors.Is(err, listing.ErrNotEmpty) {
				return fmt.Errorf("it was deleted: %w", err)
			}
			return nil
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, c, b, id := newSlow(t)
				require.NoError(t, b.Put(t.Context(), key, nil))
				require.NoError(t, do(t.Context(), c, b))
				require.NoError(t, <-nextEpoch(t, s, c, id))
			})
		})
	}
}

// The span of a lease ends with it, and says whether there was one.
func TestLeasesAreTraced(t *testing.T) {
	_, c, b, id := newSlow(t)
	spans := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")
	w := &world{t: t, ctx: t.Context(), c: c}
	for n, want := range []codes.Code{codes.Unset, codes.Error} {
		ctx, above := tracer.Start(t.Context(), "above")
		require.Equal(t, want == codes.Error, b.Put(ctx, []byte("k"), nil) != nil)
		above.End()
		require.Len(t, spans.Ended(), 2*n+2)
		lease := spans.Ended()[2*n]
		require.Equal(t, "map lease", lease.Name())
		require.Equal(t, want, lease.Status().Code)
		if n == 0 {
			w.state(id, partmap.Closing)
		}
	}
}

// Nor does a write that gets no timestamp.
func TestWritesWithoutTheTimeReleaseTheirLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, key := &stamps{}, []byte("k")
		c := over(t, memstore.New(), listing.Options{Timestamps: source})
		id, err := c.BucketID(t.Context(), "b")
		require.NoError(t, err)
		b := c.Bucket("b")
		for _, write := range []func(ctx context.Context) error{
			func(ctx context.Context) error { return b.Put(ctx, key, nil) },
			func(ctx context.Context) error { return b.Delete(ctx, key) },
			func(ctx context.Context) error { return b.PutBatch(ctx, []listing.Entry{{Key: key}}) },
		} {
			ctx, cancel := context.WithCancel(t.Context())
			source.first = cancel
			require.ErrorIs(t, write(ctx), context.Canceled)
		}
		noLeaseIsLeft(t, c, id)
	})
}

// All ends with the limit, in the middle of a page or of the bucket.
func TestAllHasALimit(t *testing.T) {
	const entries = 2500 // three pages
	c := over(t, memstore.New(), listing.Options{})
	var all []listing.Entry
	for i := range entries {
		all = append(all, listing.Entry{Key: fmt.Appendf(nil, "%04d", i)})
	}
	require.NoError(t, c.Bucket("b").PutBatch(t.Context(), all))
	for limit, want := range map[int]int{0: entries, 1: 1, 3: 3, 999: 999, 1000: 1000, 1001: 1001, 2499: 2499,
		entries: entries, 5000: entries} {
		n := 0
		for item, err := range c.Bucket("b").All(t.Context(), listing.Query{Limit: limit}) {
			require.NoError(t, err)
			require.Equal(t, all[n].Key, item.Key)
			n++
		}
		require.Equal(t, want, n, "limit %d", limit)
	}
}

// All goes on where a token says, and tells of a bad one.
func TestAllTakesTokens(t *testing.T) {
	c := over(t, memstore.New(), listing.Options{})
	b := c.Bucket("b")
	for _, key := range []string{"a", "b", "c"} {
		require.NoError(t, b.Put(t.Context(), []byte(key), nil))
	}
	page, err := b.List(t.Context(), listing.Query{Limit: 2})
	require.NoError(t, err)
	for token, want := range map[listing.Token]string{page.Next: "c <nil>", "bad": " " + listing.ErrBadToken.Error()} {
		var got string
		for item, err := range b.All(t.Context(), listing.Query{Token: token}) {
			got += fmt.Sprintf("%s %v", item.Key, errors.Unwrap(err))
		}
		require.Equal(t, want, got)
	}
}

// All goes on with the query that it was given, whatever becomes of its memory.
func TestAllKeepsItsQuery(t *testing.T) {
	c := over(t, memstore.New(), listing.Options{})
	var entries []listing.Entry
	for i := range 2500 { // three pages
		entries = append(entries, listing.Entry{Key: fmt.Appendf(nil, "k%04d", i)})
	}
	require.NoError(t, c.Bucket("b").PutBatch(t.Context(), entries))
	q := listing.Query{
		Prefix: []byte("k"), Delimiter: []byte("/"), From: []byte("k0001"), To: []byte("k2400"), After: []byte("k0002"),
	}
	n := 3
	for item, err := range c.Bucket("b").All(t.Context(), q) {
		require.NoError(t, err)
		require.Equal(t, entries[n].Key, item.Key)
		n++
		for _, part := range [][]byte{q.Prefix, q.Delimiter, q.From, q.To, q.After} {
			clear(part)
		}
	}
	require.Equal(t, 2400, n)
}

// TestAllLeavesNothingBehind: a bubble does not end before its goroutines.
func TestAllLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, b, _ := newSlow(t)
		var entries []listing.Entry
		for i := range 3000 {
			entries = append(entries, listing.Entry{Key: []byte{byte(i >> 8), byte(i)}})
		}
		require.NoError(t, b.PutBatch(t.Context(), entries))
		s.slices.Store(1) // the second page never comes
		for _, err := range b.All(t.Context(), listing.Query{}) {
			require.NoError(t, err)
			break
		}
		// A panic in the consumer is the consumer's; the page under way ends too.
		s.slices.Store(1)
		require.PanicsWithError(t, "the consumer's", func() {
			for range b.All(t.Context(), listing.Query{}) {
				panic(errors.New("the consumer's"))
			}
		})
	})
}

// TestDeleteBucketWaitsForWrites: a write that is under way when the bucket
// closes counts, so the look whether the bucket is empty comes after it.
func TestDeleteBucketWaitsForWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, b, _ := newSlow(t)
		s.leave = make(chan struct{})
		put, deleted := make(chan error, 1), make(chan error, 1)
		go func() { put <- b.Put(t.Context(), []byte("k"), nil) }()
		synctest.Wait()
		go func() { deleted <- c.DeleteBucket(t.Context(), "b") }()
		synctest.Wait()
		require.Empty(t, deleted)
		require.ErrorIs(t, b.Delete(t.Context(), []byte("x")), listing.ErrBucketClosing)
		close(s.leave)
		require.NoError(t, <-put)
		require.ErrorIs(t, <-deleted, listing.ErrNotEmpty)
		_, err := b.Get(t.Context(), []byte("k"))
		require.NoError(t, err, "the bucket is open again")
	})
}

// TestADeletionThatHasSeenNothingYet opens the bucket again when its caller gives up.
func TestADeletionThatHasSeenNothingYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c, b, id := newSlow(t)
		w := &world{t: t, ctx: t.Context(), s: s, c: c}
		w.state(id, partmap.Closing)
		s.slices.Store(0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, c.DeleteBucket(ctx, "b"), context.DeadlineExceeded)
		require.NoError(t, b.Put(t.Context(), []byte("k"), nil))
	})
}

// far is a store of which each slice takes a millisecond.
type far struct {
	store.Store
	now, most atomic.Int64
}

func (s *far) Slice(ctx context.Context, p store.Partition, b store.Bounds, o store.SliceOptions) (store.Page, error) {
	n := s.now.Add(1)
	defer s.now.Add(-1)
	for most := s.most.Load(); n > most && !s.most.CompareAndSwap(most, n); most = s.most.Load() {
	}
	time.Sleep(time.Millisecond) // of the bubble's clock
	return s.Store.Slice(ctx, p, b, o)
}

// TestManySmallRangesCostFewRoundTrips: following ranges are read ahead in
// steps of 1, 1, 2, 4, 8 and so on.
func TestManySmallRangesCostFewRoundTrips(t *testing.T) {
	for _, q := range []listing.Query{{}, {Reverse: true}, {Delimiter: []byte("/")}} {
		synctest.Test(t, func(t *testing.T) {
			s := &far{Store: memstore.New()}
			c, err := listing.New(s, listing.Options{})
			require.NoError(t, err)
			var cuts [][]byte
			var entries []listing.Entry
			for i := range 100 {
				cuts = append(cuts, []byte{byte(100 + i)})
				for j := range 5 {
					entries = append(entries, listing.Entry{Key: []byte{byte(100 + i), byte(j)}})
				}
			}
			require.NoError(t, c.CreateBucket(t.Context(), "b", cuts...))
			require.NoError(t, c.Bucket("b").PutBatch(t.Context(), entries))
			begin := time.Now()
			page, err := c.Bucket("b").List(t.Context(), q)
			require.NoError(t, err)
			require.Len(t, page.Items, 500)
			require.Empty(t, page.Next)
			require.EqualValues(t, 8, s.most.Load())
			require.LessOrEqual(t, time.Since(begin), 17*time.Millisecond, "instead of 101")
		})
	}
}
