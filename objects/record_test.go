package objects

import (
	"bytes"
	"crypto/md5"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

func sampleRecords() []*record {
	sum := md5.Sum([]byte("body"))
	return []*record{
		{rank: live, size: 4, md5: sum[:], typ: "text/plain", body: []byte("body"),
			meta: []Pair{{"x-amz-meta-a", "1"}, {"", ""}}, sums: []Pair{{"crc32", "AAAAAA=="}}},
		{rank: kept, where: inBlob, size: 1 << 40, md5: sum[:], null: true},
		{rank: live, marker: true, null: true},
		{rank: burned, where: inBlob, size: 7},
		{rank: burned, size: 4},
		{rank: live, typ: "a", tags: []Pair{{"tag", "value"}, {"other", ""}}, body: []byte("b"), size: 1, null: true},
		{rank: kept, where: inParts, size: 3, summed: true, sums: []Pair{{"crc32", "AAAAAA==-1"}},
			body: encodeManifest([]piece{{number: 1, size: 3, id: ID{Stamp: 7}, sum: []byte("1234")}})},
		{rank: live, etag: "abc-2", where: inBlob, size: 9},
		{rank: live, null: true, where: inParts, size: 3, home: ID{Stamp: 5, Salt: [saltBytes]byte{1}}, typ: "a",
			body: encodeManifest([]piece{{number: 1, size: 3, id: ID{Stamp: 7}}})},
		{rank: burned, where: inParts, size: 7, home: ID{Stamp: 5}},
	}
}

func TestRecordsSurvive(t *testing.T) {
	for _, r := range sampleRecords() {
		b := r.encode()
		got, err := decode(b)
		require.NoError(t, err)
		if len(r.md5) == 0 {
			r.md5 = []byte{}
		}
		require.Equal(t, r, got)
		for n := range b {
			if cut, err := decode(b[:n]); err == nil {
				require.NotEqual(t, inline, cut.where, "a record that lost its end")
			} else {
				require.ErrorIs(t, err, store.Corrupt)
			}
		}
	}
}

// Higher ranks have larger values, so that the order of ranks holds even where timestamps are
// equal: in a store that was restored with other ones, for example.
func TestHigherRanksAreLarger(t *testing.T) {
	a, b, c := (&record{rank: live}).encode(), (&record{rank: kept}).encode(), (&record{rank: burned}).encode()
	require.Negative(t, bytes.Compare(a, b))
	require.Negative(t, bytes.Compare(b, c))
	id := ID{Stamp: 100}
	require.Less(t, id.at(live), id.at(kept))
	require.Less(t, id.at(kept), id.at(burned))
	require.Less(t, id.at(burned), id.at(gone))
	require.Less(t, id.at(gone), id.Stamp+ranks)
}

func TestANewerRecordSaysSo(t *testing.T) {
	b := (&record{rank: live}).encode()
	b[1] = recordVersion + 1
	_, err := decode(b)
	require.ErrorIs(t, err, store.Corrupt)
	require.ErrorContains(t, err, "newer program")
}

func FuzzRecords(f *testing.F) {
	for _, r := range sampleRecords() {
		f.Add(r.encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decode(b)
		if err != nil {
			require.ErrorIs(t, err, store.Corrupt)
			return
		}
		require.LessOrEqual(t, len(b), maxRecordBytes)
		require.Equal(t, b, r.encode(), "a record has one encoding")
		h, err := decodeHead(b)
		require.NoError(t, err)
		require.Equal(t, head{r.rank, r.marker, r.null}, h)
	})
}

// TestListingsReadWhatIsThere: of a record without its body, what is read, with or without a record in between,
// is what decode reads of all of it, also where a byte is another one; and most records are read so.
func TestListingsReadWhatIsThere(t *testing.T) {
	r, id, sum := seed.New(t), ID{Stamp: 1_700_000_000_000_000}, bytes.Repeat([]byte{0xab}, 16)
	plain := []*record{
		{rank: live, md5: sum, size: 3, body: []byte("abc")},
		{rank: kept, md5: sum, null: true, typ: "image/png", size: 300, body: make([]byte, 300)},
		{rank: live, md5: sum, typ: "image/png", where: inBlob, size: 5 << 30},
		{rank: live, md5: sum, null: true, where: inBlob, size: math.MaxInt64},
		{rank: kept, md5: sum, typ: strings.Repeat("t", 127)},
		{rank: live, typ: "image/png", where: inBlob, size: 5 << 30},
	}
	same := func(b []byte, known string) bool {
		if h, err := decodeHead(b); err != nil || !h.visible() {
			return false // it is no item
		}
		short := b
		if n := bytesToList(b); n > 0 {
			short = b[:n:n]
		}
		lines := reader{typ: known}
		got, want, of, all := Info{Key: []byte("k"), ID: id}, Info{}, record{}, record{}
		bad := all.decode(b, whole)
		if err := of.decode(short, listed); bad != nil {
			require.ErrorIs(t, err, store.Corrupt, "%x", b)
		} else {
			require.NoError(t, err, "%x", b)
			want = all.info([]byte("k"), id)
			require.Equal(t, want, of.info([]byte("k"), id), "%x", b)
		}
		if !lines.plain(&got, short) {
			return false
		}
		require.NoError(t, bad, "%x", b)
		require.Equal(t, want, got, "%x", b)
		return true
	}
	for _, p := range plain {
		require.True(t, same(p.encode(), ""), "%+v", p)
		require.True(t, same(p.encode(), "image/png"), "%+v", p)
	}
	for _, p := range append(plain, sampleRecords()...) {
		whole := p.encode()
		for n := range min(len(whole), 200) {
			same(whole[:n], "")
		}
		for range 2000 {
			b := bytes.Clone(whole)
			b[r.IntN(min(len(b), 64))] = byte(r.IntN(256))
			same(b, "image/png")
		}
	}
}

// TestEachRecordHasItsOwnType, also one as long as that of the record before.
func TestEachRecordHasItsOwnType(t *testing.T) {
	r := record{typ: "image/png"}
	for _, typ := range []string{"image/gif", "image/gif", "", "text/html"} {
		of := record{rank: live, typ: typ}
		require.NoError(t, r.decode(of.encode(), whole))
		require.Equal(t, typ, r.typ)
	}
}

// TestPagesThatGrowSlowly do not copy all their items for each new one.
func TestPagesThatGrowSlowly(t *testing.T) {
	require.LessOrEqual(t, testing.AllocsPerRun(10, func() {
		p := Page[Item]{}
		for range 1000 {
			p.next(0)
		}
	}), 12.0)
}
