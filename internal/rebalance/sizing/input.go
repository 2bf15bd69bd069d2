// Package sizing computes what a keyspace of a planned size takes, and which limit it meets first. It is pure: from
// what is planned, and from the constants of the packages that do the work, to figures.
package sizing

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/evenkeel/evenkeel/partmap/mapclient"
)

// Input is what is planned.
type Input struct {
	// Servers are processes, Nodes are Cassandra's; both of all DataCentres together, which are RoundTrip apart.
	Servers, Nodes, DataCentres int
	RoundTrip                   time.Duration
	Paxos                       Paxos
	// Keys of KeyBytes lie in Buckets, with values of ValueBytes, and BusyBuckets of them are written to. Objects: they
	// are versions of objects, which have a cleaner.
	Buckets, BusyBuckets, Keys, KeyBytes, ValueBytes int64
	Objects                                          bool
	// Per second, of all servers together: keys that come at random places, keys that come above all others of their
	// bucket, and gets and pages.
	Inserts, Appends, Requests float64

	// The flags of the servers.
	MaxRows             int64
	MoveRate, CleanRate int
	Lease               time.Duration
	MapCacheMiB         int64
	// What there is: requests per second and bytes that a node can take, and memory of Redis.
	NodeRequests      float64
	NodeGiB, RedisGiB int64
}

// Paxos is Cassandra's paxos_variant.
type Paxos string

// The variants.
const (
	V1 Paxos = "v1"
	V2 Paxos = "v2"
)

// Check returns what is wrong with an input, by the flags of `rebalancer sizing`; nil: nothing is.
func (in *Input) Check() error {
	const many = 1_000_000_000_000_000
	for _, c := range []struct {
		flag               string
		value, least, most int64
	}{
		{"servers", int64(in.Servers), 1, 1_000_000},
		{"nodes", int64(in.Nodes), 1, 1_000_000},
		{"data-centres", int64(in.DataCentres), 1, 100},
		{"buckets", in.Buckets, 1, many},
		{"busy-buckets", in.BusyBuckets, 1, in.Buckets},
		{"keys", in.Keys, 0, many},
		{"key-bytes", in.KeyBytes, 1, 65_535},
		{"value-bytes", in.ValueBytes, 0, 1 << 30},
		{"max-rows", in.MaxRows, 2, math.MaxInt32},
		{"move-rate", int64(in.MoveRate), 0, math.MaxInt32},
		{"clean-rate", int64(in.CleanRate), 0, math.MaxInt32},
		{"map-cache-mib", in.MapCacheMiB, 1, 1 << 20},
		{"node-gib", in.NodeGiB, 1, 1 << 30},
		{"redis-gib", in.RedisGiB, 1, 1 << 30},
	} {
		if c.value < c.least || c.value > c.most {
			return fmt.Errorf("--%s is %d to %d, not %d", c.flag, c.least, c.most, c.value)
		}
	}
	for _, c := range []struct {
		flag         string
		value, least float64
	}{
		{"inserts", in.Inserts, 0}, {"appends", in.Appends, 0}, {"requests", in.Requests, 0},
		{"node-requests", in.NodeRequests, 1},
	} {
		if !(c.value >= c.least && c.value <= 1e12) {
			return fmt.Errorf("--%s is a number per second from %g to 1e12, not %g", c.flag, c.least, c.value)
		}
	}
	switch {
	case in.DataCentres == 1 && in.RoundTrip != 0:
		return errors.New("--round-trip is that between data centres: give --data-centres, too")
	case in.DataCentres > 1 && (in.RoundTrip <= 0 || in.RoundTrip > time.Minute):
		return fmt.Errorf("--round-trip is that between data centres, above 0 and at most 1m, not %v", in.RoundTrip)
	case in.Lease < mapclient.MinLease || in.Lease > mapclient.MaxLease:
		return fmt.Errorf("--lease is %v to %v, not %v", mapclient.MinLease, mapclient.MaxLease, in.Lease)
	case in.Paxos != V1 && in.Paxos != V2:
		return fmt.Errorf("--paxos is %s or %s, not %q", V1, V2, in.Paxos)
	case in.Nodes < copies*in.DataCentres:
		return fmt.Errorf("--nodes is at least %d: %d copies in each data centre; not %d", copies*in.DataCentres, copies,
			in.Nodes)
	}
	return nil
}

// rounds is what so many round trips take, with paxos_variant v1 and with v2.
func (in *Input) rounds(v1, v2 float64) time.Duration {
	if in.Paxos == V1 {
		v2 = v1
	}
	return times(v2, in.RoundTrip+atNode)
}

func times(n float64, d time.Duration) time.Duration { return time.Duration(n * float64(d)) }
