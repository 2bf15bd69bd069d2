package listing

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// How a page decides what to read next: no answer depends on it, but what it costs.

func pageOf(o Options, q *Query, limit int) *pager {
	return &pager{c: &Client{o: o}, q: q, limit: limit, left: q.span()}
}

func items(n int) (all []Item) {
	for i := range n {
		all = append(all, Item{Entry: Entry{Key: fmt.Appendf(nil, "k%04d", i)}})
	}
	return all
}

func TestHowManyRowsAreAskedFor(t *testing.T) {
	folded := &Query{Delimiter: []byte("/")}
	for _, c := range []struct {
		q                              *Query
		limit, have, slice, rows, perR int
		floor, want, slicesAfter       int
	}{
		{q: &Query{}, limit: 1000, want: 1001},
		{q: &Query{}, limit: 1000, have: 400, want: 601},
		{q: &Query{}, limit: 1, have: 1, want: 4},
		{q: &Query{}, limit: 3, want: 4},
		{q: &Query{}, limit: 4, want: 5},
		{q: &Query{}, limit: 10_000, want: 10_000},
		{q: &Query{}, limit: 9_998, want: 9_999},
		{q: &Query{}, limit: 10, floor: 64, want: 64}, {q: &Query{}, limit: 10, floor: 20_000, want: 10_000},
		{q: folded, limit: 1000, perR: 16, want: 64, slicesAfter: 64},
		{q: folded, limit: 1000, perR: 33, want: 66, slicesAfter: 66},
		{q: folded, limit: 1000, perR: 128, want: 256, slicesAfter: 256},
		{q: folded, limit: 5000, perR: 600, want: 1000, slicesAfter: 1000},
		{q: folded, limit: 10, perR: 128, want: 11, slicesAfter: 256}, // one row makes one item, as a first guess
		{q: folded, limit: 10, slice: 40, rows: 3, perR: 16, want: 33, slicesAfter: 40},
		{q: folded, limit: 10, slice: 40, rows: 5, perR: 16, want: 40, slicesAfter: 40},
		{q: folded, limit: 10, have: 10, slice: 40, rows: 1, perR: 16, want: 4, slicesAfter: 40},
		{q: folded, limit: 10, slice: 5, rows: 9, floor: 7, perR: 16, want: 7, slicesAfter: 5},
	} {
		p := pageOf(Options{RowsPerRead: c.perR}, c.q, c.limit)
		p.n, p.slice, p.rows, p.floor = c.have, c.slice, c.rows, c.floor
		require.Equal(t, c.want, p.sliceLimit(), "%+v", c)
		require.Equal(t, c.slicesAfter, p.slice, "%+v", c)
	}
}

func TestSlicesAdapt(t *testing.T) {
	for _, c := range []struct {
		slice, floor, rows, found int
		more, passed              bool
		wantSlice, wantFloor      int
		wantRows                  int
	}{
		{slice: 64, rows: 64, found: 10, more: true, wantSlice: 128, wantRows: 7},
		{slice: 64, rows: 64, found: 64, more: true, passed: true, wantSlice: 128, wantRows: 1},
		{slice: 800, rows: 64, found: 10, more: true, wantSlice: 1000, wantRows: 7},
		{slice: 64, rows: 64, found: 1, more: true, passed: true, wantSlice: 32, wantRows: 64},
		{slice: 64, rows: 2, found: 1, more: true, passed: true, wantSlice: 32, wantRows: 2},
		{slice: 64, rows: 64, found: 0, more: true, passed: true, wantSlice: 32, wantFloor: 8, wantRows: 99},
		{slice: 64, rows: 64, found: 2, more: true, passed: true, wantSlice: 32, wantRows: 32},
		{slice: 64, rows: 24, found: 2, more: true, passed: true, wantSlice: 128, wantRows: 12},
		{slice: 64, rows: 25, found: 2, more: true, passed: true, wantSlice: 32, wantRows: 13},
		{slice: 64, rows: 40, found: 3, more: true, passed: true, wantSlice: 128, wantRows: 14},
		{slice: 64, rows: 41, found: 3, more: true, passed: true, wantSlice: 32, wantRows: 14},
		{slice: 9, rows: 9, found: 1, more: true, passed: true, wantSlice: 4, wantRows: 9},
		{slice: 5, rows: 5, found: 1, more: true, passed: true, wantSlice: 4, wantRows: 5},
		{slice: 0, rows: 64, found: 1, more: true, passed: true, wantSlice: 0, wantRows: 64},
		{slice: 64, rows: 64, found: 1, passed: true, wantSlice: 64, wantRows: 64},
		{slice: 64, rows: 64, found: 0, wantSlice: 64, wantRows: 99},
		{slice: 64, floor: 8, rows: 64, found: 0, more: true, wantSlice: 128, wantFloor: 16, wantRows: 99},
		{slice: 64, floor: 1, rows: 64, found: 0, more: true, wantSlice: 128, wantFloor: 8, wantRows: 99},
		{slice: 64, floor: 8, rows: 64, found: 1, more: true, wantSlice: 128, wantFloor: 8, wantRows: 64},
	} {
		p := pageOf(Options{RowsPerRead: 16}, &Query{From: []byte("m")}, 1000)
		p.slice, p.floor, p.rows = c.slice, c.floor, 99
		r := &read{got: piece{rows: make([]store.Row, c.rows), more: c.more, last: []byte("z")}}
		if c.passed {
			r.got.last = []byte("a")
		}
		p.adapt(r, c.found)
		require.Equal(t, [3]int{c.wantSlice, c.wantFloor, c.wantRows}, [3]int{p.slice, p.floor, p.rows}, "%+v", c)
	}
}

