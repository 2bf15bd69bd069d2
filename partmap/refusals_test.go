package partmap

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/mapcodec"
	"github.com/evenkeel/evenkeel/store"
)

// These are the kinds of encoded records, by short names for the tables of this file.
const (
	kindRoot    = mapcodec.KindRoot
	kindSegment = mapcodec.KindSegment
	kindIndex   = mapcodec.KindIndex
)

// Bodies put together by hand, whole but for one thing: what a checksum does not
// catch, because it was written so.

func uv(x uint64) []byte { return binary.AppendUvarint(nil, x) }

func idBytes(first byte) []byte { return append([]byte{first}, make([]byte, 15)...) }

// keyCode is a front-coded key that says of itself what it likes.
func keyCode(same, more uint64, rest string) []byte {
	return append(append(uv(same), uv(more)...), rest...)
}

// list is a count, the bytes of all keys, and items.
func list(n, keys uint64, items ...[]byte) []byte {
	return append(append(uv(n), uv(keys)...), slices.Concat(items...)...)
}

func entryCode(key []byte, flags byte, optional ...[]byte) []byte {
	return slices.Concat(key, []byte{flags}, idBytes(7), slices.Concat(optional...))
}

func childCode(key []byte) []byte { return append(key, idBytes(8)...) }

var (
	first    = keyCode(0, 0, "")
	tooLong  = strings.Repeat("x", store.MaxKeyBytes+1)
	overflow = bytes.Repeat([]byte{0xff}, 10) // of a number
)

// The fields of a root and of a node, in their order.
const (
	rootBucket = iota
	rootEpoch
	rootToken
	rootState
	rootClock
	rootChanged
	rootRanges
	rootBatches
	rootHeight
	rootList
)

const (
	nodeBucket = iota
	nodeID
	nodeEpoch
	nodeList
	indexHeight = nodeList
	indexList   = nodeList + 1
)

func rootFields() [][]byte {
	return [][]byte{
		testBucket[:], uv(5), idBytes(1), {byte(Open)}, uv(2), uv(0), uv(1), uv(0), {0}, list(1, 0, entryCode(first, 0)),
	}
}

func segmentFields() [][]byte {
	return [][]byte{testBucket[:], idBytes(9), uv(5), list(1, 0, entryCode(first, 0))}
}

func indexFields() [][]byte {
	return [][]byte{testBucket[:], idBytes(9), uv(5), {1}, list(1, 0, childCode(first))}
}

func blobOf(kind byte, fields [][]byte) []byte {
	return mapcodec.Seal(append([]byte{'e', 'k', kind, mapcodec.Version}, slices.Concat(fields...)...))
}

var handNode = store.NodeID(idBytes(9))

// decode returns the error of decoding a blob as what it says that it is.
func decode(kind byte, blob []byte) error {
	var err error
	switch kind {
	case kindRoot:
		_, err = DecodeRoot(
			testBucket, store.Record{Version: store.Version{Epoch: 5, Token: store.Token(idBytes(1))}, Blob: blob},
		)
	case kindSegment:
		_, err = decodeSegment(testBucket, Node{ID: handNode, Blob: blob})
	case kindIndex:
		_, err = decodeIndex(testBucket, Node{ID: handNode, Blob: blob})
	}
	return err
}

// spoiled has some fields replaced: a place, then what to put there.
func spoiled(fields [][]byte, changes ...any) [][]byte {
	for i := 0; i < len(changes); i += 2 {
		fields[changes[i].(int)], _ = changes[i+1].([]byte)
	}
	return fields
}

// batchesCode is a list of batches: id, phase, ranges each.
func batchesCode(n uint64, numbers ...uint64) []byte {
	b := uv(n)
	for _, x := range numbers {
		b = append(b, uv(x)...)
	}
	return b
}

func manyBatches(n int) []byte {
	numbers := make([]uint64, 0, 3*n)
	for i := range n {
		numbers = append(numbers, uint64(i+1), 0, 0)
	}
	return batchesCode(uint64(n), numbers...)
}

func manyEntries(n int) (keys int, items []byte) {
	e := Entry{Partition: store.PartitionID{7}}
	var before []byte
	for i := range n {
		if i > 0 {
			e.Start = binary.BigEndian.AppendUint16(nil, uint16(i))
		}
		items = mapcodec.AppendEntry(items, before, e.Start, e.Partition, e.To, e.Batch, e.PinUntil, e.Created)
		before = e.Start
		keys += len(e.Start)
	}
	return keys, items
}

