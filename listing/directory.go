package listing

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/evenkeel/evenkeel/internal/record"
	"github.com/evenkeel/evenkeel/store"
)

// MaxNameBytes is the length of the longest bucket name, in bytes. A name may have any bytes; S3 has stricter rules.
const MaxNameBytes = 255

// checkName returns InvalidArgument if a bucket name is empty or too long, otherwise nil.
func checkName(name string) error {
	if len(name) == 0 || len(name) > MaxNameBytes {
		return invalid("a bucket's name has 1 to %d bytes, not %d", MaxNameBytes, len(name))
	}
	return nil
}

// A nameRecord is the record of a bucket name in the directory, the registers that lead from names to buckets. The zero
// nameRecord stands for a name that was never used.
type nameRecord struct {
	version store.Version
	// id is the bucket that has the name. A zero id means that the name is free.
	id store.BucketID
	// created is the time at which the bucket got the name, in Unix microseconds.
	created int64
}

// nameForm is the version of the encoding of the record that says which bucket has a name. The record has the id of the
// bucket (16 bytes; zero if the name is free), and the time at which the bucket got the name (8 bytes, big-endian Unix
// microseconds).
const nameForm = 1

// free reports whether no bucket has the name of this record.
func (n nameRecord) free() bool { return n.id == store.BucketID{} }

// readName returns the record that says which bucket has the given name. A name without a record is free. The level l
// says how up to date the record is: at Serial it is the newest record.
func (c *Client) readName(ctx context.Context, name string, l store.Level) (nameRecord, error) {
	return c.readNameBy(func() (store.Record, error) { return c.regs.Read(ctx, store.Directory, []byte(name), l) })
}

// readNameBy returns the record that says which bucket has a name. It calls read to get the encoded record, and again,
// up to three times in all, if what was read is torn: a mixture of two records. A name without a record is free.
func (c *Client) readNameBy(read func() (store.Record, error)) (nameRecord, error) {
	n, err := record.ReadAs(read, decodeName)
	if errors.Is(err, store.NotFound) {
		return nameRecord{}, nil
	}
	return n, store.Wrap("look up the name", err)
}

// decodeName returns the decoded record of a bucket name, which says which bucket has the name. It fails with Corrupt
// if the record is damaged.
func decodeName(r store.Record) (nameRecord, error) {
	payload, err := record.Open(nameForm, r)
	if err == nil && len(payload) != 24 {
		err = store.Errorf(store.Corrupt, "%d bytes are not a name's record", len(payload))
	}
	if err != nil {
		return nameRecord{}, err
	}
	created := int64(binary.BigEndian.Uint64(payload[16:]))
	return nameRecord{version: r.Version, id: store.BucketID(payload), created: created}, nil
}

// swapName gives a bucket name to the bucket id, or frees the name if id is zero. It replaces the record of the name by
// a compare-and-swap; old is the present record. created is the time, in Unix microseconds, at which the bucket gets
// the name.
func (c *Client) swapName(ctx context.Context, name string, old nameRecord, id store.BucketID, created int64) error {
	payload := binary.BigEndian.AppendUint64(append([]byte(nil), id[:]...), uint64(created))
	next := record.Seal(nameForm, record.Next(old.version), payload)
	return c.regs.Swap(ctx, store.Directory, []byte(name), old.version, next)
}

// lookup returns the id of the bucket that has the given name. The level l says how up to date the answer is; at Serial
// it is the newest. lookup fails with ErrNoSuchBucket if the name is free.
func (c *Client) lookup(ctx context.Context, name string, l store.Level) (store.BucketID, error) {
	n, err := c.readName(ctx, name, l)
	if err == nil && n.free() {
		err = ErrNoSuchBucket
	}
	return n.id, err
}