func TestWhenAPageIsEnough(t *testing.T) {
	page := func(change func(p *pager)) bool {
		p := pageOf(Options{MaxIdleReads: 256}, &Query{}, 10)
		p.n, p.bytes, p.idle, p.peeks = 9, 8<<20-1, 255, 100
		change(p)
		return p.enough()
	}
	require.False(t, page(func(p *pager) {}))
	require.True(t, page(func(p *pager) { p.more = true }))
	require.True(t, page(func(p *pager) { p.bytes++ }))
	require.True(t, page(func(p *pager) { p.idle++ }))
	require.True(t, page(func(p *pager) { p.n = 10 }))
	require.True(t, page(func(p *pager) { p.n, p.peeks = 10, 8 }))
	require.False(t, page(func(p *pager) { p.n, p.peeks = 10, 7 }))
}

func TestWhenItIsWorthReadingAhead(t *testing.T) {
	page := func(change func(p *pager)) bool {
		p := pageOf(Options{ReadAhead: 2, ReadAheadAfter: 8}, &Query{Delimiter: []byte("/")}, 100)
		p.reads, p.pace, p.n = 8, 5, 19 // 81 to go, 80 are those of 16 reads
		change(p)
		return p.worthReadingAhead()
	}
	require.True(t, page(func(p *pager) {}))
	require.False(t, page(func(p *pager) { p.q = &Query{} }))
	require.False(t, page(func(p *pager) { p.c.o.ReadAhead = 1 }))
	require.False(t, page(func(p *pager) { p.reads = 7 }))
	require.False(t, page(func(p *pager) { p.n = 20 }))
	require.False(t, page(func(p *pager) { p.pace = 0 }))
	require.False(t, page(func(p *pager) { p.pace = 5.1 }))
	require.False(t, page(func(p *pager) { p.n, p.pace = 100, -1 }))
	for after, least := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 8: 4} {
		require.Equal(t, least, leastWalk(&Options{ReadAheadAfter: after}))
	}
}

func TestHowManyWalksThereAre(t *testing.T) {
	for reads, most := range map[int]int{0: 2, 8: 2, 23: 2, 24: 3, 31: 3, 32: 4, 79: 9, 80: 10, 800: 10} {
		a := &ahead{p: &pager{c: &Client{o: Options{ReadAhead: 10}}, reads: reads}}
		require.Equal(t, most, a.most(), reads)
	}
	made := func(have, limit int, change func(w *walk)) *walk {
		w := &walk{pager: pager{n: have, limit: limit}, guess: 10, found: have}
		change(w)
		return w
	}
	for _, c := range []struct {
		w        *walk
		finished bool
		expected float64
	}{
		{made(3, 20, func(*walk) {}), false, 10},
		{made(12, 20, func(*walk) {}), false, 12},
		{made(3, 20, func(w *walk) { w.found = 1 }), false, 12}, // some are on the page already
		{made(3, 20, func(w *walk) { w.last = true }), false, 3},
		{made(3, 20, func(w *walk) { w.more = true }), true, 3},
		{made(3, 20, func(w *walk) { w.left.done = true }), true, 3},
		{made(3, 3, func(*walk) {}), true, 3},
		{made(2, 3, func(*walk) {}), false, 10},
	} {
		require.Equal(t, c.finished, c.w.finished())
		require.Equal(t, c.expected, c.w.expected())
	}
}

