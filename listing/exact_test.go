package listing

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// Guesses and estimates change no answer, only what it costs. So they are held to exact
// values here: nothing else would notice that one is off.

// Quanta of a partition: what of them is a stretch's, and the keys at shares of it.
func TestQuanta(t *testing.T) {
	quanta := []counter.Quantum{
		{Rows: 10}, {Key: []byte("c"), Rows: 20}, {Key: []byte("f"), Rows: 30}, {Key: []byte("k"), Rows: 40},
	}
	for _, c := range []struct {
		lo, hi string
		want   []int64
	}{
		{"", "", []int64{10, 20, 30, 40}},
		{"", "c", []int64{10}},
		{"", "d", []int64{10, 20}},
		{"c", "", []int64{20, 30, 40}},
		{"d", "k", []int64{20, 30}},
		{"d", "l", []int64{20, 30, 40}}, {"z", "", []int64{40}}, {"b", "b\x00", []int64{10}},
	} {
		x := stretch{span: span{lo: []byte(c.lo), hi: []byte(c.hi)}, weight: -1, quanta: quanta[:1]}
		x.takeQuanta(quanta)
		var rows []int64
		sum := 0.0
		for _, q := range x.quanta {
			rows = append(rows, int64(q.Rows))
			sum += float64(q.Rows)
		}
		require.Equal(t, c.want, rows, "%+v", c)
		require.Equal(t, sum, x.weight)
	}
	var got []string
	for _, key := range quantiles(quanta, 100, []float64{0, 0.05, 0.051, 0.2, 0.201, 0.45, 0.451, 0.999}) {
		got = append(got, string(key))
	}
	require.Equal(t, []string{"", "", "c", "c", "f", "f", "k", "k"}, got)
}

// Which part of a span a range has, and what is left once something was passed.
func TestSpans(t *testing.T) {
	keys := []string{"", "a", "b", "b\x00", "c", "d"}
	inside := func(s *span, key string) bool {
		k := []byte(key)
		return !s.done && (bytes.Compare(k, s.lo) > 0 || bytes.Equal(k, s.lo) && (!s.exclusive || len(s.lo) == 0)) &&
			(len(s.hi) == 0 || bytes.Compare(k, s.hi) < 0)
	}
	settled := func(s *span) {
		empty := len(s.hi) > 0 && bytes.Compare(s.lo, s.hi) >= 0
		require.True(t, s.done || !empty, "%+v is empty, but not done", s)
	}
	probes := []string{"0", "a", "a5", "b", "b\x00", "b5", "c", "c5", "d", "d5", "b\x01"}
	for _, lo := range keys {
		for _, hi := range keys {
			for _, exclusive := range []bool{false, true} {
				for _, reverse := range []bool{false, true} {
					base := span{lo: []byte(lo), hi: []byte(hi), exclusive: exclusive && lo != "", reverse: reverse}
					base.settle()
					for _, k := range probes {
						s := base
						require.Equal(t, s.done, s.done && !inside(&s, k) || s.done)
						before := !s.done && !inside(&s, k) &&
							(!reverse && (k < lo || k == lo) || reverse && hi != "" && k >= hi)
						require.Equal(t, s.done || before, s.passed([]byte(k)), "%+v %q", s, k)
						s.passKey([]byte(k))
						settled(&s)
						for _, other := range probes {
							want := inside(&base, other) && (!reverse && other > k || reverse && other < k)
							require.Equal(t, want, inside(&s, other), "%+v beyond %q: %q", base, k, other)
						}
						s = base
						s.passPrefix([]byte(k))
						settled(&s)
						for _, other := range probes {
							under := bytes.HasPrefix([]byte(other), []byte(k))
							want := inside(&base, other) && !under && (!reverse && other > k || reverse && other < k)
							require.Equal(t, want, inside(&s, other), "%+v beyond the prefix %q: %q", base, k, other)
						}
						s = base
						s.passNear(&span{lo: []byte(k), exclusive: exclusive, hi: []byte(k)})
						settled(&s)
						for _, other := range probes {
							left := !reverse && (other > k || other == k && !exclusive) || reverse && other < k
							require.Equal(t, inside(&base, other) && left, inside(&s, other),
								"%+v from the near end %q: %q", base, k, other)
						}
					}
					for _, start := range keys {
						for _, end := range keys {
							if end != "" && start >= end {
								continue
							}
							rg := partmap.Range{Entry: partmap.Entry{Start: []byte(start)}, End: []byte(end)}
							b := base.within(&rg)
							for _, k := range probes {
								in := (k > string(b.Start) || k == string(b.Start) && !b.StartExclusive) &&
									(len(b.End) == 0 || k < string(b.End))
								inRange := k >= start && (end == "" || k < end)
								if !base.done {
									require.Equal(t, inside(&base, k) && inRange, in, "%+v in [%q, %q): %q", base,
										start, end, k)
								}
							}
							s := base
							passed := !reverse && end != "" && lo >= end || reverse && hi != "" && hi <= start
							require.Equal(t, s.done || passed, s.passedRange(&rg), "%+v [%q, %q)", s, start, end)
							s.passRange(&rg)
							settled(&s)
							for _, k := range probes {
								want := inside(&base, k) &&
									(!reverse && end != "" && k >= end || reverse && start != "" && k < start)
								require.Equal(t, want, inside(&s, k), "%+v beyond [%q, %q): %q", base, start, end, k)
							}
							require.True(t, s.passedRange(&rg), "%+v [%q, %q)", base, start, end)
						}
					}
				}
			}
		}
	}
	// What PrefixEnd has no end for is passed with everything behind it.
	s := span{}
	s.passPrefix([]byte("\xff"))
	require.True(t, s.done)
	s = span{reverse: true}
	s.passPrefix([]byte("\xff"))
	require.False(t, s.done)
	require.Equal(t, "\xff", string(s.hi))
}

