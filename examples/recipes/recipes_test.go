// Package recipes has the Go of docs/recipes.md, compiled and run.
package recipes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log"
	"slices"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/keys"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store/memstore"
)

func folder(ctx context.Context, names *listing.Bucket, path string) (below []string, err error) {
	q := listing.Query{Prefix: []byte(path), Delimiter: []byte("/"), KeysOnly: true}
	for item, err := range names.All(ctx, q) {
		if err != nil {
			return nil, err
		}
		below = append(below, string(item.Key)) // a folder if item.CommonPrefix
	}
	return below, nil
}

func Example_objectNames() {
	ctx, names := context.Background(), newBucket("2025/a", "2026/may/b", "2026/may/c", "2026/d", "readme")
	fmt.Println(folder(ctx, names, ""))
	fmt.Println(folder(ctx, names, "2026/"))
	// Output:
	// [2025/ 2026/ readme] <nil>
	// [2026/d 2026/may/] <nil>
}

func mailKey(owner, folder string, id int64) []byte {
	return keys.Of(keys.String(owner), keys.String(folder), keys.Desc(keys.Int(id)))
}

func moveMail(ctx context.Context, mail *listing.Bucket, owner, from, to string, id int64) error {
	e, err := mail.Get(ctx, mailKey(owner, from, id))
	if err != nil {
		return err
	}
	if err := mail.Put(ctx, mailKey(owner, to, id), e.Value); err != nil {
		return err
	}
	return mail.Delete(ctx, e.Key) // if that fails it is in both folders: move it again
}

func Example_mailBox() {
	ctx, mail := context.Background(), newBucket()
	for id, subject := range []string{"hello", "spam", "again"} {
		must(mail.Put(ctx, mailKey("ann", "inbox", int64(id)), []byte(subject)))
	}
	must(mail.Put(ctx, mailKey("anna", "inbox", 7), []byte("of somebody else")))
	must(moveMail(ctx, mail, "ann", "inbox", "junk", 1))
	fmt.Println(errors.Is(moveMail(ctx, mail, "ann", "inbox", "junk", 1), listing.ErrNotFound))
	for _, folder := range []string{"inbox", "junk"} {
		q := listing.Query{Prefix: keys.Of(keys.String("ann"), keys.String(folder))}
		for item, err := range mail.All(ctx, q) {
			fmt.Println(folder, string(item.Value), err)
		}
	}
	// Output:
	// true
	// inbox again <nil>
	// inbox hello <nil>
	// junk spam <nil>
}

func owners(ctx context.Context, mail *listing.Bucket) (names []string, err error) {
	q := listing.Query{Sift: func(e listing.Entry) listing.Sifted {
		owner := keys.Read(e.Key).String()
		return listing.Sifted{CommonPrefix: true, Pass: len(keys.Of(keys.String(owner)))}
	}}
	for item, err := range mail.All(ctx, q) {
		if err != nil {
			return nil, err
		}
		names = append(names, keys.Read(item.Key).String())
	}
	return names, nil
}

func Example_prefixAndDelimiter() {
	ctx, mail := context.Background(), newBucket()
	for id := range int64(100) {
		must(mail.Put(ctx, mailKey("ann", "inbox", id), nil))
		must(mail.Put(ctx, mailKey("anna", "junk", id), nil))
	}
	fmt.Println(owners(ctx, mail))
	// Output: [ann anna] <nil>
}

func topKey(points int64, player string) []byte {
	return keys.Of(keys.String("top"), keys.Desc(keys.Int(points)), keys.String(player))
}

func score(ctx context.Context, board *listing.Bucket, player string, points int64) error {
	byPlayer := keys.Of(keys.String("player"), keys.String(player))
	before, err := board.Get(ctx, byPlayer)
	if err != nil && !errors.Is(err, listing.ErrNotFound) {
		return err
	}
	now := topKey(points, player)
	if err := board.Put(ctx, now, nil); err != nil {
		return err
	}
	if len(before.Value) > 0 && !bytes.Equal(before.Value, now) {
		if err := board.Delete(ctx, before.Value); err != nil {
			return err
		}
	}
	return board.Put(ctx, byPlayer, now)
}

func Example_leaderboard() {
	ctx, board := context.Background(), newBucket()
	for i, player := range []string{"ann", "bob", "cy", "bob", "cy", "bob"} {
		must(score(ctx, board, player, int64(i%4*10)))
	}
	q := listing.Query{Prefix: keys.Of(keys.String("top")), Limit: 2}
	for item, err := range board.All(ctx, q) {
		r := keys.Read(item.Key)
		_ = r.String() // "top"
		points := r.Int()
		fmt.Println(points, r.String(), err)
	}
	// Output:
	// 10 bob <nil>
	// 0 ann <nil>
}

func work(ctx context.Context, queue *listing.Bucket, do func(task []byte) error) error {
	for item, err := range queue.All(ctx, listing.Query{}) {
		if err != nil {
			return err
		}
		if err := do(item.Value); err != nil {
			return err
		}
		if err := queue.Delete(ctx, item.Key); err != nil {
			return err // the task will be done again
		}
	}
	return nil
}

func Example_queue() {
	ctx, queue := context.Background(), newBucket()
	ids, err := keys.NewSnowflakes(0)
	must(err)
	for _, task := range []string{"one", "two", "three"} {
		id, err := ids.Next()
		must(err)
		must(queue.Put(ctx, keys.Of(keys.Int(id)), []byte(task)))
	}
	fmt.Println(work(ctx, queue, func(task []byte) error {
		fmt.Println(string(task))
		if string(task) == "two" {
			return errors.New("too hard")
		}
		return nil
	}))
	fmt.Println(count(ctx, queue, listing.Query{}))
	// Output:
	// one
	// two
	// too hard
	// 2 <nil>
}