// The first walk reads on in any case, others while they cost little beside what was useful, and while
// the page has room for what they bring.
func TestWhichWalksReadOn(t *testing.T) {
	s, c, id := overSeen(t, Options{ReadAhead: 4})
	h, err := c.acquire(t.Context(), id)
	require.NoError(t, err)
	defer h.release()
	for name, x := range map[string]struct {
		reads  int
		change func(a *ahead, second, third *walk)
	}{
		"all":                   {3, func(*ahead, *walk, *walk) {}},
		"two at once":           {2, func(a *ahead, _, _ *walk) { a.p.reads = 8 }},
		"half of the reads":     {3, func(_ *ahead, second, third *walk) { second.reads, third.reads = 8, 7 }},
		"one more":              {2, func(_ *ahead, second, third *walk) { second.reads, third.reads = 8, 8 }},
		"two more":              {1, func(_ *ahead, second, third *walk) { second.reads, third.reads = 8, 9 }},
		"almost all bytes":      {3, func(_ *ahead, second, third *walk) { second.bytes, third.bytes = 60, 39 }},
		"all bytes":             {1, func(_ *ahead, second, third *walk) { second.bytes, third.bytes = 60, 40 }},
		"a page that is full":   {3, func(a *ahead, _, _ *walk) { a.p.n = 30 }},
		"a page that overflows": {2, func(a *ahead, _, _ *walk) { a.p.n = 31 }},
		"one is done":           {2, func(_ *ahead, second, _ *walk) { second.left.done = true }},
		"one has failed":        {2, func(_ *ahead, second, _ *walk) { second.again = true }},
		"one is damaged":        {2, func(_ *ahead, _, third *walk) { third.bad = ErrNotFound }},
		"the first has failed":  {3, func(a *ahead, _, _ *walk) { a.walks[0].again = true }},
	} {
		q := &Query{Delimiter: []byte("/"), Bytes: 100}
		p := &pager{c: c, q: q, h: h, limit: 50, reads: 32}
		a := &ahead{p: p, done: make(chan *walk, 3)}
		for _, part := range []span{{hi: []byte("b")}, {lo: []byte("b"), hi: []byte("c")}, {lo: []byte("c")}} {
			a.walks = append(a.walks, &walk{pager: p.part(p, part), guess: 10})
		}
		x.change(a, a.walks[1], a.walks[2])
		s.limits = nil
		_, err := a.next(t.Context())
		require.NoError(t, err)
		a.drain()
		require.Len(t, s.limits, x.reads, name)
		require.False(t, a.walks[0].again, name)
	}
}

