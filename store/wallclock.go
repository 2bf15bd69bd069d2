package store

import (
	"context"
	"time"
)

// WallClock is the optional power of a store whose servers have wall clocks of
// their own. Rows are ordered by their writers' clocks, so clients compare theirs
// with these.
type WallClock interface {
	// Time asks one server for its time of day, if it can another one each time,
	// and names it. The time is that of some moment between call and return. It
	// fails with Unavailable or Timeout.
	Time(ctx context.Context) (t time.Time, server string, err error)
}
