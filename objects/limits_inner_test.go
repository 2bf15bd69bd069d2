package objects

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/store"
)

// pairsOf returns n pairs with so many bytes together.
func pairsOf(n, size int) (pairs []Pair) {
	for range n {
		pairs = append(pairs, Pair{})
	}
	pairs[0].Name, pairs[n-1].Value = strings.Repeat("n", size/2), strings.Repeat("v", size-size/2)
	return pairs
}

// TestWhatIsNotRefusedIsRead: the limits at which a put is refused are those of the decoder.
func TestWhatIsNotRefusedIsRead(t *testing.T) {
	id := ID{Stamp: 7}
	for _, c := range []struct {
		name string
		r    record
		fits bool
	}{
		{"no MD5", record{}, true},
		{"a short MD5", record{md5: make([]byte, 15)}, false},
		{"an MD5", record{md5: make([]byte, 16)}, true},
		{"a long MD5", record{md5: make([]byte, 17)}, false},
		{"the longest type", record{typ: strings.Repeat("t", 1024)}, true},
		{"a longer type", record{typ: strings.Repeat("t", 1025)}, false},
		{"the longest ETag", record{etag: strings.Repeat("e", 256)}, true},
		{"a longer ETag", record{etag: strings.Repeat("e", 257)}, false},
		{"the most headers", record{meta: pairsOf(256, 8<<10)}, true},
		{"more headers", record{meta: pairsOf(257, 8<<10)}, false},
		{"longer headers", record{meta: pairsOf(256, 8<<10+1)}, false},
		{"one long header", record{meta: pairsOf(1, 8<<10)}, true},
		{"one longer header", record{meta: pairsOf(1, 8<<10+1)}, false},
		{"the most sums", record{sums: pairsOf(256, 8<<10)}, true},
		{"more sums", record{sums: pairsOf(257, 8<<10)}, false},
		{"longer sums", record{sums: pairsOf(256, 8<<10+1)}, false},
		{"the most tags", record{tags: pairsOf(256, 16<<10)}, true},
		{"more tags", record{tags: pairsOf(257, 16<<10)}, false},
		{"longer tags", record{tags: pairsOf(256, 16<<10+1)}, false},
	} {
		r := c.r
		r.rank = live
		err := r.check()
		_, decoded := decode(r.encode())
		if !c.fits {
			require.ErrorIs(t, err, store.InvalidArgument, c.name)
			require.ErrorIs(t, decoded, store.Corrupt, c.name)
			continue
		}
		require.NoError(t, err, c.name)
		require.NoError(t, decoded, c.name)
	}

	// All limits together leave room for a body, and for the rest of a record.
	full := record{rank: live, where: inline, md5: make([]byte, 16), etag: strings.Repeat("e", maxETagBytes),
		typ: strings.Repeat("t", maxTypeBytes), sums: pairsOf(256, 8<<10), meta: pairsOf(256, 8<<10),
		tags: pairsOf(256, 16<<10), body: make([]byte, mostInline), size: mostInline}
	_, err := decode(full.encode())
	require.NoError(t, err)
	padded := record{rank: live, where: inline, body: make([]byte, maxRecordBytes)}
	for padded.size = maxRecordBytes; len(padded.encode()) > maxRecordBytes; padded.size-- {
		padded.body = padded.body[1:]
	}
	padded.size = int64(len(padded.body))
	require.Len(t, padded.encode(), maxRecordBytes)
	_, err = decode(padded.encode())
	require.NoError(t, err)
	padded.size, padded.body = padded.size+1, append(padded.body, 0)
	_, err = decode(padded.encode())
	require.ErrorIs(t, err, store.Corrupt)
	for _, n := range []int{0, care.MaxKeyBytes + 1} {
		require.ErrorIs(t, checkID(make([]byte, n), id), store.InvalidArgument)
	}
	require.NoError(t, checkID(make([]byte, care.MaxKeyBytes), id))
	require.ErrorIs(t, checkID([]byte("k"), ID{Stamp: 0}), store.InvalidArgument)
	require.NoError(t, checkID([]byte("k"), ID{Stamp: 1}))
}

