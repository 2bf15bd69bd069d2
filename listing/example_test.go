package listing_test

import (
	"context"
	"fmt"
	"log"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// photos is a bucket with a few keys. memstore keeps them in memory; a service
// opens pebblestore or cassandrastore in its place.
func photos(ctx context.Context) *listing.Bucket {
	c, err := listing.New(memstore.New(), listing.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.CreateBucket(ctx, "photos"); err != nil {
		log.Fatal(err)
	}
	b := c.Bucket("photos")
	var entries []listing.Entry
	for _, key := range []string{"2023/a.jpg", "2023/b.jpg", "2024/may/c.jpg", "2024/may/d.jpg", "2024/june/e.jpg",
		"readme"} {
		entries = append(entries, listing.Entry{Key: []byte(key), Value: []byte("its metadata")})
	}
	if err := b.PutBatch(ctx, entries); err != nil {
		log.Fatal(err)
	}
	return b
}

// Folders: keys with the delimiter behind the prefix are folded into one item each.
func ExampleBucket_List() {
	ctx := context.Background()
	page, err := photos(ctx).List(ctx, listing.Query{Prefix: []byte("2024/"), Delimiter: []byte("/")})
	if err != nil {
		log.Fatal(err)
	}
	for _, item := range page.Items {
		fmt.Printf("%s folder: %v\n", item.Key, item.CommonPrefix)
	}
	// Output:
	// 2024/june/ folder: true
	// 2024/may/ folder: true
}

// Pages: a token goes on where a page ended, in any process, also when ranges have
// been split or merged meanwhile. A page may be short; only an empty token is the end.
func ExampleBucket_List_pages() {
	ctx := context.Background()
	b := photos(ctx)
	q := listing.Query{Limit: 4}
	for {
		page, err := b.List(ctx, q)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("a page:")
		for _, item := range page.Items {
			fmt.Printf("%s\n", item.Key)
		}
		if page.Next == "" {
			break
		}
		q.Token = page.Next
	}
	// Output:
	// a page:
	// 2023/a.jpg
	// 2023/b.jpg
	// 2024/june/e.jpg
	// 2024/may/c.jpg
	// a page:
	// 2024/may/d.jpg
	// readme
}

// Everything in one loop: the next page is read while the loop works on this one.
func ExampleBucket_All() {
	ctx := context.Background()
	for item, err := range photos(ctx).All(ctx, listing.Query{Prefix: []byte("2023/"), Reverse: true}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %s\n", item.Key, item.Value)
	}
	// Output:
	// 2023/b.jpg: its metadata
	// 2023/a.jpg: its metadata
}

// A parallel scan: more parts than readers, so that no reader is left with a large one.
func ExampleBucket_SplitPoints() {
	ctx := context.Background()
	b := photos(ctx)
	const readers = 2
	points, err := b.SplitPoints(ctx, listing.Query{}, 4*readers)
	if err != nil {
		log.Fatal(err)
	}
	var total atomic.Int64
	var g errgroup.Group
	g.SetLimit(readers)
	var from []byte
	for _, to := range append(points, nil) {
		q := listing.Query{From: from, To: to, KeysOnly: true}
		from = to
		g.Go(func() error {
			for _, err := range b.All(ctx, q) {
				if err != nil {
					return err
				}
				total.Add(1)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(total.Load(), "keys")
	// Output: 6 keys
}
