package history_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/history"
	"github.com/evenkeel/evenkeel/internal/test/seed"
)

// put, del, get and page make histories by hand. Timestamps are exact and, but
// for the tests of clocks, those of the beginning.
func put(key, value string, begin, end history.Instant) history.Write {
	return history.Write{
		Key: key, Value: value, Begin: begin, End: end, Outcome: history.Acknowledged, Low: int64(begin),
		High: int64(begin),
	}
}

func del(key string, begin, end history.Instant) history.Write {
	w := put(key, "", begin, end)
	w.Delete = true
	return w
}

func (b build) at(low, high int64) build {
	w := &b.h.Writes[len(b.h.Writes)-1]
	w.Low, w.High = low, high
	return b
}

func (b build) outcome(o history.Outcome) build {
	b.h.Writes[len(b.h.Writes)-1].Outcome = o
	return b
}

type build struct{ h *history.History }

func begin() build { return build{&history.History{}} }

func (b build) write(w history.Write) build {
	b.h.Writes = append(b.h.Writes, w)
	return b
}

// get reads a value; "" is nothing.
func (b build) get(key, value string, begin, end history.Instant) build {
	b.h.Reads = append(b.h.Reads, history.Read{Key: key, Value: value, Found: value != "", Begin: begin, End: end})
	return b
}

func (b build) list(l history.Listing) build {
	b.h.Listings = append(b.h.Listings, l)
	return b
}

func (b build) in(site string) build {
	switch {
	case len(b.h.Reads) > 0:
		b.h.Reads[len(b.h.Reads)-1].Site = site
	default:
		b.h.Writes[len(b.h.Writes)-1].Site = site
	}
	return b
}

func page(begin, end history.Instant, last bool, items ...string) history.Page {
	p := history.Page{Begin: begin, End: end, Last: last}
	for i := 0; i < len(items); i += 2 {
		p.Items = append(p.Items, history.Item{Key: items[i], Value: items[i+1]})
	}
	return p
}

func all(pages ...history.Page) history.Listing { return history.Listing{Pages: pages} }

