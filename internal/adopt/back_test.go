package adopt_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/adopt"
	"github.com/evenkeel/evenkeel/internal/test/faultstore"
	"github.com/evenkeel/evenkeel/internal/test/faulttest"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// shelves are a target in memory of several parts. A key's home is the part that its first byte names.
type shelves struct {
	mu                   sync.Mutex
	of                   []*shelf
	batches              []int // rows of each write
	most                 int   // bytes of the largest write
	calls                int
	fails, upTo          int // numbers of the calls that fail with err
	err                  error
	before               func(call int)
	lastPage, firstWrite int // numbers of calls
}

func newShelves(n int) *shelves {
	s := &shelves{}
	for range n {
		s.of = append(s.of, &shelf{stored: map[string]store.Row{}, every: func() {}})
	}
	return s
}

func (s *shelves) next() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.before != nil {
		s.before(s.calls)
	}
	if s.err != nil && s.calls >= s.fails && s.calls < s.upTo {
		return s.err
	}
	return nil
}

func (s *shelves) Parts() int { return len(s.of) }

func (s *shelves) Page(ctx context.Context, part int, span adopt.Span, limit int, values bool) ([]adopt.Row, error) {
	if err := s.next(); err != nil {
		return nil, err
	}
	s.lastPage = s.calls
	rows, err := s.of[part].Page(ctx, 0, span, limit, values)
	for i := range rows {
		if string(rows[i].Value) == "expires" {
			rows[i].Refused = adopt.Expires
		}
	}
	return rows, err
}

func (s *shelves) Get(ctx context.Context, part int, key []byte) (adopt.Row, bool, error) {
	if err := s.next(); err != nil {
		return adopt.Row{}, false, err
	}
	return s.of[part].Get(ctx, 0, key)
}

func (s *shelves) Same(a, b []byte) bool { return string(a) == string(b) }

func (s *shelves) Home(key []byte) (int, adopt.Refusal) {
	if part := int(key[0] - '0'); part < len(s.of) {
		return part, ""
	}
	return -1, map[bool]adopt.Refusal{false: adopt.NoRow, true: adopt.NoHome}[key[0] == '?']
}

func (s *shelves) Takes(key, value []byte) adopt.Refusal { return s.of[0].Takes(key, value) }

