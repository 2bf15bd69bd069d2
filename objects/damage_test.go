package objects_test

import (
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// A bit of a body flips in the store of blobs: whoever reads the whole gets an error before its last bytes, where the
// version has a fast checksum; audits that read bodies find it.
func TestAFlippedBitIsFound(t *testing.T) {
	ctx, text := t.Context(), strings.Repeat("a body that is not in the row ", 100)
	crc := base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(text))))
	sum := md5.Sum([]byte(text))
	for name, c := range map[string]struct {
		meta  objects.Meta
		parts int
		reads error // of the whole
	}{
		"with an MD5":                     {meta: objects.Meta{Size: -1}},
		"with an MD5 that the client has": {meta: objects.Meta{Size: -1, MD5: sum[:]}},
		"with a CRC32": {
			meta:  objects.Meta{Size: -1, Sums: []objects.Pair{{Name: "crc32", Value: crc}}},
			reads: objects.ErrBodyDamaged,
		},
		"in parts": {parts: 2},
	} {
		t.Run(name, func(t *testing.T) {
			p, key := newPlace(t, memstore.New(), objects.Never), []byte("key")
			if c.parts == 0 {
				_, err := p.Put(ctx, key, strings.NewReader(text), c.meta)
				require.NoError(t, err)
			} else {
				u, err := p.CreateUpload(ctx, key, objects.Meta{})
				require.NoError(t, err)
				var named []objects.Part
				for i := range c.parts {
					named = append(named, part(t, p.Bucket, u, i+1, text))
				}
				_, err = p.Complete(ctx, key, u.ID, named, nil)
				require.NoError(t, err)
			}
			audit := func() (faults []care.Fault, checked int64) {
				free := func(context.Context, int64) error { return nil }
				require.NoError(t, care.OfBucket(p.Bucket).Audit(ctx, "", free, func(a care.Audited) error {
					checked += a.Checked
					for _, f := range a.Findings {
						faults = append(faults, f.Fault)
					}
					return nil
				}))
				return faults, checked
			}
			faults, checked := audit()
			require.Empty(t, faults)
			require.EqualValues(t, 1, checked)
			var flipped string
			for name := range p.blobs.m {
				if strings.HasPrefix(name, "objects/DDIN") { // the key in Base32
					flipped = name
				}
			}
			require.NotEmpty(t, flipped)
			p.blobs.m[flipped][77] ^= 4
			o, err := p.Get(ctx, key, objects.Latest, objects.All)
			require.NoError(t, err)
			body, err := io.ReadAll(o.Body)
			require.ErrorIs(t, err, c.reads)
			if c.reads != nil {
				require.Less(t, len(body), len(text), "it breaks off before the last bytes")
			}
			faults, _ = audit()
			require.Equal(t, []care.Fault{care.DamagedBody}, faults)
		})
	}
}
