package s3api_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// delays are random times by a seed, for many goroutines.
type delays struct {
	mu sync.Mutex
	r  *rand.Rand
}

// draw returns a random time below most, and true half of the time.
func (d *delays) draw(most time.Duration) (time.Duration, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Duration(d.r.Int64N(int64(most))), d.r.IntN(2) == 0
}

// slow makes writes begin late, so that others may come between a condition and
// its write if anything lets them.
type slow struct {
	inner
	*delays
}

type inner = s3api.Buckets

type slowBucket struct {
	s3api.Bucket
	*delays
}

func (s slow) Bucket(name string) s3api.Bucket { return slowBucket{s.inner.Bucket(name), s.delays} }

func (b slowBucket) wait() {
	d, _ := b.draw(300 * time.Microsecond)
	time.Sleep(d)
}

func (b slowBucket) Put(ctx context.Context, key, value []byte) error {
	b.wait()
	return b.Bucket.Put(ctx, key, value)
}

func (b slowBucket) DeleteRangeUntil(ctx context.Context, from, to []byte, until time.Time) ([]byte, error) {
	b.wait()
	return b.Bucket.DeleteRangeUntil(ctx, from, to, until)
}

func (b slowBucket) Delete(ctx context.Context, key []byte) error {
	b.wait()
	return b.Bucket.Delete(ctx, key)
}

// objectCall is one request about one object; "" is no object. The ETag of a
// body stands for it.
type objectCall struct {
	kind       string // get, put, create (If-None-Match: *), follow (If-Match), delete, drop (delete If-Match), range (delete all with the prefix)
	body, seen string // what is written, and what the condition names
}

// objectModel is one object as S3 has it, with exact conditions. A write that was
// answered 503 may have happened or not; one that was answered 409 did not.
var objectModel = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{""} },
	Step: func(state, input, output any) []any {
		now, in, out := state.(string), input.(objectCall), output.(string)
		if out == "409" {
			return []any{now}
		}
		status := "200"
		next := in.body
		switch in.kind {
		case "get":
			if out == now {
				return []any{now}
			}
			return nil
		case "create":
			if now != "" {
				status = "412"
			}
		case "follow", "drop":
			switch now {
			case "":
				status = "404"
			case in.seen:
			default:
				status = "412"
			}
		}
		if status != "200" {
			next = now
		}
		switch out {
		case status:
			return []any{next}
		case "503":
			return []any{now, next}
		}
		return nil
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%v -> %v", input, output) },
}).ToModel()

// TestConditionsAreLinearizable: what clients saw of a few objects, with and
// without conditions, can have happened one request after the other.
func TestConditionsAreLinearizable(t *testing.T) {
	st := memstore.New()
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	c, err := listing.New(st, listing.Options{})
	require.NoError(t, err)
	s := serve(t, slow{s3api.Over(c), &delays{r: seed.New(t)}}, s3api.Options{SoleWriter: true})
	given := checkConditions(t, s, 12, 25, 0, "")
	require.Zero(t, given, "nothing took too long")
}

// TestConditionsOnLargeBodiesAreLinearizable: so it is where a condition is checked before the body comes, and again
// when it has come, also beside small bodies.
func TestConditionsOnLargeBodiesAreLinearizable(t *testing.T) {
	s, _ := serveObjects(t)
	given := checkConditions(t, s, 6, 20, 0, strings.Repeat("x", 2*64<<10))
	require.Zero(t, given, "nothing took too long")
}

// TestConditionsAreLinearizableBeyondTimeouts: so it is where requests end before
// their writes.
func TestConditionsAreLinearizableBeyondTimeouts(t *testing.T) {
	st := &late{Store: memstore.New(), delays: delays{r: seed.New(t)}}
	c, err := listing.New(st, listing.Options{})
	require.NoError(t, err)
	s := serve(t, s3api.Over(c), s3api.Options{SoleWriter: true, RequestTimeout: lateTimeout})
	// Only objects are late: not the bucket, nor the timestamps.
	for !st.on.Load() {
		s.do("PUT", "/abc", "")
		st.on.Store(s.do("PUT", "/abc/k", "v").status == 200)
	}
	require.Positive(t, checkConditions(t, s, 4, 20, 2, ""), "none of the writes took longer than its request")
}

const lateTimeout = 30 * time.Millisecond

