package objects

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/wire"
	"github.com/evenkeel/evenkeel/store"
)

// maxSumBytes is the length in bytes of the longest checksum of a part. SHA-256 has this length.
const maxSumBytes = 32

// piece is one part of a version that was uploaded in parts, as the version's manifest describes the part. The manifest
// is the list of all parts.
type piece struct {
	number int
	size   int64
	id     ID // of the part: it is in the name of the part's blob
	sum    []byte
}

// encodeManifest returns the encoded manifest of a version that was uploaded in parts. The manifest is the list of the
// parts in the order of their numbers:
//
//	count | number, size, ID of each part | perhaps a checksum of each part
//
// Count, number and size are uvarints. All checksums have the same length, and are by the algorithm of the version's
// own checksum. The manifest is stored in the version's row in place of a body. A manifest above mostInline (8 KiB) is
// a blob instead. The row then has the count, and the ID in the name of that blob.
func encodeManifest(pieces []piece) []byte {
	b := binary.AppendUvarint(make([]byte, 0, 4+len(pieces)*(idBytes+6)), uint64(len(pieces)))
	for _, p := range pieces {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(p.number)), uint64(p.size))
		b = p.id.append(b)
	}
	for _, p := range pieces {
		b = append(b, p.sum...)
	}
	return b
}

// decodeManifest returns the parts in the encoded manifest b, which is the list of the parts of a version. The
// parameter size is the length of the whole body in bytes. decodeManifest fails with Corrupt if b is not a manifest, or
// if the sizes of the parts do not add up to size.
func decodeManifest(b []byte, size int64) ([]piece, error) {
	d := decoder{wire.Shortest{Of: b}}
	n := d.Uint()
	if n == 0 || n > care.MaxParts {
		return nil, damagedManifest(b)
	}
	pieces := make([]piece, 0, n)
	last, sum := uint64(0), int64(0)
	for range n {
		number, bytes := d.Uint(), d.Uint()
		if d.Bad || number <= last || number > care.MaxParts || bytes > uint64(math.MaxInt64-sum) ||
			len(d.Rest()) < idBytes {
			return nil, damagedManifest(b)
		}
		id, ok := parseID(d.Rest()[:idBytes])
		if !ok {
			return nil, damagedManifest(b)
		}
		d.At += idBytes
		pieces = append(pieces, piece{number: int(number), size: int64(bytes), id: id})
		last, sum = number, sum+int64(bytes)
	}
	sums := d.Rest()
	long := len(sums) / len(pieces)
	if len(sums) != long*len(pieces) || long > maxSumBytes || sum != size {
		return nil, damagedManifest(b)
	}
	for i := range pieces {
		if long > 0 {
			pieces[i].sum, sums = sums[:long:long], sums[long:]
		}
	}
	return pieces, nil
}

// damagedManifest returns a Corrupt error, which says that b is not the list of a version's parts.
func damagedManifest(b []byte) error {
	return store.Errorf(store.Corrupt, "%d bytes are not the list of a version's parts", len(b))
}

// parts returns the number of parts in which the body of a version is stored. It returns 0 for a version that was put
// in one request, and for a deleted version.
func (r *record) parts() int {
	if r.where != inParts && r.where != inListedParts {
		return 0
	}
	n, _ := binary.Uvarint(r.body)
	return int(min(n, care.MaxParts)) //nolint:gosec // bounded
}

// checkParts reports whether the body of a record has the right form for a version in parts. The body is
//
//   - a list of the parts (the manifest), or
//   - the number of parts and the ID of a blob that has the list.
//
// Only the number of parts and the length of the body are checked.
func (r *record) checkParts() bool {
	d := decoder{wire.Shortest{Of: r.body}}
	n := d.Uint()
	ok := !d.Bad && n > 0 && n <= care.MaxParts
	if r.where == inListedParts {
		_, valid := parseID(d.Rest())
		return ok && valid
	}
	return ok && len(r.body) <= mostInline && len(d.Rest()) >= int(n)*(idBytes+2) //nolint:gosec // bounded
}

// partName returns the name of the blob that has one part of a version's body. number is the part's number, and id the
// part's ID. Number 0 stands for the manifest, which is the list of the parts. The name begins with the name of the
// version's blobs. So a listing of blobs finds all parts of a version, even if the version has no rows.
func (b *Bucket) partName(key []byte, version ID, number int, id ID) string {
	return fmt.Sprintf("%s/%05d-%s", b.blobName(key, version), number, id)
}

// listName returns the name of the blob with the list of a version's parts (the manifest). The second result is false
// if there is no such blob: the list is in the version's row, or the version has no parts.
func (b *Bucket) listName(key []byte, id ID, r *record) (string, bool) {
	if r.where != inListedParts || len(r.body) < idBytes {
		return "", false
	}
	at, ok := parseID(r.body[len(r.body)-idBytes:])
	return b.partName(key, r.bodies(id), 0, at), ok
}

// pieces returns the parts of a version with the record r. It reads the list of the parts, the manifest, from r or, if
// the list is too long for a row, from a blob. It fails with ErrBodyLost if that blob is missing or cut off, and with
// Corrupt if the list is damaged.
func (b *Bucket) pieces(ctx context.Context, key []byte, id ID, r *record) ([]piece, error) {
	if r.where != inListedParts {
		return decodeManifest(r.body, r.size)
	}
	name, ok := b.listName(key, id, r)
	if !ok {
		return nil, damagedManifest(r.body)
	}
	const most = care.MaxParts*(idBytes+12+maxSumBytes) + 4 // bytes
	body, size, err := b.o.blobs.Open(ctx, name, 0, most)
	switch {
	case store.KindOf(err) == store.NotFound:
		return nil, ErrBodyLost
	case err != nil:
		return nil, store.Wrap("read the list of parts", err)
	}
	defer body.Close()
	list, err := io.ReadAll(io.LimitReader(body, most))
	if err != nil {
		return nil, store.Wrap("read the list of parts", err)
	}
	if int64(len(list)) != size {
		return nil, ErrBodyLost
	}
	pieces, err := decodeManifest(list, r.size)
	if err == nil && (len(pieces) != r.parts() || r.summed != (len(pieces[0].sum) > 0)) {
		err = damagedManifest(list)
	}
	return pieces, err
}

