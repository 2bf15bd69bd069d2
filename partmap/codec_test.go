package partmap

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/keystyle"

	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// anyRoot draws a root with every field set.
func anyRoot(rng *rand.Rand) *Root {
	r := &Root{
		Bucket: testBucket, Epoch: 1 + rng.Uint64N(1<<40), Token: store.Token(id16(rng)),
		State: Open + State(rng.IntN(3)),
		Clock: rng.Uint32(), ChangedAt: rng.Int64() - 1<<62, Ranges: rng.Uint64(),
	}
	if n := []int{0, 0, 1, mapcodec.ShortSettings, mapcodec.ShortSettings + 1, mapcodec.MaxSettingsBytes}[rng.IntN(6)]; n > 0 {
		r.Settings = make([]byte, n)
		r.Settings[n-1] = byte(rng.Uint32())
	}
	for range rng.IntN(5) {
		id := uint64(1 + rng.IntN(9))
		if n := len(r.Batches); n > 0 {
			id += r.Batches[n-1].ID
		}
		r.Batches = append(r.Batches, Batch{ID: id, Phase: Phase(rng.IntN(phases)), Ranges: rng.Uint64N(1 << 50)})
	}
	cuts := keystyle.Some(rng, keystyle.Any(rng), 30)
	if rng.IntN(2) == 0 {
		r.Entries = movingEntries(rng, cuts)
		return r
	}
	r.Height = uint8(1 + rng.IntN(5))
	r.Children = someChildren(rng, cuts)
	return r
}

func movingEntries(rng *rand.Rand, cuts [][]byte) []Entry {
	entries := someEntries(rng, cuts)
	for i := range entries {
		if rng.IntN(3) == 0 {
			entries[i].To, entries[i].Batch = store.PartitionID(id16(rng)), rng.Uint64N(20)
		}
	}
	entries[0].Start = []byte{}
	return entries
}

func someChildren(rng *rand.Rand, cuts [][]byte) []Child {
	children := []Child{{Start: []byte{}, Node: store.NodeID(id16(rng))}}
	for _, c := range cuts {
		children = append(children, Child{Start: c, Node: store.NodeID(id16(rng))})
	}
	return children
}

func decodeSegment(b store.BucketID, n Node) (*mapcodec.Segment, error) {
	return mapcodec.DecodeSegment(b, n.ID, n.Blob)
}

func decodeIndex(b store.BucketID, n Node) (*mapcodec.Index, error) {
	return mapcodec.DecodeIndex(b, n.ID, n.Blob)
}

func epochOf(b store.BucketID, n Node) (uint64, error) { return mapcodec.NodeEpoch(b, n.ID, n.Blob) }

func TestRoundTrip(t *testing.T) {
	rng := seed.New(t)
	for range 250 {
		r := anyRoot(rng)
		got, err := DecodeRoot(testBucket, store.Record{Version: r.Version(), Blob: encodeRoot(r, r.Batches)})
		require.NoError(t, err)
		require.Equal(t, r, got)

		h := mapcodec.Header{Bucket: testBucket, ID: store.NodeID(id16(rng)), Epoch: rng.Uint64()}
		entries := movingEntries(rng, keystyle.Some(rng, keystyle.Any(rng), 1+rng.IntN(300)))
		from := rng.IntN(len(entries))
		n := encodeSegment(h, entries[from:])
		s, err := decodeSegment(testBucket, n)
		require.NoError(t, err)
		require.Equal(t, entries[from:], entriesOf(&s.Entries))
		require.Equal(t, h, s.Header)

		children := someChildren(rng, keystyle.Some(rng, keystyle.Any(rng), 100))
		n = encodeIndex(h, 3, children)
		x, err := decodeIndex(testBucket, n)
		require.NoError(t, err)
		require.Equal(t, children, childrenOf(x))
		for i := range children {
			require.Equal(t, children[i].Node, x.Node(i))
		}
		require.Equal(t, uint8(3), x.Height)
		epoch, err := epochOf(testBucket, n)
		require.NoError(t, err)
		require.Equal(t, h.Epoch, epoch)
	}
}

// TestDamageIsRefused changes, cuts off and adds bytes, everywhere.
func TestDamageIsRefused(t *testing.T) {
	rng := seed.New(t)
	r := anyRoot(rng)
	rec, n, x := sampleBlobs(rng, r)
	refused := func(blob []byte) {
		t.Helper()
		_, err := DecodeRoot(testBucket, store.Record{Version: rec.Version, Blob: blob})
		require.Equal(t, store.Corrupt, store.KindOf(err), "%v", err)
		_, err = decodeSegment(testBucket, Node{ID: n.ID, Blob: blob})
		require.Equal(t, store.Corrupt, store.KindOf(err), "%v", err)
		require.ErrorContains(t, err, n.ID.String())
		require.ErrorContains(t, err, testBucket.String())
		_, err = decodeIndex(testBucket, Node{ID: x.ID, Blob: blob})
		require.Equal(t, store.Corrupt, store.KindOf(err), "%v", err)
	}
	for _, blob := range [][]byte{rec.Blob, n.Blob, x.Blob} {
		for i := range blob {
			bad := slices.Clone(blob)
			bad[i] ^= 1 << rng.IntN(8)
			refused(bad)
			refused(blob[:i])
		}
		refused(append(slices.Clone(blob), 0))
	}
	refused(nil)
}

