package partmap

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/keystyle"

	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

func kindsOf(problems []Problem) (out []problemKind) {
	for _, p := range problems {
		out = append(out, p.kind)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// sound is a map of ten ranges in the root: c3 moves in batch 5, copying; c6 is in
// batch 4, settled and not swept; c7 was in batch 2, which is over.
func sound() *Root {
	r := &Root{Bucket: testBucket, Epoch: 9, Token: store.Token{1}, State: Open, Ranges: 10,
		Batches: []Batch{{ID: 4, Phase: Settled, Ranges: 1}, {ID: 5, Phase: Copying, Ranges: 1}}}
	for i := byte(0); i < 10; i++ {
		r.Entries = append(r.Entries, Entry{Start: fmt.Appendf(nil, "c%d", i), Partition: store.PartitionID{100 + i}})
	}
	r.Entries[0].Start = nil
	r.Entries[3].To, r.Entries[3].Batch = store.PartitionID{1}, 5
	r.Entries[6].Batch = 4
	r.Entries[7].Batch = 2
	return r
}

// TestValidateFindsEachProblem breaks a sound map in one way at a time.
func TestValidateFindsEachProblem(t *testing.T) {
	require.Empty(t, Validate(sound(), nil))
	for name, c := range map[string]struct {
		want  problemKind
		spoil func(r *Root)
	}{
		"first start":           {untiled, func(r *Root) { r.Entries[0].Start = []byte("a") }},
		"equal starts":          {untiled, func(r *Root) { r.Entries[4].Start = r.Entries[5].Start }},
		"starts out of order":   {untiled, func(r *Root) { r.Entries[4].Start = []byte("c8") }},
		"an empty start inside": {untiled, func(r *Root) { r.Entries[4].Start = nil }},
		"a long cut": {longCut, func(r *Root) {
			r.Entries[9].Start = append([]byte("d"), make([]byte, store.MaxKeyBytes)...)
		}},
		"a root too large": {badRoot,
			func(r *Root) { r.Entries[9].Start = append([]byte("d"), make([]byte, mapcodec.MaxRootBytes)...) }},
		"no entries":   {emptyNode, func(r *Root) { r.Entries = nil }},
		"ranges":       {miscountedRanges, func(r *Root) { r.Ranges = 11 }},
		"a home twice": {scattered, func(r *Root) { r.Entries[8].Partition = r.Entries[1].Partition }},
		"a destination twice": {scattered,
			func(r *Root) { r.Entries[8].To, r.Entries[8].Batch, r.Batches[1].Ranges = store.PartitionID{1}, 5, 2 }},
		"a destination at home": {staleDestination, func(r *Root) { r.Entries[3].To = r.Entries[8].Partition }},
		"its own home":          {staleDestination, func(r *Root) { r.Entries[3].To = r.Entries[3].Partition }},
		"sources in two phases": {staleDestination,
			func(r *Root) { r.Entries[4].To, r.Entries[4].Batch = store.PartitionID{1}, 8 }},
		"no home":                 {noPartition, func(r *Root) { r.Entries[2].Partition = store.PartitionID{} }},
		"an unknown batch":        {unknownBatch, func(r *Root) { r.Entries[3].Batch = 3 }},
		"no batch":                {unknownBatch, func(r *Root) { r.Entries[3].Batch = 0 }},
		"a batch of the future":   {unknownBatch, func(r *Root) { r.Entries[8].Batch = 10 }},
		"moving in a settled one": {phaseMismatch, func(r *Root) { r.Entries[3].Batch = 4 }},
		"settled in a moving one": {phaseMismatch, func(r *Root) { r.Entries[3].To = store.PartitionID{} }},
		"a future batch":          {badBatch, func(r *Root) { r.Batches[1].ID = 10 }},
		"batches out of order":    {badBatch, func(r *Root) { r.Batches[0], r.Batches[1] = r.Batches[1], r.Batches[0] }},
		"an unknown phase":        {badBatch, func(r *Root) { r.Batches[1].Phase = phases }},
		"a batch's ranges":        {badBatch, func(r *Root) { r.Batches[1].Ranges = 2 }},
		"too many batches": {badBatch, func(r *Root) {
			r.Epoch = 100
			for i := range mapcodec.MaxBatches {
				r.Batches = append(r.Batches, Batch{ID: 10 + uint64(i), Phase: Settled})
			}
		}},
		"state":           {badRoot, func(r *Root) { r.State = 0 }},
		"height":          {badRoot, func(r *Root) { r.Height = 1 }},
		"height too high": {badRoot, func(r *Root) { r.Height = 200 }},
	} {
		r := sound()
		c.spoil(r)
		problems := Validate(r, nil)
		require.Contains(t, kindsOf(problems), c.want, "%s: %v", name, problems)
		switch c.want {
		case noPartition, unknownBatch, phaseMismatch, longCut, badRoot: // what a part of the map shows
			found := ValidateSpans(r, nil, []store.Bounds{{}})
			require.Contains(t, kindsOf(found), c.want, "%s in a span: %v", name, found)
		}
		for _, p := range problems {
			require.NotEmpty(t, p.Text)
			require.NotContains(t, p.Text, "problem ", "a kind without a name")
		}
	}
}

// TestValidateReportsEverything: several problems, all reported, each with its place.
func TestValidateReportsEverything(t *testing.T) {
	r := sound()
	r.Entries[1].Partition = store.PartitionID{}
	r.Entries[8].Partition = r.Entries[2].Partition
	r.Entries[3].Batch = 3
	r.Ranges = 99
	r.State = 7
	problems := Validate(r, nil)
	require.Equal(
		t, []problemKind{miscountedRanges, scattered, noPartition, unknownBatch, badBatch, badRoot}, kindsOf(problems),
	)
	for _, p := range problems {
		switch p.kind {
		case noPartition:
			require.Equal(t, "c1", string(p.At))
		case scattered:
			require.Equal(t, "c8", string(p.At))
		case unknownBatch:
			require.Equal(t, "c3", string(p.At))
		}
	}
}

// TestValidateSpansReadsTheSpansOnly: what is beside them is neither read nor told.
func TestValidateSpansReadsTheSpansOnly(t *testing.T) {
	r := sound()
	r.Entries[2].Partition = store.PartitionID{}
	require.Empty(t, ValidateSpans(r, nil, []store.Bounds{{Start: []byte("c3"), End: []byte("c5")}, {Start: []byte("c7")}}))
	require.Len(t, ValidateSpans(r, nil, []store.Bounds{{Start: []byte("c2"), End: []byte("c4")}}), 1)
	require.NotEmpty(t, ValidateSpans(r, nil, []store.Bounds{{Start: []byte("c5x"), End: []byte("c7")}}), "it begins at no cut")
}

// TestValidateReadsNodes spoils each node of a deep map in each way.
func TestValidateReadsNodes(t *testing.T) {
	rng := seed.New(t)
	w := newWorldOf(t, rng, 600, keystyle.Styles["decimal"], fill{entries: 8, children: 6, keys: 4000, root: 400})
	require.GreaterOrEqual(t, w.root.Height, uint8(2))
	ids, _ := w.blobs.reachable(t, w.root)
	var all []store.NodeID
	for id := range ids {
		all = append(all, id)
	}
	slices.SortFunc(all, func(a, b store.NodeID) int { return slices.Compare(a[:], b[:]) })
	r := Reader(w.blobs.read)
	spoiled := func(id store.NodeID, blob []byte, want problemKind) {
		t.Helper()
		good := w.blobs[id]
		defer func() { w.blobs[id] = good }()
		if w.blobs[id] = blob; blob == nil {
			delete(w.blobs, id)
		}
		problems := Validate(w.root, w.blobs.read)
		require.Contains(t, kindsOf(problems), want)
		require.True(
			t, slices.ContainsFunc(problems, func(p Problem) bool { return p.kind == want && p.Node == id }), "%v", problems,
		)
	}
	for _, id := range all {
		spoiled(id, nil, unreadable)
		damaged := slices.Clone(w.blobs[id])
		damaged[rng.IntN(len(damaged))] ^= 0x10
		spoiled(id, damaged, unreadable)
		s, err := r.segment(testBucket, id)
		if err != nil {
			x, err := r.index(testBucket, id)
			require.NoError(t, err)
			spoiled(id, encodeIndex(x.Header, x.Height+1, childrenOf(x)).Blob, unreadable)
			if x.Len() > 1 {
				spoiled(id, encodeIndex(x.Header, x.Height, childrenOf(x)[1:]).Blob, unreadable)
			}
			late := x.Header
			late.Epoch = w.root.Epoch + 1
			spoiled(id, encodeIndex(late, x.Height, childrenOf(x)).Blob, unreadable)
			continue
		}
		entries := entriesOf(&s.Entries)
		late := s.Header
		late.Epoch = w.root.Epoch + 1
		spoiled(id, encodeSegment(late, entries).Blob, unreadable)
		if len(entries) > 1 {
			spoiled(id, encodeSegment(s.Header, entries[1:]).Blob, unreadable)
		}
		// Its last range begins beyond the next node.
		beyond := append(slices.Clone(entries), Entry{Start: bytesOf(0xff, 40), Partition: store.PartitionID{7}})
		if string(entries[len(entries)-1].Start) < string(beyond[len(entries)].Start) &&
			string(w.model[len(w.model)-1].Start) > string(s.At(s.Len()-1)) {
			spoiled(id, encodeSegment(s.Header, beyond).Blob, untiled)
		}
	}
	require.Empty(t, Validate(w.root, w.blobs.read))
}

func bytesOf(x byte, n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = x
	}
	return out
}