// TestRowsOfUploadsHaveOneForm: what parseUploadRow reads is written so, and nothing else is read. A row with a byte
// that is another one, less or more is a row that has that in it, or none.
func TestRowsOfUploadsHaveOneForm(t *testing.T) {
	r, id := seed.New(t), UploadID{Stamp: 7, Salt: [saltBytes]byte{1, 2, 3, 4, 5, 6}}
	wanted := claim{1, 2, 3}
	claims := append(append(uploadKey([]byte("k"), id), claimSuffix), wanted[:]...)
	rows := map[string][]byte{
		"an upload":               uploadKey([]byte("a\x00b"), id),
		"part 1":                  partKey([]byte("k"), id, 1),
		"the last part":           partKey([]byte("k"), id, care.MaxParts),
		"a claim":                 ID{Stamp: 9}.append(bytes.Clone(claims)),
		"a claim without a stamp": claims,
		"a proof":                 proofKey([]byte("k"), id, claim{7}),
	}
	form := func(u *uploadRow, b []byte) []byte {
		switch {
		case u.part > 0:
			return partKey(u.key, u.id, u.part)
		case u.claims != nil:
			own := append(append(uploadKey(u.key, u.id), claimSuffix), u.claims[:]...)
			return append(own, b[len(own):]...)
		}
		return uploadKey(u.key, u.id)
	}
	look := func(b []byte) bool {
		u, err := parseUploadRow(b)
		if err != nil {
			require.ErrorIs(t, err, store.Corrupt)
			return false
		}
		require.Equal(t, b, form(&u, b))
		require.Equal(t, uploadKey(u.key, u.id), u.group)
		require.NotEmpty(t, u.key)
		require.Positive(t, u.id.Stamp)
		require.LessOrEqual(t, u.part, care.MaxParts)
		require.Equal(t, u.part == 0 && u.claims == nil, u.own())
		if u.claims != nil {
			require.Contains(t, []int{0, idBytes}, len(b)-len(u.group)-1-len(claim{}))
		}
		return true
	}
	for name, row := range rows {
		require.True(t, look(row), name)
		for n := range row {
			u, err := parseUploadRow(row[:n])
			require.Equal(t, err == nil, look(row[:n]), name)
			require.True(t, err != nil || u.own() || u.claims != nil, "%s: %d bytes", name, n)
		}
		require.False(t, look(append(bytes.Clone(row), 1)), name)
		for range 3000 {
			b := bytes.Clone(row)
			b[r.IntN(len(b))] = byte(r.IntN(256))
			look(b)
		}
	}
	for number, ok := range map[int]bool{0: false, 1: true, care.MaxParts: true, care.MaxParts + 1: false} {
		_, err := parseUploadRow(partKey([]byte("k"), id, number))
		require.Equal(t, ok, err == nil, "part %d", number)
	}
	for name, bad := range map[string][]byte{
		"an object":                  rowKey([]byte("k"), ID{Stamp: 7}),
		"no beginning":               append(uploadKey([]byte("k"), id)[len(uploadsBegin):], 1, 1),
		"no key":                     uploadKey(nil, id),
		"no stamp":                   uploadKey([]byte("k"), UploadID{}),
		"a claim whose ID is none":   append(bytes.Clone(claims), make([]byte, idBytes-1)...),
		"a claim with a longer ID":   append(ID{Stamp: 9}.append(bytes.Clone(claims)), 1),
		"a claim of half a hash":     claims[:len(claims)-1],
		"a part with another suffix": append(uploadKey([]byte("k"), id), 9, 0, 1),
	} {
		require.False(t, look(bad), name)
	}

	for _, text := range []string{
		id.String()[1:], id.String() + "00", strings.Repeat("0", 28), "0000000000000007AB0000000000",
	} {
		_, err := ParseUploadID(text)
		require.ErrorIs(t, err, store.InvalidArgument, text)
	}
	require.True(t, UploadID{}.isZero())
	require.False(t, id.isZero())
}

// TestIDsAreReadFromTheirBytes only: from no others, and not where the stamp is none.
func TestIDsAreReadFromTheirBytes(t *testing.T) {
	id := ID{Stamp: 7, Salt: [saltBytes]byte{1, 2, 3, 4, 5, 6}}
	b := id.append(nil)
	got, ok := parseID(b)
	require.True(t, ok)
	require.Equal(t, id, got)
	for n := range 2 * idBytes {
		_, ok := parseID(append(bytes.Clone(b), make([]byte, 20)...)[:n])
		require.Equal(t, n == idBytes, ok, "%d bytes", n)
		_, ok = uploadIDOf(append(UploadID(id).append(nil), make([]byte, 20)...)[:n])
		require.Equal(t, n == idBytes, ok, "%d bytes", n)
		claimed := append([]byte{claimVersion, 0, 0, 0, 0, 0, 0, 0, 9}, b...)
		_, _, ok = decodeClaim(append(claimed, make([]byte, 20)...)[:n])
		require.Equal(t, n == 9 || n == 9+idBytes, ok, "%d bytes of a claim", n)
		_, ok = decodeProof(append([]byte{proofVersion, 0, 0, 0, 0, 0, 0, 0, 9}, make([]byte, 20)...)[:n])
		require.Equal(t, n == 9, ok, "%d bytes of a proof", n)
	}
	for stamp, ok := range map[store.Timestamp]bool{-1: false, 0: false, 1: true} {
		_, got := parseID(ID{Stamp: stamp}.append(nil))
		require.Equal(t, ok, got, "stamp %d", stamp)
		_, got = uploadIDOf(UploadID{Stamp: stamp}.append(nil))
		require.Equal(t, ok, got, "stamp %d", stamp)
	}
	at, version, ok := decodeClaim(append([]byte{claimVersion, 0, 0, 0, 0, 0, 0, 0, 9}, b...))
	require.True(t, ok)
	require.EqualValues(t, 9, at)
	require.Equal(t, id, version)
	_, _, ok = decodeClaim([]byte{claimVersion + 1, 0, 0, 0, 0, 0, 0, 0, 9})
	require.False(t, ok)
	at, ok = decodeProof(encodeProof(77))
	require.True(t, ok)
	require.EqualValues(t, 77, at)
	_, ok = decodeProof([]byte{proofVersion - 1, 0, 0, 0, 0, 0, 0, 0, 9})
	require.False(t, ok)
}