// Tokens are a promise: clients keep them. They depend on the bucket, the direction, and what the
// query must keep.
func TestTokensStayTheSame(t *testing.T) {
	for _, c := range []struct {
		id   byte
		s    span
		q    Query
		want Token
	}{
		{1, span{lo: []byte("kk")}, Query{}, "AQBraxkWYFchnhQT"},
		{2, span{lo: []byte("kk")}, Query{}, "AQBra71Kjcg1gv2t"},
		{1, span{lo: []byte("kk"), exclusive: true}, Query{}, "AQFra08ng9p37rhI"},
		{1, span{hi: []byte("kk"), reverse: true}, Query{Reverse: true}, "AQBra0XV5otofraF"},
		{1, span{lo: []byte("kk")}, Query{Prefix: []byte("k")}, "AQBra8Bd3DP5AkPX"},
		{1, span{lo: []byte("kk")}, Query{Delimiter: []byte("k")}, "AQBra54zh5qTB3-6"},
		{1, span{lo: []byte("kk")}, Query{To: []byte("z"), From: []byte("a")}, "AQBrayKaa6EBho89"},
		{1, span{hi: []byte("kk"), reverse: true}, Query{Reverse: true, To: []byte("z"), From: []byte("a")},
			"AQBra0A4HskAxT_t"},
	} {
		require.Equal(t, c.want, c.s.token(store.BucketID{c.id}, &c.q), "%+v", c)
	}
}

// So is the form of an entry in the list of buckets: one byte, the id, and the time.
func TestEntriesOfTheListStayTheSame(t *testing.T) {
	id := store.BucketID{2, 3}
	entry := append([]byte{1}, append(id[:], 0, 0, 0, 0, 0, 0, 1, 4)...)
	require.Equal(t, entry, encodeInfo(id, 260))
	got, created, err := decodeInfo(entry)
	require.NoError(t, err)
	require.Equal(t, id, got)
	require.EqualValues(t, 260, created)
}

// Text that goes on behind a token is none, nor is one that is too short.
func TestTokensThatAreNoText(t *testing.T) {
	id, q := store.BucketID{1}, Query{}
	good := (&span{lo: []byte("kk")}).token(id, &q)
	require.NoError(t, (&span{}).resume(good, id, &q))
	for _, bad := range []Token{
		good + "!", good + "A", good + "AAAA", good + "AAA!", good + "=", good[:13], good[:4], "", "!",
	} {
		require.ErrorIs(t, (&span{}).resume(bad, id, &q), ErrBadToken, bad)
	}
}

// A bucket that exists, but is not on the list, or whose entry there is another's or damaged, is put
// on the list by who tries to create it.
func TestTheListIsMended(t *testing.T) {
	c, err := New(memstore.New(), Options{})
	require.NoError(t, err)
	ctx := t.Context()
	require.NoError(t, c.CreateBucket(ctx, "b"))
	id, err := c.BucketID(ctx, "b")
	require.NoError(t, err)
	good, err := c.list().Get(ctx, []byte("b"))
	require.NoError(t, err)
	for _, bad := range [][]byte{encodeInfo(store.BucketID{9}, 1), {7}, nil} {
		if require.NoError(t, c.list().Delete(ctx, []byte("b"))); bad != nil {
			require.NoError(t, c.list().Put(ctx, []byte("b"), bad))
		}
		require.ErrorIs(t, c.CreateBucket(ctx, "b"), ErrBucketExists)
		e, err := c.list().Get(ctx, []byte("b"))
		require.NoError(t, err)
		require.Equal(t, good.Value, e.Value)
	}
	for i := range 3 {
		require.NoError(t, c.CreateBucket(ctx, fmt.Sprintf("b%d", i)))
	}
	var names []string
	for info, err := range c.Buckets(ctx, "", "") {
		require.NoError(t, err)
		if names = append(names, info.Name); info.Name == "b1" {
			require.NotEqual(t, id, info.ID)
			break
		}
	}
	require.Equal(t, []string{"b", "b0", "b1"}, names)
	// What is damaged ends the list.
	require.NoError(t, c.list().Put(ctx, []byte("b0"), []byte{7}))
	n := 0
	for _, err := range c.Buckets(ctx, "", "") {
		n++
		require.Equal(t, n == 2, err != nil)
	}
	require.Equal(t, 2, n)
}

