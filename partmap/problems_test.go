package partmap

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/store"
)

// tall is a sound map of two segments below the root, with three ranges each.
func tall() (*Root, blobs) {
	r := &Root{Bucket: testBucket, Epoch: 9, Token: store.Token{1}, State: Open, Ranges: 6, Height: 1}
	b := blobs{}
	for i := byte(0); i < 2; i++ {
		h := mapcodec.Header{Bucket: testBucket, ID: store.NodeID{i + 1}, Epoch: 9}
		var entries []Entry
		for j := byte(0); j < 3; j++ {
			entries = append(entries, Entry{
				Start: fmt.Appendf(nil, "c%d", 3*i+j), Partition: store.PartitionID{100 + 3*i + j},
			})
		}
		if i == 0 {
			entries[0].Start = []byte{}
		}
		b[h.ID] = encodeSegment(h, entries).Blob
		r.Children = append(r.Children, Child{Start: entries[0].Start, Node: h.ID})
	}
	return r, b
}

// TestProblemsInWords: everything that Validate says of a map with one thing wrong, and
// nothing of one that is sound to the limit.
func TestProblemsInWords(t *testing.T) {
	r, b := tall()
	require.Empty(t, Validate(r, b.read))
	longest := func(r *Root) { r.Entries[9].Start = append([]byte("d"), make([]byte, 3000)...) }
	sixty := func(n int) func(r *Root) {
		return func(r *Root) {
			r.Epoch = 200
			for i := len(r.Batches); i < n; i++ {
				r.Batches = append(r.Batches, Batch{ID: 10 + uint64(i), Phase: Settled})
			}
		}
	}
	const p1, p3, p8 = "01000000-0000-0000-0000-000000000000", "67000000-0000-0000-0000-000000000000",
		"6c000000-0000-0000-0000-000000000000"
	for name, c := range map[string]struct {
		spoil func(r *Root)
		want  []string
	}{
		"nothing":        {func(*Root) {}, nil},
		"the last state": {func(r *Root) { r.State = Deleted }, nil},
		"a long cut":     {longest, nil},
		"all batches":    {sixty(mapcodec.MaxBatches), nil},
		"a move in the first batch": {func(r *Root) {
			r.Batches = []Batch{{ID: 1, Phase: Copying, Ranges: 1}}
			r.Entries[3].Batch = 1
		}, nil},
		"a batch just begun": {func(r *Root) {
			r.Epoch = 5
			r.Entries[7].Batch = 5
			r.Batches[1].Ranges = 2
			r.Entries[7].To = store.PartitionID{2}
		}, nil},
		"a merge": {func(r *Root) {
			r.Entries[4].To, r.Entries[4].Batch, r.Batches[1].Ranges = store.PartitionID{1}, 5, 2
		}, nil},
		"neighbours in one home": {func(r *Root) { r.Entries[8].Partition = r.Entries[9].Partition }, nil},
		"one batch too many":     {sixty(mapcodec.MaxBatches + 1), []string{`bad batch at "": 65 batches: at most 64`}},
		"no state":               {func(r *Root) { r.State = 0 }, []string{`bad root at "": its state is 0`}},
		"a state too high":       {func(r *Root) { r.State = Deleted + 1 }, []string{`bad root at "": its state is 4`}},
		"too high a root": {func(r *Root) { r.Height, r.Entries = mapcodec.MaxHeight+1, nil }, []string{
			`bad root at "": its height is 33: at most 32`,
			`miscounted ranges at "": the root says 10 ranges, the map has 0`,
			`bad batch at "": batch 4 says that it has 1 ranges, the map has 0`,
			`bad batch at "": batch 5 says that it has 1 ranges, the map has 0`}},
		"the highest root": {func(r *Root) { r.Height, r.Entries, r.Batches = mapcodec.MaxHeight, nil, nil }, []string{
			`empty node at "": no children`,
			`miscounted ranges at "": the root says 10 ranges, the map has 0`}},
		"batches descend": {func(r *Root) { r.Batches[0].ID = 8 }, []string{
			`bad batch at "": batch 5 comes after batch 8`,
			`bad batch at "": batch 8 says that it has 1 ranges, the map has 0`}},
		"a start above a short end": {func(r *Root) { r.Entries[3].Start, r.Entries[4].Start = []byte("c30"), []byte("a") },
			[]string{`untiled at "c30": begins at "c30", but ends at "a"`}},
		"children of an entry": {func(r *Root) { r.Children = []Child{{}} },
			[]string{`bad root at "": of height 0 it has 10 entries and 1 children`}},
		"batch 0": {func(r *Root) { r.Batches[0].ID = 0 }, []string{
			`bad batch at "": batch 0 in a root of epoch 9`,
			`bad batch at "": batch 0 says that it has 1 ranges, the map has 7`}},
		"a batch to come": {func(r *Root) { r.Batches[1].ID = 10 }, []string{
			`bad batch at "": batch 10 in a root of epoch 9`,
			`unknown batch at "c3": the range moves in batch 5, which is not in flight`,
			`bad batch at "": batch 10 says that it has 1 ranges, the map has 0`}},
		"a batch twice": {func(r *Root) { r.Batches[0].ID = 5 }, []string{
			`bad batch at "": batch 5 comes after batch 5`,
			`phase mismatch at "c3": the range has a destination, but batch 5 is settled`}},
		"an unknown phase": {func(r *Root) { r.Batches[1].Phase = phases },
			[]string{`bad batch at "": batch 5 is in phase 5`}},
		"first start": {func(r *Root) { r.Entries[0].Start = []byte("a") },
			[]string{`untiled at "a": begins at "a" instead of ""`}},
		"equal starts": {func(r *Root) { r.Entries[4].Start = r.Entries[5].Start },
			[]string{`untiled at "c5": begins at "c5", but ends at "c5"`}},
		"an empty start": {func(r *Root) { r.Entries[4].Start = nil },
			[]string{`untiled at "": begins at the lowest key, but is not the first`}},
		"ranges": {func(r *Root) { r.Ranges = 11 },
			[]string{`miscounted ranges at "": the root says 11 ranges, the map has 10`}},
		"a home in three places": {func(r *Root) {
			r.Entries[1].Partition = r.Entries[8].Partition
			r.Entries[5].Partition = r.Entries[8].Partition
		}, []string{
			`scattered partition at "c5": partition ` + p8 + ` is the home here and at "c1", which is no neighbour`}},
		"a destination twice": {func(r *Root) {
			r.Entries[8].To, r.Entries[8].Batch, r.Batches[1].Ranges = store.PartitionID{1}, 5, 2
		}, []string{
			`scattered partition at "c8": partition ` + p1 +
				` is the destination here and at "c3", which is no neighbour`}},
		"a destination of two batches": {func(r *Root) {
			r.Batches = append(r.Batches, Batch{ID: 8, Phase: Copying, Ranges: 1})
			r.Entries[4].To, r.Entries[4].Batch = store.PartitionID{1}, 8
		}, []string{`stale destination at "c4": partition ` + p1 +
			` is the destination of batch 8 here and of batch 5 at "c3"`}},
		"all destinations at home": {func(r *Root) {
			r.Batches, r.Entries[6].Batch = []Batch{{ID: 5, Phase: Copying, Ranges: 10}}, 5
			for i := range r.Entries {
				r.Entries[i].To, r.Entries[i].Batch = r.Entries[(i+9)%10].Partition, 5
			}
		}, func() (all []string) {
			for i, start := range []string{"", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9"} {
				before, home := byte(i+9)%10, "c"+fmt.Sprint((i+9)%10)
				if before == 0 {
					home = ""
				}
				all = append(all, fmt.Sprintf("stale destination at %q: partition %s is the destination here and the home of "+
					"the range from %q", start, store.PartitionID{100 + before}, home))
			}
			return all
		}()},
		"destinations at home": {func(r *Root) {
			r.Entries[3].To, r.Entries[1].To, r.Entries[1].Batch, r.Batches[1].Ranges = r.Entries[8].Partition,
				r.Entries[3].Partition, 5, 2
		}, []string{
			`stale destination at "c1": partition ` + p3 +
				` is the destination here and the home of the range from "c3"`,
			`stale destination at "c3": partition ` + p8 +
				` is the destination here and the home of the range from "c8"`}},
		"no home": {func(r *Root) { r.Entries[2].Partition = store.PartitionID{} },
			[]string{`no partition at "c2": the range has no home`}},
		"moving in no batch": {func(r *Root) { r.Entries[3].Batch = 0 }, []string{
			`unknown batch at "c3": the range moves in batch 0, which is not in flight`,
			`bad batch at "": batch 5 says that it has 1 ranges, the map has 0`}},
		"an old range in a batch to come": {func(r *Root) { r.Entries[8].Batch = 10 },
			[]string{`unknown batch at "c8": the range was in batch 10, a later epoch than 9`}},
		"moving in a settled batch": {func(r *Root) { r.Entries[6].To = store.PartitionID{2} }, []string{
			`phase mismatch at "c6": the range has a destination, but batch 4 is settled`}},
		"settled in a moving batch": {func(r *Root) { r.Entries[3].To = store.PartitionID{} }, []string{
			`phase mismatch at "c3": the range has no destination, but batch 5 is copying`}},
		"a batch's ranges": {func(r *Root) { r.Batches[1].Ranges = 2 },
			[]string{`bad batch at "": batch 5 says that it has 2 ranges, the map has 1`}},
		"no entries": {func(r *Root) { r.Entries, r.Ranges, r.Batches = nil, 0, nil },
			[]string{`empty node at "": no entries`}},
	} {
		r := sound()
		c.spoil(r)
		require.Equal(t, c.want, words(Validate(r, nil)), name)
	}

	const n2 = "02000000-0000-0000-0000-000000000000"
	for name, c := range map[string]struct {
		spoil func(r *Root, b blobs)
		want  []string
	}{
		"no children": {func(r *Root, _ blobs) { r.Children, r.Ranges = nil, 0 },
			[]string{`empty node at "": no children`}},
		"children that are not all": {func(r *Root, _ blobs) { r.Children, r.Ranges = r.Children[1:], 3 }, []string{
			`untiled at "c3": begins at "c3" instead of ""`}},
		"children out of order": {func(r *Root, _ blobs) {
			r.Children[0], r.Children[1] = r.Children[1], r.Children[0]
		}, []string{
			`untiled at "c3": begins at "c3" instead of ""`,
			`untiled at "": begins at the lowest key, but is not the first`}},
		"entries and children": {func(r *Root, _ blobs) { r.Entries = []Entry{{}} },
			[]string{`bad root at "": of height 1 it has 1 entries and 2 children`}},
		"a node that is gone": {func(_ *Root, b blobs) { delete(b, store.NodeID{2}) }, []string{
			`unreadable at "c3" in node ` + n2 + `: read segment ` + n2 +
				` of bucket 01020300-0000-0000-0000-000000000000: not found: no node ` + n2}},
		"an index node too high": {func(r *Root, b blobs) {
			h := mapcodec.Header{Bucket: testBucket, ID: store.NodeID{9}, Epoch: 9}
			b[h.ID] = encodeIndex(h, 2, r.Children).Blob
			r.Height, r.Children = 2, []Child{{Node: h.ID}}
		}, []string{`unreadable at "" in node 09000000-0000-0000-0000-000000000000: corrupt: node 09000000-0000-0000-0000-000000000000 of bucket 01020300-0000-0000-0000-000000000000 has height 2, its parent says 1`}},
		"a segment's parent two levels up": {func(r *Root, b blobs) {
			h := mapcodec.Header{Bucket: testBucket, ID: store.NodeID{9}, Epoch: 9}
			b[h.ID] = encodeIndex(h, 1, r.Children).Blob
			r.Height, r.Children = 3, []Child{{Node: h.ID}}
		}, []string{`unreadable at "" in node 09000000-0000-0000-0000-000000000000: corrupt: node 09000000-0000-0000-0000-000000000000 of bucket 01020300-0000-0000-0000-000000000000 has height 1, its parent says 2`}},
		"an index node of a later epoch": {func(r *Root, b blobs) {
			h := mapcodec.Header{Bucket: testBucket, ID: store.NodeID{9}, Epoch: 10}
			b[h.ID] = encodeIndex(h, 1, r.Children).Blob
			r.Height, r.Children = 2, []Child{{Node: h.ID}}
		}, []string{`unreadable at "" in node 09000000-0000-0000-0000-000000000000: corrupt: node 09000000-0000-0000-0000-000000000000 of bucket 01020300-0000-0000-0000-000000000000 was written for epoch 10, its root is of epoch 9`}},
	} {
		r, b := tall()
		c.spoil(r, b)
		got := words(Validate(r, b.read))
		require.Equal(t, c.want, got, name)
	}
}