func sampleBlobs(rng *rand.Rand, r *Root) (rec store.Record, segment, index Node) {
	cuts := keystyle.Some(rng, keystyle.Any(rng), 10)
	h := mapcodec.Header{Bucket: testBucket, ID: store.NodeID(id16(rng)), Epoch: 7}
	rec = store.Record{Version: r.Version(), Blob: encodeRoot(r, r.Batches)}
	return rec, encodeSegment(h, movingEntries(rng, cuts)), encodeIndex(h, 1, someChildren(rng, cuts))
}

// TestWrongPlaceIsRefused: whole blobs, but not what was asked for.
func TestWrongPlaceIsRefused(t *testing.T) {
	rng := seed.New(t)
	r := anyRoot(rng)
	rec, n, x := sampleBlobs(rng, r)
	other := store.BucketID{9}

	_, err := decodeSegment(other, n)
	require.Equal(t, store.Corrupt, store.KindOf(err))
	require.ErrorContains(t, err, "belongs to bucket "+testBucket.String())
	_, err = decodeSegment(testBucket, Node{ID: store.NodeID{5}, Blob: n.Blob})
	require.Equal(t, store.Corrupt, store.KindOf(err))
	_, err = decodeIndex(other, x)
	require.Equal(t, store.Corrupt, store.KindOf(err))
	_, err = decodeIndex(testBucket, n)
	require.Equal(t, store.Corrupt, store.KindOf(err))

	// A root that disagrees with its record is torn: read it again.
	_, err = DecodeRoot(other, rec)
	require.Equal(t, store.Unavailable, store.KindOf(err))
	torn := rec
	torn.Epoch++
	_, err = DecodeRoot(testBucket, torn)
	require.Equal(t, store.Unavailable, store.KindOf(err))
	torn = rec
	torn.Token = store.Token{1}
	_, err = DecodeRoot(testBucket, torn)
	require.Equal(t, store.Unavailable, store.KindOf(err))
}

// TestNewerVersionSaysSo: a whole blob of a later format is not called damaged.
func TestNewerVersionSaysSo(t *testing.T) {
	rng := seed.New(t)
	r := anyRoot(rng)
	r.Settings = []byte{1}
	rec, n, x := sampleBlobs(rng, r)
	later := func(blob []byte) []byte {
		b := slices.Clone(blob[:len(blob)-mapcodec.ChecksumBytes])
		b[3] = mapcodec.Newest(b[2]) + 1
		return mapcodec.Seal(b)
	}
	require.Equal(t, byte(mapcodec.RootVersion), rec.Blob[3], "a program before settings must refuse it")
	long := *r
	for n, version := range map[int]byte{mapcodec.ShortSettings: mapcodec.RootVersion, mapcodec.ShortSettings + 1: mapcodec.LongRootVersion} {
		long.Settings = make([]byte, n)
		require.Equal(t, version, encodeRoot(&long, nil)[3], "one that knows short ones must read those")
	}
	_, err := DecodeRoot(testBucket, store.Record{Version: rec.Version, Blob: later(rec.Blob)})
	require.ErrorIs(t, err, mapcodec.ErrNewerVersion)
	require.Equal(t, store.Unavailable, store.KindOf(err))
	require.ErrorContains(t, err, "format version 4")
	_, err = decodeSegment(testBucket, Node{ID: n.ID, Blob: later(n.Blob)})
	require.ErrorIs(t, err, mapcodec.ErrNewerVersion)
	_, err = decodeIndex(testBucket, Node{ID: x.ID, Blob: later(x.Blob)})
	require.ErrorIs(t, err, mapcodec.ErrNewerVersion)
}

// TestSettingsOfARoot: they count apart from the map, and a root without them is written as before there were any.
func TestSettingsOfARoot(t *testing.T) {
	rng := seed.New(t)
	for _, state := range []State{Open, Closing, Deleted} {
		r := &Root{
			Bucket: testBucket, Epoch: 9, Token: store.Token{1}, State: state, Entries: someEntries(rng, nil), Ranges: 1,
		}
		before := *r
		change := Again(r, stampOf(rng))
		change.Next.Settings = []byte{7, 0}
		require.Equal(t, before, *r)
		require.Equal(t, r.Version(), change.Old)
		require.Equal(t, uint64(10), change.Next.Epoch)
		change.Next.Settings = nil
		bare, err := EncodeRoot(change.Next)
		require.NoError(t, err)
		require.Equal(t, byte(mapcodec.Version), bare.Blob[3])
		size := change.Next.mapBytes()
		for n, form := range map[int][]int{
			1: {mapcodec.RootVersion, 1}, 2: {mapcodec.RootVersion, 1}, mapcodec.ShortSettings: {mapcodec.RootVersion, 1},
			mapcodec.ShortSettings + 1: {mapcodec.LongRootVersion, 2}, mapcodec.MaxSettingsBytes: {mapcodec.LongRootVersion, 3},
		} {
			change.Next.Settings = make([]byte, n)
			rec, err := EncodeRoot(change.Next)
			require.NoError(t, err)
			require.Equal(t, byte(form[0]), rec.Blob[3])
			require.Len(t, rec.Blob, len(bare.Blob)+form[1]+n)
			require.Equal(t, size, change.Next.mapBytes())
			back, err := DecodeRoot(testBucket, rec)
			require.NoError(t, err)
			require.Equal(t, change.Next.Settings, back.Settings)
		}
		// Two ways to write one root would not be one.
		none := slices.Insert(slices.Clone(bare.Blob[:len(bare.Blob)-mapcodec.ChecksumBytes]), mapcodec.HeaderBytes, 0)
		none[3] = mapcodec.RootVersion
		_, err = DecodeRoot(testBucket, store.Record{Version: bare.Version, Blob: mapcodec.Seal(none)})
		require.Equal(t, store.Corrupt, store.KindOf(err))
		require.ErrorContains(t, err, "it has version 2, but settings of 0 bytes")
	}
}

