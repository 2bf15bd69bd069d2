package objects

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"hash/crc32"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
)

func in64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// sumsOf are the checksums of a body, by algorithm.
func sumsOf(body string) map[string]Pair {
	b := []byte(body)
	c, i := crc32.New(crc32.MakeTable(crc32.Castagnoli)), crc32.NewIEEE()
	_, _ = c.Write(b)
	_, _ = i.Write(b)
	one, two := sha1.Sum(b), sha256.Sum256(b)
	return map[string]Pair{
		"crc32c": {"crc32c", in64(c.Sum(nil))}, "crc32": {"crc32", in64(i.Sum(nil))}, "sha1": {"sha1", in64(one[:])},
		"sha256": {"sha256", in64(two[:])}, "other": {"crc64nvme", "AAAAAAAAAAA="},
	}
}

// TestWhichChecksumCounts: the fastest that the version has. Readers compare only what costs next to nothing. Where
// there is an MD5, the slow ones are not needed.
func TestWhichChecksumCounts(t *testing.T) {
	const body = "the body that is compared"
	sums, sum := sumsOf(body), md5.Sum([]byte(body))
	for _, c := range []struct {
		sums       []string
		md5        bool
		fast, slow int // bytes of the checksum; 0: there is none
	}{
		{nil, false, 0, 0},
		{nil, true, 0, 16},
		{[]string{"other"}, false, 0, 0},
		{[]string{"other"}, true, 0, 16},
		{[]string{"crc32"}, false, 4, 4},
		{[]string{"crc32c"}, true, 4, 4},
		{[]string{"sha1"}, false, 0, 20},
		{[]string{"sha1"}, true, 0, 16},
		{[]string{"sha256"}, false, 0, 32},
		{[]string{"sha256"}, true, 0, 16},
		{[]string{"sha256", "sha1"}, false, 0, 20},
		{[]string{"sha256", "other", "crc32"}, true, 4, 4},
	} {
		r := &record{size: int64(len(body))}
		for _, name := range c.sums {
			r.sums = append(r.sums, sums[name])
		}
		if c.md5 {
			r.md5 = sum[:]
		}
		for _, fast := range []bool{true, false} {
			want := c.slow
			if fast {
				want = c.fast
			}
			h, value := r.digest(fast)
			require.Len(t, value, want, "%+v, fast %v", c, fast)
			require.Equal(t, want > 0, h != nil, "%+v, fast %v", c, fast)
			if h != nil {
				_, _ = h.Write([]byte(body))
				require.Equal(t, value, h.Sum(nil), "%+v, fast %v", c, fast)
			}
		}
		for flip := range len(body) {
			bad := []byte(body)
			bad[flip] ^= 1
			_, err := io.ReadAll(r.verify(io.NopCloser(iotest.OneByteReader(bytes.NewReader(bad)))))
			if c.fast == 0 {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, errBodyDamaged)
			}
		}
		got, err := io.ReadAll(r.verify(io.NopCloser(strings.NewReader(body))))
		require.NoError(t, err)
		require.Equal(t, body, string(got))
	}
	both := &record{sums: []Pair{sums["crc32"], sums["crc32c"]}}
	_, value := both.digest(true)
	require.Equal(t, sums["crc32c"].Value, in64(value), "the faster one")
	for _, text := range []string{"AAAAAA==-2", "AAAAAAA=", "", "%"} { // of parts, and of no use
		h, _ := (&record{sums: []Pair{{"crc32", text}}}).digest(true)
		require.Nil(t, h, text)
	}
	h, value := (&record{sums: []Pair{{"crc32", "AAAAAA==-2"}, sums["sha1"]}}).digest(false)
	require.NotNil(t, h)
	require.Len(t, value, 20)
	none := io.NopCloser(strings.NewReader(""))
	require.Equal(t, none, (&record{sums: []Pair{sums["crc32"]}}).verify(none), "there are no bytes to compare")
}

// oneBlob has one blob, whose reads may fail.
type oneBlob struct {
	Blobs
	body []byte
	err  error
	size int64
}

func (b *oneBlob) Open(_ context.Context, _ string, offset, n int64) (io.ReadCloser, int64, error) {
	if b.body == nil {
		return nil, 0, store.Errorf(store.NotFound, "it is not there")
	}
	in := io.Reader(bytes.NewReader(b.body[offset:min(offset+n, int64(len(b.body)))]))
	if b.err != nil {
		in = io.MultiReader(in, iotest.ErrReader(b.err))
	}
	return io.NopCloser(in), b.size, nil
}

