package history_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/history"
	"github.com/evenkeel/evenkeel/internal/test/seed"
)

func TestLinearizableHistories(t *testing.T) {
	const last, highest = history.LastWins, history.HighestWins
	for name, c := range map[string]struct {
		b    build
		kind history.Register
		want bool
	}{
		"nothing happened":            {begin(), last, true},
		"an acknowledged put is read": {begin().write(put("k", "v", 1, 2)).get("k", "v", 3, 4), last, true},
		"an acknowledged put is lost": {begin().write(put("k", "v", 1, 2)).get("k", "", 3, 4), last, false},
		"a put under way is seen, then not": {begin().write(put("k", "v", 1, 9)).get("k", "v", 2, 3).get("k", "", 4, 5),
			last, false},
		"two puts at once, in one order": {begin().write(put("k", "v", 1, 9)).write(put("k", "w", 2, 9)).
			get("k", "w", 3, 4).get("k", "v", 5, 6), last, true},
		"two puts at once, in both orders": {begin().write(put("k", "v", 1, 20)).write(put("k", "w", 2, 20)).
			get("k", "w", 3, 4).get("k", "v", 5, 6).get("k", "w", 7, 8), last, false},
		"the older timestamp wins": {begin().write(put("k", "v", 1, 9)).write(put("k", "w", 2, 9)).get("k", "w", 3, 4).
			get("k", "v", 5, 6), highest, false},
		"a slow clock's put is invisible": {begin().write(put("k", "v", 1, 2)).at(50, 50).write(put("k", "w", 3, 4)).
			at(40, 40).get("k", "v", 5, 6), highest, true},
		"that is no plain register": {begin().write(put("k", "v", 1, 2)).at(50, 50).write(put("k", "w", 3, 4)).
			at(40, 40).get("k", "v", 5, 6), last, false},
		"a slow clock's put wins": {begin().write(put("k", "v", 1, 2)).at(50, 50).write(put("k", "w", 3, 4)).at(40, 40).
			get("k", "w", 5, 6), highest, false},
		"an unknown put is never there": {begin().write(put("k", "v", 1, 2)).outcome(history.Unknown).
			get("k", "", 3, 4), last, true},
		"an unknown put is there much later": {begin().write(put("k", "v", 1, 2)).outcome(history.Unknown).
			get("k", "", 3, 4).get("k", "v", 50, 60), last, true},
		"an unknown put is there and goes": {begin().write(put("k", "v", 1, 2)).outcome(history.Unknown).
			get("k", "v", 3, 4).get("k", "", 50, 60), last, false},
		"an unknown put comes after a newer": {begin().write(put("k", "v", 1, 2)).outcome(history.Unknown).
			write(put("k", "w", 3, 4)).get("k", "w", 5, 6).get("k", "v", 7, 8), highest, false},
		"of a plain register that is right": {begin().write(put("k", "v", 1, 2)).outcome(history.Unknown).
			write(put("k", "w", 3, 4)).get("k", "w", 5, 6).get("k", "v", 7, 8), last, true},
		"an unknown deletion": {begin().write(put("k", "v", 1, 2)).write(del("k", 3, 4)).outcome(history.Unknown).
			get("k", "v", 5, 6).get("k", "", 7, 8), last, true},
		"one unknown deletion deletes only once": {begin().write(put("k", "v", 1, 2)).write(del("k", 3, 4)).
			outcome(history.Unknown).get("k", "", 5, 6).
			write(put("k", "w", 7, 8)).get("k", "", 9, 10), last, false},
		"a refused put is read": {begin().write(put("k", "v", 1, 2)).outcome(history.Refused).get("k", "v", 3, 4), last,
			false},
		"a listing is a read of each key": {begin().write(put("a", "1", 1, 2)).write(put("b", "2", 3, 4)).
			list(all(page(5, 6, true, "a", "1"))), last, false},
		"keys alone": {begin().write(put("a", "1", 1, 2)).
			list(history.Listing{KeysOnly: true, Pages: []history.Page{page(5, 6, true, "a", "")}}), last, true},
		"keys alone, of an unknown put": {begin().write(put("a", "1", 1, 2)).outcome(history.Unknown).
			list(history.Listing{KeysOnly: true, Pages: []history.Page{page(5, 6, true, "a", "")}}), last, true},
		"keys alone, of what was deleted": {begin().write(put("a", "1", 1, 2)).write(del("a", 3, 4)).
			list(history.Listing{KeysOnly: true, Pages: []history.Page{page(5, 6, true, "a", "")}}), last, false},
		"a value that nobody wrote": {begin().write(put("k", "v", 1, 2)).get("k", "w", 3, 4), last, false},
		"two sites":                 {begin().write(put("k", "v", 1, 2)).in("here").get("k", "v", 3, 4).in("there"), last, false},
		"answers that do not go together": {begin().write(put("k", "v", 1, 2)).write(put("k", "w", 3, 20)).
			write(del("k", 4, 20)).get("k", "w", 5, 6).get("k", "", 7, 8).get("k", "v", 9, 10), last, false},
		"right one by one and wrong together": {begin().write(put("k", "v", 1, 30)).at(1, 30).
			write(put("k", "w", 2, 30)).at(1, 30).
			get("k", "v", 3, 4).get("k", "w", 5, 6).get("k", "v", 7, 8), last, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := c.b.h.Linearizable(c.kind, time.Minute)
			require.Equal(t, c.want, len(got) == 0, "%v", got)
		})
	}
}

// What makes the search worth its time: Check has nothing against this history.
func TestLinearizableSeesMoreThanCheck(t *testing.T) {
	b := begin().write(put("k", "v", 1, 30)).at(1, 30).write(put("k", "w", 2, 30)).at(1, 30).
		get("k", "v", 3, 4).get("k", "w", 5, 6).get("k", "v", 7, 8)
	require.Empty(t, b.h.Check())
	got := b.h.Linearizable(history.LastWins, time.Minute)
	require.Len(t, got, 1)
	require.Equal(t, history.Unordered, got[0].Rule)
	require.Contains(t, got[0].String(), `read of "w" at 5 to 6`)
}

func TestLinearizableNeverBlamesARightStore(t *testing.T) {
	r := seed.New(t)
	for range 60 {
		require.Empty(t, randomHistory(r).Linearizable(history.HighestWins, time.Minute))
		for name, spoil := range spoilers {
			h := randomHistory(r)
			if spoil(r, h) {
				require.NotEmpty(t, h.Linearizable(history.HighestWins, time.Minute), "%s, and nobody noticed", name)
			}
		}
	}
}

// A search that is given up is no pass.
func TestUndecidedIsNoPass(t *testing.T) {
	// More puts were seen than were begun, and any of them may be each that was seen.
	b := begin()
	for i := range history.Instant(30) {
		b.write(put("k", fmt.Sprint(i), i, i+1)).outcome(history.Unknown)
	}
	for i := range history.Instant(31) {
		b.write(del("k", 100+4*i, 101+4*i)).
			list(history.Listing{KeysOnly: true, Pages: []history.Page{page(102+4*i, 103+4*i, true, "k", "")}})
	}
	got := b.h.Linearizable(history.LastWins, 50*time.Millisecond)
	require.Len(t, got, 1)
	require.Equal(t, history.Undecided, got[0].Rule)
}