// TestDecodersRefuse: each thing that a body can say wrongly, with the message that
// it gets and no other.
func TestDecodersRefuse(t *testing.T) {
	root := func(changes ...any) [][]byte { return spoiled(rootFields(), changes...) }
	segment := func(changes ...any) [][]byte { return spoiled(segmentFields(), changes...) }
	index := func(changes ...any) [][]byte { return spoiled(indexFields(), changes...) }
	entries := func(n, keys uint64, items ...[]byte) [][]byte { return segment(nodeList, list(n, keys, items...)) }
	many, manyItems := manyEntries(mapcodec.MaxNodeEntries + 1)
	for name, c := range map[string]struct {
		kind   byte
		fields [][]byte
		want   string
	}{
		"root: no state":         {kindRoot, root(rootState, []byte{0}), "its state is 0"},
		"root: a state too high": {kindRoot, root(rootState, []byte{byte(Deleted) + 1}), "its state is 4"},
		"root: a clock too high": {kindRoot, root(rootClock, uv(1<<32)), "its map clock is number 4294967296"},
		"root: too high": {kindRoot, root(rootHeight, []byte{mapcodec.MaxHeight + 1}, rootList, list(1, 0, childCode(first))),
			"its height is 33"},
		"root: too many batches": {kindRoot, root(rootBatches, manyBatches(mapcodec.MaxBatches+1)), "it claims 65 batches"},
		"root: batches without bytes": {kindRoot, root(rootBatches, uv(9), rootHeight, nil, rootList, nil),
			"a number is cut short or too large"},
		"root: batch 0": {kindRoot, root(rootBatches, batchesCode(1, 0, 1, 1)), "its batches are out of order"},
		"root: batches descend": {kindRoot, root(rootBatches, batchesCode(2, 4, 1, 1, 3, 1, 1)),
			"its batches are out of order"},
		"root: a batch twice": {kindRoot, root(rootBatches, batchesCode(2, 4, 1, 1, 4, 1, 1)),
			"its batches are out of order"},
		"root: an unknown phase": {kindRoot, root(rootBatches, batchesCode(1, 4, phases, 1)), "batch 4 is in phase 5"},
		"root: no entries":       {kindRoot, root(rootList, list(0, 0)), "it is empty"},
		"root: no children":      {kindRoot, root(rootHeight, []byte{1}, rootList, list(0, 0)), "it is empty"},
		"root: an entry too high": {kindRoot, root(rootList, list(1, 1, entryCode(keyCode(0, 1, "k"), 0))),
			"its first range does not begin at the lowest key"},
		"root: a child too high": {kindRoot,
			root(rootHeight, []byte{1}, rootList, list(1, 1, childCode(keyCode(0, 1, "k")))),
			"its first range does not begin at the lowest key"},
		"root: more after its end": {kindRoot, append(rootFields(), []byte{1, 2}), "2 bytes follow its end"},
		"root: a bucket cut short": {kindRoot, [][]byte{testBucket[:15]}, "it ends too early"},
		"root: an epoch cut short": {kindRoot, [][]byte{testBucket[:], {0x80}}, "a number is cut short or too large"},
		"root: no state follows":   {kindRoot, [][]byte{testBucket[:], uv(5), idBytes(1)}, "it ends too early"},
		"root: a time cut short": {kindRoot, append(rootFields()[:rootChanged], []byte{0x80}),
			"a number is cut short or too large"},
		"root: a time too large": {kindRoot, root(rootChanged, overflow), "a number is cut short or too large"},
		"root: no time":          {kindRoot, rootFields()[:rootChanged], "a number is cut short or too large"},
		"root: no height":        {kindRoot, rootFields()[:rootHeight], "it ends too early"},
		"root: no list":          {kindRoot, rootFields()[:rootList], "a number is cut short or too large"},

		"segment: another bucket": {kindSegment, segment(nodeBucket, idBytes(77)),
			"it belongs to bucket 4d000000-0000-0000-0000-000000000000"},
		"segment: another node": {kindSegment, segment(nodeID, idBytes(77)),
			"it says that it is node 4d000000-0000-0000-0000-000000000000"},
		"segment: an epoch too large": {kindSegment, segment(nodeEpoch, overflow),
			"a number is cut short or too large"},
		"segment: no epoch":           {kindSegment, segmentFields()[:nodeEpoch], "a number is cut short or too large"},
		"segment: empty":              {kindSegment, entries(0, 0), "it is empty"},
		"segment: more after its end": {kindSegment, append(segmentFields(), []byte{0}), "1 bytes follow its end"},
		"segment: more than it has":   {kindSegment, entries(2, 0, entryCode(first, 0)), "it claims 2 items in 20 bytes"},
		"segment: more than anyone has": {kindSegment, entries(mapcodec.MaxNodeEntries+1, uint64(many), manyItems),
			"it claims 4097 items in"},
		"segment: keys larger than ever": {kindSegment, entries(1, mapcodec.MaxNodeKeyBytes+1, entryCode(first, 0)),
			"it claims 2097153 bytes of keys"},
		"segment: keys that no memory holds": {kindSegment, entries(1, 1<<62, entryCode(first, 0)),
			"it claims 4611686018427387904 bytes of keys"},
		"segment: keys longer than said": {kindSegment,
			entries(2, 1, entryCode(first, 0), entryCode(keyCode(0, 2, "ab"), 0)),
			"its keys are longer than it claims"},
		"segment: shares more than was": {kindSegment,
			entries(2, 9, entryCode(keyCode(0, 1, "a"), 0), entryCode(keyCode(2, 1, "b"), 0)),
			"cut 1 shares 2 bytes with one of 1"},
		"segment: shares with nothing": {kindSegment, entries(1, 9, entryCode(keyCode(1, 1, "b"), 0)),
			"cut 0 shares 1 bytes with one of 0"},
		"segment: a cut too long": {kindSegment,
			entries(1, 70000, entryCode(keyCode(0, uint64(len(tooLong)), tooLong), 0)),
			"cut 0 has 65536 bytes: at most 65535"},
		"segment: a cut below": {kindSegment,
			entries(2, 9, entryCode(keyCode(0, 1, "b"), 0), entryCode(keyCode(0, 1, "a"), 0)),
			"cut 1 is not above the one before it"},
		"segment: a cut twice": {kindSegment,
			entries(2, 9, entryCode(keyCode(0, 1, "b"), 0), entryCode(keyCode(0, 1, "b"), 0)),
			"cut 1 is not above the one before it"},
		"segment: a cut's prefix after it": {kindSegment,
			entries(2, 9, entryCode(keyCode(0, 2, "ab"), 0), entryCode(keyCode(1, 0, ""), 0)),
			"cut 1 is not above the one before it"},
		"segment: an empty cut inside": {kindSegment, entries(2, 9, entryCode(first, 0), entryCode(first, 0)),
			"cut 1 is not above the one before it"},
		"segment: a key cut short": {kindSegment,
			segment(nodeList, list(1, 99, keyCode(0, 99, strings.Repeat("k", 20)))), "it ends too early"},
		"segment: a key of no length": {kindSegment,
			segment(nodeList, slices.Concat(uv(1), uv(9), uv(0), bytes.Repeat([]byte{0x80}, 18))),
			"a number is cut short or too large"},
		"segment: unknown flags": {kindSegment, entries(1, 0, entryCode(first, mapcodec.EntryFlags+1)),
			"an entry has unknown flags 0x10"},
		"segment: no flags": {kindSegment, segment(nodeList, list(1, 17, keyCode(0, 17, strings.Repeat("k", 17)))),
			"it ends too early"},
		"segment: no destination": {kindSegment, entries(1, 0, entryCode(first, mapcodec.HasTo, []byte{1, 2})),
			"it ends too early"},
		"segment: no batch": {kindSegment, entries(1, 0, entryCode(first, mapcodec.HasBatch)),
			"a number is cut short or too large"},
		"segment: no pin": {
			kindSegment, entries(1, 0, entryCode(first, mapcodec.HasPin)), "a number is cut short or too large",
		},
		"segment: no creation": {kindSegment, entries(1, 0, entryCode(first, mapcodec.HasCreated)),
			"a number is cut short or too large"},
		"segment: no list":          {kindSegment, segmentFields()[:nodeList], "a number is cut short or too large"},
		"segment: no bytes of keys": {kindSegment, segment(nodeList, uv(0)), "a number is cut short or too large"},

		"index: height 0": {kindIndex, index(indexHeight, []byte{0}), "an index node of height 0"},
		"index: as high as roots": {
			kindIndex, index(indexHeight, []byte{mapcodec.MaxHeight}), "an index node of height 32",
		},
		"index: no height":          {kindIndex, indexFields()[:indexHeight], "it ends too early"},
		"index: empty":              {kindIndex, index(indexList, list(0, 0)), "it is empty"},
		"index: more after its end": {kindIndex, append(indexFields(), []byte{0}), "1 bytes follow its end"},
		"index: more than it has": {kindIndex, index(indexList, list(2, 0, childCode(first))),
			"it claims 2 items in 19 bytes"},
		"index: a child cut short": {kindIndex, index(indexList, list(1, 2, keyCode(0, 2, "ab"), idBytes(8)[:14])),
			"it ends too early"},
		"index: keys larger than ever": {kindIndex, index(indexList, list(1, mapcodec.MaxNodeKeyBytes+1, childCode(first))),
			"it claims 2097153 bytes of keys"},
		"index: another bucket": {kindIndex, index(nodeBucket, idBytes(77)), "it belongs to bucket"},
		"index: a cut below": {kindIndex,
			index(indexList, list(2, 9, childCode(keyCode(0, 1, "b")), childCode(keyCode(0, 1, "a")))),
			"cut 1 is not above the one before it"},
	} {
		err := decode(c.kind, blobOf(c.kind, c.fields))
		require.Equal(t, store.Corrupt, store.KindOf(err), "%s: %v", name, err)
		require.ErrorContains(t, err, c.want, name)
		require.ErrorContains(t, err, testBucket.String(), name)
	}
	for _, n := range []int{0, mapcodec.HeaderBytes - 1, mapcodec.HeaderBytes + mapcodec.ChecksumBytes - 1} {
		require.ErrorContains(t, decode(kindRoot, make([]byte, n)), "bytes are too few")
	}
	zeros := make([]byte, mapcodec.HeaderBytes+mapcodec.ChecksumBytes)
	require.ErrorContains(t, decode(kindRoot, zeros), "the checksum is wrong")
	for at, what := range []string{"k", "e", "kindly"} {
		header := []byte{'e', 'k', kindRoot, mapcodec.Version}
		header[at] = what[0] + 1
		require.ErrorContains(t, decode(kindRoot, mapcodec.Seal(header)),
			fmt.Sprintf("it begins with %q instead of \"ekr\"", header[:3]))
	}
	require.ErrorContains(t, decode(kindRoot, mapcodec.Seal([]byte{'e', 'k', kindRoot, 0})), "format version 0")
	newer := mapcodec.Seal([]byte{'e', 'k', kindRoot, mapcodec.LongRootVersion + 1})
	require.ErrorIs(t, decode(kindRoot, newer), mapcodec.ErrNewerVersion)
	_, err := epochOf(testBucket, Node{ID: handNode, Blob: blobOf(kindSegment, segmentFields()[:nodeEpoch])})
	require.Equal(t, store.Corrupt, store.KindOf(err))
	_, err = epochOf(testBucket, Node{ID: handNode, Blob: []byte{'e', 'k'}})
	require.ErrorContains(t, err, "2 bytes are too few")
	_, err = epochOf(store.BucketID{9}, Node{ID: handNode, Blob: blobOf(kindIndex, indexFields())})
	require.ErrorContains(t, err, "it belongs to bucket")
}

