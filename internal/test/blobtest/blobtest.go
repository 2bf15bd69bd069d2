// Package blobtest tests whether a store of blobs does what objects.Blobs promises. Only tests import it.
package blobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
)

// Run tests a store of blobs, i.e. an implementation of objects.Blobs. Each subtest calls empty, which returns a store
// without blobs.
func Run(t *testing.T, empty func(t *testing.T) objects.Blobs) {
	for name, check := range map[string]func(*testing.T, objects.Blobs){
		"blobs are what was written":           written,
		"a blob that is not there":             absent,
		"nothing is left of a body that fails": nothingLeft,
		"listings are in order":                InOrder,
		"many at once":                         atOnce,
		"one store of rows claims them":        claimed,
		"what names begin with is listed":      tops,
	} {
		t.Run(name, func(t *testing.T) { check(t, empty(t)) })
	}
}

// random returns n random bytes from the source r.
func random(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// piece reads n bytes of the named blob from offset on. It returns these bytes, and the size of the whole blob.
func piece(ctx context.Context, s objects.Blobs, name string, offset, n int64) ([]byte, int64, error) {
	body, size, err := s.Open(ctx, name, offset, n)
	if err != nil {
		return nil, 0, err
	}
	defer body.Close()
	b, err := io.ReadAll(body)
	return b, size, err
}

func names(t *testing.T, s objects.Blobs, prefix, after string) (all []string) {
	t.Helper()
	require.NoError(t, s.List(t.Context(), prefix, after, func(name string, _ int64) error {
		all = append(all, name)
		return nil
	}))
	return all
}

// large is a length of a body in bytes, above the 5 MiB at which a store may split a body.
const large = 5<<20 + 4711

func written(t *testing.T, s objects.Blobs) {
	ctx, r := t.Context(), seed.New(t)
	for _, size := range []int64{0, 1, 2, 4097, 64 << 10, large} {
		all := random(r, int(size))
		for _, told := range []int64{size, -1} {
			name := fmt.Sprintf("a-b.c/AAA/B0-/%d/%d", size, told+1)
			require.NoError(t, s.Create(ctx, name, bytes.NewReader(all), told))
			for _, at := range [][2]int64{
				{0, size}, {0, 0}, {0, 1}, {size / 2, size - size/2}, {size / 3, size / 3}, {size - 1, 1},
			} {
				if at[0] < 0 || at[0]+at[1] > size {
					continue
				}
				got, n, err := piece(ctx, s, name, at[0], at[1])
				require.NoError(t, err)
				require.Equal(t, size, n)
				require.True(t, bytes.Equal(all[at[0]:at[0]+at[1]], got), "%d bytes from %d on of %d", at[1], at[0], size)
			}
		}
	}
}

func absent(t *testing.T, s objects.Blobs) {
	ctx := t.Context()
	require.NoError(t, s.Create(ctx, "b/AAA/x", strings.NewReader("hello"), 5))
	for _, name := range []string{"b/AAA", "b/AAA/y", "b/AA", "c"} {
		for n := range int64(2) {
			_, _, err := piece(ctx, s, name, 0, n)
			require.ErrorIs(t, err, store.NotFound, name)
		}
	}
	for range 2 {
		require.NoError(t, s.Delete(ctx, "b/AAA/x"))
		_, _, err := piece(ctx, s, "b/AAA/x", 0, 1)
		require.ErrorIs(t, err, store.NotFound)
	}
	// One that is shorter than somebody thinks has its size.
	require.NoError(t, s.Create(ctx, "b/AAA/short", strings.NewReader("hello"), 5))
	body, size, err := s.Open(ctx, "b/AAA/short", 7, 2)
	require.NoError(t, err)
	require.NoError(t, body.Close())
	require.Equal(t, int64(5), size)
}

// failing is a reader of a body that breaks off. left is the number of bytes that the reader still returns before it
// fails with err.
type failing struct {
	left int64
	err  error
}

func (f *failing) Read(p []byte) (int, error) {
	if f.left == 0 {
		return 0, f.err
	}
	n := min(f.left, int64(len(p)), 16<<10)
	f.left -= n
	return int(n), nil
}

func nothingLeft(t *testing.T, s objects.Blobs) {
	hungUp := errors.New("unexpected EOF: the client has hung up")
	i := 0
	for size, comes := range map[int64][]int64{
		1: {0, 1}, 100_000: {0, 1, 50_000, 99_999, 100_000}, large: {large - 1, large},
	} {
		for _, come := range comes {
			for _, told := range []int64{size, -1} {
				i++
				err := s.Create(t.Context(), fmt.Sprintf("b/%03d", i), &failing{come, hungUp}, told)
				require.ErrorIs(t, err, hungUp, "%d bytes of %d", come, told)
				ctx, cancel := context.WithCancel(t.Context())
				err = s.Create(ctx, fmt.Sprintf("b/%03d-", i), io.MultiReader(
					&failing{come, io.EOF}, readerFunc(func([]byte) (int, error) { cancel(); return 0, hungUp })), told)
				cancel()
				require.Error(t, err, "%d bytes of %d", come, told)
			}
		}
	}
	require.Empty(t, names(t, s, "", ""))
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// InOrder tests that the store s lists blobs in bytewise order of their names, with various prefixes and start
// positions.
func InOrder(t *testing.T, s objects.Blobs) {
	ctx := t.Context()
	all := []string{
		"b/A.1", "b/A-/1", "b/A-/1-", "b/A-/2/00001-x", "b/A-/2/00002-x", "b/A-/3", "b/A/B-/1", "b/A0-/1", "b/A=/1",
		"b/AA-/1", "b/AA.x/1", "c/1", "b-/x", "b.c/x", "bb/x", "x",
	}
	sizes := map[string]int64{}
	for i, name := range all {
		sizes[name] = int64(i)
		require.NoError(t, s.Create(ctx, name, strings.NewReader(strings.Repeat("x", i)), int64(i)))
	}
	slices.Sort(all)
	for _, prefix := range []string{"", "b", "b/", "b/A", "b/A-/", "b/A-/2/", "b/A-/2/00001", "none/", "z"} {
		for _, after := range append([]string{"", "b/A-/2", "b/A-/2/", "b/B", "zz"}, all...) {
			var got, want []string
			require.NoError(t, s.List(ctx, prefix, after, func(name string, size int64) error {
				require.Equal(t, sizes[name], size, name)
				got = append(got, name)
				return nil
			}))
			for _, name := range all {
				if strings.HasPrefix(name, prefix) && name > after {
					want = append(want, name)
				}
			}
			require.Equal(t, want, got, "prefix %q after %q", prefix, after)
		}
	}
	enough, n := errors.New("enough"), 0
	require.ErrorIs(t, s.List(ctx, "", "", func(string, int64) error { n++; return enough }), enough)
	require.Equal(t, 1, n)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, s.List(ended, "", "", func(string, int64) error { return nil }), context.Canceled)
}

func atOnce(t *testing.T, s objects.Blobs) {
	r := seed.New(t)
	const blobs = 64
	var bodies [blobs][]byte
	for i := range bodies {
		bodies[i] = random(r, 10_000*(i%7))
	}
	g, ctx := errgroup.WithContext(t.Context())
	for i, body := range bodies {
		g.Go(func() error {
			name, told := fmt.Sprintf("b/%03d", i), int64(len(body))
			if i%5 == 0 {
				told = -1
			}
			if err := s.Create(ctx, name, bytes.NewReader(body), told); err != nil {
				return err
			}
			got, _, err := piece(ctx, s, name, 0, int64(len(body)))
			if err == nil && !bytes.Equal(body, got) {
				err = fmt.Errorf("%s is another one", name)
			}
			if err == nil && i%2 == 0 {
				err = s.Delete(ctx, name)
			}
			return err
		})
	}
	require.NoError(t, g.Wait())
	require.Len(t, names(t, s, "b/", ""), blobs/2)
}

// tops tests the optional methods of the interface objects.Tops. It skips a store that does not implement the
// interface.
func tops(t *testing.T, s objects.Blobs) {
	of, ok := s.(objects.Tops)
	if !ok {
		t.Skip("it does not list what names begin with")
	}
	ctx := t.Context()
	for _, name := range []string{"b/A-/1", "b/B-/1/00001-x", "b.c/x", "=AA/A/B-/1", "_owner"} {
		require.NoError(t, s.Create(ctx, name, strings.NewReader("x"), 1))
	}
	var got []string
	add := func(top string) error { got = append(got, top); return nil }
	require.NoError(t, of.Tops(ctx, add))
	require.ElementsMatch(t, []string{"=AA", "b", "b.c"}, got)
	enough := errors.New("enough")
	require.ErrorIs(t, of.Tops(ctx, func(string) error { return enough }), enough)
	at, err := of.Written(ctx, "b/B-/1/00001-x")
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), at, time.Hour)
	_, err = of.Written(ctx, "b/B-/1/00002-x")
	require.ErrorIs(t, err, store.NotFound)
}

func claimed(t *testing.T, s objects.Blobs) {
	ctx := t.Context()
	owner, err := care.Owner(ctx, s)
	require.NoError(t, err)
	require.Empty(t, owner)
	for range 2 {
		require.NoError(t, care.Claim(ctx, s, "0123abcd"))
		owner, err = care.Owner(ctx, s)
		require.NoError(t, err)
		require.Equal(t, "0123abcd", owner)
	}
	err = care.Claim(ctx, s, "4567")
	require.ErrorIs(t, err, care.ErrOthersBodies)
	require.ErrorIs(t, err, store.InvalidArgument)
	mark := names(t, s, "", "")
	require.Len(t, mark, 1)
	require.ErrorContains(t, err, "(0123abcd; this one is 4567)")
	require.ErrorContains(t, err, "delete "+mark[0]+" there")
	require.NoError(t, s.Delete(ctx, mark[0]))
	require.NoError(t, care.Claim(ctx, s, "4567"))

	require.NoError(t, s.Delete(ctx, mark[0]))
	require.NoError(t, s.Create(ctx, mark[0], strings.NewReader("nothing like an owner"), 21))
	require.ErrorIs(t, care.Claim(ctx, s, "4567"), store.Corrupt)
}