func (s *shelves) Write(ctx context.Context, part int, rows []store.Row) error {
	if err := s.next(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.firstWrite == 0 {
		s.firstWrite = s.calls
	}
	size := 0
	for _, r := range rows {
		size += len(r.Key) + len(r.Value)
	}
	s.batches, s.most = append(s.batches, len(rows)), max(s.most, size)
	return s.of[part].Write(ctx, 0, rows)
}

func (s *shelves) put(t *testing.T, part int, key, value string, at time.Time) {
	t.Helper()
	row := store.Row{Key: []byte(key), Value: []byte(value), Timestamp: store.Timestamp(at.UnixMicro())}
	require.NoError(t, s.of[part].Write(t.Context(), 0, []store.Row{row}))
}

func (s *shelves) contents() map[string]string {
	got := map[string]string{}
	for part := range s.of {
		for key, r := range s.of[part].stored {
			if r.Value != nil {
				got[fmt.Sprint(part, " ", key)] = string(r.Value)
			}
		}
	}
	return got
}

// TestBackOfEachDifference: what the way back does with each pair of rows, and what it reports and counts; a dry run
// says the same and writes nothing.
func TestBackOfEachDifference(t *testing.T) {
	for _, dry := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			target, b := newShelves(2), newBucket(t, memstore.New())
			early := time.Now()
			want, found := map[string]string{}, map[string]string{}
			var put, deleted, read int64
			for _, c := range []struct {
				key, here, there string
				ahead            time.Duration // of the clock that wrote to the target
				want             string        // "": no row
				report           adopt.Refusal
			}{
				{key: "0same", here: "v", there: "v", want: "v"},
				{key: "0new", here: "v", want: "v"},
				{key: "1new", here: "", want: ""},
				{key: "0changed", here: "v", there: "w", want: "v"},
				{key: "1changed", here: "v", there: "w", want: "v", ahead: time.Hour},
				{key: "1smaller", here: "a", there: "z", want: "a", ahead: time.Hour},
				{key: "0gone", there: "w"},
				{key: "1gone", there: "w", ahead: time.Hour},
				{key: "0same ahead", here: "v", there: "v", want: "v", ahead: time.Hour},
				{key: "0expires", there: "expires", want: "expires", report: adopt.Expires},
				{key: "?nowhere", here: "v", report: adopt.NoHome},
				{key: "~none", here: "v", report: adopt.NoRow},
				{key: "0bad", here: "bad", report: adopt.NoValues},
				{key: "1bad", here: "bad", there: "w", want: "w", report: adopt.NoValues},
				{key: "1worse", here: "worse", report: adopt.NoValues},
				{key: "0worse", here: "worse", there: "w", want: "w", report: adopt.NoValues},
			} {
				part := int(c.key[0] - '0')
				if c.here != "" || c.key == "1new" {
					require.NoError(t, b.Put(t.Context(), []byte(c.key), []byte(c.here)))
					read++
				}
				if c.there != "" {
					target.put(t, part, c.key, c.there, early.Add(c.ahead))
					read++
				}
				if dry {
					if c.want = c.there; c.here == "worse" {
						put++
						c.report = ""
					}
				}
				if c.want != "" || c.key == "1new" && !dry {
					want[fmt.Sprint(part, " ", c.key)] = c.want
				}
				switch {
				case c.report != "":
					found[c.key] = string(c.report)
				case c.here == "worse":
				case c.here == "" && c.key != "1new":
					deleted++
				case c.here != c.there || c.key == "1new":
					put++
				}
			}
			time.Sleep(10 * time.Second)
			got := map[string]string{}
			a := adoption(target, b, nil, func(f adopt.Finding) {
				got[string(f.Key)] = f.Fault[:len(found[string(f.Key)])] // the reason of the target follows
			})
			require.NoError(t, a.Back(t.Context(), target, dry))
			require.Equal(t, found, got)
			require.Equal(t, want, target.contents())
			n := a.Counts()
			require.EqualValues(t, []int64{read, int64(len(found)), put, deleted, put + deleted}, []int64{
				n.Read.Load(), n.Refused.Load(), n.Put.Load(), n.Deleted.Load(), n.Different.Load()})
			if dry {
				require.Empty(t, target.batches)
				return
			}
			// What was written is older than what the application writes from now on.
			for _, s := range target.of {
				for key, r := range s.stored {
					if r.Timestamp < store.Timestamp(early.Add(time.Hour).UnixMicro()) {
						require.Less(t, r.Timestamp, store.Timestamp(time.Now().UnixMicro()), key)
					}
				}
			}
			a = adoption(target, b, nil, func(adopt.Finding) {})
			require.NoError(t, a.Back(t.Context(), target, false))
			require.EqualValues(t, 0, a.Counts().Put.Load()+a.Counts().Deleted.Load())
		})
	}
}

// TestBatchesOfTheWayBack: changes are written in batches of one part, of bounded numbers of rows and of bytes.
func TestBatchesOfTheWayBack(t *testing.T) {
	for _, c := range []struct {
		rows, size, most int // most: rows of a batch
		ahead            time.Duration
	}{
		{rows: 1000, size: 10, most: 200},
		{rows: 1000, size: 10, most: 200, ahead: time.Hour},
		{rows: 100, size: 5000, most: 8},
	} {
		synctest.Test(t, func(t *testing.T) {
			target, b := newShelves(2), newBucket(t, memstore.New())
			var entries []listing.Entry
			for i := range c.rows {
				key := fmt.Sprintf("%d%04d", i%2, i)
				entries = append(entries, listing.Entry{Key: []byte(key), Value: make([]byte, c.size)})
				if c.ahead > 0 {
					target.put(t, i%2, key, "old", time.Now().Add(c.ahead))
				}
			}
			for len(entries) > 0 {
				n := min(len(entries), 50)
				require.NoError(t, b.PutBatch(t.Context(), entries[:n]))
				entries = entries[n:]
			}
			time.Sleep(10 * time.Second)
			require.NoError(t, adoption(target, b, nil, func(adopt.Finding) {}).Back(t.Context(), target, false))
			all, largest := 0, 0
			for _, n := range target.batches {
				all, largest = all+n, max(largest, n)
			}
			require.Equal(t, c.rows, all)
			require.LessOrEqual(t, largest, c.most)
			require.Greater(t, largest, c.most/3)
			require.LessOrEqual(t, target.most, 40<<10)
			require.Len(t, target.contents(), c.rows)
		})
	}
}

