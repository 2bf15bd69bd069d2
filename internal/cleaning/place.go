package cleaning

import (
	"context"
	"time"

	"github.com/evenkeel/evenkeel/store"
)

// place is the position of a round of cleaning in the list of buckets. It is stored, so that the next process can
// continue from there. So all buckets are cleaned even if each process ends before its round ends. If the position is
// lost, a round begins at the first bucket.
type place struct {
	Bucket string         `json:"bucket"`
	ID     store.BucketID `json:"id"`
	Next   string         `json:"next"`
	// All is true for a round that reads all rows and writes hints for all objects that may have something to delete
	// later.
	All bool `json:"all,omitempty"`

	kept time.Time // when a place of this round was stored last, or the round began
}

const (
	placeKey  = "cleaner's place"
	placeForm = 1
	// keepEvery is the shortest time between two positions that are stored during a round of cleaning. A round that is
	// shorter stores only its end.
	keepEvery = time.Minute
)

// movePlace sets the position of a round of cleaning. The parameter `now` is the new position, which is a bucket and a
// key, or empty if the round has ended. movePlace also stores the position for the next process, at most once a minute
// (keepEvery) and at the end of the round.
func (s *rounds) movePlace(ctx context.Context, now place) {
	was := s.place
	s.place = now
	ended := now.Bucket == ""
	switch {
	case was.Bucket == "" && !ended: // the round begins
		s.place.kept = time.Now()
		return
	case ended && was.Bucket == "", !ended && time.Since(was.kept) < keepEvery:
		return
	}
	s.place.kept = time.Now()
	if err := s.c.write(ctx, s.key(), placeForm, now); err != nil && ctx.Err() == nil {
		s.c.o.Log.Warn("how far buckets are cleaned could not be noted: another process begins at the first one",
			"error", err)
	}
}

// recallPlace returns the stored position at which the last process has left its round of cleaning. The position is
// empty if the round had ended, or if no position is known.
func (s *rounds) recallPlace(ctx context.Context) (p place) {
	if _, err := s.c.read(ctx, s.key(), placeForm, &p); err != nil {
		if ctx.Err() == nil {
			s.c.o.Log.Warn("how far buckets were cleaned is not known: it is begun at the first one", "error", err)
		}
		return place{}
	}
	return p
}
