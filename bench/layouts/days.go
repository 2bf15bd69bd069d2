package layouts

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/twmb/murmur3"

	"github.com/evenkeel/evenkeel/store"
)

// hashID returns the id of a partition, computed as the hash of b. So equal bytes name the same partition.
func hashID(b []byte) store.PartitionID {
	var id uuid.UUID
	h1, h2 := murmur3.Sum128(b)
	binary.BigEndian.PutUint64(id[:8], h1)
	binary.BigEndian.PutUint64(id[8:], h2)
	return store.PartitionID(id)
}

// days is a layout for feeds whose keys are Snowflake ids, listed newest first: PRIMARY KEY ((account, day, n), id)
// WITH CLUSTERING ORDER BY (id DESC). Rows of a store are always in ascending order. So the key of a row is the bitwise
// complement of the id, which has the same effect as DESC.
type days struct {
	*catalogue
	n int
}

// NewDays returns a layout for a feed with one partition per day. An auxiliary table lists the days that have entries,
// the latest first, so that a page does not read empty days.
func NewDays(rows store.Rows, bucket store.BucketID) Layout { return NewDaysN(rows, bucket, 1) }

// NewDaysN returns a layout for a feed with n partitions per day. The hash of an id says in which of the n partitions
// the entry lies. An account that writes much needs a larger n than one that writes little.
func NewDaysN(rows store.Rows, bucket store.BucketID, n int) Layout {
	return &days{newCatalogue(newTable(rows, bucket)), max(n, 1)}
}

// complement returns key with all bits inverted, which reverses the order of keys. complement of the result is key
// again.
func complement(key []byte) []byte {
	out := make([]byte, len(key))
	for i := range key {
		out[i] = ^key[i]
	}
	return out
}

// day returns the name of an id's day in the auxiliary table of days: the number of the day, with all bits inverted, so
// that the latest day comes first.
func (d *days) day(id Snowflake) []byte {
	number := uint32(id.Time().Unix() / int64((24 * time.Hour).Seconds()))
	return binary.BigEndian.AppendUint32(nil, ^number)
}

// shard returns the number, from 0 to n-1, of the partition of its day in which a key lies.
func (d *days) shard(key []byte) uint32 {
	if d.n == 1 {
		return 0
	}
	return uint32(murmur3.Sum32(key) % uint32(d.n))
}

func (d *days) partition(day []byte, shard uint32) store.PartitionID {
	var id uuid.UUID
	copy(id[8:12], day)
	binary.BigEndian.PutUint32(id[12:], shard+1)
	return store.PartitionID(id)
}

func (d *days) partitions(day []byte) []store.PartitionID {
	ids := make([]store.PartitionID, d.n)
	for i := range ids {
		ids[i] = d.partition(day, uint32(i))
	}
	return ids
}

func (d *days) Put(ctx context.Context, key, value []byte) error {
	id, err := SnowflakeOf(key)
	if err != nil {
		return err
	}
	day := d.day(id)
	if err := d.add(ctx, day); err != nil {
		return err
	}
	return d.put(ctx, d.partition(day, d.shard(key)), complement(key), value)
}

func (d *days) Load(ctx context.Context, entries []Entry) error {
	turned := make([]Entry, len(entries))
	for i, e := range entries {
		id, err := SnowflakeOf(e.Key)
		if err == nil {
			err = d.add(ctx, d.day(id))
		}
		if err != nil {
			return err
		}
		turned[i] = Entry{Key: complement(e.Key), Value: e.Value}
	}
	return d.load(ctx, turned, func(turned []byte) store.PartitionID {
		key := complement(turned)
		id, _ := SnowflakeOf(key) // it was one above
		return d.partition(d.day(id), d.shard(key))
	})
}

func (d *days) Get(ctx context.Context, key []byte) ([]byte, bool, error) {
	id, err := SnowflakeOf(key)
	if err != nil {
		return nil, false, err
	}
	return d.get(ctx, d.partition(d.day(id), d.shard(key)), complement(key))
}

func (d *days) Partition(_ context.Context, key []byte) (string, error) {
	id, err := SnowflakeOf(key)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s/%d", id.Time().Format(time.DateOnly), d.shard(key)), nil
}

// List returns a page of entries, the newest first. It reads the day of q.After first, if q.After is given, and then
// earlier days that the auxiliary table lists. Queries in ascending order, or with a prefix, fail with ErrCannot.
func (d *days) List(ctx context.Context, q Query) ([]Item, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	if !q.Reverse || len(q.Prefix) > 0 {
		return nil, cannot("list anything but the newest first")
	}
	var b store.Bounds
	var first []byte
	if len(q.After) > 0 {
		id, err := SnowflakeOf(q.After)
		if err != nil {
			return nil, err
		}
		b, first = store.Bounds{Start: complement(q.After), StartExclusive: true}, d.day(id)
	}
	rows, err := d.walk(ctx, first, store.Bounds{Start: first}, q.limit(), false,
		func(ctx context.Context, day []byte, limit int) ([]store.Row, error) {
			within := b
			if !bytes.Equal(day, first) {
				within = store.Bounds{}
			}
			if d.n == 1 {
				page, err := d.slice(ctx, d.partition(day, 0), within, limit, false)
				return page.Rows, err
			}
			return d.mergeLazily(ctx, d.partitions(day), within, limit, false, walkOnce)
		})
	items := itemsOf(rows)
	for i := range items {
		items[i].Key = complement(items[i].Key)
	}
	return items, err
}

// Scan reads all entries day by day, the newest day first, and calls `each` with every page. readers is the number of
// partitions that are read at the same time.
func (d *days) Scan(ctx context.Context, readers int, each func([]Entry) error) error {
	turned := func(entries []Entry) error {
		for i := range entries {
			entries[i].Key = complement(entries[i].Key)
		}
		return each(entries)
	}
	return d.scan(ctx, readers, turned, d.partitions)
}
