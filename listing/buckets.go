package listing

import (
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"time"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/store"
)

// BucketInfo is an entry of the list of buckets. Created is the time at which the bucket got its name, by the clock of
// the process that created the bucket.
type BucketInfo struct {
	Name    string
	ID      store.BucketID
	Created time.Time
}

// infoForm is the version of the encoding of an entry in the list of buckets. The value of an entry has infoBytes
// bytes:
//   - this version (1 byte),
//   - the id of the bucket (16 bytes), and
//   - the time at which the bucket got its name (8 bytes, big-endian Unix microseconds).
const (
	infoForm  = 1
	infoBytes = 25
)

// encodeInfo returns the value of a bucket's entry in the list of buckets. created is the time at which the bucket got
// its name, in Unix microseconds.
func encodeInfo(id store.BucketID, created int64) []byte {
	return binary.BigEndian.AppendUint64(append([]byte{infoForm}, id[:]...), uint64(created))
}

// decodeInfo decodes the value of a bucket's entry in the list of buckets. It returns the id of the bucket, and the
// time at which the bucket got its name (Unix microseconds). It fails with Corrupt if the value is damaged or of
// another version.
func decodeInfo(value []byte) (id store.BucketID, created int64, err error) {
	if len(value) != infoBytes || value[0] != infoForm {
		return id, 0, store.Errorf(
			store.Corrupt, "an entry of %d bytes in the list of buckets is not of form %d", len(value), infoForm,
		)
	}
	return store.BucketID(value[1:]), int64(binary.BigEndian.Uint64(value[17:])), nil
}

// list returns the handle of the bucket that holds the list of all buckets.
func (c *Client) list() *Bucket {
	return &Bucket{c: c, name: "list of buckets", id: door.ListOfBuckets}
}

// Buckets iterates over the buckets whose names begin with prefix and sort above after, in the order of their names. An
// empty prefix or after is no bound. The iteration ends with the first error, which is like an error of List.
func (c *Client) Buckets(ctx context.Context, prefix, after string) iter.Seq2[BucketInfo, error] {
	return func(yield func(BucketInfo, error) bool) {
		for item, err := range c.list().All(ctx, Query{Prefix: []byte(prefix), After: []byte(after)}) {
			if errors.Is(err, errNoMap) {
				return // no bucket was ever created, so there is no list
			}
			var info BucketInfo
			if err == nil {
				var micros int64
				info.Name = string(item.Key)
				info.ID, micros, err = decodeInfo(item.Value)
				info.Created = time.UnixMicro(micros)
			}
			if !yield(info, err) || err != nil {
				return
			}
		}
	}
}

// enlist puts the bucket id, under its name, on the list of buckets. The list is a bucket itself, which enlist creates
// before its first use. created is the time at which the bucket got its name, in Unix microseconds.
func (c *Client) enlist(ctx context.Context, name string, id store.BucketID, created int64) error {
	err := c.list().Put(ctx, []byte(name), encodeInfo(id, created))
	if !errors.Is(err, errNoMap) {
		return err
	}
	// Conflict: another call has created the list first, which is as good.
	if _, err := c.maps.Create(ctx, door.ListOfBuckets, nil); err != nil && !errors.Is(err, store.Conflict) {
		return err
	}
	return c.list().Put(ctx, []byte(name), encodeInfo(id, created))
}

// mend corrects the list of buckets if it lacks the bucket id under the given name, or has another bucket there. The
// parameter created is the time at which the bucket got its name, in Unix microseconds.
func (c *Client) mend(ctx context.Context, name string, id store.BucketID, created int64) error {
	if e, err := c.list().Get(ctx, []byte(name)); err == nil {
		if listed, _, err := decodeInfo(e.Value); err == nil && listed == id {
			return nil
		}
	}
	return c.enlist(ctx, name, id, created)
}

// delist takes the bucket id off the list of buckets. It does nothing if another bucket is listed under the name.
func (c *Client) delist(ctx context.Context, name string, id store.BucketID) error {
	// The entry is deleted at its own timestamp. So even if the deletion is applied late, it can't hide the entry of a
	// later bucket.
	row, err := c.list().getRow(ctx, []byte(name))
	if errors.Is(err, ErrNotFound) || errors.Is(err, errNoMap) {
		return nil
	}
	if err != nil {
		return err
	}
	value, live, err := store.EntryValue(row.Value)
	if err != nil || !live {
		return err
	}
	if listed, _, err := decodeInfo(value); err == nil && listed != id {
		return nil
	}
	return c.list().deleteAt(ctx, []byte(name), row.Timestamp)
}

// BucketID returns the id of the bucket with the given name, by a read of the newest value. It fails with
// ErrNoSuchBucket, InvalidArgument, Unavailable, Timeout or Corrupt.
func (c *Client) BucketID(ctx context.Context, name string) (store.BucketID, error) {
	err := checkName(name)
	var id store.BucketID
	if err == nil {
		id, err = c.lookup(ctx, name, store.Serial)
	}
	return id, wrap("look up bucket", name, err)
}
