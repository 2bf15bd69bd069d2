// Package listing is the client of evenkeel: buckets of sorted keys of any size.
//
//	c, err := listing.New(s, listing.Options{})
//	err = c.CreateBucket(ctx, "photos")
//	b := c.Bucket("photos")
//	err = b.Put(ctx, []byte("2024/a.jpg"), []byte("…"))
//	page, err := b.List(ctx, listing.Query{Prefix: []byte("2024/"), Delimiter: []byte("/")})
//	for item, err := range b.All(ctx, listing.Query{}) { … }
//
// Every operation takes a lease on the bucket's map and finds the range of its keys. It acts as the phase of that range
// says, and checks its lease again before it answers (docs/protocol.md). So an answer is right or an error, also while
// ranges move: a page never has a hole, and a write of unknown outcome fails with ErrOutcomeUnknown.
//
// Keys are bytes, ordered bytewise. Keys and values that an operation returns are read-only. They share memory with the
// page or entry that they came with, and stay valid as long as they are referenced. Keys and values passed to an
// operation may be reused once the operation has returned.
package listing
