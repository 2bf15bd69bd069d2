// Package sizing computes the resources that a keyspace of a planned size takes, and the limit that it meets first. It
// is pure: its input is the plan and the constants of the packages that do the work, its output are figures.
package sizing

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/evenkeel/evenkeel/internal/mapclient"
)

// Input describes a planned keyspace: its servers and nodes, its buckets and keys, its requests, and the values of the
// servers' flags.
type Input struct {
	// Servers is the number of server processes, and Nodes is the number of Cassandra nodes, both of all DataCentres
	// together. RoundTrip is the network time from one data centre to another and back.
	Servers, Nodes, DataCentres int
	RoundTrip                   time.Duration
	Paxos                       Paxos
	// Keys is the total number of keys, each of KeyBytes bytes and with a value of ValueBytes bytes. The keys lie in
	// Buckets buckets, of which BusyBuckets are written to. Objects is true if the keys are versions of objects, which
	// need a cleaner.
	Buckets, BusyBuckets, Keys, KeyBytes, ValueBytes int64
	Objects                                          bool
	// Inserts, Appends and Requests are operations per second of all servers together. Inserts are puts of keys at
	// random places, Appends are puts of keys above all others of their bucket, and Requests are gets and pages of
	// listings.
	Inserts, Appends, Requests float64

	// MaxRows, MoveRate, CleanRate, Lease and MapCacheMiB are the values of the servers' flags of these names.
	MaxRows             int64
	MoveRate, CleanRate int
	Lease               time.Duration
	MapCacheMiB         int64
	// NodeRequests and NodeGiB are the capacity of one Cassandra node: requests per second, and GiB of disk. RedisGiB
	// is the memory of Redis in GiB.
	NodeRequests      float64
	NodeGiB, RedisGiB int64
}

// Paxos is a value of Cassandra's setting paxos_variant, which decides how many round trips a conditional write takes.
type Paxos string

// These are the values of Cassandra's setting paxos_variant. V2 needs fewer round trips.
const (
	V1 Paxos = "v1"
	V2 Paxos = "v2"
)

// Check returns an error for the first value of the input that is out of its bounds, or nil. The text of the error
// names the flag of `rebalancer sizing` that sets the value.
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

// rounds returns the time that one operation takes for its round trips between data centres. The number of round trips
// depends on Cassandra's setting paxos_variant: it is the parameter v1 if the setting is v1, and the parameter v2 for
// other values.
func (in *Input) rounds(v1, v2 float64) time.Duration {
	if in.Paxos == V1 {
		v2 = v1
	}
	return times(v2, in.RoundTrip+atNode)
}

func times(n float64, d time.Duration) time.Duration { return time.Duration(n * float64(d)) }
