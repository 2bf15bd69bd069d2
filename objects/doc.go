// Package objects stores objects with versions. The name and the metadata of each version are one row of a listing. A
// small body is in that row, too; a larger body is a blob in a separate store of blobs.
//
//	o := objects.New(client, blobs, objects.Options{})
//	b := o.Bucket("photos", objects.Versioned)
//	info, err := b.Put(ctx, []byte("2024/a.jpg"), body, objects.Meta{ContentType: "image/jpeg"})
//	object, err := b.Get(ctx, []byte("2024/a.jpg"), objects.Latest, objects.All)
//	page, err := b.List(ctx, objects.Query{Prefix: []byte("2024/"), Delimiter: []byte("/")})
//
// Each version is one row, and no other record says which version is the newest. A version has a rank: it is live,
// kept, burned (deleted) or gone. Its row is written at another timestamp for each rank, and the rank only grows. So
// what readers see depends neither on the order in which writes arrive nor on the clocks of the cleaners
// (docs/objects.md has the protocol).
package objects
