package listing

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/record"
)

// MaxNameBytes is the length of the longest bucket name. Names are any bytes; S3 has
// stricter rules.
const MaxNameBytes = 255

func checkName(name string) error {
	if len(name) == 0 || len(name) > MaxNameBytes {
		return invalid("a bucket's name has 1 to %d bytes, not %d", MaxNameBytes, len(name))
	}
	return nil
}

// nameRecord is the directory's record of a bucket name. The zero nameRecord is that of a
// name that was never used.
type nameRecord struct {
	version store.Version
	// id is the bucket that has the name; zero: the name is free.
	id store.BucketID
	// created (Unix microseconds) is when the bucket got the name.
	created int64
}

// nameForm is the version of a name record's payload: id (16 bytes, zero: free),
// created (8, big-endian).
const nameForm = 1

func (n nameRecord) free() bool { return n.id == store.BucketID{} }

// readName reads the record of a name. Without a record the name is free.
func (c *Client) readName(ctx context.Context, name string, l store.Level) (nameRecord, error) {
	return c.readNameBy(func() (store.Record, error) { return c.regs.Read(ctx, store.Directory, []byte(name), l) })
}

func (c *Client) readNameBy(read func() (store.Record, error)) (nameRecord, error) {
	n, err := record.ReadAs(read, decodeName)
	if errors.Is(err, store.NotFound) {
		return nameRecord{}, nil
	}
	return n, store.Wrap("look up the name", err)
}

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

// swapName gives a name to a bucket, or frees it (zero id).
func (c *Client) swapName(ctx context.Context, name string, old nameRecord, id store.BucketID, created int64) error {
	payload := binary.BigEndian.AppendUint64(append([]byte(nil), id[:]...), uint64(created))
	next := record.Seal(nameForm, record.Next(old.version), payload)
	return c.regs.Swap(ctx, store.Directory, []byte(name), old.version, next)
}

// lookup returns the bucket with a name, as of the read level.
func (c *Client) lookup(ctx context.Context, name string, l store.Level) (store.BucketID, error) {
	n, err := c.readName(ctx, name, l)
	if err == nil && n.free() {
		err = ErrNoSuchBucket
	}
	return n.id, err
}