// TestRefusedSettings: too long ones, and those that an older form has room for.
func TestRefusedSettings(t *testing.T) {
	for n, want := range map[int]string{
		mapcodec.MaxSettingsBytes + 1: "it claims settings of 16385 bytes",
		mapcodec.ShortSettings:        "it has version 3, but settings of 255 bytes",
	} {
		body := slices.Concat(append(uv(uint64(n)), make([]byte, n)...), slices.Concat(rootFields()...))
		err := decode(kindRoot, mapcodec.Seal(append([]byte{'e', 'k', kindRoot, mapcodec.LongRootVersion}, body...)))
		require.Equal(t, store.Corrupt, store.KindOf(err))
		require.ErrorContains(t, err, want)
	}
}

// TestFormsToTheByte: what is written is what the comment on the formats says.
func TestFormsToTheByte(t *testing.T) {
	full := entryCode(keyCode(0, 0, ""), mapcodec.EntryFlags, idBytes(4), uv(1), binary.AppendVarint(nil, 1),
		binary.AppendVarint(nil, 1))
	entries := []Entry{
		{Partition: store.PartitionID(idBytes(7)), To: store.PartitionID(idBytes(4)), Batch: 1, PinUntil: 1, Created: 1},
		{Start: []byte("ab"), Partition: store.PartitionID(idBytes(7))},
		{Start: []byte("ac"), Partition: store.PartitionID(idBytes(7))},
	}
	code := list(3, 4, full, entryCode(keyCode(0, 2, "ab"), 0), entryCode(keyCode(1, 1, "c"), 0))
	h := mapcodec.Header{Bucket: testBucket, ID: handNode, Epoch: 5}
	require.Equal(t, blobOf(kindSegment, spoiled(segmentFields(), nodeList, code)), encodeSegment(h, entries).Blob)
	node := store.NodeID(idBytes(8))
	children := []Child{{Node: node}, {Start: []byte("ab"), Node: node}, {Start: []byte("ac"), Node: node}}
	childrenCode := list(3, 4, childCode(first), childCode(keyCode(0, 2, "ab")), childCode(keyCode(1, 1, "c")))
	require.Equal(t,
		blobOf(kindIndex, spoiled(indexFields(), indexList, childrenCode)), encodeIndex(h, 1, children).Blob)
	root := &Root{
		Bucket: testBucket, Epoch: 5, Token: store.Token(idBytes(1)), State: Open, Clock: 2, Ranges: 1, Entries: entries,
		Batches: []Batch{{ID: 1, Phase: Copying, Ranges: 1}},
	}
	rec, err := EncodeRoot(root)
	require.NoError(t, err)
	require.Equal(t,
		blobOf(kindRoot, spoiled(rootFields(), rootBatches, batchesCode(1, 1, uint64(Copying), 1), rootList, code)), rec.Blob)
}

