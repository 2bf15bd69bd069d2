// Package objects keeps objects with versions: their names and metadata as rows of a listing,
// small bodies beside them, larger ones as blobs.
//
//	o := objects.New(client, blobs, objects.Options{})
//	b := o.Bucket("photos", objects.Versioned)
//	info, err := b.Put(ctx, []byte("2024/a.jpg"), body, objects.Meta{ContentType: "image/jpeg"})
//	object, err := b.Get(ctx, []byte("2024/a.jpg"), objects.Latest, objects.All)
//	page, err := b.List(ctx, objects.Query{Prefix: []byte("2024/"), Delimiter: []byte("/")})
//
// Each version is one row; no pointer says which is the newest. A row is written at timestamps of
// its own, one for each rank, and its rank only grows. So neither the order of arrival nor the
// clocks of those who clean up decide what is seen (docs/objects.md has the protocol).
package objects
