// Command likes keeps sets of members, such as the users who like a post, in two layouts: hash buckets, and one sorted
// listing of evenkeel. It prints what each layout costs. See README.md.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) != 2 || os.Args[1] != "demo" {
		fmt.Fprintln(os.Stderr, "likes compares layouts of sets, in a temporary directory.\n\n  likes demo")
		os.Exit(2)
	}
	if err := demo(ctx, os.Stdout, 10_000); err != nil {
		fmt.Fprintln(os.Stderr, "likes:", err)
		os.Exit(1)
	}
}

// buckets is the number of partitions of each set in the layout with hash buckets. salts is the number of parts of each
// set in the salted listing.
const buckets, salts = 256, 16

// layout is one way to keep the sets, with its name for the output.
type layout struct {
	name string
	sets Sets
}

// demo adds n likes to one post and three likes to another, in each layout. It removes a like, counts the likes, and
// prints the times to out.
func demo(ctx context.Context, out io.Writer, n int) error {
	dir, err := os.MkdirTemp("", "likes")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	layouts, end, err := open(ctx, dir)
	if err != nil {
		return err
	}
	defer end()
	for _, l := range layouts {
		for _, post := range []struct {
			name  string
			likes int
		}{{"a post of many", n}, {"a post of few", 3}} {
			if err := fill(ctx, l.sets, post.name, post.likes); err != nil {
				return err
			}
			begun := time.Now()
			if err := l.sets.Remove(ctx, post.name, member(0)); err != nil {
				return err
			}
			liked, err := l.sets.Has(ctx, post.name, member(1))
			if err != nil {
				return err
			}
			middle := time.Now()
			count, err := l.sets.Count(ctx, post.name)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "%-12s  %-14s  one removed, another is there: %v, in %v; %5d counted in %v\n", l.name, post.name,
				liked, middle.Sub(begun).Round(10*time.Microsecond), count, time.Since(middle).Round(10*time.Microsecond))
		}
	}
	return nil
}

// open creates the layouts in the directory dir. The caller calls end to close them.
func open(ctx context.Context, dir string) (layouts []layout, end func(), err error) {
	var opened []io.Closer
	end = func() {
		for _, c := range opened {
			_ = c.Close()
		}
	}
	defer func() {
		if err != nil {
			end()
		}
	}()
	rows, err := pebblestore.Open(filepath.Join(dir, "hash"), pebblestore.Options{})
	if err != nil {
		return nil, nil, err
	}
	opened = append(opened, rows)
	layouts = []layout{{"hash buckets", newHashSets(rows, buckets)}}
	for _, l := range []struct {
		name  string
		salts int
	}{{"sorted", 0}, {"salted", salts}} {
		db, err := evenkeel.Open(filepath.Join(dir, l.name), evenkeel.Options{})
		if err != nil {
			return nil, nil, err
		}
		opened = append(opened, db)
		sets, err := newSortedSets(ctx, db.Client(), l.salts)
		if err != nil {
			return nil, nil, err
		}
		layouts = append(layouts, layout{l.name, sets})
	}
	return layouts, end, nil
}

// member returns the name of the i-th user. Successive users do not have names in ascending order.
func member(i int) string { return fmt.Sprintf("user-%06d", i*7919%1_000_003) }

// fill adds n members to a set, up to 128 at the same time.
func fill(ctx context.Context, s Sets, set string, n int) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(128)
	for i := range n {
		g.Go(func() error { return s.Add(ctx, set, member(i)) })
	}
	return g.Wait()
}