func TestHistories(t *testing.T) {
	abc := func() build {
		return begin().write(put("a", "1", 1, 2)).write(put("b", "2", 3, 4)).write(put("c", "3", 5, 6))
	}
	for name, c := range map[string]struct {
		b    build
		want []history.Rule
	}{
		"nothing happened":            {begin(), nil},
		"an acknowledged put is read": {begin().write(put("k", "v", 1, 2)).get("k", "v", 3, 4), nil},
		"an acknowledged put is lost": {begin().write(put("k", "v", 1, 2)).get("k", "", 3, 4),
			[]history.Rule{history.Lost}},
		"a put under way is seen or not": {begin().write(put("k", "v", 1, 9)).get("k", "", 2, 3).get("k", "v", 4, 5),
			nil},
		"what was shown vanishes": {begin().write(put("k", "v", 1, 9)).get("k", "v", 2, 3).get("k", "", 4, 5),
			[]history.Rule{history.Lost}},
		"a value before it was put": {begin().write(put("k", "v", 5, 9)).get("k", "v", 2, 3),
			[]history.Rule{history.Invented}},
		"a value that nobody put": {begin().write(put("k", "v", 1, 2)).get("k", "w", 3, 4),
			[]history.Rule{history.Invented}},
		"a key that nobody put": {begin().get("k", "w", 3, 4), []history.Rule{history.Invented}},
		"a refused value": {begin().write(put("k", "v", 1, 2)).outcome(history.Refused).get("k", "v", 3, 4),
			[]history.Rule{history.Invented}},
		"a refused deletion deletes nothing": {begin().write(put("k", "v", 1, 2)).write(del("k", 3, 4)).
			outcome(history.Refused).get("k", "", 5, 6), []history.Rule{history.Lost}},
		"a deletion of unknown outcome, applied": {begin().write(put("k", "v", 1, 2)).write(del("k", 3, 4)).
			outcome(history.Unknown).get("k", "", 5, 6), nil},
		"a deletion of unknown outcome, late": {begin().write(put("k", "v", 1, 2)).write(del("k", 3, 4)).
			outcome(history.Unknown).get("k", "v", 5, 6).get("k", "", 7, 8), nil},
		"a deletion that was shown is undone": {begin().write(put("k", "v", 1, 2)).write(del("k", 3, 4)).
			outcome(history.Unknown).get("k", "", 5, 6).get("k", "v", 7, 8), []history.Rule{history.Undeleted}},
		"an acknowledged deletion is undone": {begin().write(put("k", "v", 1, 2)).write(del("k", 3, 4)).
			get("k", "v", 5, 6), []history.Rule{history.Undeleted}},
		"an old value comes back": {begin().write(put("k", "v", 1, 2)).write(put("k", "w", 3, 4)).get("k", "v", 5, 6),
			[]history.Rule{history.Lost}},
		"a late put loses against a deletion": {begin().write(put("k", "v", 1, 2)).outcome(history.Unknown).
			write(del("k", 3, 4)).get("k", "", 5, 6), nil},
		"a late put undoes a deletion": {begin().write(put("k", "v", 1, 2)).outcome(history.Unknown).
			write(del("k", 3, 4)).get("k", "v", 5, 6), []history.Rule{history.Undeleted}},
		"a slow clock's put is invisible": {begin().write(put("k", "v", 1, 2)).at(50, 50).write(put("k", "w", 3, 4)).
			at(40, 40).get("k", "v", 5, 6), nil},
		"a slow clock's put wins": {begin().write(put("k", "v", 1, 2)).at(50, 50).write(put("k", "w", 3, 4)).at(40, 40).
			get("k", "w", 5, 6), []history.Rule{history.Lost}},
		"of writes at once either may win": {begin().write(put("k", "v", 1, 5)).at(1, 5).write(put("k", "w", 2, 4)).
			at(2, 4).get("k", "v", 6, 7), nil},
		"but not first one and then the other": {begin().write(put("k", "v", 1, 2)).write(put("k", "w", 3, 4)).
			get("k", "w", 6, 7).get("k", "v", 8, 9), []history.Rule{history.Lost}},
		"another site sees it later": {begin().write(put("k", "v", 1, 2)).in("here").get("k", "", 3, 4).in("there"),
			nil},
		"a whole listing": {abc().list(all(page(7, 8, true, "a", "1", "b", "2", "c", "3"))), nil},
		"a listing in pages": {abc().
			list(all(page(7, 8, false, "a", "1"), page(9, 10, false), page(11, 12, true, "b", "2", "c", "3"))), nil},
		"a listing that was broken off": {abc().list(all(page(7, 8, false, "a", "1"))), nil},
		"a hole":                        {abc().list(all(page(7, 8, true, "a", "1", "c", "3"))), []history.Rule{history.Lost}},
		"a hole between two pages": {abc().list(all(page(7, 8, false, "a", "1"), page(9, 10, true, "c", "3"))),
			[]history.Rule{history.Lost}},
		"a hole at the end": {abc().list(all(page(7, 8, false, "a", "1", "b", "2"), page(9, 10, true))),
			[]history.Rule{history.Lost}},
		"a hole at the beginning, in reverse": {abc().
			list(history.Listing{Reverse: true, Pages: []history.Page{page(7, 8, true, "b", "2", "a", "1")}}),
			[]history.Rule{history.Lost}},
		"a reverse listing": {abc().
			list(history.Listing{Reverse: true, Pages: []history.Page{page(7, 8, true, "c", "3", "b", "2", "a", "1")}}),
			nil},
		"a repeat": {abc().list(all(page(7, 8, false, "a", "1", "b", "2"), page(9, 10, true, "b", "2", "c", "3"))),
			[]history.Rule{history.Disordered}},
		"disorder": {abc().list(all(page(7, 8, true, "b", "2", "a", "1", "c", "3"))),
			[]history.Rule{history.Lost, history.Disordered}},
		"within bounds": {abc().list(history.Listing{
			From: "b", To: "c", Pages: []history.Page{page(7, 8, true, "b", "2")},
		}), nil},
		"beyond a bound": {abc().list(history.Listing{
			From: "b", To: "c", Pages: []history.Page{page(7, 8, true, "b", "2", "c", "3")},
		}), []history.Rule{history.Disordered}},
		"a deleted entry is listed": {abc().write(del("b", 7, 8)).
			list(all(page(9, 10, true, "a", "1", "b", "2", "c", "3"))), []history.Rule{history.Undeleted}},
		"keys alone": {abc().list(history.Listing{
			KeysOnly: true, Pages: []history.Page{page(7, 8, true, "a", "", "b", "", "c", "")},
		}), nil},
		"a deleted key is listed": {abc().write(del("b", 7, 8)).
			list(history.Listing{KeysOnly: true, Pages: []history.Page{page(9, 10, true, "a", "", "b", "", "c", "")}}),
			[]history.Rule{history.Undeleted}},
		"a key is listed that nobody has put yet": {begin().write(put("k", "v", 5, 6)).
			list(history.Listing{KeysOnly: true, Pages: []history.Page{page(1, 2, true, "k", "")}}),
			[]history.Rule{history.Invented}},
		// Page one ended beyond b, before b was put: page two does not look there again.
		"a put behind the listing's back": {begin().write(put("a", "1", 1, 2)).write(put("b", "2", 9, 10)).
			list(all(page(7, 8, false, "a", "1"), page(11, 12, true))), nil},
		"a put in front of its second page": {begin().write(put("a", "1", 1, 2)).write(put("c", "3", 3, 4)).
			write(put("d", "4", 9, 10)).list(all(page(7, 8, false, "a", "1"), page(11, 12, true, "c", "3"))),
			[]history.Rule{history.Lost}},
		"a put while a page was under way": {begin().write(put("a", "1", 1, 2)).write(put("b", "2", 8, 9)).
			list(all(page(7, 10, true, "a", "1"))), nil},
		"a put before a failed page was read": {begin().write(put("a", "1", 1, 2)).write(put("b", "2", 3, 4)).
			list(all(page(9, 10, true, "a", "1"))), []history.Rule{history.Lost}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []history.Rule
			for _, v := range c.b.h.Check() {
				require.NotEmpty(t, v.String())
				got = append(got, v.Rule)
			}
			require.ElementsMatch(t, c.want, got, "%v", c.b.h.Check())
		})
	}
}

