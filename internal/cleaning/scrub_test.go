package cleaning_test

import (
	"context"
	"crypto/md5"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/cleaning"
	"github.com/evenkeel/evenkeel/objects"
)

// change writes another body of the same length in the place of the present version's.
func (w *world) change(bucket, body string) {
	name := w.present(bucket)
	require.NoError(w.t, w.blobs.Delete(w.t.Context(), name))
	require.NoError(w.t, w.blobs.Create(w.t.Context(), name, strings.NewReader(body), int64(len(body))))
}

// Audits compare names and sizes only; a scrub reads what is there, and its findings are seen as soon as they are made.
func TestScrubsFindDamagedBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.auditEvery, w.scrub = 24*time.Hour, 1
		w.lose("photos")
		w.change("videos", "bodz")
		c, stop := w.run(nil)
		time.Sleep(time.Hour)
		settle()
		s := c.Status(t.Context())
		require.Equal(t, cleaning.Counts{care.LostBody: 1}, s.LastAudit.Faults)
		require.NotNil(t, s.LastScrub)
		require.Equal(t, cleaning.Counts{care.DamagedBody: 1}, s.LastScrub.Faults, "audits tell of all else")
		require.EqualValues(t, 1, s.LastScrub.Problems)
		require.Equal(t, []cleaning.Found{{Bucket: "videos", Faults: s.LastScrub.Faults}}, s.LastScrub.Found)
		m := metrics(t, c)
		require.EqualValues(t, 1, m["findings damaged body"])
		require.EqualValues(t, 1, m["findings lost body"])
		w.change("videos", "body")
		time.Sleep(25 * time.Hour)
		require.Zero(t, metrics(t, c)["findings damaged body"])
		require.EqualValues(t, 1, c.Status(t.Context()).LastScrub.Checked)
		stop()
		require.Contains(t, w.lines.String(), `level=WARN msg="an audit has found faults" bucket=videos fault="damaged body"`)
	})
}

// Scrubs read no faster than they may, and what one has found is told while it goes on.
func TestScrubsTakeTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.auditEvery, w.scrub = 24*time.Hour, 1
		w.change("photos", "bodz")
		const size = 20 << 20
		zeroes := strings.Repeat("\x00", size)
		sum := md5.Sum([]byte(zeroes))
		_, err := w.o.Bucket("videos", objects.Never).
			Put(t.Context(), []byte("large"), strings.NewReader(zeroes), objects.Meta{Size: size, MD5: sum[:]})
		require.NoError(t, err)
		c, stop := w.run(nil)
		defer stop()
		time.Sleep(time.Hour + 10*time.Second)
		s := c.Status(t.Context())
		require.NotNil(t, s.LastAudit, "audits do not wait for scrubs")
		require.Nil(t, s.LastScrub)
		require.NotNil(t, s.Scrub)
		require.EqualValues(t, 1, metrics(t, c)["findings damaged body"])
		time.Sleep(time.Minute)
		require.Nil(t, c.Status(t.Context()).Scrub)
		require.EqualValues(t, 2, c.Status(t.Context()).LastScrub.Checked)
	})
}

// A body that the disk can't read is a damaged one: it does not stop the scrub in front of the others.
func TestScrubsGoOnBehindUnreadableBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.auditEvery, w.scrub = 24*time.Hour, 1
		w.blobs.Blobs = unreadable{w.blobs.Blobs}
		c, stop := w.run(nil)
		defer stop()
		time.Sleep(2 * time.Hour)
		s := c.Status(t.Context())
		require.NotNil(t, s.LastScrub)
		require.Equal(t, cleaning.Counts{care.DamagedBody: 1}, s.LastScrub.Faults)
		require.EqualValues(t, 1, s.LastScrub.Checked)
	})
}

// unreadable are blobs of which the disk can't read those of one bucket.
type unreadable struct{ objects.Blobs }

func (u unreadable) Open(ctx context.Context, name string, offset, n int64) (io.ReadCloser, int64, error) {
	body, size, err := u.Blobs.Open(ctx, name, offset, n)
	if err == nil && strings.HasPrefix(name, "photos/") {
		return badSector{body}, size, nil
	}
	return body, size, err
}

type badSector struct{ io.Closer }

func (badSector) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: "a body", Err: syscall.EIO}
}