func words(problems []Problem) (out []string) {
	for _, p := range problems {
		out = append(out, p.Text)
	}
	return out
}

// TestSpansInWords: the same of spans.
func TestSpansInWords(t *testing.T) {
	r, b := tall()
	span := func(start, end string) store.Bounds { return store.Bounds{Start: []byte(start), End: []byte(end)} }
	check := func(spans ...store.Bounds) []string { return words(ValidateSpans(r, b.read, spans)) }
	require.Empty(t, check(span("", "c2"), span("c3", ""), span("c1", "c2")))
	require.Equal(t, []string{`untiled at "c1": begins at "c1" instead of "c1x"`}, check(span("c1x", "c2")))
	delete(b, store.NodeID{2})
	require.Empty(t, check(span("", "c3")))
	got := check(span("c1", ""))
	require.Len(t, got, 1)
	require.Contains(t, got[0], `unreadable at "c3": `)
}

// TestRootsToTheByte: a root may take so many bytes and no more, whoever looks.
func TestRootsToTheByte(t *testing.T) {
	r := sound()
	pad := func(n int) {
		r.Entries[9].Start = append([]byte("d"), make([]byte, n)...)
	}
	pad(1000)
	pad(1000 + mapcodec.MaxRootBytes - len(encodeRoot(r, nil)))
	require.Len(t, encodeRoot(r, nil), mapcodec.MaxRootBytes)
	require.Empty(t, Validate(r, nil))
	require.True(t, r.fits(mapcodec.MaxRootBytes))
	_, err := EncodeRoot(r)
	require.NoError(t, err)

	r.Entries[9].Start = append(r.Entries[9].Start, 0)
	require.Equal(t, []string{`bad root at "": it takes 4097 bytes: at most 4096`}, words(Validate(r, nil)))
	require.False(t, r.fits(mapcodec.MaxRootBytes))
	_, err = EncodeRoot(r)
	require.ErrorContains(t, err, "a root of 4097 bytes: at most 4096")
	require.Equal(t, store.InvalidArgument, store.KindOf(err))

	r.Entries[9].Start = append([]byte("d"), make([]byte, store.MaxKeyBytes-1)...)
	require.Equal(t, []problemKind{badRoot}, kindsOf(Validate(r, nil)))
	r.Entries[9].Start = append(r.Entries[9].Start, 0)
	require.Equal(t, []problemKind{longCut, badRoot}, kindsOf(Validate(r, nil)))
}
