package main

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/keys"
)

func newFeed(t *testing.T) *Feed {
	t.Helper()
	db, err := evenkeel.Open(t.TempDir(), evenkeel.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	f, err := NewFeed(t.Context(), db.Client(), 1)
	require.NoError(t, err)
	return f
}

// Pages and days are those of a sorted list, for users whose names begin with each other's.
func TestFeedsAreLists(t *testing.T) {
	f, rnd := newFeed(t), seed.New(t)
	users := []string{"a", "ab", "a\x00", "", "ä"}
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	want := map[string][]int64{}
	for i, user := range users {
		const posts = 100
		every := time.Duration(1+rnd.IntN(20)) * time.Hour
		require.NoError(t, f.fill(t.Context(), user, now.Add(time.Duration(i)*time.Minute), posts, every))
		for n := range posts {
			want[user] = append(want[user], keys.FirstSnowflake(now.Add(time.Duration(i)*time.Minute-time.Duration(n+1)*every)))
		}
	}
	for _, user := range users {
		limit := 1 + rnd.IntN(30)
		var got []int64
		for older := int64(0); ; {
			page, err := f.Page(t.Context(), user, older, limit)
			require.NoError(t, err)
			for _, p := range page {
				got = append(got, p.ID)
			}
			if len(page) < limit {
				break
			}
			older = page[limit-1].ID
		}
		require.Equal(t, want[user], got, "pages of %d of %q", limit, user)

		for range 10 {
			day := now.AddDate(0, 0, -rnd.IntN(50))
			var of, got []int64
			for _, id := range want[user] {
				if at := keys.SnowflakeTime(id).UTC(); at.YearDay() == day.YearDay() && at.Year() == day.Year() {
					of = append(of, id)
				}
			}
			for p, err := range f.Day(t.Context(), user, day) {
				require.NoError(t, err)
				got = append(got, p.ID)
			}
			require.Equal(t, of, got, "%v of %q", day, user)
		}
	}
}

func TestPostsComeNewestFirst(t *testing.T) {
	f := newFeed(t)
	var ids []int64
	for i := range 100 {
		id, err := f.Add(t.Context(), "alice", fmt.Sprint("post ", i))
		require.NoError(t, err)
		ids = append(ids, id)
	}
	page, err := f.Page(t.Context(), "alice", 0, 1000)
	require.NoError(t, err)
	require.Len(t, page, 100)
	require.True(t, slices.IsSortedFunc(page, func(a, b Post) int { return cmp.Compare(b.ID, a.ID) }))
	require.Equal(t, Post{ids[99], "post 99"}, page[0])
	_, err = f.Add(t.Context(), "alice", strings.Repeat("x", maxText+1))
	require.ErrorContains(t, err, "at most 4096")

	// The clock may have been set back since the newest post was made.
	future := keys.FirstSnowflake(time.Now().Add(time.Second))
	require.NoError(t, f.posts.Put(t.Context(), key("alice", future), nil))
	require.NoError(t, f.GoOn(t.Context(), "alice"))
	id, err := f.Add(t.Context(), "alice", "and on")
	require.NoError(t, err)
	require.Greater(t, id, future)

	require.NoError(t, f.posts.Put(t.Context(), append(keys.Of(keys.String("alice")), 0x7F), nil))
	_, err = f.Page(t.Context(), "alice", 0, 1000)
	require.ErrorContains(t, err, "no post's")
}

func TestTheProgram(t *testing.T) {
	dir := "--dir=" + t.TempDir()
	feed := func(args ...string) (string, error) {
		var out bytes.Buffer
		err := run(t.Context(), append([]string{dir}, args...), &out)
		return out.String(), err
	}
	first, err := feed("post", "alice", "Hello", "world")
	require.NoError(t, err)
	second, err := feed("post", "alice", "again")
	require.NoError(t, err)
	first, second = strings.TrimSpace(first), strings.TrimSpace(second)
	page, err := feed("page", "alice")
	require.NoError(t, err)
	require.Regexp(t, "^"+second+"  .*  again\n"+first+"  .*  Hello world\n$", page)
	page, err = feed("page", "alice", second)
	require.NoError(t, err)
	require.Regexp(t, "^"+first+" .*\n$", page)
	id, err := strconv.ParseInt(first, 10, 64)
	require.NoError(t, err)
	day, err := feed("day", "alice", keys.SnowflakeTime(id).UTC().Format(time.DateOnly))
	require.NoError(t, err)
	require.Contains(t, day, "Hello world")

	for _, args := range [][]string{{}, {"post"}, {"page", "alice", "x"}, {"day", "alice", "today"}, {"nothing", "alice"}} {
		_, err := feed(args...)
		require.ErrorIs(t, err, errUsage, args)
	}
	demo, err := feed("demo")
	require.NoError(t, err)
	require.Regexp(t, `celebrity .* the newest 20 and the next 20 in`, demo)
	require.Regexp(t, `silent .* the newest  3 and the next  0 in`, demo)
}
