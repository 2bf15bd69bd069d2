package listing

import (
	"cmp"
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// empty reports whether a closed bucket has no entries that prevent its deletion. It looks at the keys from the key
// `from` on. Entries that Remains.Gone accepts do not prevent the deletion. empty reads a quorum of every data centre.
// After an error, no such entry lies between `from` and the key next, so that the search can go on from there.
func (c *Client) empty(
	ctx context.Context, root *partmap.Root, from []byte, remains *remaining,
) (empty bool, next []byte, err error) {
	// Both partitions of a range that moves are merged, like for a page: a partition may hold rows that the bucket does
	// not list. Meanwhile only moves can change the bucket; they change the root, so the swap to deleted fails.
	errFound := errors.New("an entry")
	began := time.Now()
	pace := c.newPace()
	rows := timedRows{storekit.Everywhere(c.rows), pace}
	g, gctx := errgroup.WithContext(ctx)
	n := 0
	next = from
	for rg, rerr := range c.maps.Ranges(ctx, root, from) {
		if rerr != nil {
			err = rerr
			break
		}
		err = pace.do(gctx, g, func() error {
			found, err := hasEntry(gctx, rows, root.Bucket, &rg, remains)
			if err == nil && found {
				err = errFound
			}
			return err
		})
		if err != nil { // an earlier range has failed, or ctx has ended
			break
		}
		n++
		long := n >= 4*pace.bound() || time.Since(began) > lookTime
		if n >= lookRanges && long && len(rg.End) > 0 {
			if err = g.Wait(); err != nil {
				break
			}
			n, next = 0, rg.End
			if time.Since(began) > lookTime {
				err = errLookTime
				break
			}
			g, gctx = errgroup.WithContext(ctx)
		}
	}
	err = cmp.Or(g.Wait(), err)
	if errors.Is(err, errFound) {
		return false, nil, nil
	}
	return err == nil, next, err
}

// hasEntry reports whether the range rg of a closed bucket has an entry that prevents the deletion of the bucket.
// Entries that Remains.Gone accepts do not prevent it. While the range moves, the phase of the move decides whether the
// source, the destination or both are read; the rows of both are merged.
func hasEntry(
	ctx context.Context, rows store.Rows, id store.BucketID, rg *partmap.Range, remains *remaining,
) (bool, error) {
	rest := span{}
	for limit := minSlice; ; limit = min(2*limit, store.MaxPageRows) {
		got, err := readPhase(ctx, rows, id, rg, rest.within(rg), store.SliceOptions{Limit: limit})
		if err != nil {
			return false, err
		}
		for i := range got.rows {
			if taken, err := remains.take(ctx, &got.rows[i]); !taken || err != nil {
				return err == nil, err
			}
		}
		for i := range got.orphans { // see lookAgain
			row, found, err := rows.Get(ctx, store.Partition{Bucket: id, ID: rg.Partition}, got.orphans[i].Key)
			if err != nil {
				return false, err
			}
			if !found || row.Timestamp < got.orphans[i].Timestamp {
				continue
			}
			if taken, err := remains.take(ctx, &row); !taken || err != nil {
				return err == nil, err
			}
		}
		if !got.more {
			return false, nil
		}
		rest.passKey(got.last)
	}
}
