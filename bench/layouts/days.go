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

// hashID is the partition that bytes name.
func hashID(b []byte) store.PartitionID {
	var id uuid.UUID
	h1, h2 := murmur3.Sum128(b)
	binary.BigEndian.PutUint64(id[:8], h1)
	binary.BigEndian.PutUint64(id[8:], h2)
	return store.PartitionID(id)
}

// days is PRIMARY KEY ((account, day, n), id) WITH CLUSTERING ORDER BY (id DESC):
// a feed by Snowflake ids, newest first. The contract's rows ascend, so a row's key
// is the id's complement, which is what DESC does.
type days struct {
	*catalogue
	n int
}

// NewDays lays a feed out in a partition per day, with the days that exist in an
// auxiliary table, the latest first.
func NewDays(rows store.Rows, bucket store.BucketID) Layout { return NewDaysN(rows, bucket, 1) }

// NewDaysN lays it out in n partitions per day, by the id's hash. Who writes a lot
// needs more of them than who does not: n belongs to the account.
func NewDaysN(rows store.Rows, bucket store.BucketID, n int) Layout {
	return &days{newCatalogue(newTable(rows, bucket)), max(n, 1)}
}

// complement turns keys around: of bytes and back.
func complement(key []byte) []byte {
	out := make([]byte, len(key))
	for i := range key {
		out[i] = ^key[i]
	}
	return out
}

// day is the name of an id's day in the catalogue: its number, complemented.
func (d *days) day(id Snowflake) []byte {
	number := uint32(id.Time().Unix() / int64((24 * time.Hour).Seconds()))
	return binary.BigEndian.AppendUint32(nil, ^number)
}

// shard is the number of an id among the partitions of its day.
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

// List reads newest first, and nothing else: the day of After first, if it is
// given, then the days before it that the auxiliary table knows.
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

// Scan reads day by day, the newest first.
func (d *days) Scan(ctx context.Context, readers int, each func([]Entry) error) error {
	turned := func(entries []Entry) error {
		for i := range entries {
			entries[i].Key = complement(entries[i].Key)
		}
		return each(entries)
	}
	return d.scan(ctx, readers, turned, d.partitions)
}
