package store

import (
	"context"
	"time"
)

// WallClock is implemented by stores whose servers have wall clocks. All clients of such a
// store derive one common time from them (see package commontime).
type WallClock interface {
	// Servers lists all members of the data centres that hold rows, also those that are
	// down. It fails with Unavailable or Timeout.
	Servers(ctx context.Context) ([]Server, error)
	// Time returns the time of day of one server, at some moment between call and return,
	// truncated to TimeResolution. It fails with Unavailable or Timeout.
	Time(ctx context.Context, server string) (time.Time, error)
}

// TimeResolution is the resolution of WallClock.Time.
const TimeResolution = time.Millisecond

// Server is one server of a store.
type Server struct {
	// Name identifies the server for good, also if its address changes.
	Name string
	// Address is for logs and reports.
	Address    string
	DataCentre string
	// Near means that the server is in the data centre of this client.
	Near bool
}
