package cassandrastore

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/gocql/gocql"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// replica is a dumb partition that refuses reads as Cassandra does: those that
// pass more dead rows than its threshold before they are done.
type replica struct {
	keys      [][]byte // sorted, live and dead
	dead      map[string]bool
	threshold int
	reads     int
	refused   int
}

func (r *replica) read(b store.Bounds, limit int, reverse bool) (partPage, error) {
	r.reads++
	page := partPage{rest: b}
	keys := slices.Clone(r.keys)
	if reverse {
		slices.Reverse(keys)
	}
	passed := 0
	for _, key := range keys {
		if !inside(b, key) {
			continue
		}
		if r.dead[string(key)] {
			if passed++; passed > r.threshold {
				r.refused++
				return partPage{}, &gocql.RequestErrReadFailure{}
			}
			continue
		}
		page.Rows = append(page.Rows, store.Row{Key: key})
		if len(page.Rows) == limit {
			page.More = true
			break
		}
	}
	return page, nil
}

func inside(b store.Bounds, key []byte) bool {
	above := bytes.Compare(key, b.Start)
	return (above > 0 || above == 0 && !b.StartExclusive || len(b.Start) == 0) &&
		(len(b.End) == 0 || bytes.Compare(key, b.End) < 0)
}

// readAll reads page by page through sliceInParts.
func (r *replica) readAll(known *partitionMemory, b store.Bounds, o store.SliceOptions) (got [][]byte, err error) {
	for {
		page, err := sliceInParts(
			known, b, o, func(b store.Bounds) (partPage, error) { return r.read(b, o.Limit, o.Reverse) },
		)
		if err != nil {
			return got, err
		}
		if page.More && len(page.Rows) == 0 {
			return got, fmt.Errorf("an empty page says that there is more")
		}
		for _, row := range page.Rows {
			got = append(got, row.Key)
		}
		if !page.More {
			return got, nil
		}
		if o.Reverse {
			b.End = got[len(got)-1]
		} else {
			b.Start, b.StartExclusive = got[len(got)-1], true
		}
	}
}

func (r *replica) live(b store.Bounds, reverse bool) (keys [][]byte) {
	for _, key := range r.keys {
		if !r.dead[string(key)] && inside(b, key) {
			keys = append(keys, key)
		}
	}
	if reverse {
		slices.Reverse(keys)
	}
	return keys
}

func TestSlicesFindEveryLiveRowAmongDeadOnes(t *testing.T) {
	r := seed.New(t)
	for range 400 {
		rep := &replica{dead: map[string]bool{}, threshold: 3 + r.IntN(10)}
		alphabet := []string{"ab", "\x00\xff", "\x00a\xff", "0123456789"}[r.IntN(4)]
		prefix := []string{"", "photos/2024/", "\xff\xff", "\x00"}[r.IntN(4)]
		all := map[string]bool{}
		for range r.IntN(60) {
			key := []byte(prefix)
			for range 1 + r.IntN(6) {
				key = append(key, alphabet[r.IntN(len(alphabet))])
			}
			all[string(key)] = true
		}
		for _, key := range sorted(all) {
			rep.keys = append(rep.keys, []byte(key))
			rep.dead[key] = r.IntN(5) > 0
		}
		b := store.Bounds{StartExclusive: r.IntN(2) == 0}
		if len(rep.keys) > 1 {
			low, high := r.IntN(len(rep.keys)), r.IntN(len(rep.keys))
			if r.IntN(3) > 0 {
				b.Start = rep.keys[min(low, high)]
			}
			if r.IntN(3) > 0 && low != high {
				b.End = rep.keys[max(low, high)]
			}
		}
		known := &partitionMemory{}
		for range 3 {
			o := store.SliceOptions{Limit: 1 + r.IntN(10), Reverse: r.IntN(2) == 0}
			got, err := rep.readAll(known, b, o)
			require.NoError(t, err)
			require.Equal(t, rep.live(b, o.Reverse), got, "%q", b)
			for _, key := range rep.keys { // somebody puts and deletes meanwhile
				if r.IntN(5) == 0 {
					rep.dead[string(key)] = !rep.dead[string(key)]
				}
			}
		}
	}
}