// TestRootLimits: what does not fit is refused before it is written.
func TestRootLimits(t *testing.T) {
	rng := seed.New(t)
	r := &Root{
		Bucket: testBucket, Epoch: 900, Token: store.Token{1}, State: Open, Entries: someEntries(rng, nil), Ranges: 1,
	}
	for i := range mapcodec.MaxBatches {
		r.Batches = append(r.Batches, Batch{ID: ^uint64(0) - 100 + uint64(i), Phase: Marking, Ranges: ^uint64(0)})
	}
	bare := len(encodeRoot(r, nil))
	rec, err := EncodeRoot(r)
	require.NoError(t, err)
	require.LessOrEqual(t, len(rec.Blob), bare+26*mapcodec.MaxBatches)
	r.Batches = append(r.Batches, Batch{ID: ^uint64(0), Phase: Marking})
	_, err = EncodeRoot(r)
	require.Equal(t, store.InvalidArgument, store.KindOf(err))
	r.Batches, r.Settings = nil, make([]byte, mapcodec.MaxSettingsBytes+1)
	_, err = EncodeRoot(r)
	require.Equal(t, store.InvalidArgument, store.KindOf(err))
	r.Settings = nil
	r.Entries = someEntries(rng, keystyle.Some(rng, keystyle.Styles["decimal"], 200))
	_, err = EncodeRoot(r)
	require.Equal(t, store.InvalidArgument, store.KindOf(err))
}

// The fuzz targets close what they get with a right checksum, or they would only
// ever see that refusal.

func FuzzDecodeSegment(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 1))
	_, n, _ := sampleBlobs(rng, anyRoot(rng))
	f.Add(n.Blob[:len(n.Blob)-mapcodec.ChecksumBytes])
	f.Add([]byte("eks\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeSegment(testBucket, Node{ID: n.ID, Blob: mapcodec.Seal(slices.Clone(b))})
		if err != nil {
			knownKind(t, err)
			return
		}
		require.LessOrEqual(
			t, s.Bytes(), int64(mapcodec.SegmentBytes+mapcodec.MaxNodeKeyBytes+mapcodec.MaxNodeEntries*(mapcodec.CommonWhereBytes+2*mapcodec.MovedWhereBytes+12)),
		)
		again, err := decodeSegment(testBucket, encodeSegment(s.Header, entriesOf(&s.Entries)))
		require.NoError(t, err)
		require.Equal(t, s, again)
		lookUp(t, &s.Cuts)
	})
}

func FuzzDecodeIndex(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 1))
	_, _, x := sampleBlobs(rng, anyRoot(rng))
	f.Add(x.Blob[:len(x.Blob)-mapcodec.ChecksumBytes])
	f.Add([]byte("eki\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := decodeIndex(testBucket, Node{ID: x.ID, Blob: mapcodec.Seal(slices.Clone(b))})
		if err != nil {
			knownKind(t, err)
			return
		}
		again, err := decodeIndex(testBucket, encodeIndex(n.Header, n.Height, childrenOf(n)))
		require.NoError(t, err)
		require.Equal(t, n, again)
		lookUp(t, &n.Cuts)
	})
}

func FuzzDecodeRoot(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 4 {
		r := anyRoot(rng)
		b := encodeRoot(r, r.Batches)
		f.Add(b[:len(b)-mapcodec.ChecksumBytes])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRoot(mapcodec.Seal(slices.Clone(b)))
		if err != nil {
			knownKind(t, err)
			return
		}
		again, err := decodeRoot(encodeRoot(r, r.Batches))
		require.NoError(t, err)
		require.Equal(t, r, again)
	})
}

func knownKind(t *testing.T, err error) {
	t.Helper()
	if k := store.KindOf(err); k != store.Corrupt && k != store.Unavailable {
		t.Fatalf("%s: %v", k, err)
	}
}

func lookUp(t *testing.T, c *mapcodec.Cuts) {
	t.Helper()
	for i := range c.Len() {
		if got := c.Find(c.At(i)); got != i {
			t.Fatalf("Find of cut %d is %d", i, got)
		}
	}
}
