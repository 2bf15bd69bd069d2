package store

import (
	"context"
	"time"
)

// WallClock is implemented by stores that can tell the time of day on each of their servers. All clients of the store
// derive one common time from the clocks of the servers (see package commontime).
type WallClock interface {
	// Servers returns all servers in the data centres that hold rows, including servers that are down. Servers fails
	// with Unavailable or Timeout.
	Servers(ctx context.Context) ([]Server, error)
	// Time returns the time of day on one server at some moment during the call, truncated to TimeResolution. The
	// argument server is a Server.Name. Time fails with Unavailable or Timeout.
	Time(ctx context.Context, server string) (time.Time, error)
}

// TimeResolution is the resolution of the time of day that a store reads from its servers: WallClock.Time truncates the
// time to a multiple of this unit.
const TimeResolution = time.Millisecond

// Server describes one server of a store: its permanent name, its network address and its data centre.
type Server struct {
	// Name identifies the server for good, even if its address changes.
	Name string
	// Address is the network address of the server, for logs and reports.
	Address    string
	DataCentre string
	// Near is true if the server is in the data centre of this client.
	Near bool
}
