package adopt_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/adopt"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/rebalance/executor"
	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// What was deleted in the bucket after the time of a file's rows stays so: a move forgets deletions, so a file is only
// copied where no range has moved since.
func TestAFileBringsNothingBack(t *testing.T) {
	for _, c := range []struct {
		name         string
		moved, later bool // a move after the deletion; a time of the rows after that
		ago          time.Duration
		refused      bool
	}{
		{"a new bucket", false, false, time.Hour, false},
		{"a new bucket, an old file", false, false, 1000 * time.Hour, false},
		{"moved", true, false, time.Hour, true},
		{"moved before", true, true, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, s := t.Context(), memstore.New()
			client, err := listing.New(s, listing.Options{})
			require.NoError(t, err)
			require.NoError(t, client.CreateBucket(ctx, "b"))
			b := client.Bucket("b")
			remove := func() {
				require.NoError(t, b.Put(ctx, []byte("b"), []byte("again")))
				require.NoError(t, b.Delete(ctx, []byte("b")))
			}
			if !c.later {
				remove()
			}
			if c.moved {
				id, err := client.BucketID(ctx, "b")
				require.NoError(t, err)
				root, err := mapclient.Of(client).Load(ctx, id)
				require.NoError(t, err)
				x := executor.New(s, mapclient.Of(client), id, executor.Options{})
				for rg, err := range mapclient.Of(client).Ranges(ctx, root, nil) {
					require.NoError(t, err)
					x.Add(move.Refresh(&rg))
				}
				require.NoError(t, x.Run(ctx))
			}
			at := time.Now().Add(-c.ago)
			if c.later {
				at = at.Add(mapclient.Of(client).MaxClockSkew() + time.Millisecond)
				time.Sleep(time.Until(at.Add(time.Millisecond)))
				remove()
			}
			spool := adopt.NewSpool(memstore.New(), 1000, store.Timestamp(at.UnixMicro()))
			_, err = spool.AddLines(ctx, strings.NewReader("a\nb\nc\n"), adopt.Plain, func(adopt.Finding) {})
			require.NoError(t, err)
			done := adopt.NewDone("task", 1, nil, 3)
			a := adopt.New(adopt.Options{Source: spool, Bucket: b, Pace: wait.NewPacer(0), Parallel: 1,
				Spans: adopt.Spans(done.Cuts()), Report: func(adopt.Finding) {}})
			err = a.Copy(ctx, done)
			if c.refused {
				require.ErrorContains(t, err, "--as-of")
			} else {
				require.NoError(t, err)
				_, err = b.Get(ctx, []byte("a"))
				require.NoError(t, err)
			}
			_, err = b.Get(ctx, []byte("b"))
			require.ErrorIs(t, err, listing.ErrNotFound, "the key was deleted after the time of the rows, and is back")
		})
	}
}