// A cut lies never within a common prefix, and is where names or ranges say.
func TestWhereWalksAreCut(t *testing.T) {
	for _, c := range []struct {
		prefix, at, want string
		reverse          bool
	}{
		{"", "a/b", "a0", false},
		{"", "a/b", "a/", true},
		{"", "a", "a", false},
		{"p/", "p/a/b", "p/a0", false},
		{"p/", "q/a/b", "q/a/b", false},
		{"p/", "p/a", "p/a", false},
	} {
		p := pageOf(Options{}, &Query{Prefix: []byte(c.prefix), Delimiter: []byte("/"), Reverse: c.reverse}, 10)
		a := &ahead{p: p}
		require.Equal(t, c.want, string(a.outside([]byte(c.at))), "%+v", c)
	}
	build := func(reverse bool, have int) *ahead {
		q := &Query{Delimiter: []byte("/"), Reverse: reverse}
		p := pageOf(Options{ReadAhead: 4, ReadAheadAfter: 8}, q, 1000)
		p.reads, p.pace, p.ranges = 80, 2, 2
		for i := range have {
			n := 100 + i
			if reverse {
				n = 900 - i
			}
			p.n, p.items = p.n+1, append(p.items, Item{Entry: Entry{Key: fmt.Appendf(nil, "n%03d", n)}})
		}
		if have > 0 {
			p.left.passKey(p.items[have-1].Key)
		}
		w := &walk{pager: *p, guess: math.Inf(1), last: true}
		w.n, w.items = 0, nil
		w.rg = partmap.Range{Entry: partmap.Entry{Start: []byte("n300")}, End: []byte("n500")}
		return &ahead{p: p, walks: []*walk{w}}
	}
	// By names: 80 reads are five for one walk, of two items each; but no fewer than the
	// share of what the page lacks.
	a := build(false, 20) // up to n119; it lacks 980, of which a quarter is 245
	require.True(t, a.cut(0))
	require.Len(t, a.walks, 2)
	require.Equal(t, "n129", string(a.walks[1].begin))
	require.Equal(t, "n129", string(a.walks[0].left.hi))
	require.Equal(t, span{lo: []byte("n129")}, a.walks[1].left)
	require.Equal(t, [2]bool{false, true}, [2]bool{a.walks[0].last, a.walks[1].last})
	require.Equal(t, 10.0, a.walks[0].guess)
	require.Equal(t, math.Inf(1), a.walks[1].guess)
	require.Equal(t, 980, a.walks[1].limit)
	require.True(t, a.cut(1), "the next one begins there")
	require.Equal(t, "n139", string(a.walks[2].begin))
	require.Equal(t, "n139", string(a.walks[1].left.hi))
	a = build(true, 20) // down to n881
	require.True(t, a.cut(0))
	require.Equal(t, "n871", string(a.walks[1].begin))
	require.Equal(t, "n871", string(a.walks[0].left.lo))
	require.Equal(t, "n871", string(a.walks[1].left.hi))
	// Without names: where the latest range ends.
	a = build(false, 0)
	a.walks[0].left = span{lo: []byte("n350")}
	require.True(t, a.cut(0))
	require.Equal(t, "n500", string(a.walks[1].begin))
	require.Equal(t, 1.0, a.walks[0].guess)
	a = build(true, 0)
	a.walks[0].left = span{hi: []byte("n350"), reverse: true}
	require.True(t, a.cut(0))
	require.Equal(t, "n300", string(a.walks[1].begin))
	// A walk is made for one item at least, however few its reads find.
	a = build(false, 20)
	a.walks[0].pace = 0.1
	require.True(t, a.cut(0))
	require.Equal(t, "n120", string(a.walks[1].begin))
	require.Equal(t, 1.0, a.walks[0].guess)
	// A key has a length at most.
	for more, cut := range []bool{true, false} {
		a = build(false, 0)
		a.walks[0].left = span{lo: []byte("n350")}
		a.walks[0].rg.End = append([]byte("n5"), make([]byte, store.MaxKeyBytes-2+more)...)
		require.Equal(t, cut, a.cut(0))
	}
	// Nowhere.
	for name, change := range map[string]func(a *ahead){
		"no range is behind":             func(a *ahead) { a.p.ranges = 0 },
		"the range is passed":            func(a *ahead) { a.walks[0].left = span{lo: []byte("n500")} },
		"the range has no end":           func(a *ahead) { a.walks[0].rg.End = nil },
		"the end is beyond what is left": func(a *ahead) { a.walks[0].left.hi = []byte("n400") },
	} {
		a := build(false, 0)
		a.walks[0].left = span{lo: []byte("n350")}
		change(a)
		require.False(t, a.cut(0), name)
		require.Len(t, a.walks, 1)
	}
}

// A page ends with the item that makes it full, by number or by bytes; only the number says
// that more follows.
func TestWhereJoinedPagesEnd(t *testing.T) {
	for _, c := range []struct {
		limit, bytes, want int
		more               bool
	}{
		{limit: 3, want: 3, more: true}, {limit: 4, want: 4}, {limit: 9, want: 4},
		{limit: 9, bytes: 10, want: 2}, {limit: 9, bytes: 11, want: 3},
	} {
		p := pageOf(Options{}, &Query{Delimiter: []byte("/"), Bytes: c.bytes}, c.limit)
		w := &walk{pager: *p, last: true}
		for _, item := range items(4) { // of five bytes each
			item.Key, item.Value = item.Key[:3], item.Key[3:]
			w.n, w.items = w.n+1, append(w.items, item)
		}
		want := w.items
		a := &ahead{p: p, walks: []*walk{w}}
		require.NoError(t, a.join())
		require.Equal(t, want[:c.want], p.items, "%+v", c)
		if c.want == 4 {
			require.Equal(t, c.limit-4, w.limit, "%+v", c)
		}
		require.Equal(t, c.more, p.more, "%+v", c)
		require.Equal(t, 5*c.want, p.bytes)
	}
}

