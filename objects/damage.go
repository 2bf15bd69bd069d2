package objects

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"hash"
	"hash/crc32"
	"io"
	"slices"
	"syscall"

	"github.com/evenkeel/evenkeel/store"
)

// checksums are the algorithms of checksums by which readers check a body, the fastest first. The value of the checksum
// is in Meta.Sums, as the writer has given it.
var checksums = []struct {
	name string
	make func() hash.Hash
}{
	{"crc32c", func() hash.Hash { return crc32.New(crc32.MakeTable(crc32.Castagnoli)) }},
	{"crc32", func() hash.Hash { return crc32.NewIEEE() }},
	{"sha1", sha1.New},
	{"sha256", sha256.New},
}

// fastSums is the number of algorithms in checksums that cost next to nothing to compute: CRC32 and CRC32C, for which
// processors have instructions. They are the first in the list.
const fastSums = 2

// digest returns a hash function for the whole body of a version, and the value that the hash must have at the end.
// Both are nil if no checksum of the body is known. If fast is true, only CRC32 and CRC32C are used, which cost next to
// nothing.
func (r *record) digest(fast bool) (hash.Hash, []byte) {
	for i, c := range checksums {
		if i == fastSums && (fast || len(r.md5) > 0) {
			break
		}
		at := slices.IndexFunc(r.sums, func(p Pair) bool { return p.Name == c.name })
		if at < 0 {
			continue
		}
		sum := c.make()
		// A checksum of the checksums of parts has another form.
		if want, err := base64.StdEncoding.DecodeString(r.sums[at].Value); err == nil && len(want) == sum.Size() {
			return sum, want
		}
	}
	if fast || len(r.md5) == 0 {
		return nil, nil
	}
	return md5.New(), r.md5
}

// verified is a reader of a whole body that compares the body with a checksum, whose right value is want. If the
// checksum is wrong, the reader returns errBodyDamaged in place of the last bytes.
type verified struct {
	io.ReadCloser
	sum  hash.Hash
	want []byte
	left int64
}

// verify returns a reader of the whole body that compares the body with its checksum. If the checksum is wrong, the
// reader fails with errBodyDamaged in place of the last bytes. Only CRC32 and CRC32C are used, which cost next to
// nothing. If no such checksum is known, verify returns body itself.
func (r *record) verify(body io.ReadCloser) io.ReadCloser {
	if sum, want := r.digest(true); sum != nil && r.size > 0 {
		return &verified{body, sum, want, r.size}
	}
	return body
}

func (v *verified) Read(p []byte) (int, error) {
	n, err := v.ReadCloser.Read(p)
	_, _ = v.sum.Write(p[:n])
	if v.left -= int64(n); n > 0 && v.left == 0 && !bytes.Equal(v.sum.Sum(nil), v.want) {
		return 0, errBodyDamaged
	}
	return n, err
}

// errNoSum means that a body can't be checked, because no checksum of it is known.
var errNoSum = errors.New("no checksum")

// checkBody reads the whole body of a version from the store of blobs, and compares the body with a checksum. For a
// body in parts without a checksum, it compares the MD5s of the parts with the ETag. Before each read checkBody calls
// pace with the number of bytes to be read. It fails with errNoSum if no checksum is known, or with errBodyDamaged,
// ErrBodyLost, an error of pace, or an error of the store of blobs.
func (b *Bucket) checkBody(
	ctx context.Context, key []byte, id ID, r *record, pace func(context.Context, int64) error,
) error {
	read := func(to io.Writer, name string, size int64) error {
		body, has, err := b.o.blobs.Open(ctx, name, 0, size)
		switch {
		case store.KindOf(err) == store.NotFound:
			return ErrBodyLost
		case err != nil:
			return store.Wrap("read the body", err)
		}
		defer body.Close()
		if has != size {
			return ErrBodyLost
		}
		in := &exactly{ReadCloser: body, left: size}
		for left := size; left > 0; {
			const piece = 1 << 20
			n := min(left, piece)
			if err := pace(ctx, n); err != nil {
				return err
			}
			_, err := io.CopyN(to, in, n)
			if errors.Is(err, syscall.EIO) { // the disk has an error, or the file system a wrong checksum
				return errBodyDamaged
			}
			if err != nil {
				return store.Wrap("read the body", err)
			}
			left -= n
		}
		return nil
	}
	sum, want := r.digest(false)
	if r.where == inBlob {
		if sum == nil {
			return errNoSum
		}
		if err := read(sum, b.blobName(key, r.bodies(id)), r.size); err != nil {
			return err
		}
		return compare(sum, want)
	}
	pieces, err := b.pieces(ctx, key, id, r)
	if err != nil {
		return err
	}
	all := md5.New() // of the MD5s of the parts: it is in the ETag
	for _, p := range pieces {
		one := md5.New()
		to := io.Writer(one)
		if sum != nil {
			to = sum
		}
		if err := read(to, b.partName(key, r.bodies(id), p.number, p.id), p.size); err != nil {
			return err
		}
		_, _ = all.Write(one.Sum(nil))
	}
	if sum != nil {
		return compare(sum, want)
	}
	if r.etag != etagOf(all.Sum(nil), len(pieces)) {
		return errBodyDamaged
	}
	return nil
}

// compare returns errBodyDamaged if the checksum that was computed, sum, is not the right one, want.
func compare(sum hash.Hash, want []byte) error {
	if !bytes.Equal(sum.Sum(nil), want) {
		return errBodyDamaged
	}
	return nil
}