func TestSitesSeeEachOtherOnceTheyAreJoined(t *testing.T) {
	b := begin().write(put("k", "v", 1, 2)).in("here").get("k", "", 3, 4).in("there")
	b.h.Joins = []history.Instant{5}
	require.Empty(t, b.h.Check())
	b.get("k", "v", 6, 7).in("there")
	require.Empty(t, b.h.Check())
	b.get("k", "", 8, 9).in("there")
	require.Len(t, b.h.Check(), 1)
	b.h.Joins = nil
	require.Len(t, b.h.Check(), 1, "once it was shown there it stays")
	b.h.Reads = slices.Delete(b.h.Reads, 1, 2)
	require.Empty(t, b.h.Check())
}

// register is a store that is right: it keeps the newest write of each key.
type register struct {
	value string
	live  bool
	low   int64
}

// randomHistory lets clients with clocks of their own work on a correct store.
// Each call takes effect at one moment between its beginning and its end, or
// for writes of unknown outcome maybe later, or never.
func randomHistory(r *rand.Rand) *history.History {
	h, now := &history.History{}, history.Instant(0)
	state := map[string]register{}
	type late struct {
		due history.Instant
		w   history.Write
	}
	var pending []late
	apply := func(w history.Write) {
		if old, ok := state[w.Key]; !ok || w.Low > old.low {
			state[w.Key] = register{w.Value, !w.Delete, w.Low}
		}
	}
	advance := func(n int) history.Instant {
		now += history.Instant(1 + r.IntN(n))
		pending = slices.DeleteFunc(pending, func(l late) bool {
			if l.due <= now {
				apply(l.w)
				return true
			}
			return false
		})
		return now
	}
	skew := []int64{0, 0, int64(r.IntN(100)), -int64(r.IntN(100))}
	stamps := map[int64]bool{}
	for i := range 400 {
		key := fmt.Sprint("k", r.IntN(12))
		switch r.IntN(4) {
		case 0, 1:
			begin := advance(3)
			w := history.Write{Key: key, Begin: begin, Delete: r.IntN(3) == 0}
			if !w.Delete {
				w.Value = fmt.Sprint("v", i)
			}
			w.Low = 1000 + 10*int64(begin) + skew[r.IntN(len(skew))]
			for stamps[w.Low] {
				w.Low++
			}
			stamps[w.Low] = true
			w.High = w.Low
			switch r.IntN(6) {
			case 0:
				w.Outcome = history.Unknown
				pending = append(pending, late{begin + history.Instant(r.IntN(60)), w})
			case 1:
				w.Outcome = history.Unknown
			case 2:
				w.Outcome = history.Refused
			default:
				w.Outcome = history.Acknowledged
				apply(w)
			}
			w.End = advance(3)
			h.Writes = append(h.Writes, w)
		case 2:
			g := history.Read{Key: key, Begin: advance(3)}
			g.Found, g.Value = state[key].live, state[key].value
			g.End = advance(3)
			h.Reads = append(h.Reads, g)
		default:
			h.Listings = append(h.Listings, listing(r, state, advance))
		}
	}
	return h
}

