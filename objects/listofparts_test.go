package objects_test

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/test/listtest"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// inManyParts uploads a version in n parts, with a checksum of each if summed, and lets the upload's rows go.
func inManyParts(t *testing.T, n int, summed bool) (p *place, id objects.ID, body string) {
	p, id, body = completed(t, n, summed)
	passes(4)(t, &stocked{place: p})
	return p, id, body
}

// completed uploads a version in n parts, with a checksum of each if summed.
func completed(t *testing.T, n int, summed bool) (p *place, id objects.ID, body string) {
	ctx, key := t.Context(), []byte("key")
	p = newPlace(t, memstore.New(), objects.Enabled)
	u, err := p.CreateUpload(ctx, key, objects.Meta{})
	require.NoError(t, err)
	var named []objects.Part
	for i := range n {
		text := fmt.Sprintf("part %d;", i+1)
		body += text
		m := objects.Meta{Size: -1}
		if summed {
			m.Sums = []objects.Pair{{Name: "other", Value: "x"}, {Name: "crc32", Value: crcOf(text)}}
		}
		part, err := p.PutPart(ctx, key, u.ID, i+1, strings.NewReader(text), m)
		require.NoError(t, err)
		named = append(named, objects.Part{Number: i + 1, ETag: part.ETag})
	}
	p.now = p.now.Add(time.Second)
	check := func(_ objects.Upload, parts []objects.Part) ([]objects.Pair, error) {
		if !summed {
			return nil, nil
		}
		return []objects.Pair{{Name: "crc32", Value: fmt.Sprintf("AAAAAA==-%d", len(parts))}}, nil
	}
	info, err := p.Complete(ctx, key, u.ID, named, check)
	require.NoError(t, err)
	return p, info.ID, body
}

// TestADamagedListCostsNoPart: a flipped bit in a list of parts names another blob in place of one. Neither a cleaner
// nor an audit's condemnation deletes the one that it no longer names; once the bit is right again, both go on.
func TestADamagedListCostsNoPart(t *testing.T) {
	ctx, key := t.Context(), []byte("key")
	p, id, body := completed(t, 600, true)
	names := slices.Sorted(maps.Keys(p.blobs.m))
	flip := func() { p.blobs.m[names[0]][17] ^= 1 } // the last byte of the first part's ID
	dir := names[1][:strings.LastIndexByte(names[1], '/')+1]
	surplus := dir + "00007-" + objects.ID{Stamp: 1}.String()
	p.blobs.m[surplus] = []byte("nobody lists it")

	flip()
	_, err := p.Get(ctx, key, id, objects.All)
	require.ErrorIs(t, err, objects.ErrBodyLost)
	cleaner := p.cleaner(t, care.CleanOptions{})
	for day := range 4 {
		_, err := cleanedOf(cleaner.Pass(ctx))
		require.Equal(t, day >= 1, errors.Is(err, store.Corrupt), "day %d: %v", day, err)
		p.now = p.now.Add(25 * time.Hour)
	}
	require.Len(t, p.blobs.m, 602)
	flip()
	passes(4)(t, &stocked{place: p})
	require.Equal(t, names, slices.Sorted(maps.Keys(p.blobs.m)), "the upload is freed")

	flip()
	var faults []care.Fault
	free := func(context.Context, int64) error { return nil }
	require.NoError(t, care.OfBucket(p.Bucket).Audit(ctx, "", free, func(a care.Audited) error {
		for _, f := range a.Findings {
			faults = append(faults, f.Fault)
			if f.Fault == care.Unlisted {
				require.Equal(t, names[1], f.Blob)
				require.ErrorIs(t, cleaner.Condemn(ctx, f), store.Corrupt)
			}
		}
		return nil
	}))
	require.ElementsMatch(t, []care.Fault{care.Unlisted, care.LostBody}, faults)
	flip()
	require.Equal(t, body, read(t, p.Bucket, key, objects.All))
}

func crcOf(text string) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(text))))
}