func parts(ctx context.Context, b *listing.Bucket, q listing.Query, n int) (all []listing.Query, err error) {
	points, err := b.SplitPoints(ctx, q, n)
	if err != nil {
		return nil, err
	}
	for _, to := range append(points, q.To) {
		part := q
		part.To = to
		all = append(all, part)
		q.From, q.After = to, nil
	}
	return all, nil
}

func export(ctx context.Context, b *listing.Bucket, part listing.Query, to func(listing.Item) error) error {
	for item, err := range b.All(ctx, part) {
		if err != nil {
			return err
		}
		if err := to(item); err != nil {
			return err // to go on, set part.After to the key of the last item that was kept
		}
	}
	return nil
}

func Example_export() {
	ctx, b := context.Background(), newBucket()
	for i := range 5000 {
		must(b.Put(ctx, fmt.Appendf(nil, "%04d", i), nil))
	}
	all, err := parts(ctx, b, listing.Query{}, 4)
	must(err)
	var found []string
	full := true
	for _, part := range all {
		write := func(item listing.Item) error {
			if full && len(found) == 3100 {
				full = false
				return errors.New("the disk is full")
			}
			found, part.After = append(found, string(item.Key)), item.Key
			return nil
		}
		if err := export(ctx, b, part, write); err != nil {
			fmt.Println(err)
			must(export(ctx, b, part, write))
		}
	}
	fmt.Println(len(all), "parts,", len(found), "keys, sorted:", slices.IsSorted(found))
	// Output:
	// the disk is full
	// 4 parts, 5000 keys, sorted: true
}

func count(ctx context.Context, b *listing.Bucket, q listing.Query) (int64, error) {
	q.KeysOnly = true
	all, err := parts(ctx, b, q, 8)
	var n atomic.Int64
	var g errgroup.Group
	for _, part := range all {
		g.Go(func() error {
			for _, err := range b.All(ctx, part) {
				if err != nil {
					return err
				}
				n.Add(1)
			}
			return nil
		})
	}
	err = errors.Join(err, g.Wait())
	return n.Load(), err
}

func Example_counting() {
	ctx, b := context.Background(), newBucket()
	for i := range 3000 {
		must(b.Put(ctx, fmt.Appendf(nil, "%04d", i), nil))
	}
	fmt.Println(count(ctx, b, listing.Query{}))
	fmt.Println(count(ctx, b, listing.Query{Prefix: []byte("1"), From: []byte("1500")}))
	fmt.Println(count(ctx, b, listing.Query{From: []byte("0010"), To: []byte("2990")}))
	// Output:
	// 3000 <nil>
	// 500 <nil>
	// 2980 <nil>
}

func page(ctx context.Context, b *listing.Bucket, prefix, from []byte, back bool, n int) ([]listing.Item, error) {
	q := listing.Query{Prefix: prefix, After: from, Reverse: back, Limit: n}
	var items []listing.Item
	for item, err := range b.All(ctx, q) {
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	if back {
		slices.Reverse(items)
	}
	return items, nil
}

func Example_pagination() {
	ctx, b := context.Background(), newBucket("a", "b", "c", "d", "e", "f", "g")
	show := func(items []listing.Item, err error) []listing.Item {
		must(err)
		var line []string
		for _, item := range items {
			line = append(line, string(item.Key))
		}
		fmt.Println(strings.Join(line, " "))
		return items
	}
	first := show(page(ctx, b, nil, nil, false, 3))
	second := show(page(ctx, b, nil, first[2].Key, false, 3))
	show(page(ctx, b, nil, second[0].Key, true, 3))
	show(page(ctx, b, nil, nil, true, 3))
	// Output:
	// a b c
	// d e f
	// a b c
	// e f g
}

// next is from iter.Pull2 of a listing.
type next = func() (listing.Item, error, bool)

func changes(before, after next, report func(what string, key []byte)) error {
	old, err, more := before()
	now, bad, fresh := after()
	for more || fresh {
		if err := errors.Join(err, bad); err != nil {
			return err
		}
		order := bytes.Compare(old.Key, now.Key)
		left, right := more && (!fresh || order <= 0), fresh && (!more || order >= 0)
		if !right {
			report("deleted", old.Key)
		} else if !left {
			report("added", now.Key)
		} else if !bytes.Equal(old.Value, now.Value) {
			report("changed", now.Key)
		}
		if left {
			old, err, more = before()
		}
		if right {
			now, bad, fresh = after()
		}
	}
	return nil
}

func Example_changes() {
	ctx, a, b := context.Background(), newBucket("a", "b", "d", "f"), newBucket("b", "c", "d", "e")
	must(b.Put(ctx, []byte("d"), []byte("new")))
	before, stop := iter.Pull2(a.All(ctx, listing.Query{}))
	defer stop()
	after, stop := iter.Pull2(b.All(ctx, listing.Query{}))
	defer stop()
	must(changes(before, after, func(what string, key []byte) { fmt.Println(what, string(key)) }))
	// Output:
	// deleted a
	// added c
	// changed d
	// added e
	// deleted f
}

// newBucket returns a bucket in memory with these keys. Programs take one of evenkeel.Open or
// evenkeel.OpenCassandra.
func newBucket(names ...string) *listing.Bucket {
	ctx := context.Background()
	c, err := listing.New(memstore.New(), listing.Options{})
	must(err)
	must(c.CreateBucket(ctx, "bucket"))
	for _, name := range names {
		must(c.Bucket("bucket").Put(ctx, []byte(name), nil))
	}
	return c.Bucket("bucket")
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