// TestEachCallOfTheTargetFails: the way back ends with an error that does not pass, and goes on over one that does.
func TestEachCallOfTheTargetFails(t *testing.T) {
	for _, failure := range []error{
		errAway, store.Errorf(store.Unavailable, "away"), store.Errorf(store.InvalidArgument, "refused"),
	} {
		for fails, ended := 1, false; !ended; fails++ {
			synctest.Test(t, func(t *testing.T) {
				target, b := newShelves(2), newBucket(t, memstore.New())
				target.fails, target.upTo, target.err = fails, fails+1, failure
				want := map[string]string{}
				for part := range 2 {
					require.NoError(t, b.Put(t.Context(), fmt.Appendf(nil, "%dnew", part), []byte("v")))
					require.NoError(t, b.Put(t.Context(), fmt.Appendf(nil, "%dchanged", part), []byte("v")))
					target.put(t, part, fmt.Sprint(part, "changed"), "w", time.Now().Add(time.Hour))
					target.put(t, part, fmt.Sprint(part, "gone"), "w", time.Now())
					want[fmt.Sprintf("%d %dnew", part, part)], want[fmt.Sprintf("%d %dchanged", part, part)] = "v", "v"
				}
				time.Sleep(10 * time.Second)
				var found []string
				a := adopt.New(adopt.Options{Source: target, Bucket: b, Pace: wait.NewPacer(0), Parallel: 1,
					Spans: adopt.Spans(nil), Report: func(f adopt.Finding) { found = append(found, f.Fault) }})
				err := a.Back(t.Context(), target, false)
				if ended = target.calls < fails; !ended && failure == errAway {
					require.ErrorIs(t, err, errAway, fails)
					return
				}
				if err != nil { // a page that the target refuses
					require.ErrorIs(t, err, store.InvalidArgument)
					require.ErrorIs(t, failure, store.InvalidArgument)
					return
				}
				if len(found) > 0 { // a batch of one row that the target refuses
					require.Equal(t, []string{string(adopt.NoValues) + ": " + failure.Error()}, found)
					require.ErrorIs(t, failure, store.InvalidArgument)
					return
				}
				require.Equal(t, want, target.contents(), fails)
				require.EqualValues(t, 6, a.Counts().Different.Load())
			})
		}
	}
}

// TestDeletionsThatTheTargetRefuses: an error, not a report that a row has no place.
func TestDeletionsThatTheTargetRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target, b := newShelves(1), newBucket(t, memstore.New())
		target.put(t, 0, "0gone", "w", time.Now())
		time.Sleep(10 * time.Second)
		refused := store.Errorf(store.InvalidArgument, "refused")
		target.fails, target.upTo, target.err = 2, 1000, refused // all but the page
		a := adoption(target, b, nil, func(f adopt.Finding) { t.Errorf("%s: %s", f.Key, f.Fault) })
		require.ErrorIs(t, a.Back(t.Context(), target, false), refused)
	})
}