func listing(r *rand.Rand, state map[string]register, advance func(int) history.Instant) history.Listing {
	l := history.Listing{Reverse: r.IntN(2) == 0, KeysOnly: r.IntN(3) == 0}
	if r.IntN(2) == 0 {
		l.From = fmt.Sprint("k", r.IntN(5))
	}
	if r.IntN(2) == 0 {
		l.To = fmt.Sprint("k", 5+r.IntN(5))
	}
	from, to := l.From, l.To
	for {
		p := history.Page{Begin: advance(3)}
		var keys []string
		for k, s := range state {
			if s.live && k >= from && (to == "" || k < to) {
				keys = append(keys, k)
			}
		}
		sort.Strings(keys)
		if l.Reverse {
			slices.Reverse(keys)
		}
		n := r.IntN(5)
		p.Last = n >= len(keys)
		for _, k := range keys[:min(n, len(keys))] {
			item := history.Item{Key: k, Value: state[k].value}
			if l.KeysOnly {
				item.Value = ""
			}
			p.Items = append(p.Items, item)
			if l.Reverse {
				to = k
			} else {
				from = k + "\x00"
			}
		}
		p.End = advance(3)
		l.Pages = append(l.Pages, p)
		if p.Last {
			return l
		}
	}
}

func TestARightStoreIsNeverBlamed(t *testing.T) {
	r := seed.New(t)
	shown := 0
	for range 60 {
		h := randomHistory(r)
		require.Empty(t, h.Check())
		for _, l := range h.Listings {
			for _, p := range l.Pages {
				shown += len(p.Items)
			}
		}
		for name, spoil := range spoilers {
			h := randomHistory(r)
			if spoil(r, h) {
				require.NotEmpty(t, h.Check(), "%s, and nobody noticed", name)
			}
		}
	}
	require.Positive(t, shown)
}

