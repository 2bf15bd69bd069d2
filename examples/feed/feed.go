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

// Feed keeps the posts of all users in one bucket. The key of a post is the user and then the post's id, in descending
// order of ids. So a page of a feed is one interval of keys, whether the page spans an hour of a celebrity or ten years
// of a silent user.
type Feed struct {
	posts *listing.Bucket
	ids   *keys.Snowflakes
}

// NewFeed returns a feed that keeps posts in the bucket "posts", and creates the bucket if it does not exist. Processes
// that make posts at the same time need different workers, from 0 to 1023, so that their ids differ.
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

// GoOn makes all further ids greater than the id of the user's newest post. It guards against a clock that was set back
// since that post.
func (f *Feed) GoOn(ctx context.Context, user string) error {
	newest, err := f.Page(ctx, user, 0, 1)
	if len(newest) > 0 {
		f.ids.Above(newest[0].ID)
	}
	return err
}

// Post is one post of a user. The id contains the time of the post.
type Post struct {
	ID   int64
	Text string
}

// Time returns the time at which the post was made, which the id contains.
func (p Post) Time() time.Time { return keys.SnowflakeTime(p.ID) }

// maxText is the largest length of a post, in bytes.
const maxText = 4096

// Add adds a post with a text to the feed of a user, and returns the post's id. A text of more than 4096 bytes is an
// error.
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

// Page returns the newest posts of a user that are older than the post with the id older. If older is 0, Page returns
// the newest posts of all. The page has limit posts, and fewer only if the feed has no further posts.
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

// Day returns the posts of a user from one day in UTC, the newest post first.
func (f *Feed) Day(ctx context.Context, user string, day time.Time) iter.Seq2[Post, error] {
	begin := day.UTC().Truncate(24 * time.Hour)
	end := begin.Add(24 * time.Hour)
	return f.read(ctx, listing.Query{
		From: key(user, keys.FirstSnowflake(end)-1),
		To:   key(user, keys.FirstSnowflake(begin)-1),
	})
}

// all returns a query for all posts of a user.
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
