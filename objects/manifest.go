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

	"github.com/evenkeel/evenkeel/internal/wire"
	"github.com/evenkeel/evenkeel/store"
)

// MaxParts is the most parts that an upload has, and the highest number of one.
const MaxParts = 10_000

// maxSumBytes is the longest checksum, that of SHA-256.
const maxSumBytes = 32

// piece is a part of a version that was uploaded in parts.
type piece struct {
	number int
	size   int64
	id     ID // of the part: it names the blob
	sum    []byte
}

// A manifest is the list of a version's parts, in order of their numbers: the count (uvarint), then of
// each the number and the size (uvarint) and its ID, then perhaps checksums, one of each part, all of one
// length: of the algorithm of the version's checksum. The record has it in place of the body; one that
// is longer than mostInline is a blob, and the record has the count and the ID of that.
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

// decodeManifest is the inverse of encodeManifest. The error is Corrupt, also where the parts are not
// of so many bytes together.
func decodeManifest(b []byte, size int64) ([]piece, error) {
	d := decoder{wire.Shortest{Of: b}}
	n := d.Uint()
	if n == 0 || n > MaxParts {
		return nil, damagedManifest(b)
	}
	pieces := make([]piece, 0, n)
	last, sum := uint64(0), int64(0)
	for range n {
		number, bytes := d.Uint(), d.Uint()
		if d.Bad || number <= last || number > MaxParts || bytes > uint64(math.MaxInt64-sum) || len(d.Rest()) < idBytes {
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

func damagedManifest(b []byte) error {
	return store.Errorf(store.Corrupt, "%d bytes are not the list of a version's parts", len(b))
}

// parts returns how many parts the version has; 0: it was put whole, or is burned.
func (r *record) parts() int {
	if r.where != inParts && r.where != inListedParts {
		return 0
	}
	n, _ := binary.Uvarint(r.body)
	return int(min(n, MaxParts)) //nolint:gosec // bounded
}

// checkParts reports whether the body of a record can be a manifest, as far as that costs nothing.
func (r *record) checkParts() bool {
	d := decoder{wire.Shortest{Of: r.body}}
	n := d.Uint()
	ok := !d.Bad && n > 0 && n <= MaxParts
	if r.where == inListedParts {
		_, valid := parseID(d.Rest())
		return ok && valid
	}
	return ok && len(r.body) <= mostInline && len(d.Rest()) >= int(n)*(idBytes+2) //nolint:gosec // bounded
}

// partName is the name of a part's blob; part 0 is the manifest. The parts of a version lie below the
// version, so that whoever deletes it finds them, whether or not rows tell of them.
func (b *Bucket) partName(key []byte, version ID, number int, id ID) string {
	return fmt.Sprintf("%s/%05d-%s", b.blobName(key, version), number, id)
}

// listName is the name of the blob that has the list of a version's parts; false: it has none.
func (b *Bucket) listName(key []byte, id ID, r *record) (string, bool) {
	if r.where != inListedParts || len(r.body) < idBytes {
		return "", false
	}
	at, ok := parseID(r.body[len(r.body)-idBytes:])
	return b.partName(key, id, 0, at), ok
}

// pieces returns the parts of a version, from its record or the blob of its manifest.
func (b *Bucket) pieces(ctx context.Context, key []byte, id ID, r *record) ([]piece, error) {
	if r.where != inListedParts {
		return decodeManifest(r.body, r.size)
	}
	name, ok := b.listName(key, id, r)
	if !ok {
		return nil, damagedManifest(r.body)
	}
	const most = MaxParts*(idBytes+12+maxSumBytes) + 4 // bytes
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

// Parts returns the parts of a version: their numbers, sizes, and checksums of the algorithm that its
// checksum has, if it has one. One that was put whole has none. It fails like Head.
func (b *Bucket) Parts(ctx context.Context, key []byte, id ID) (Info, []Part, error) {
	r, id, err := b.find(ctx, key, id)
	if err == nil && r.marker {
		err = ErrDeleted
	}
	if err != nil {
		return Info{}, nil, err
	}
	info := r.info(bytes.Clone(key), id)
	if info.Parts() == 0 {
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

// sumPieces takes the checksums of parts along of which the version's only one was made.
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

// inPieces is a body that is read from one part after the other. It opens a part when it is its turn.
type inPieces struct {
	ctx    context.Context
	blobs  Blobs
	name   func(piece) string
	pieces []piece // the next ones
	offset int64   // of the next one
	left   int64   // bytes, of all
	open   io.ReadCloser
}

// openPieces opens a range of a version in parts, and its first part at once.
func (b *Bucket) openPieces(ctx context.Context, key []byte, id ID, r *record, part Range) (io.ReadCloser, error) {
	pieces, err := b.pieces(ctx, key, id, r)
	if err != nil {
		return nil, err
	}
	key = bytes.Clone(key)
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

// next opens the next part.
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

// Close frees the part that is open.
func (in *inPieces) Close() error {
	if in.open == nil {
		return nil
	}
	err := in.open.Close()
	in.open, in.left = nil, 0
	return err
}

// inOrder reports whether parts are in ascending order of their numbers.
func inOrder(parts []NamedPart) bool {
	for i := 1; i < len(parts); i++ {
		if parts[i-1].Number >= parts[i].Number {
			return false
		}
	}
	return true
}