// TestBodiesAreChecked against their checksums; what can't be read is told from what is damaged.
func TestBodiesAreChecked(t *testing.T) {
	body := strings.Repeat("0123456789abcdef", 3<<16) // in three pieces
	size := int64(len(body))
	sum := md5.Sum([]byte(body))
	away := store.Errorf(store.Unavailable, "it is away")
	for name, c := range map[string]struct {
		blob oneBlob
		md5  []byte
		want error
	}{
		"it is whole":        {oneBlob{body: []byte(body), size: size}, sum[:], nil},
		"no checksum":        {oneBlob{body: []byte(body), size: size}, nil, errNoSum},
		"it is another one":  {oneBlob{body: []byte("x" + body[1:]), size: size}, sum[:], errBodyDamaged},
		"it is gone":         {oneBlob{}, sum[:], ErrBodyLost},
		"another size":       {oneBlob{body: []byte(body), size: size - 1}, sum[:], ErrBodyLost},
		"it ends early":      {oneBlob{body: []byte(body[1:]), size: size}, sum[:], ErrBodyLost},
		"it can't be read":   {oneBlob{body: []byte(body[1:]), size: size, err: away}, sum[:], away},
		"the disk is broken": {oneBlob{body: []byte(body[1:]), size: size, err: syscall.EIO}, sum[:], errBodyDamaged},
	} {
		b := (&Objects{blobs: &c.blob}).Bucket("b", Enabled)
		r := &record{rank: live, where: inBlob, size: size, md5: c.md5}
		var paced []int64
		pace := func(_ context.Context, n int64) error { paced = append(paced, n); return nil }
		require.ErrorIs(t, b.checkBody(t.Context(), []byte("k"), ID{Stamp: 1}, r, pace), c.want, name)
		if c.want == nil {
			require.Equal(t, []int64{1 << 20, 1 << 20, 1 << 20}, paced)
		}
		enough := errors.New("enough")
		ends := func(context.Context, int64) error { return enough }
		if err := b.checkBody(t.Context(), []byte("k"), ID{Stamp: 1}, r, ends); len(paced) > 0 {
			require.ErrorIs(t, err, enough, name)
		}
	}
}

// TestBodiesAreMeasured: a body is as long as was told and no longer than may be, and comes in time.
func TestBodiesAreMeasured(t *testing.T) {
	for _, c := range []struct {
		n          int
		want, most int64
		late       bool
		err        error
	}{
		{10, -1, 100, false, nil},
		{0, -1, 100, false, nil},
		{0, 0, 100, false, nil},
		{0, 0, 0, false, nil},
		{10, 10, 10, false, nil},
		{10, -1, 10, false, nil},
		{10, -1, 9, false, errWrongSize},
		{10, 10, 9, false, errWrongSize},
		{10, 9, 100, false, errWrongSize},
		{10, 11, 100, false, errWrongSize},
		{0, 1, 100, false, errWrongSize},
		{1, 0, 100, false, errWrongSize},
		{10, -1, 100, true, door.ErrTooLate},
		{0, -1, 100, true, nil},
	} {
		for _, unhashed := range []bool{false, true} {
			body := bytes.Repeat([]byte("x"), c.n)
			m := &measured{r: iotest.DataErrReader(bytes.NewReader(body)), unhashed: unhashed, want: c.want,
				most: c.most, still: func() bool { return !c.late }}
			got, err := io.ReadAll(m)
			require.ErrorIs(t, err, c.err, "%+v", c)
			if err != nil {
				continue
			}
			require.Equal(t, body, got)
			require.EqualValues(t, c.n, m.n)
			sum := md5.Sum(nil)
			if !unhashed {
				sum = md5.Sum(body)
			}
			require.Equal(t, sum[:], m.sum.end())
		}
	}
}

func TestPartsOfBodies(t *testing.T) {
	for _, c := range []struct {
		r    Range
		size int64
		want Range
		ok   bool
	}{
		{All, 10, Range{0, 10}, true},
		{All, 0, Range{0, 0}, true},
		{Range{0, 10}, 10, Range{0, 10}, true},
		{Range{0, 11}, 10, Range{0, 10}, true},
		{Range{0, 9}, 10, Range{0, 9}, true},
		{Range{0, 0}, 10, Range{0, 0}, true},
		{Range{9, 5}, 10, Range{9, 1}, true},
		{Range{10, 5}, 10, Range{10, 0}, true},
		{Range{3, -1}, 10, Range{3, 7}, true},
		{Range{11, 1}, 10, Range{}, false},
		{Range{-1, 1}, 10, Range{}, false},
	} {
		got, err := c.r.within(c.size)
		require.Equal(t, c.want, got, "%+v", c)
		require.Equal(t, c.ok, err == nil, "%+v", c)
	}
}