// A page goes on where the next walk begins once one is done, also without an item.
func TestPagesGoOnAtTheNextWalk(t *testing.T) {
	p := pageOf(Options{}, &Query{Delimiter: []byte("/")}, 9)
	first, second := &walk{pager: *p}, &walk{pager: *p, begin: []byte("m"), last: true, busy: true}
	first.left.done = true
	a := &ahead{p: p, walks: []*walk{first, second}}
	require.NoError(t, a.join())
	require.Equal(t, []*walk{second}, a.walks)
	require.Equal(t, span{lo: []byte("m")}, p.left)
}

// A walk that begins within a common prefix goes on behind it, once the walk before has listed it.
func TestWalksGoOnBehindWhatWasListed(t *testing.T) {
	for _, busy := range []bool{false, true} {
		p := pageOf(Options{}, &Query{Delimiter: []byte("/")}, 9)
		first, second := &walk{pager: *p}, &walk{pager: *p, begin: []byte("b/5"), last: true, busy: busy}
		first.n, first.items, first.left.done = 1, []Item{{Entry: Entry{Key: []byte("b/")}, CommonPrefix: true}}, true
		second.left.lo = []byte("b/5")
		a := &ahead{p: p, walks: []*walk{first, second}}
		require.NoError(t, a.join())
		require.Equal(t, []*walk{second}, a.walks)
		require.Equal(t, "b0", string(p.left.lo))
		require.Equal(t, map[bool]string{false: "b0", true: "b/5"}[busy], string(second.left.lo), "busy %t", busy)
	}
}

// TestWhatReadsTellAPage: what is found, and what the next reads are guessed from.
func TestWhatReadsTellAPage(t *testing.T) {
	type told struct {
		items, reads, idle, peeks, ranges, wide int
		pace                                    float64
		more                                    bool
		lo                                      string
	}
	// Each read is of a range, up to the next letter or to what is behind <; * says that there is more of it.
	made := func(text string) read {
		at := text[0]
		r := read{into: new(rowsOfPage)}
		r.rg = partmap.Range{Entry: partmap.Entry{Start: []byte{at}}, End: []byte{at + 1}}
		for _, key := range strings.Fields(text[1:]) {
			if end, ok := strings.CutPrefix(key, "<"); ok {
				r.rg.End = []byte(end)
				continue
			}
			if key == "*" {
				r.got.more, r.got.last = true, r.got.rows[len(r.got.rows)-1].Key
				continue
			}
			r.got.rows = append(r.got.rows, store.Row{Key: []byte(key), Value: store.EntryCell(nil)})
		}
		return r
	}
	for _, c := range []struct {
		limit, have, wide int
		wave              []string
		want              told
	}{
		{9, 0, 0, []string{"a a1 a2 a3"}, told{items: 3, reads: 1, ranges: 1, wide: 1, pace: 3.5, lo: "b"}},
		{9, 0, 3, []string{"a a1 a2 a3 *"}, told{items: 3, reads: 1, pace: 3.5, lo: "a3"}},
		{9, 0, 0, []string{"a"}, told{reads: 1, idle: 1, ranges: 1, wide: 1, pace: 2, lo: "b"}},
		{9, 0, 3, []string{"a a1", "b", "c c1"}, told{items: 2, reads: 3, idle: 1, ranges: 3, wide: 6, pace: 1.125, lo: "d"}},
		{9, 0, 6, []string{"a a1", "b b1 *", "c c1"}, told{items: 2, reads: 2, ranges: 1, pace: 1.75, lo: "b1"}},
		{9, 0, 6, []string{"a a1", "b <b0 b/1 *", "b b5"}, told{items: 3, reads: 3, ranges: 3, wide: 8, pace: 1.375, lo: "c"}},
		{9, 0, 6, []string{"a a/1 *", "b b1"}, told{items: 1, reads: 1, pace: 2.5, lo: "a0"}},
		{3, 3, 2, []string{"a"}, told{items: 3, reads: 1, idle: 1, peeks: 1, ranges: 1, wide: 4, pace: 2, lo: "b"}},
		{3, 3, 2, []string{"a a1", "b b1"}, told{items: 3, reads: 1, idle: 1, peeks: 1, wide: 2, pace: 2, more: true}},
		{3, 2, 2, []string{"a a1 a2", "b b1"}, told{items: 3, reads: 1, wide: 2, pace: 2.5, more: true, lo: "a1"}},
	} {
		p := pageOf(Options{MaxParallel: 8, RowsPerRead: 16}, &Query{Delimiter: []byte("/")}, c.limit)
		p.n, p.wide, p.pace = c.have, c.wide, 4
		var wave []read
		for _, text := range c.wave {
			wave = append(wave, made(text))
		}
		require.NoError(t, p.consume(wave))
		require.Equal(t, c.want, told{
			p.n, p.reads, p.idle, p.peeks, p.ranges, p.wide, p.pace, p.more, string(p.left.lo),
		}, "%q", c.wave)
	}
}

