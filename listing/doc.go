// Package listing is the client of evenkeel: buckets of sorted keys of any
// size, over ranges that may be moving at any moment.
//
//	c, err := listing.NewEmbedded(s, listing.Options{})
//	err = c.CreateBucket(ctx, "photos")
//	b := c.Bucket("photos")
//	err = b.Put(ctx, []byte("2024/a.jpg"), []byte("…"))
//	page, err := b.List(ctx, listing.Query{Prefix: []byte("2024/"), Delimiter: []byte("/")})
//	for item, err := range b.All(ctx, listing.Query{}) { … }
//
// Every operation takes a lease on the bucket's map, finds the range of its
// keys, does what the range's phase says, and looks at its lease again before
// it answers (docs/protocol.md). So an answer is right or an error, also in the
// middle of a move: a page never has a hole, and a write that may or may not
// have happened is said to be so (ErrOutcomeUnknown).
//
// Keys are bytes, ordered bytewise. Keys and values that an operation returns
// are read-only and belong to the page or entry that they came with: they share
// its memory and stay valid as long as they are referred to. Keys and values
// handed to an operation may be used again once it has returned.
package listing