// spoilers make one thing wrong, surely; false: there was nothing to spoil.
var spoilers = map[string]func(r *rand.Rand, h *history.History) bool{
	"an item left out": func(r *rand.Rand, h *history.History) bool {
		// One of a key that was put once, acknowledged before, and never deleted.
		for _, w := range h.Writes {
			if w.Delete || w.Outcome != history.Acknowledged ||
				slices.ContainsFunc(h.Writes, func(o history.Write) bool { return o.Key == w.Key && o.Delete }) {
				continue
			}
			for i, l := range h.Listings {
				for j, p := range l.Pages {
					at := slices.IndexFunc(p.Items, func(item history.Item) bool { return item.Key == w.Key })
					if at >= 0 && w.End < l.Pages[0].Begin && (p.Last || at < len(p.Items)-1) {
						h.Listings[i].Pages[j].Items = slices.Delete(slices.Clone(p.Items), at, at+1)
						return true
					}
				}
			}
		}
		return false
	},
	"an item shown twice": func(r *rand.Rand, h *history.History) bool {
		for i, l := range h.Listings {
			for j, p := range l.Pages {
				if len(p.Items) > 0 {
					h.Listings[i].Pages[j].Items = slices.Insert(slices.Clone(p.Items), 0, p.Items[0])
					return true
				}
			}
		}
		return false
	},
	"two items swapped": func(r *rand.Rand, h *history.History) bool {
		for i, l := range h.Listings {
			for j, p := range l.Pages {
				if len(p.Items) > 1 {
					items := slices.Clone(p.Items)
					items[0], items[1] = items[1], items[0]
					h.Listings[i].Pages[j].Items = items
					return true
				}
			}
		}
		return false
	},
	"an old value read": func(r *rand.Rand, h *history.History) bool {
		for i, old := range h.Writes {
			for _, w := range h.Writes[i+1:] {
				if !old.Delete && old.Key == w.Key && old.High < w.Low && w.Outcome == history.Acknowledged {
					h.Reads = append(h.Reads, history.Read{
						Key: w.Key, Found: true, Value: old.Value, Begin: w.End + 1, End: w.End + 2,
					})
					return true
				}
			}
		}
		return false
	},
}

// TestOvertaken: timestamps follow acknowledgements, across keys and sites.
func TestOvertaken(t *testing.T) {
	of := func(key string, begin, end history.Instant, ts int64, o history.Outcome) history.Write {
		return history.Write{Key: key, Begin: begin, End: end, Low: ts, High: ts, Outcome: o, Value: fmt.Sprint(begin)}
	}
	a, u, r := history.Acknowledged, history.Unknown, history.Refused
	for name, c := range map[string]struct {
		writes []history.Write
		found  int
	}{
		"in order":           {[]history.Write{of("k", 1, 2, 10, a), of("l", 3, 4, 11, a)}, 0},
		"out of order":       {[]history.Write{of("l", 3, 4, 9, a), of("k", 1, 2, 10, a)}, 1},
		"the same":           {[]history.Write{of("k", 1, 2, 10, a), of("l", 3, 4, 10, a)}, 1},
		"at the same time":   {[]history.Write{of("k", 1, 3, 10, a), of("l", 2, 4, 9, a)}, 0},
		"the first unknown":  {[]history.Write{of("k", 1, 2, 10, u), of("l", 3, 4, 9, a)}, 0},
		"the second unknown": {[]history.Write{of("k", 1, 2, 10, a), of("l", 3, 4, 9, u)}, 1},
		"the second refused": {[]history.Write{of("k", 1, 2, 10, a), of("l", 3, 4, 9, r)}, 0},
		"the highest of before": {[]history.Write{of("k", 1, 2, 10, a), of("k", 3, 4, 12, a), of("m", 3, 9, 11, a),
			of("l", 5, 6, 11, a)}, 1},
	} {
		h := history.History{Writes: c.writes}
		require.Len(t, h.Overtaken(), c.found, name)
	}
}