// Tokens of other forms and lengths are refused, whatever their sum says.
func TestTokensOfOtherForms(t *testing.T) {
	id, q := store.BucketID{1}, Query{}
	s := span{lo: []byte("k")}
	good := s.token(id, &q)
	var r span
	require.NoError(t, r.resume(good, id, &q))
	require.Equal(t, span{lo: []byte("k")}, r)
	s.exclusive = true
	require.NoError(t, r.resume(s.token(id, &q), id, &q))
	require.True(t, r.exclusive)
	empty := span{}
	r = span{}
	require.NoError(t, r.resume(empty.token(id, &q), id, &q), "the beginning is a place too")
	require.Equal(t, span{lo: []byte{}}.lo, append([]byte{}, r.lo...))
	back := Query{Reverse: true}
	rs := span{reverse: true}
	require.ErrorIs(t, rs.resume(rs.token(id, &back), id, &back), ErrBadToken, "a token in reverse has a bound")
	rs.hi = []byte("k")
	token := rs.token(id, &back)
	r = span{reverse: true}
	require.NoError(t, r.resume(token, id, &back))
	require.Equal(t, "k", string(r.hi))
	long := span{lo: bytes.Repeat([]byte("k"), store.MaxKeyBytes), exclusive: true}
	token = long.token(id, &q)
	require.LessOrEqual(t, len(token), 87_400)
	r = span{}
	require.NoError(t, r.resume(token, id, &q))
	require.ErrorIs(t, r.resume(token+"A", id, &q), ErrBadToken)
}

// A page may be ended earlier, behind any of its items: its token goes on with the next one, and there
// is none where nothing can follow.
func TestPagesThatAreEndedEarlier(t *testing.T) {
	c, err := New(memstore.New(), Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "b"))
	b := c.Bucket("b")
	for _, key := range []string{"a", "b/1", "b/2", "b0", "c"} {
		require.NoError(t, b.Put(t.Context(), []byte(key), nil))
	}
	for _, q := range []Query{
		{}, {Delimiter: []byte("/")}, {Reverse: true}, {Reverse: true, Delimiter: []byte("/")},
		{From: []byte("a"), To: []byte("c\x00"), Delimiter: []byte("/"), Reverse: true},
	} {
		page, err := b.List(t.Context(), q)
		require.NoError(t, err)
		for i := range page.Items {
			rest := q
			rest.Token = page.After(i)
			if last := i == len(page.Items)-1; len(q.From) > 0 {
				require.Equal(t, last, rest.Token == "", "%+v behind %d", q, i)
				if last {
					continue
				}
			}
			now, err := b.List(t.Context(), rest)
			require.NoError(t, err)
			require.Equal(t, append([]Item{}, page.Items[i+1:]...), append([]Item{}, now.Items...), "%+v behind %d", q, i)
		}
	}
}

// A gap ends right behind its last key, if there is a key right behind it; where keys are gone by the
// time of a read nothing is found.
func TestGapsEndBehindTheirKeys(t *testing.T) {
	c, err := New(memstore.New(), Options{})
	require.NoError(t, err)
	require.NoError(t, c.CreateBucket(t.Context(), "b"))
	s := sampler{c: c, id: idOf(t, c)}
	longest := string(bytes.Repeat([]byte("d"), store.MaxKeyBytes))
	for _, x := range []struct{ put, end string }{{"", ""}, {"b", "b\x00"}, {"c", "c\x00"}, {"a", "c\x00"}, {longest, ""}} {
		if x.put != "" {
			require.NoError(t, c.Bucket("b").Put(t.Context(), []byte(x.put), nil))
		} else {
			parts, err := s.explore(t.Context(), span{}, nil, 1)
			require.NoError(t, err)
			require.Empty(t, parts)
		}
		var gap span
		found, err := s.tighten(t.Context(), &gap)
		require.NoError(t, err)
		require.Equal(t, x.put != "", found)
		require.Equal(t, span{hi: gap.hi}, gap)
		require.Equal(t, x.end, string(gap.hi))
	}
}