func TestTheWayAroundDeadDataIsShortAndRemembered(t *testing.T) {
	rep := &replica{dead: map[string]bool{}, threshold: 100}
	for i := range 1500 {
		key := fmt.Sprintf("photos/2024/%08d.jpeg", i*100)
		rep.keys = append(rep.keys, []byte(key))
		rep.dead[key] = i > 0 && i < 1499
	}
	for _, o := range []store.SliceOptions{{Limit: 1000}, {Limit: 1000, Reverse: true}} {
		for name, b := range map[string]store.Bounds{
			"unbounded": {}, "prefix": {Start: []byte("photos/2024/"), End: []byte("photos/20240")},
			"from": {Start: []byte("photos/2024/")},
		} {
			known := &partitionMemory{}
			rep.reads, rep.refused = 0, 0
			got, err := rep.readAll(known, b, o)
			require.NoError(t, err)
			require.Len(t, got, 2)
			t.Logf("%s, reverse %t: %d reads, %d refused, %d cuts", name, o.Reverse, rep.reads, rep.refused,
				len(known.cuts()))
			require.Less(t, rep.refused, 120)
			rep.refused = 0
			_, err = rep.readAll(known, b, o)
			require.NoError(t, err)
			require.Zero(t, rep.refused, "the cuts were forgotten")
		}
	}
}

func TestDeadDataThatCannotBeReadIsSaidToBeSo(t *testing.T) {
	rep := &replica{dead: map[string]bool{"k": true}, keys: [][]byte{[]byte("a"), []byte("k"), []byte("z")}}
	_, err := rep.readAll(&partitionMemory{}, store.Bounds{}, store.SliceOptions{Limit: 10})
	require.ErrorIs(t, err, store.TooMuchDeadData)
}

// TestHalvesSeparateAnyTwoKeys halves the interval around two keys until they are on different sides: it may take a
// step for each bit, not more, or a slice would give up on dead rows that lie between.
func TestHalvesSeparateAnyTwoKeys(t *testing.T) {
	r := seed.New(t)
	draw := func() []byte {
		key := make([]byte, r.IntN(4), 8)
		for i := range key {
			key[i] = []byte{0, 1, 0xff}[r.IntN(3)]
		}
		return key[:len(key)+r.IntN(4)] // zeros behind it
	}
	for range 20_000 {
		keys := [][]byte{draw(), draw(), draw(), draw()}
		slices.SortFunc(keys, bytes.Compare)
		b := store.Bounds{Start: keys[0], End: keys[3]}
		if r.IntN(4) == 0 {
			b.End = nil
		}
		for steps := 0; !bytes.Equal(keys[1], keys[2]) && inside(b, keys[1]) && inside(b, keys[2]); steps++ {
			low, high, ok := halve(b)
			require.True(t, ok)
			if b = low; inside(high, keys[2]) {
				b = high
				if inside(low, keys[1]) {
					break
				}
			}
			require.LessOrEqual(t, steps, 8*6+6, "%q", keys)
		}
	}
}

func TestHalvesLieBetweenAndEnd(t *testing.T) {
	r := seed.New(t)
	draw := func() []byte {
		key := make([]byte, r.IntN(5))
		for i := range key {
			key[i] = []byte{0, 1, 'a', 0xfe, 0xff}[r.IntN(5)]
		}
		return key
	}
	for range 20_000 {
		b := store.Bounds{Start: draw(), End: draw(), StartExclusive: r.IntN(2) == 0}
		if emptyBounds(b) {
			continue
		}
		low, high, ok := halve(b)
		if !ok {
			require.Equal(t, string(b.Start)+"\x00", string(b.End), "%q", b)
			continue
		}
		require.Equal(t, b.Start, low.Start)
		require.Equal(t, b.StartExclusive, low.StartExclusive)
		require.Equal(t, low.End, high.Start)
		require.False(t, high.StartExclusive)
		require.Equal(t, b.End, high.End)
		require.Positive(t, bytes.Compare(low.End, b.Start), "%q cut at %q", b, low.End)
		if len(b.End) > 0 {
			require.Negative(t, bytes.Compare(low.End, b.End), "%q cut at %q", b, low.End)
		}
	}
}
