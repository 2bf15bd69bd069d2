package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/evenkeel/evenkeel/keys"
	"github.com/evenkeel/evenkeel/listing"
)

// Feed keeps the posts of all users in one bucket. A post's key is its user and then its id,
// the newest first. So a page of a feed is one stretch of keys, whether it spans an hour of
// a celebrity or ten years of somebody else.
type Feed struct {
	posts *listing.Bucket
	ids   *keys.Snowflakes
}

// NewFeed keeps posts in the bucket "posts", which is made if there is none. Processes that
// make posts at the same time need different workers, from 0 to keys.MaxWorker.
func NewFeed(ctx context.Context, c *listing.Client, worker int) (*Feed, error) {
	ids, err := keys.NewSnowflakes(worker)
	if err != nil {
		return nil, err
	}
	if err := c.CreateBucket(ctx, "posts"); err != nil && !errors.Is(err, listing.ErrBucketExists) {
		return nil, err
	}
	return &Feed{posts: c.Bucket("posts"), ids: ids}, nil
}

// GoOn makes further ids greater than that of the user's newest post: the clock may have
// been set back since.
func (f *Feed) GoOn(ctx context.Context, user string) error {
	newest, err := f.Page(ctx, user, 0, 1)
	if len(newest) > 0 {
		f.ids.Above(newest[0].ID)
	}
	return err
}

// Post is one post.
type Post struct {
	ID   int64
	Text string
}

// Time is when the post was made; the id says it.
func (p Post) Time() time.Time { return keys.SnowflakeTime(p.ID) }

// maxText is the greatest length of a post in bytes.
const maxText = 4096

// Add posts a text and returns the id of the post.
func (f *Feed) Add(ctx context.Context, user, text string) (int64, error) {
	if len(text) > maxText {
		return 0, fmt.Errorf("a post has at most %d bytes, this one has %d", maxText, len(text))
	}
	id, err := f.ids.Next()
	if err != nil {
		return 0, err
	}
	return id, f.posts.Put(ctx, key(user, id), []byte(text))
}

// Page returns the newest posts of a user that are older than the one with the id older, or
// the newest of all if that is 0. The page is full unless there are no more.
func (f *Feed) Page(ctx context.Context, user string, older int64, limit int) ([]Post, error) {
	q := all(user)
	q.Limit = limit
	if older != 0 {
		q.After = key(user, older)
	}
	var page []Post
	for p, err := range f.read(ctx, q) {
		if err != nil {
			return nil, err
		}
		page = append(page, p)
	}
	return page, nil
}

// Day reads what a user posted within a day, in UTC, the newest post first.
func (f *Feed) Day(ctx context.Context, user string, day time.Time) iter.Seq2[Post, error] {
	begin := day.UTC().Truncate(24 * time.Hour)
	end := begin.Add(24 * time.Hour)
	return f.read(ctx, listing.Query{
		From: key(user, keys.FirstSnowflake(end)-1),
		To:   key(user, keys.FirstSnowflake(begin)-1),
	})
}

// all selects the posts of a user.
func all(user string) listing.Query { return listing.Query{Prefix: keys.Of(keys.String(user))} }

func (f *Feed) read(ctx context.Context, q listing.Query) iter.Seq2[Post, error] {
	return func(yield func(Post, error) bool) {
		for item, err := range f.posts.All(ctx, q) {
			if err != nil {
				yield(Post{}, err)
				return
			}
			r := keys.Read(item.Key)
			_ = r.String() // the user
			p := Post{ID: r.Int(), Text: string(item.Value)}
			if err := r.End(); err != nil {
				yield(Post{}, fmt.Errorf("the bucket has a key that is no post's: %q: %w", item.Key, err))
				return
			}
			if !yield(p, nil) {
				return
			}
		}
	}
}

func key(user string, id int64) []byte { return keys.Of(keys.String(user), keys.Desc(keys.Int(id))) }
