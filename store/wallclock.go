package store

import (
	"context"
	"time"
)

// WallClock is implemented by stores that can tell the time of day on each of their servers. From these clocks all
// clients of the store derive one common time (see package commontime).
type WallClock interface {
	// Servers returns all members of the data centres that hold rows, also members that are down. It fails with
	// Unavailable or Timeout.
	Servers(ctx context.Context) ([]Server, error)
	// Time returns the time of day of one server at some moment during the call, truncated to TimeResolution. server is
	// a Server.Name. It fails with Unavailable or Timeout.
	Time(ctx context.Context, server string) (time.Time, error)
}

// TimeResolution is the unit to which WallClock.Time truncates the time of a server.
const TimeResolution = time.Millisecond

// Server is one server of a store.
type Server struct {
	// Name identifies the server for good, even if its address changes.
	Name string
	// Address is for logs and reports.
	Address    string
	DataCentre string
	// Near means that the server is in the data centre of this client.
	Near bool
}