// Parts returns the metadata of a version, and the parts in which the version was uploaded, with their numbers, sizes
// and times. A part also has a checksum if the client gave a checksum for the part by the same algorithm as for the
// version. A version that was put in one request has no parts. Parts fails like Head, and with ErrDeleted for a delete
// marker.
func (b *Bucket) Parts(ctx context.Context, key []byte, id ID) (Info, []Part, error) {
	r, id, err := b.find(ctx, key, id)
	if err == nil && r.marker {
		err = ErrDeleted
	}
	if err != nil {
		return Info{}, nil, err
	}
	info := r.info(bytes.Clone(key), id)
	if info.Parts == 0 {
		return info, nil, nil
	}
	pieces, err := b.pieces(ctx, key, id, r)
	if err != nil {
		return Info{}, nil, err
	}
	parts := make([]Part, len(pieces))
	for i, p := range pieces {
		parts[i] = Part{Number: p.number, Size: p.size, Modified: time.UnixMicro(int64(p.id.Stamp)).UTC()}
		if len(p.sum) > 0 && len(r.sums) > 0 {
			parts[i].Sums = []Pair{{r.sums[0].Name, base64.StdEncoding.EncodeToString(p.sum)}}
		}
	}
	return info, parts, nil
}

// sumPieces copies the checksums of the uploaded parts to the list of parts that is stored with the version, pieces,
// and sets r.summed. It does so only if the version has exactly one checksum and every part has one by the same
// algorithm.
func (r *record) sumPieces(pieces []piece, parts []Part) {
	if len(r.sums) != 1 {
		return
	}
	sums := make([][]byte, len(parts))
	for i := range parts {
		at := slices.IndexFunc(parts[i].Sums, func(p Pair) bool { return p.Name == r.sums[0].Name })
		if at < 0 {
			return
		}
		sum, err := base64.StdEncoding.DecodeString(parts[i].Sums[at].Value)
		if err != nil || len(sum) == 0 || len(sum) > maxSumBytes || len(sum) != len(sums[0]) && i > 0 {
			return
		}
		sums[i] = sum
	}
	for i, sum := range sums {
		pieces[i].sum = sum
	}
	r.summed = true
}

// inPieces is a reader of a body that is stored in parts. It reads one part after the other, and opens the blob of a
// part only when it gets to the part.
type inPieces struct {
	ctx    context.Context
	blobs  Blobs
	name   func(piece) string
	pieces []piece // the parts that are not yet opened
	offset int64   // in the next part, where reading begins
	left   int64   // bytes to read, of all parts
	open   io.ReadCloser
}

// openPieces returns a reader of a range of the body of a version that is stored in parts. The parameter part is the
// range, and r is the version's record. openPieces opens the first part of the range at once. So if that part is lost,
// the caller gets an error before the first byte.
func (b *Bucket) openPieces(ctx context.Context, key []byte, id ID, r *record, part Range) (io.ReadCloser, error) {
	pieces, err := b.pieces(ctx, key, id, r)
	if err != nil {
		return nil, err
	}
	key, id = bytes.Clone(key), r.bodies(id)
	in := &inPieces{
		ctx: ctx, blobs: b.o.blobs, pieces: pieces, offset: part.Offset, left: part.N,
		name: func(p piece) string { return b.partName(key, id, p.number, p.id) },
	}
	for in.left > 0 && in.offset >= in.pieces[0].size {
		in.offset -= in.pieces[0].size
		in.pieces = in.pieces[1:]
	}
	if in.left > 0 {
		err = in.next()
	}
	return in, err
}

// next opens the blob of the part that is read next. It fails with ErrBodyLost if the blob is missing or has another
// size.
func (in *inPieces) next() error {
	p := in.pieces[0]
	n := min(p.size-in.offset, in.left)
	body, size, err := in.blobs.Open(in.ctx, in.name(p), in.offset, n)
	switch {
	case store.KindOf(err) == store.NotFound:
		return ErrBodyLost
	case err != nil:
		return store.Wrap("read the body", err)
	case size != p.size:
		_ = body.Close()
		return ErrBodyLost
	}
	in.open = &exactly{ReadCloser: body, left: n}
	in.pieces, in.offset = in.pieces[1:], 0
	return nil
}

func (in *inPieces) Read(p []byte) (int, error) {
	for {
		if in.open == nil {
			if in.left == 0 {
				return 0, io.EOF
			}
			if in.pieces[0].size == 0 {
				in.pieces = in.pieces[1:]
				continue
			}
			if err := in.next(); err != nil {
				return 0, err
			}
		}
		n, err := in.open.Read(p)
		in.left -= int64(n)
		if err == io.EOF { //nolint:errorlint // what exactly returns
			err = in.open.Close()
			in.open = nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// Close closes the part of the body that is being read.
func (in *inPieces) Close() error {
	if in.open == nil {
		return nil
	}
	err := in.open.Close()
	in.open, in.left = nil, 0
	return err
}

// inOrder reports whether the numbers of the parts are ascending, without duplicates. A client must name the parts in
// this order to complete an upload.
func inOrder(parts []Part) bool {
	for i := 1; i < len(parts); i++ {
		if parts[i-1].Number >= parts[i].Number {
			return false
		}
	}
	return true
}