// late is a store in which, once it is on, half of the writes of rows take up to
// twice as long as a request may.
type late struct {
	store.Store
	on atomic.Bool
	delays
}

func (l *late) wait() {
	if !l.on.Load() {
		return
	}
	if d, waits := l.draw(2 * lateTimeout); waits {
		time.Sleep(d)
	}
}

func (l *late) Put(ctx context.Context, p store.Partition, rows ...store.Row) error {
	l.wait()
	return l.Store.Put(ctx, p, rows...)
}

func (l *late) Delete(ctx context.Context, p store.Partition, key []byte, ts store.Timestamp) error {
	l.wait()
	return l.Store.Delete(ctx, p, key, ts)
}

// checkConditions lets six clients do so many calls each, in each round on another
// object, beside readers that look at it all the time, and counts the writes of
// unknown outcome. With more at their end, some bodies are large; then the bucket is of objects.
func checkConditions(t *testing.T, s *server, rounds, calls, readers int, more string) (unknown int) {
	seed := seed.Number(t)
	s.do("PUT", "/abc", "")
	for round := range rounds {
		uri := fmt.Sprintf("/abc/k%d", round)
		var mu sync.Mutex
		var history []porcupine.Operation
		begun := time.Now()
		// do does a call and returns what is there, if that is what it told.
		do := func(client int, in objectCall, etag string) (seen, seenETag string) {
			method, at, body, headers := "PUT", uri, in.body, []string(nil)
			switch in.kind {
			case "get":
				method = "GET"
			case "create":
				headers = []string{"If-None-Match", "*"}
			case "follow":
				headers = []string{"If-Match", etag}
			case "delete":
				method, body = "DELETE", ""
			case "drop":
				method, body, headers = "DELETE", "", []string{"If-Match", etag}
			case "range":
				method, at, body = "POST", fmt.Sprintf("/abc?evenkeel-delete-range&prefix=k%d", round), ""
			}
			called := time.Since(begun)
			if len(body)%2 == 0 && body != "" && more != "" {
				body += more
			}
			a := s.do(method, at, body, headers...)
			returned := time.Since(begun)
			out := fmt.Sprint(a.status)
			seen, seenETag = in.seen, etag
			switch {
			case in.kind == "get" && a.status == 503:
				return seen, seenETag
			case in.kind == "get" && a.status == 404:
				out, seen, seenETag = "", "nothing", "none"
			case in.kind == "get":
				out, seenETag = strings.TrimSuffix(a.body, more), a.header.Get("ETag")
				seen = out
			case a.status == 204:
				out = "200"
			}
			mu.Lock()
			defer mu.Unlock()
			if a.status == 503 {
				unknown++
				returned = time.Hour // or never
			}
			history = append(history, porcupine.Operation{ClientId: client, Input: in, Output: out, Call: int64(called),
				Return: int64(returned)})
			return seen, seenETag
		}
		var clients, lookers sync.WaitGroup
		for client := range 6 {
			clients.Go(func() {
				rnd := rand.New(rand.NewPCG(seed, uint64(round*100+client)))
				seen, etag := "", "none"
				for i := range calls {
					in := objectCall{kind: []string{"get", "get", "put", "create", "follow", "follow", "delete",
						"drop", "range"}[rnd.IntN(9)],
						seen: seen}
					if in.kind == "range" && more != "" {
						in.kind = "create"
					}
					if in.kind != "get" && in.kind != "delete" && in.kind != "drop" && in.kind != "range" {
						in.body = fmt.Sprintf("%d/%d", client, i)
					}
					seen, etag = do(client, in, etag)
				}
			})
		}
		var ended atomic.Bool
		for looker := range readers {
			lookers.Go(func() {
				for !ended.Load() {
					do(6+looker, objectCall{kind: "get"}, "")
					time.Sleep(time.Millisecond)
				}
			})
		}
		clients.Wait()
		ended.Store(true)
		lookers.Wait()
		var told strings.Builder
		for _, o := range history {
			fmt.Fprintln(&told, o.ClientId, o.Call, o.Return, objectModel.DescribeOperation(o.Input, o.Output))
		}
		require.Equal(t, porcupine.Ok, porcupine.CheckOperationsTimeout(objectModel, history, time.Minute),
			"round %d:\n%s",
			round, told.String())
	}
	return unknown
}
