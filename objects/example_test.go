package objects_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/objects/fileblobs"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// A bucket that keeps older versions. Here the rows are in memory; a program takes the Client of an evenkeel.DB.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "bodies")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	client, err := listing.New(memstore.New(), listing.Options{})
	if err != nil {
		log.Fatal(err)
	}
	blobs, err := fileblobs.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer blobs.Close()

	o, err := objects.New(client, blobs, objects.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := o.CreateBucket(ctx, "photos"); err != nil {
		log.Fatal(err)
	}
	if err := o.SetStatus(ctx, "photos", objects.Enabled); err != nil {
		log.Fatal(err)
	}
	b, _, err := o.Open(ctx, "photos") // puts and deletes by the status of the bucket
	if err != nil {
		log.Fatal(err)
	}
	key := []byte("2024/a.jpg")
	for _, text := range []string{"small", strings.Repeat("large", 10_000)} {
		meta := objects.Meta{Size: int64(len(text)), ContentType: "image/jpeg"}
		if _, err := b.Put(ctx, key, strings.NewReader(text), meta); err != nil {
			log.Fatal(err)
		}
	}

	object, err := b.Get(ctx, key, objects.Latest, objects.All)
	if err != nil {
		log.Fatal(err)
	}
	n, err := io.Copy(io.Discard, object.Body)
	if err != nil {
		log.Fatal(err)
	}
	if err := object.Body.Close(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(n, "bytes,", object.ContentType)

	versions, err := b.ListVersions(ctx, objects.Query{})
	if err != nil {
		log.Fatal(err)
	}
	for i := range versions.Items {
		v := &versions.Items[i]
		fmt.Printf("%s: %d bytes, latest: %v\n", v.Key, v.Size, v.Latest)
	}
	// Output:
	// 50000 bytes, image/jpeg
	// 2024/a.jpg: 50000 bytes, latest: true
	// 2024/a.jpg: 5 bytes, latest: false
}

// A program that stores objects without listd cleans each bucket of objects from time to time, once an hour for
// example.
func ExampleBucket_Clean() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "bodies")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	client, err := listing.New(memstore.New(), listing.Options{})
	if err != nil {
		log.Fatal(err)
	}
	blobs, err := fileblobs.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer blobs.Close()
	o, err := objects.New(client, blobs, objects.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := o.CreateBucket(ctx, "photos"); err != nil {
		log.Fatal(err)
	}

	for info, err := range client.Buckets(ctx, "", "") {
		if err != nil {
			log.Fatal(err)
		}
		b, _, err := o.Open(ctx, info.Name)
		if errors.Is(err, objects.ErrPlain) || errors.Is(err, listing.ErrNoSuchBucket) {
			continue // it has plain entries, or was deleted meanwhile
		}
		if err != nil {
			log.Fatal(err)
		}
		deleted, err := b.Clean(ctx)
		fmt.Println(info.Name, "versions deleted:", deleted, err)
	}
	// Output: photos versions deleted: 0 <nil>
}
