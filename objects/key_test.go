package objects

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/store"
)

func someKey(t *rapid.T, name string) []byte {
	return rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 2, '/', 'a', 'b', 0xFE, 0xFF}), 1, 6).Draw(t, name)
}

func someID(t *rapid.T, name string) ID {
	id := ID{Stamp: store.Timestamp(rapid.SampledFrom([]int64{1, 2, 255, 256, 1<<62 + 1, 1<<63 - 1}).Draw(t, name))}
	id.Salt[5] = rapid.Byte().Draw(t, name+" salt")
	return id
}

func TestRowsAreInTheOrderOfKeysAndNewestFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := someKey(t, "a"), someKey(t, "b")
		x, y := someID(t, "x"), someID(t, "y")
		want := bytes.Compare(a, b)
		if want == 0 && x.Stamp != y.Stamp {
			if want = 1; x.Stamp > y.Stamp {
				want = -1
			}
		} else if want == 0 {
			want = bytes.Compare(x.Salt[:], y.Salt[:])
		}
		require.Equal(t, want, bytes.Compare(rowKey(a, x), rowKey(b, y)))
		require.Equal(t, bytes.Equal(a, b), bytes.HasPrefix(rowKey(a, x), groupOf(b)), "a row lies in one group")
		require.Equal(t, bytes.HasPrefix(a, b), bytes.HasPrefix(rowKey(a, x), escape(nil, b)),
			"prefixes of keys are prefixes of rows")
		if want != 0 && !bytes.Equal(a, b) {
			require.Equal(t, want, strings.Compare(blobNameOf(a, x), blobNameOf(b, y)),
				"names of blobs are in the order of rows")
		}

		at, err := parseRow(rowKey(a, x))
		require.NoError(t, err)
		require.Equal(t, row{key: a, group: groupOf(a), id: x}, at)
		at, err = parseRow(append(rowKey(a, x), noteSuffix))
		require.NoError(t, err)
		require.Equal(t, row{key: a, group: groupOf(a), id: x, note: true}, at)
		at, err = parseRow(tagsKey(a, x))
		require.NoError(t, err)
		require.Equal(t, row{key: a, group: groupOf(a), id: x, tags: true}, at)
		id, err := ParseID(x.String())
		require.NoError(t, err)
		require.Equal(t, x, id)
	})
}

func blobNameOf(key []byte, id ID) string {
	return (&Objects{}).Bucket("b", Enabled).blobName(key, id)
}

func FuzzRowKeys(f *testing.F) {
	f.Add(rowKey([]byte("a\x00b"), ID{Stamp: 7}))
	f.Add([]byte("plain"))
	f.Add([]byte{0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		at, err := parseRow(b)
		if err != nil {
			require.ErrorIs(t, err, store.Corrupt)
			return
		}
		again := rowKey(at.key, at.id)
		if at.note {
			again = append(again, noteSuffix)
		}
		if at.tags {
			again = append(again, tagsSuffix)
		}
		require.Equal(t, b, again, "a row's key has one form")
	})
}

func TestNamesOfBlobsSuitStores(t *testing.T) {
	for _, key := range []string{
		"a", "\x00", strings.Repeat("\xff", 1024), strings.Repeat("x", 400), strings.Repeat("x", 401), "../..", "A", "aA",
	} {
		for _, bucket := range []string{"photos", "..", "Photos", "a/b", strings.Repeat("z", 255), ""} {
			name := (&Objects{}).Bucket(bucket, Enabled).blobName([]byte(key), ID{Stamp: 1})
			require.LessOrEqual(t, len(name), 1024)
			for part := range strings.SplitSeq(name, "/") {
				require.NotEmpty(t, part)
				require.LessOrEqual(t, len(part), 255)
				require.NotEqual(t, byte('.'), part[0])
				require.Empty(t, strings.Trim(part, ".-_=abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"))
			}
		}
	}
	long := strings.Repeat("x", 1000)
	require.NotEqual(t, blobNameOf([]byte(long+"a"), ID{Stamp: 1}), blobNameOf([]byte(long+"b"), ID{Stamp: 1}))
}

func TestIDsThatAreNone(t *testing.T) {
	for _, text := range []string{
		"", "null", strings.Repeat("f", 28), strings.Repeat("0", 28), strings.Repeat("A", 28), "zz",
	} {
		_, err := ParseID(text)
		require.ErrorIs(t, err, store.InvalidArgument, text)
	}
}
