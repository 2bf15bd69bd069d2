package objects_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// TestDeletesOfMoreThanAPage: with a null version go all older ones, and with a version all that have expired.
func TestDeletesOfMoreThanAPage(t *testing.T) {
	for _, c := range []struct {
		v    objects.Status
		many int
	}{{objects.Never, 250}, {objects.Enabled, 1100}} {
		p, ctx := newPlace(t, memstore.New(), c.v), t.Context()
		var newest objects.ID
		for range c.many {
			info, err := p.Put(ctx, []byte("k"), strings.NewReader("x"), objects.Meta{Size: 1})
			require.NoError(t, err)
			newest = info.ID
		}
		if c.v == objects.Enabled {
			p.rule(t, objects.Rule{NoncurrentDays: 1})
			p.now = p.now.Add(2 * aDay)
		}
		_, err := p.DeleteVersion(ctx, []byte("k"), newest)
		require.NoError(t, err)
		require.Empty(t, p.left(t))
	}
}

// TestAClaimIsFoundBehindAPageOfOthers: a completion that broke off behind its claim is ended with the version that the
// claim names, however many claims for the same parts are before it that a newer program has written.
func TestAClaimIsFoundBehindAPageOfOthers(t *testing.T) {
	ctx, k := t.Context(), stock(t, memstore.New(), objects.Enabled)
	_, err := k.reopen(t, &breaking{k.rows, 1}, k.blobs).Complete(ctx, k.open.Key, k.open.ID, k.named, nil)
	require.Error(t, err)
	k.now = k.now.Add(time.Second)
	rows := k.c.Bucket("objects")
	page, err := rows.List(ctx, listing.Query{Prefix: []byte("\x00\x01up\x00\x01")})
	require.NoError(t, err)
	at := slices.IndexFunc(page.Items, func(i listing.Item) bool { return len(i.Value) == 1+8+14 })
	require.Positive(t, at, "the claim, and the version that it wants")
	claim := page.Items[at]
	for i := range 250 {
		other := bytes.Clone(claim.Key)
		own := len(other) - 14 // whose claim it is
		other[own], other[own+1] = 0x80, byte(i)
		require.NoError(t, rows.Put(ctx, other, []byte{9}))
	}
	info, err := k.Complete(ctx, k.open.Key, k.open.ID, k.named, nil)
	require.NoError(t, err)
	require.Equal(t, hex.EncodeToString(claim.Value[9:]), info.ID.String())
}

// TestACleanerStopsWhereSettingsAreNotKnown any more, before the step that it was about to take, and says why.
func TestACleanerStopsWhereSettingsAreNotKnown(t *testing.T) {
	all := door.Remains{
		Gone:    func(_, _ []byte) bool { return true },
		Discard: func(context.Context, []byte, []byte) error { return nil },
	}
	for name, c := range map[string]struct {
		change func(ctx context.Context, k *stocked) error
		why    error
	}{
		"a newer program has changed them": {func(ctx context.Context, k *stocked) error {
			newer := func([]byte) ([]byte, error) { return []byte("o\x09\x00"), nil }
			return door.Bucket(k.c.Bucket("objects")).ChangeSettings(ctx, newer)
		}, store.Unavailable},
		"the bucket is deleted": {func(ctx context.Context, k *stocked) error {
			return door.Client(k.c).DeleteBut(ctx, "objects", all)
		}, listing.ErrNoSuchBucket},
	} {
		for _, of := range []string{"versions", "uploads"} {
			ctx, k := t.Context(), stock(t, memstore.New(), objects.Never)
			if of == "uploads" {
				clearAll(t, k)
				passes(4)(t, k)
				u, err := k.CreateUpload(ctx, []byte("k"), objects.Meta{})
				require.NoError(t, err)
				require.NoError(t, k.Abort(ctx, u.Key, u.ID))
			}
			deeds := 0
			cleaner := k.cleaner(t, care.CleanOptions{Before: func(care.Deed) bool {
				if deeds++; deeds == 1 {
					require.NoError(t, c.change(ctx, k))
				}
				return true
			}})
			done, err := cleaner.Pass(ctx)
			require.True(t, err == nil || errors.Is(err, c.why), "%s: %v", name, err)
			require.Positive(t, deeds, name)
			require.ErrorIs(t, done.FirstFailure, c.why, "%s, %s", name, of)
			require.Zero(t, done.Superseded+done.Proven+done.Ended, name)
			_, err = cleaner.Pass(ctx)
			require.ErrorIs(t, err, c.why, name)
		}
	}
}

// TestDeedsNameTheVersionOfAnUpload: the one that it became, or would have become.
func TestDeedsNameTheVersionOfAnUpload(t *testing.T) {
	k := stock(t, memstore.New(), objects.Enabled)
	abortAll(t, k)
	deeds := map[string]string{}
	cleaner := k.cleaner(t, care.CleanOptions{Before: func(d care.Deed) bool {
		deeds[d.Do+" "+string(d.Key)] = d.Version
		return true
	}})
	for range 4 {
		_, err := cleanedOf(cleaner.Pass(t.Context()))
		require.NoError(t, err)
		k.now = k.now.Add(25 * time.Hour)
	}
	require.Equal(t, map[string]string{
		"settle parts": k.done.ID.Version().String(), // what it became is looked up once the end is acknowledged
		"free parts":   k.parted.String(),
		"settle up":    k.open.ID.Version().String(),
		"condemn up":   k.open.ID.Version().String(),
		"finish up":    k.open.ID.Version().String(),
	}, deeds)
}