// TestVersionsInPartsAreWhole, whether their list is in the row or a blob of its own: what is lost, cut, damaged or too
// much of parts and lists is found by audits and told to readers; cleaners delete what is too much, and nothing else.
func TestVersionsInPartsAreWhole(t *testing.T) {
	free := func(context.Context, int64) error { return nil }
	for _, n := range []int{2, 600} {
		for _, summed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d parts, with checksums %v", n, summed), func(t *testing.T) {
				ctx, key := t.Context(), []byte("key")
				p, id, body := inManyParts(t, n, summed)
				require.Len(t, p.blobs.m, n+n/600)
				audit := func() (found []care.Finding) {
					t.Helper()
					require.NoError(t, care.OfBucket(p.Bucket).Audit(ctx, "", free, func(a care.Audited) error {
						found = append(found, a.Findings...)
						return nil
					}))
					return found
				}
				require.Empty(t, audit())
				require.Equal(t, body, read(t, p.Bucket, key, objects.All))
				require.Equal(t, body[3:11], read(t, p.Bucket, key, objects.Range{Offset: 3, N: 8}))
				info, parts, err := p.Parts(ctx, key, id)
				require.NoError(t, err)
				require.EqualValues(t, n, info.Parts)
				require.Len(t, parts, n)
				for i, part := range parts {
					text := fmt.Sprintf("part %d;", i+1)
					want := objects.Part{Number: i + 1, Size: int64(len(text)), Modified: part.Modified}
					if summed {
						want.Sums = []objects.Pair{{Name: "crc32", Value: crcOf(text)}}
					}
					require.Equal(t, want, part)
				}

				names := slices.Sorted(maps.Keys(p.blobs.m))
				list, first := "", names[0]
				if n == 600 {
					list, first = names[0], names[1]
				}
				harm := func(name string, harm func(b []byte) []byte, then func(found []care.Finding)) {
					t.Helper()
					was := p.blobs.m[name]
					if now := harm(slices.Clone(was)); now == nil {
						delete(p.blobs.m, name)
					} else {
						p.blobs.m[name] = now
					}
					found := audit()
					require.Len(t, found, 1)
					require.Equal(t, id.String(), found[0].Version)
					err := p.cleaner(t, care.CleanOptions{}).Condemn(ctx, found[0])
					require.ErrorIs(t, err, store.InvalidArgument)
					then(found)
					p.blobs.m[name] = was
				}
				fails := func(want error) {
					t.Helper()
					o, err := p.Get(ctx, key, id, objects.All)
					if err == nil {
						_, err = bodyIn(o, nil)
					}
					require.ErrorIs(t, err, want)
				}
				gone := func([]byte) []byte { return nil }
				shorter := func(b []byte) []byte { return b[1:] }
				flipped := func(b []byte) []byte { b[len(b)/2] ^= 4; return b }
				harm(first, gone, func(f []care.Finding) {
					require.Equal(t, care.LostBody, f[0].Fault)
					require.EqualValues(t, []int64{7, -1}, []int64{f[0].Want, f[0].Size})
					fails(objects.ErrBodyLost)
				})
				harm(first, shorter, func(f []care.Finding) {
					require.Equal(t, care.LostBody, f[0].Fault)
					require.EqualValues(t, []int64{7, 6}, []int64{f[0].Want, f[0].Size})
					fails(objects.ErrBodyLost)
				})
				harm(first, flipped, func(f []care.Finding) { require.Equal(t, care.DamagedBody, f[0].Fault) })
				if list != "" {
					harm(list, gone, func(f []care.Finding) {
						require.Equal(t, care.LostBody, f[0].Fault)
						require.Equal(t, list, f[0].Blob)
						fails(objects.ErrBodyLost)
						_, _, err := p.Parts(ctx, key, id)
						require.ErrorIs(t, err, objects.ErrBodyLost)
					})
					for _, bad := range []func(b []byte) []byte{
						shorter, func(b []byte) []byte { b[0] ^= 4; return b },
						func(b []byte) []byte { return b[:len(b)-1] },
						func(b []byte) []byte { return b[:len(b)/2] }, func(b []byte) []byte { return append(b, 0) },
					} {
						harm(list, bad, func(f []care.Finding) {
							require.Equal(t, care.LostBody, f[0].Fault)
							fails(store.Corrupt)
						})
					}
				}

				// Other parts, and another list, which nobody has.
				dir := first[:strings.LastIndexByte(first, '/')+1]
				other := objects.ID{Stamp: 1}.String()
				for _, name := range []string{"00000-", "00001-", "10000-"} {
					p.blobs.m[dir+name+other] = []byte("nobody lists it")
				}
				found := audit()
				require.Len(t, found, 3)
				cleaner := p.cleaner(t, care.CleanOptions{})
				for _, f := range found {
					require.Equal(t, care.Unlisted, f.Fault)
					require.EqualValues(t, []int64{-1, 15}, []int64{f.Want, f.Size})
					require.NoError(t, cleaner.Condemn(ctx, f))
				}
				for _, name := range names {
					f := care.Finding{Fault: care.Unlisted, Blob: name}
					require.NoError(t, cleaner.Condemn(ctx, f), "it is listed")
				}
				require.Equal(t, names, slices.Sorted(maps.Keys(p.blobs.m)))
				require.Empty(t, audit())

				copied, err := copyOf(ctx, p.Bucket, []byte("copy"), key, objects.Latest, nil)
				require.NoError(t, err)
				require.Equal(t, body, read(t, p.Bucket, []byte("copy"), objects.All))
				_, err = p.DeleteVersion(ctx, []byte("copy"), copied.ID)
				require.NoError(t, err)
				_, err = p.DeleteVersion(ctx, key, id)
				require.NoError(t, err)
				passes(3)(t, &stocked{place: p})
				require.Empty(t, p.blobs.m)
			})
		}
	}
}

