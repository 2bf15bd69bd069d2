package cleaning

import (
	"context"
	"time"

	"github.com/evenkeel/evenkeel/store"
)

// place is the position of a round among the buckets. It is stored for the next process, so that all buckets have their
// turn, one after the other, even if processes end before a round does. It is a hint: without it a round begins at the
// first bucket.
type place struct {
	Bucket string         `json:"bucket"`
	ID     store.BucketID `json:"id"`
	Next   string         `json:"next"`

	kept time.Time // when a place of this round was kept last; zero: none was
}

const (
	placeKey  = "cleaner's place"
	placeForm = 1
	// keepEvery is the time from one kept place to the next one: a shorter round keeps none.
	keepEvery = time.Minute
)

// movePlace sets the position of the round, or records that the round has ended. Now and then it also stores that for
// the next process.
func (c *Cleaning) movePlace(ctx context.Context, now place) {
	was := c.place
	c.place = now
	ended := now.Bucket == ""
	switch {
	case was.Bucket == "" && !ended: // it begins
		c.place.kept = time.Now()
		return
	case ended && was.Bucket == "", !ended && time.Since(was.kept) < keepEvery:
		return
	}
	c.place.kept = time.Now()
	if err := c.write(ctx, placeKey, placeForm, now); err != nil && ctx.Err() == nil {
		c.o.Log.Warn("how far buckets are cleaned could not be noted: another process begins at the first one", "error", err)
	}
}

// recallPlace returns where the last process was in its round.
func (c *Cleaning) recallPlace(ctx context.Context) (p place) {
	if _, err := c.read(ctx, placeKey, placeForm, &p); err != nil {
		if ctx.Err() == nil {
			c.o.Log.Warn("how far buckets were cleaned is not known: it is begun at the first one", "error", err)
		}
		return place{}
	}
	return p
}