// TestRowsThatGoWhileTheyAreReadAgain: a row with a time in the future is gone when it is read again. It is written if
// the bucket has an entry, and stays away otherwise.
func TestRowsThatGoWhileTheyAreReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target, b := newShelves(1), newBucket(t, memstore.New())
		for _, key := range []string{"0away", "0back"} {
			require.NoError(t, b.Put(t.Context(), []byte(key), []byte("v")))
			target.put(t, 0, key, "w", time.Now().Add(time.Hour))
		}
		time.Sleep(10 * time.Second)
		target.before = func(call int) {
			if call == 2 { // the first one behind the page
				clear(target.of[0].stored)
				if err := b.Delete(context.Background(), []byte("0away")); err != nil {
					t.Error(err)
				}
			}
		}
		a := adoption(target, b, nil, func(f adopt.Finding) { t.Errorf("%s: %s", f.Key, f.Fault) })
		require.NoError(t, a.Back(t.Context(), target, false))
		require.Equal(t, map[string]string{"0 0back": "v"}, target.contents())
		require.EqualValues(t, []int64{1, 1, 0}, []int64{
			a.Counts().Different.Load(), a.Counts().Put.Load(), a.Counts().Deleted.Load()})
	})
}

// TestEachCallOfTheBucketFailsOnTheWayBack: one call of the store that fails for a moment ends nothing, and what
// reports success has had its effect.
func TestEachCallOfTheBucketFailsOnTheWayBack(t *testing.T) {
	attempt := func(t *testing.T, fail faulttest.Case) map[faultstore.Op]int {
		inner := memstore.New()
		target, b := newShelves(2), newBucket(t, inner)
		want := map[string]string{}
		for part := range 2 {
			require.NoError(t, b.Put(t.Context(), fmt.Appendf(nil, "%dnew", part), []byte("v")))
			require.NoError(t, b.Put(t.Context(), fmt.Appendf(nil, "%dchanged", part), []byte("v")))
			target.put(t, part, fmt.Sprint(part, "changed"), "w", time.Now().Add(time.Hour))
			target.put(t, part, fmt.Sprint(part, "gone"), "w", time.Now().Add(time.Duration(part)*time.Hour))
			want[fmt.Sprintf("%d %dnew", part, part)], want[fmt.Sprintf("%d %dchanged", part, part)] = "v", "v"
		}
		time.Sleep(10 * time.Second)
		s, faults := fail.Store(inner)
		c, err := listing.New(s, listing.Options{})
		require.NoError(t, err)
		a := adoption(target, c.Bucket("b"), nil, func(f adopt.Finding) { t.Errorf("%+v", f) })
		faults.Enable(true)
		err = a.Back(t.Context(), target, false)
		calls := faulttest.Calls(faults)
		faults.Enable(false)
		require.NoError(t, faults.Flush(t.Context()))
		if fail.Way == nil || fail.Way.Passing() {
			require.NoError(t, err, fail)
		}
		if err == nil {
			require.Equal(t, want, target.contents())
		} else {
			require.ErrorIs(t, err, faultstore.ErrInjected)
		}
		return calls
	}
	var calls map[faultstore.Op]int
	synctest.Test(t, func(t *testing.T) { calls = attempt(t, faulttest.Case{}) })
	faulttest.Each(t, calls, func(fail faulttest.Case) {
		synctest.Test(t, func(t *testing.T) { attempt(t, fail) })
	})
}

// TestCutsOfTheWayBack: cuts are keys of entries that the target may have, ascending, each once.
func TestCutsOfTheWayBack(t *testing.T) {
	b := newBucket(t, memstore.New())
	target := newShelves(1)
	cuts, err := adopt.BackCuts(t.Context(), b, target, 8)
	require.NoError(t, err)
	require.Empty(t, cuts)
	known := map[string]bool{}
	for i := range 200 {
		key := fmt.Sprintf("%c%03d", "0?~"[i%3], i)
		known[key] = true
		require.NoError(t, b.Put(t.Context(), []byte(key), nil))
	}
	cuts, err = adopt.BackCuts(t.Context(), b, target, 20)
	require.NoError(t, err)
	require.NotEmpty(t, cuts)
	require.Less(t, len(cuts), 20)
	for i, cut := range cuts {
		require.True(t, known[string(cut)], "%s", cut)
		require.NotEqual(t, byte('~'), cut[0], "no row has it")
		require.True(t, i == 0 || string(cuts[i-1]) < string(cut))
	}
	require.Equal(t, byte('?'), cuts[len(cuts)-1][0], "one that several parts can have is a cut as well")
}
