// Package objects stores objects with versions. The name and the metadata of each version are one row of a listing. A
// small body is in that row, too; a larger body is a blob in a separate store of blobs.
//
//	db, err := evenkeel.Open("evenkeel-data", evenkeel.Options{})
//	blobs, err := fileblobs.Open("evenkeel-data/bodies") // or s3blobs.Open
//	o, err := objects.New(db.Client(), blobs, objects.Options{})
//	err = o.CreateBucket(ctx, "photos")
//	err = o.SetStatus(ctx, "photos", objects.Enabled) // keeps older versions
//	b, settings, err := o.Open(ctx, "photos")
//	info, err := b.Put(ctx, []byte("2024/a.jpg"), body, objects.Meta{Size: -1, ContentType: "image/jpeg"})
//	object, err := b.Get(ctx, []byte("2024/a.jpg"), objects.Latest, objects.All)
//	defer object.Body.Close()
//	page, err := b.List(ctx, objects.Query{Prefix: []byte("2024/"), Delimiter: []byte("/")})
//
// The client is that of an evenkeel.DB, or another client of package listing. Objects.CreateBucket makes a bucket of
// objects. evenkeel.DB.CreateBucket makes a plain bucket, on which operations of this package fail with ErrPlain. Keys
// have 1 to 1,024 bytes. Bodies have at most 5 GiB (Options.MaxBytes), or more if they are uploaded in parts.
//
// # Cleaning
//
// After a put or a delete, versions and bodies that nobody sees any more stay stored. Rules of a Lifecycle only say
// what is to be hidden or deleted. The method [Bucket.Clean] does the deletions. The servers listd clean their buckets
// themselves. A program without listd calls Clean for each bucket of objects from time to time, for example once an
// hour:
//
//	deleted, err := b.Clean(ctx)
//
// Clean reads all rows of the bucket. It ignores the pauses of `rebalancer pause`: do not call it while a backup is
// taken. Without Clean nothing is lost, but the space of deleted bodies is not freed.
//
// # Versions
//
// Each version is one row, and no other record says which version is the newest. A version has a rank, which is its
// state: live, kept (a cleaner relies on the version), burned (deleted) or gone. Its row is written at another
// timestamp for each rank, and the rank only grows. So what readers see depends neither on the order in which writes
// arrive nor on the clocks of the cleaners (docs/objects.md has the protocol).
package objects
