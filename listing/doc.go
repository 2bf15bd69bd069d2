// Package listing is the client of evenkeel: buckets of sorted keys of any size.
//
//	c, err := listing.New(s, listing.Options{})
//	err = c.CreateBucket(ctx, "photos")
//	b := c.Bucket("photos")
//	err = b.Put(ctx, []byte("2024/a.jpg"), []byte("…"))
//	page, err := b.List(ctx, listing.Query{Prefix: []byte("2024/"), Delimiter: []byte("/")})
//	for item, err := range b.All(ctx, listing.Query{}) { … }
//
// New is for a store that only this process uses. Most programs call evenkeel.Open, which opens such a store, too, and
// keeps its partitions in shape, or evenkeel.OpenCassandra, for a keyspace that processes share. Both return a DB, with
// the same buckets; DB.Client returns its Client.
//
// Every operation takes a lease on the bucket's map and finds the range of its keys. It acts as the phase of that range
// says, and checks its lease again before it answers (docs/protocol.md). So an answer is right or an error, also while
// ranges move: a page never has a hole, and a write of unknown outcome fails with ErrOutcomeUnknown.
//
// Errors have a kind of package store and often a name, which errors.Is finds: ErrNoSuchBucket, ErrBucketExists,
// ErrBucketClosing, ErrNotEmpty, ErrNotFound, ErrOutcomeUnknown, ErrBadToken and ErrTimeUnknown. A PutBatch fails with
// a *BatchError, which has the outcome of each entry.
//
// Keys are bytes, ordered bytewise. A key has 1 to 65,535 bytes (store.MaxKeyBytes), a value at most 64 KiB
// (Options.MaxValueBytes), and the name of a bucket 1 to 255 bytes (MaxNameBytes).
//
// Keys and values that an operation returns are read-only. They share memory with the page or entry that they came
// with, and stay valid as long as they are referenced. Keys and values passed to an operation may be reused once the
// operation has returned.
package listing