// TestManifestsAreRead as they were written, and no others: of the size that is told, in order, and whole.
func TestManifestsAreRead(t *testing.T) {
	one := func(number int, size int64, sum string) piece {
		p := piece{number: number, size: size, id: ID{Stamp: 7}}
		if sum != "" {
			p.sum = []byte(sum)
		}
		return p
	}
	for name, c := range map[string]struct {
		pieces []piece
		size   int64
		ok     bool
	}{
		"none":                      {nil, 0, false},
		"one":                       {[]piece{one(1, 5, "")}, 5, true},
		"one of another size":       {[]piece{one(1, 5, "")}, 6, false},
		"none of its bytes":         {[]piece{one(1, 0, "")}, 0, true},
		"two":                       {[]piece{one(1, 5, ""), one(care.MaxParts, 6, "")}, 11, true},
		"part 0":                    {[]piece{one(0, 5, "")}, 5, false},
		"a number that is too high": {[]piece{one(care.MaxParts+1, 5, "")}, 5, false},
		"not in order":              {[]piece{one(2, 5, ""), one(1, 6, "")}, 11, false},
		"the same one twice":        {[]piece{one(2, 5, ""), one(2, 6, "")}, 11, false},
		"with checksums":            {[]piece{one(1, 5, "1234"), one(2, 6, "5678")}, 11, true},
		"with the longest":          {[]piece{one(1, 5, strings.Repeat("s", 32))}, 5, true},
		"with longer ones":          {[]piece{one(1, 5, strings.Repeat("s", 33))}, 5, false},
		"with half of them":         {[]piece{one(1, 5, "123"), one(2, 6, "")}, 11, false},
		"more than can be":          {[]piece{one(1, 1<<62, ""), one(2, 1<<62, "")}, -1 << 63, false},
		"without a stamp":           {[]piece{{number: 1, size: 5}}, 5, false},
	} {
		b := encodeManifest(c.pieces)
		got, err := decodeManifest(b, c.size)
		if !c.ok {
			require.ErrorIs(t, err, store.Corrupt, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, c.pieces, got, name)
		for n := range b {
			cut, err := decodeManifest(b[:n], c.size)
			shorter := err == nil && len(cut) == len(c.pieces) && len(cut[0].sum) < len(c.pieces[0].sum)
			require.True(t, err != nil || shorter, "%s: %d", name, n)
		}
	}
	many := make([]piece, care.MaxParts+1)
	for i := range many {
		many[i] = one(i+1, 1, "")
	}
	_, err := decodeManifest(encodeManifest(many[:care.MaxParts]), care.MaxParts)
	require.NoError(t, err)
	_, err = decodeManifest(encodeManifest(many), care.MaxParts+1)
	require.ErrorIs(t, err, store.Corrupt)
}

// TestLostSettingsAreThoseOfObjects where a row shows that there are objects: a version, or an upload. Nothing else
// does.
func TestLostSettingsAreThoseOfObjects(t *testing.T) {
	r := (&record{rank: live, typ: "a"}).encode()
	id := ID{Stamp: 7}
	up := UploadID(id)
	row := func(key, value []byte) store.Row { return store.Row{Key: key, Value: store.EntryCell(value)} }
	for name, c := range map[string]struct {
		row   store.Row
		known bool
	}{
		"a version":                     {row(rowKey([]byte("k"), id), r), true},
		"an upload":                     {row(uploadKey([]byte("k"), up), r), true},
		"a plain entry":                 {row([]byte("k"), r), false},
		"a plain entry in place of one": {row(rowKey([]byte("k"), id), []byte("v")), false},
		"tags":                          {row(tagsKey([]byte("k"), id), r), false},
		"what is deleted":               {store.Row{Key: rowKey([]byte("k"), id)}, false},
	} {
		var want []byte
		if c.known {
			want = []byte{kindObjects, settingsVersion, byte(Enabled)}
		}
		require.Equal(t, want, lostSettings([]store.Row{c.row}), name)
		require.Equal(t, want, lostSettings([]store.Row{row([]byte("plain"), r), c.row}), name)
	}
	require.Nil(t, lostSettings(nil))
}
