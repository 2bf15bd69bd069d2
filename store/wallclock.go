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
	// Time returns the time of day on one server at some moment during the call, truncated to a millisecond. The
	// argument server is a Server.Name. Time fails with Unavailable or Timeout.
	Time(ctx context.Context, server string) (time.Time, error)
}

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
