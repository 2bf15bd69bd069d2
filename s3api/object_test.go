package s3api_test

import (
	"crypto/md5"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store"
)

func anyObject() *rapid.Generator[s3api.Object] {
	return rapid.Custom(func(t *rapid.T) s3api.Object {
		o := s3api.Object{
			Modified:    time.UnixMilli(rapid.Int64Range(0, 1<<45).Draw(t, "modified")).UTC(),
			ContentType: rapid.String().Draw(t, "type"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			o.Headers = append(o.Headers, s3api.Header{Name: rapid.String().Draw(t, "name"),
				Value: rapid.String().Draw(t, "value")})
		}
		if rapid.Bool().Draw(t, "external") {
			o.External = true
			o.Size = rapid.Int64Min(0).Draw(t, "size")
			o.ETag = rapid.String().Draw(t, "etag")
			return o
		}
		o.Body = rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "body")
		o.Size = int64(len(o.Body))
		sum := md5.Sum(o.Body)
		o.ETag = hex.EncodeToString(sum[:])
		return o
	})
}

func TestRecordRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := anyObject().Draw(t, "object")
		record := o.AppendRecord(nil)
		back, err := s3api.ParseRecord(record)
		if err != nil {
			t.Fatal(err)
		}
		require.Equal(t, string(o.Body), string(back.Body))
		o.Body, back.Body = nil, nil
		require.Equal(t, o, back)
	})
}

func TestDamagedRecords(t *testing.T) {
	o := s3api.Object{Modified: time.UnixMilli(1_700_000_000_000), ContentType: "text/plain",
		Headers: []s3api.Header{{Name: "a", Value: "b"}}, Body: []byte("body")}
	record := o.AppendRecord(nil)
	for i := 1; i < len(record); i++ {
		_, err := s3api.ParseRecord(record[:i])
		require.ErrorIs(t, err, store.Corrupt, "cut to %d bytes", i)
	}
	newer := append([]byte(nil), record...)
	newer[1]++
	_, err := s3api.ParseRecord(newer)
	require.ErrorIs(t, err, store.Corrupt)
	require.ErrorContains(t, err, "version 2: this program reads version 1")
}

func TestAValueThatIsNoRecordIsPlainBytes(t *testing.T) {
	for _, value := range []string{"", "hello", "\x00", "\x01\x01"} {
		o, err := s3api.ParseRecord([]byte(value))
		require.NoError(t, err)
		require.Equal(t, value, string(o.Body))
		require.EqualValues(t, len(value), o.Size)
		require.True(t, o.Modified.Equal(time.Unix(0, 0)))
		sum := md5.Sum([]byte(value))
		require.Equal(t, hex.EncodeToString(sum[:]), o.ETag)
	}
}

// FuzzParseRecord: any bytes are a plain value, Corrupt, or exactly the record
// that encoding the result gives; and the listing's summary agrees.
func FuzzParseRecord(f *testing.F) {
	inline := s3api.Object{Modified: time.UnixMilli(1), ContentType: "t",
		Headers: []s3api.Header{{Name: "n", Value: "v"}},
		Body:    []byte("b")}
	external := s3api.Object{External: true, Size: 1 << 40, ETag: "e-2"}
	f.Add(inline.AppendRecord(nil))
	f.Add(external.AppendRecord(nil))
	f.Add([]byte("plain"))
	f.Add([]byte("\xfe\x01\x00\x80\x00"))
	f.Fuzz(func(t *testing.T, value []byte) {
		o, err := s3api.ParseRecord(value)
		size, etag, serr := s3api.Summary(value)
		if err != nil {
			require.True(t, errors.Is(err, store.Corrupt))
			return
		}
		require.NoError(t, serr)
		require.Equal(t, o.Size, size)
		require.Equal(t, o.ETag, etag)
		if len(value) == 0 || value[0] != 0xFE {
			require.Equal(t, string(value), string(o.Body))
			return
		}
		require.Equal(t, string(value), string(o.AppendRecord(nil)))
	})
}