// TestAuditsLookAgain at what does not fit: it may have changed since its row was read.
func TestAuditsLookAgain(t *testing.T) {
	type change func(t *testing.T, k *stocked)
	deleted := func(key string) change {
		return func(t *testing.T, k *stocked) {
			i, err := k.Head(t.Context(), []byte(key), objects.Latest)
			require.NoError(t, err)
			_, err = k.DeleteVersion(t.Context(), []byte(key), i.ID)
			require.NoError(t, err)
			passes(3)(t, k)
		}
	}
	for name, meanwhile := range map[string]change{
		"a blob goes":     deleted("k"),
		"parts go":        deleted("parts"),
		"a long key goes": func(t *testing.T, k *stocked) { deleted(string(k.long))(t, k) },
		"an upload ends":  func(t *testing.T, k *stocked) { abortAll(t, k); passes(3)(t, k) },
		"a version comes": func(t *testing.T, k *stocked) {
			body := strings.NewReader("the third, with a blob of its own")
			_, err := k.Put(t.Context(), []byte("k"), body, objects.Meta{Size: -1})
			require.NoError(t, err)
		},
		"all of it goes": func(t *testing.T, k *stocked) { clearAll(t, k); abortAll(t, k); passes(4)(t, k) },
		"a completion ends": func(t *testing.T, k *stocked) {
			_, err := k.Complete(t.Context(), k.open.Key, k.open.ID, k.named, nil)
			require.NoError(t, err)
			passes(4)(t, k)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for step := 1; ; step++ {
				k := stock(t, memstore.New(), objects.Enabled)
				k.now = k.now.Add(3 * time.Hour)
				calls := 0
				blobs := &hookedBlobs{k.blobs, func() {
					if calls++; calls == step {
						meanwhile(t, k)
					}
				}}
				other := k.reopen(t, &listtest.Hooked{Store: k.rows, Hook: blobs.hook}, blobs)
				free := func(context.Context, int64) error { return nil }
				require.NoError(t, care.OfBucket(other.Bucket).Audit(t.Context(), "", free, func(a care.Audited) error {
					// A listing of blobs that was begun before may show those that went since.
					for _, f := range a.Findings {
						require.Equal(t, care.Orphan, f.Fault, "step %d: %s", step, f)
						require.NotContains(t, k.blobs.m, f.Blob, "step %d: %s", step, f)
					}
					return nil
				}))
				if calls < step {
					require.Greater(t, step, 5)
					break
				}
			}
		})
	}
}

// hookedBlobs calls a function before each look at bodies.
type hookedBlobs struct {
	*blobsInMemory
	hook func()
}

func (h *hookedBlobs) List(ctx context.Context, prefix, after string, each func(string, int64) error) error {
	h.hook()
	return h.blobsInMemory.List(ctx, prefix, after, each)
}