// TestNamesOfBlobsAreRead: each name is that of one blob, and nothing else is one.
func TestNamesOfBlobsAreRead(t *testing.T) {
	for _, bucket := range []string{"photos", "Photos", strings.Repeat("z", 100)} {
		b, id, part := (&Objects{}).Bucket(bucket, Enabled), ID{Stamp: 7}, ID{Stamp: 9}
		for n := range 2 * nameBytes {
			if n == 0 {
				continue
			}
			key := bytes.Repeat([]byte("k\xff\x00"), n)[:n]
			name := b.blobName(key, id)
			got, ok := b.parseName(name)
			require.True(t, ok, name)
			want := blobOf{key: key, id: id, number: -1}
			if n > nameBytes {
				want.key, want.begin = nil, key[:nameBytes]
			}
			require.Equal(t, want, got)
			require.Equal(t, id.Stamp, got.begun())
			for _, number := range []int{0, 1, care.MaxParts} {
				got, ok = b.parseName(b.partName(key, id, number, part))
				require.True(t, ok)
				want.number, want.part = number, part
				require.Equal(t, want, got)
				require.Equal(t, part.Stamp, got.begun())
			}
		}
		whole, long := b.blobName([]byte("k"), id), b.blobName(bytes.Repeat([]byte("k"), nameBytes+1), id)
		for _, bad := range []string{
			whole[1:], "x" + whole, whole + "0", whole[:len(whole)-1], whole + "/",
			strings.Replace(whole, "-/", "/", 1),
			strings.Replace(whole, "-/", "/-/", 1), b.partName([]byte("k"), id, care.MaxParts+1, part),
			whole + "/0001-" + part.String(),
			whole + "/000001-" + part.String(), whole + "/0000x-" + part.String(), whole + "/-0001-" + part.String(),
			whole + "/00001-" + part.String()[1:], strings.ToUpper(whole), long[:len(long)-1],
			strings.Replace(long, "=", "=0", 1), strings.Replace(long, "/", "/00", 1),
			strings.Replace(long, "=", "/=/", 1),
			bucketPart(bucket) + "/-/" + id.String(),
		} {
			_, ok := b.parseName(bad)
			require.False(t, ok, bad)
		}
		name, ok := bucketOf(bucketPart(bucket))
		require.True(t, ok)
		require.Equal(t, bucket, name)
	}
	_, ok := bucketOf(bucketPart(strings.Repeat("z", 101)))
	require.False(t, ok, "it does not tell the name")
	plain := "=" + ordered.EncodeToString([]byte("photos"))
	for _, top := range []string{"", "=", "=0", "Photos", ".x", "_owner", plain} {
		_, ok := bucketOf(top)
		require.False(t, ok, top)
	}
}

// TestDeadlines: a write is in time if it is by both clocks.
func TestDeadlines(t *testing.T) {
	var now wait.Instant
	begin := time.Unix(1_800_000_000, 0)
	at := func(mono, wall time.Duration) { now = wait.Instant{Mono: mono, Wall: begin.Add(wall)} }
	o := &Objects{now: func() wait.Instant { return now }}
	at(0, 0)
	still := o.deadline(time.Minute)
	for _, c := range []struct {
		mono, wall time.Duration
		want       bool
	}{
		{0, 0, true}, {time.Minute, time.Minute, true}, {time.Minute + 1, 0, false}, {0, time.Minute + 1, false},
		{time.Hour, time.Hour, false}, {time.Second, -time.Hour, true},
	} {
		at(c.mono, c.wall)
		require.Equal(t, c.want, still(), "%+v", c)
	}
	for timeout, want := range map[time.Duration]time.Duration{0: 2 * time.Minute, time.Second: 2 * time.Minute,
		time.Minute: 2 * time.Minute, time.Hour: time.Hour + time.Minute} {
		require.Equal(t, want, (&Objects{o: Options{PutTimeout: timeout}}).orphanAge(), "%v", timeout)
	}

	// A cleaner's clock goes no faster than the slower one of the process, and never backwards behind a proof.
	at(0, 0)
	var clock slowClock
	clock.tell(1_000_000, now)
	require.Zero(t, clock.since(1_000_000))
	at(time.Second, time.Hour)
	clock.tell(100_000_000, now)
	require.Equal(t, time.Second, clock.since(1_000_000))
	require.Zero(t, clock.since(3_000_000))
	at(time.Hour, time.Hour)
	clock.tell(5_000_000, now)
	require.Equal(t, 4*time.Second, clock.since(1_000_000), "the stamps are behind")
}

// TestWhatIsNotJudgedIsPassedOver: the blobs of a stretch that is too long, and no others.
func TestWhatIsNotJudgedIsPassedOver(t *testing.T) {
	away := store.Errorf(store.Unavailable, "it is away")
	ended, end := context.WithCancel(t.Context())
	end()
	for _, c := range []struct {
		ctx   context.Context
		end   string
		fails int // at which step; 0: at none
		left  string
		err   error
	}{
		{t.Context(), "a", 0, "a", nil},
		{t.Context(), "c", 0, "c", nil},
		{t.Context(), "c~", 0, "d", nil},
		{t.Context(), "z", 0, "", nil},
		{t.Context(), "z", 2, "", away},
		{ended, "z", 0, "b", context.Canceled},
	} {
		rest, step := []string{"b", "c", "d"}, 0
		a := &audit{blob: sized{name: "a"}, next: func() (sized, error, bool) {
			if step++; step == c.fails {
				return sized{}, away, true
			}
			if len(rest) == 0 {
				return sized{}, nil, false
			}
			name := rest[0]
			rest = rest[1:]
			return sized{name: name}, nil, true
		}}
		require.ErrorIs(t, a.skip(c.ctx, c.end), c.err, "%+v", c)
		require.Equal(t, c.left, a.blob.name, "%+v", c)
		require.EqualValues(t, step, a.part.Unjudged, "%+v", c)
	}
}
