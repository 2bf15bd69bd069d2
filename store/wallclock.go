package store

import (
	"context"
	"time"
)

// WallClock is the optional power of a store whose servers have wall clocks of
// their own. Rows are ordered by timestamps, and these clocks are the one time that
// all clients of a store can agree on (see package commontime).
type WallClock interface {
	// Servers lists the servers whose clocks count: of each data centre that holds
	// rows all that are members, also those that are down. It fails with Unavailable or
	// Timeout.
	Servers(ctx context.Context) ([]Server, error)
	// Time asks one server for its time of day, of some moment between call and
	// return, truncated to TimeResolution. It fails with Unavailable or Timeout.
	Time(ctx context.Context, server string) (time.Time, error)
}

// TimeResolution is how exact the answers of WallClock.Time are.
const TimeResolution = time.Millisecond

// Server is one server of a store.
type Server struct {
	// Name is the server's for good, also if its address changes.
	Name string
	// Address is where it is reached, for people.
	Address    string
	DataCentre string
	// Near: it is in the data centre that this client reads and writes in.
	Near bool
}