// TestDecodersTakeTheLimits: what lies at a limit is no mistake.
func TestDecodersTakeTheLimits(t *testing.T) {
	longest := strings.Repeat("x", store.MaxKeyBytes)
	many, manyItems := manyEntries(mapcodec.MaxNodeEntries)
	root := func(changes ...any) [][]byte { return spoiled(rootFields(), changes...) }
	for name, c := range map[string]struct {
		kind   byte
		fields [][]byte
	}{
		"root":              {kindRoot, rootFields()},
		"segment":           {kindSegment, segmentFields()},
		"index":             {kindIndex, indexFields()},
		"the first state":   {kindRoot, root(rootState, []byte{byte(Open)})},
		"the last state":    {kindRoot, root(rootState, []byte{byte(Deleted)})},
		"the last clock":    {kindRoot, root(rootClock, uv(1<<32-1))},
		"the highest root":  {kindRoot, root(rootHeight, []byte{mapcodec.MaxHeight}, rootList, list(1, 0, childCode(first)))},
		"the highest index": {kindIndex, spoiled(indexFields(), indexHeight, []byte{mapcodec.MaxHeight - 1})},
		"all batches":       {kindRoot, root(rootBatches, manyBatches(mapcodec.MaxBatches))},
		"the last phase":    {kindRoot, root(rootBatches, batchesCode(1, 1, phases-1, 0))},
		"most entries": {kindSegment,
			spoiled(segmentFields(), nodeList, list(mapcodec.MaxNodeEntries, uint64(many), manyItems))},
		"the longest cut": {kindSegment,
			spoiled(segmentFields(), nodeList,
				list(1, uint64(len(longest)), entryCode(keyCode(0, uint64(len(longest)), longest), 0)))},
		"most bytes": {
			kindSegment, spoiled(segmentFields(), nodeList, list(1, mapcodec.MaxNodeKeyBytes, entryCode(first, 0))),
		},
		"all flags": {kindSegment,
			spoiled(segmentFields(), nodeList,
				list(1, 0, entryCode(first, mapcodec.EntryFlags, idBytes(1), uv(3), uv(4), uv(5))))},
	} {
		require.NoError(t, decode(c.kind, blobOf(c.kind, c.fields)), name)
	}
	s, err := decodeSegment(
		testBucket,
		Node{
			ID: handNode,
			Blob: blobOf(kindSegment,
				spoiled(segmentFields(), nodeList, list(mapcodec.MaxNodeEntries, uint64(many), manyItems))),
		},
	)
	require.NoError(t, err)
	require.Equal(t, mapcodec.MaxNodeEntries, s.Len())
	require.Equal(t, "\x0f\xff", string(s.At(mapcodec.MaxNodeEntries-1)))
}