// TestWhatWalksTellTheirPage: what their reads cost counts once, and their latest guesses are the page's.
func TestWhatWalksTellTheirPage(t *testing.T) {
	p := pageOf(Options{}, &Query{Delimiter: []byte("/")}, 9)
	p.n, p.items, p.reads, p.idle, p.ranges, p.wide = 2, items(2), 10, 20, 30, 9
	w := &walk{pager: *p}
	w.n, w.items, w.bytes, w.more = 1, items(3)[2:], 5, true
	w.reads, w.idle, w.ranges = 1, 2, 3
	w.slice, w.rows, w.floor, w.pace, w.wide = 4, 5, 6, 7, 8
	w.rg.Start, w.left.lo = []byte("r"), []byte("z")
	a := &ahead{p: p, walks: []*walk{w}}
	for range 2 { // the second time there is nothing new
		require.NoError(t, a.join())
		require.Equal(t, items(3), p.items)
		require.Equal(t, []int{11, 22, 33, 4, 5, 6, 0}, []int{p.reads, p.idle, p.ranges, p.slice, p.rows, p.floor, p.wide})
		require.Equal(t, 7.0, p.pace)
		require.Equal(t, []string{"r", "z"}, []string{string(p.rg.Start), string(p.left.lo)})
		require.Equal(t, []int{0, 0, 0, 0, 6}, []int{w.reads, w.idle, w.ranges, w.bytes, w.limit})
		require.Empty(t, w.items)
		require.False(t, w.more)
	}
}

// TestPrefixesAreCopies: an item of a few bytes keeps no page of rows in memory.
func TestPrefixesAreCopies(t *testing.T) {
	row := store.Row{Key: []byte("a/1"), Value: store.EntryCell(nil)}
	p := pageOf(Options{}, &Query{Delimiter: []byte("/")}, 9)
	require.NoError(t, p.take(&read{got: piece{rows: []store.Row{row}}}))
	require.Equal(t, "a/", string(p.items[0].Key))
	require.NotSame(t, &row.Key[0], &p.items[0].Key[0])
}

// TestADamagedWalkEndsItsPage: read again, it would be divided again.
func TestADamagedWalkEndsItsPage(t *testing.T) {
	p := pageOf(Options{MaxIdleReads: 1}, &Query{Delimiter: []byte("/")}, 9)
	damaged := store.Errorf(store.Corrupt, "damaged")
	a := &ahead{p: p, walks: []*walk{{pager: *p, bad: damaged}, {pager: *p, last: true}}}
	require.ErrorIs(t, a.run(t.Context()), damaged)
}

// TestAWalkThatFails in the end: the page has what it had found before, and fails only if it needs more.
func TestAWalkThatFails(t *testing.T) {
	for most, fails := range map[int]bool{10: false, 11: true} {
		p := pageOf(Options{MaxIdleReads: 1}, &Query{Delimiter: []byte("/"), Bytes: most}, 9)
		w := &walk{pager: *p, last: true, busy: true, err: ErrNotFound}
		w.n, w.items = 2, items(2) // of five bytes each
		a := &ahead{p: p, walks: []*walk{w}, busy: 1, done: make(chan *walk, 1)}
		a.done <- w
		err := a.run(t.Context())
		require.Equal(t, fails, err != nil, "%v", err)
		require.Len(t, p.items, 2)
		require.Equal(t, p.enough(), !fails)
	}
}
