// Command feed keeps posts of users in one evenkeel bucket, the newest post first. It is an example of a program that
// uses the library. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel"
	"github.com/evenkeel/evenkeel/keys"
	"github.com/evenkeel/evenkeel/listing"
)

const usage = `feed keeps posts of users, the newest first.

  feed [flags] post USER TEXT        make a post; prints its id
  feed [flags] page USER [OLDER]     20 posts: the newest, or those that are older than the post with this id
  feed [flags] day USER DATE         what a user posted on a day, such as 2026-11-23 (UTC)
  feed demo                          a celebrity, a friend and a silent user in a temporary directory

flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "feed:", err)
		os.Exit(1)
	}
}

// errUsage is the error for a mistake in the command line. Its text refers to feed --help.
var errUsage = errors.New("see feed --help")

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("feed", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprint(flags.Output(), usage)
		flags.PrintDefaults()
	}
	dir := flags.String("dir", "feed-data", "keep the posts in this `directory`, which belongs to one process at a time")
	hosts := flags.String("cassandra", "", "keep them in Cassandra instead: `addresses` with commas between them")
	dc := flags.String("local-dc", "dc1", "the local data centre of Cassandra")
	counter := flags.String("counter", "", "the Redis that counts sizes, such as redis://`host`:6379/0")
	worker := flags.Int("worker", 0, "the number of this process among all that make posts, 0 to 1023")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.Arg(0) == "demo" {
		return demo(ctx, out)
	}
	command, user := flags.Arg(0), flags.Arg(1)
	if user == "" {
		return fmt.Errorf("a command and a user are missing: %w", errUsage)
	}

	db, err := open(ctx, *dir, *hosts, *dc, *counter)
	if err != nil {
		return err
	}
	defer db.Close()
	f, err := NewFeed(ctx, db.Client(), *worker)
	if err != nil {
		return err
	}
	switch command {
	case "post":
		if err := f.GoOn(ctx, user); err != nil {
			return err
		}
		id, err := f.Add(ctx, user, strings.Join(flags.Args()[2:], " "))
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(out, id)
		return err
	case "page":
		var older int64
		if text := flags.Arg(2); text != "" {
			if _, err := fmt.Sscan(text, &older); err != nil {
				return fmt.Errorf("%q is no id of a post: %w", text, errUsage)
			}
		}
		page, err := f.Page(ctx, user, older, 20)
		if err != nil {
			return err
		}
		return show(out, func(yield func(Post, error) bool) {
			for _, p := range page {
				if !yield(p, nil) {
					return
				}
			}
		})
	case "day":
		day, err := time.Parse(time.DateOnly, flags.Arg(2))
		if err != nil {
			return fmt.Errorf("%q is no date like 2026-11-23: %w", flags.Arg(2), errUsage)
		}
		return show(out, f.Day(ctx, user, day))
	}
	return fmt.Errorf("there is no command %q: %w", command, errUsage)
}

func open(ctx context.Context, dir, hosts, dc, counter string) (*evenkeel.DB, error) {
	if hosts == "" {
		return evenkeel.Open(dir, evenkeel.Options{})
	}
	return evenkeel.OpenCassandra(ctx, evenkeel.Cassandra{
		Hosts: strings.Split(hosts, ","), DataCentre: dc, Counter: counter,
	})
}

func show(out io.Writer, posts iter.Seq2[Post, error]) error {
	for p, err := range posts {
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "%d  %s  %s\n", p.ID, p.Time().UTC().Format(time.DateTime), p.Text); err != nil {
			return err
		}
	}
	return nil
}

// demo shows that reading a page takes the same time for a user with many posts as for a user with few. It prints the
// times to out.
func demo(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp("", "feed")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db, err := open(ctx, dir, "", "", "")
	if err != nil {
		return err
	}
	defer db.Close()
	f, err := NewFeed(ctx, db.Client(), 0)
	if err != nil {
		return err
	}
	now := time.Now()
	users := []struct {
		name  string
		posts int
		every time.Duration
	}{
		{"celebrity", 20_000, 9 * time.Second}, {"friend", 200, 18 * time.Hour}, {"silent", 3, 400 * 24 * time.Hour},
	}
	for _, u := range users {
		if err := f.fill(ctx, u.name, now, u.posts, u.every); err != nil {
			return err
		}
	}
	for _, u := range users {
		begun := time.Now()
		page, err := f.Page(ctx, u.name, 0, 20)
		if err != nil {
			return err
		}
		older, err := f.Page(ctx, u.name, page[len(page)-1].ID, 20)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%-9s  %5d posts in %4.0f days: the newest %2d and the next %2d in %v\n", u.name, u.posts,
			(time.Duration(u.posts)*u.every).Hours()/24, len(page), len(older), time.Since(begun).Round(10*time.Microsecond))
	}
	return nil
}

// fill writes n posts of the past for a user, in batches of 1000. newest is the time of the newest post, and `every`
// the time between two posts.
func (f *Feed) fill(ctx context.Context, user string, newest time.Time, n int, every time.Duration) error {
	const batch = 1000
	entries := make([]listing.Entry, 0, batch)
	for i := range n {
		id := keys.FirstSnowflake(newest.Add(-time.Duration(i+1) * every))
		entries = append(entries, listing.Entry{Key: key(user, id), Value: fmt.Appendf(nil, "post %d of %s", n-i, user)})
		if len(entries) == batch || i == n-1 {
			if err := f.posts.PutBatch(ctx, entries); err != nil {
				return err
			}
			entries = entries[:0]
		}
	}
	return nil
}
