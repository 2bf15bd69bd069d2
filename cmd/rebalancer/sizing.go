package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/rebalance/sizing"
)

// sizingCmd is the command that computes what a planned keyspace needs, such as memory and requests, and what its
// limits are.
type sizingCmd struct {
	Servers     int           `env:"-" default:"3" group:"Plan:" help:"Servers, of all data centres."`
	Nodes       int           `env:"-" default:"3" group:"Plan:" help:"Nodes of Cassandra, of all data centres."`
	DataCentres int           `env:"-" default:"1" group:"Plan:" help:"Data centres, with three copies each."`
	RoundTrip   time.Duration `env:"-" default:"0" group:"Plan:" help:"${sizing_round_trip=}"`
	Paxos       sizing.Paxos  `env:"-" default:"v2" enum:"v1,v2" group:"Plan:" help:"${sizing_paxos=}"`
	Buckets     int64         `env:"-" default:"1" group:"Plan:" help:"Buckets."`
	BusyBuckets int64         `env:"-" placeholder:"N" group:"Plan:" help:"${sizing_busy_buckets=}"`
	Keys        float64       `env:"-" required:"" placeholder:"N" group:"Plan:" help:"Keys in all buckets, like 1e9."`
	KeyBytes    int64         `env:"-" default:"50" group:"Plan:" help:"Bytes of a key."`
	ValueBytes  int64         `env:"-" default:"120" group:"Plan:" help:"Bytes of a value."`
	Objects     bool          `env:"-" group:"Plan:" help:"${sizing_objects=}"`
	Inserts     float64       `env:"-" default:"0" group:"Plan:" help:"New keys per second, at random places."`
	Appends     float64       `env:"-" default:"0" group:"Plan:" help:"${sizing_appends=}"`
	Requests    float64       `env:"-" default:"0" group:"Plan:" help:"Gets and pages of listings per second."`

	MaxRows     int64         `env:"-" default:"100000" group:"Servers:" help:"Most rows of a partition."`
	MoveRate    int           `env:"-" default:"20000" group:"Servers:" help:"${sizing_move_rate=}"`
	CleanRate   int           `env:"-" default:"20000" group:"Servers:" help:"${sizing_clean_rate=}"`
	Lease       time.Duration `env:"-" default:"3s" group:"Servers:" help:"Lease of maps."`
	MapCacheMiB int64         `env:"-" name:"map-cache-mib" default:"64" group:"Servers:" help:"${sizing_map=}"`

	NodeRequests float64 `env:"-" default:"10000" group:"Machines:" help:"${sizing_node_requests=}"`
	NodeGiB      int64   `env:"-" name:"node-gib" default:"2000" group:"Machines:" help:"${sizing_node_gib=}"`
	RedisGiB     int64   `env:"-" name:"redis-gib" default:"64" group:"Machines:" help:"Memory of Redis, in GiB."`

	Format string      `default:"table" enum:"table,json" help:"Output format: table or json."`
	JSON   daemon.JSON `name:"json" env:"-" help:"Short for --format json."`
}

// Help returns the detailed help text of the command sizing, which --help prints.
func (sizingCmd) Help() string {
	return `Computes what a keyspace on Cassandra would take, and which limit it would meet first: no server
is asked. Each line has a figure, its limit if it has one, how much of it that is, and what moves it.
What can wait, as the time of verify, has no limit. docs/sizing.md has examples, and what is assumed.

  rebalancer sizing --keys 1e9 --inserts 500
  rebalancer sizing --keys 1e11 --servers 100 --nodes 60 --data-centres 2 --round-trip 80ms \
      --buckets 10000 --appends 10000 --requests 50000 --json`
}

// input returns the description of the planned keyspace that the flags give. If --busy-buckets is 0, all buckets are
// busy.
func (c *sizingCmd) input() *sizing.Input {
	busy := c.BusyBuckets
	if busy == 0 {
		busy = c.Buckets
	}
	return &sizing.Input{
		Servers: c.Servers, Nodes: c.Nodes, DataCentres: c.DataCentres, RoundTrip: c.RoundTrip, Paxos: c.Paxos,
		Buckets: c.Buckets, BusyBuckets: busy, Keys: int64(c.Keys), KeyBytes: c.KeyBytes, ValueBytes: c.ValueBytes,
		Objects: c.Objects, Inserts: c.Inserts, Appends: c.Appends, Requests: c.Requests,
		MaxRows: c.MaxRows, MoveRate: c.MoveRate, CleanRate: c.CleanRate, Lease: c.Lease, MapCacheMiB: c.MapCacheMiB,
		NodeRequests: c.NodeRequests, NodeGiB: c.NodeGiB, RedisGiB: c.RedisGiB,
	}
}

// Validate returns an error if a flag of the command sizing has an invalid value. The command-line parser kong calls
// Validate before Run.
func (c *sizingCmd) Validate() error {
	if !(c.Keys >= 0 && c.Keys <= 1e15) {
		return errors.New("--keys is a number from 0 to 1e15")
	}
	return c.input().Check()
}

// Run prints the figures of the planned keyspace, such as its memory and requests, and which limit comes first.
func (c *sizingCmd) Run(_ context.Context, std stdio) error {
	lines := sizing.Of(c.input())
	if c.Format == "json" {
		return daemon.PrintJSON(std.out, struct {
			Wall  string        `json:"wall"`
			Lines []sizing.Line `json:"lines"`
		}{sizing.Wall(lines), lines})
	}
	w := &failing{w: std.out}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "What\tfigure\tlimit\tof it\tmoved by\n")
	for _, l := range lines {
		limit, share := "-", "-"
		if l.Limit > 0 {
			limit, share = figure(l.Limit, l.Unit), sizing.Percent(l.Share)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", l.What, figure(l.Figure, l.Unit), limit, share, l.MovedBy)
	}
	t.Flush()
	w.printf("\n%s\n", sizing.Wall(lines))
	return w.err
}

// figure returns the number f with its unit u as text for people, e.g. "2.0 GiB" or "3.5 h". Large numbers of bytes and
// seconds get larger units.
func figure(f float64, u sizing.Unit) string {
	switch {
	case u == sizing.Bytes:
		return humanize.IBytes(uint64(f))
	case u == sizing.Seconds && f >= 2*24*3600:
		return commas(int64(f/(24*3600)+0.5)) + " days"
	case u == sizing.Seconds && f >= 2*3600:
		return fmt.Sprintf("%.1f h", f/3600)
	case u == sizing.Seconds && f >= 120:
		return fmt.Sprintf("%.0f min", f/60)
	case u == sizing.Seconds:
		return fmt.Sprintf("%.3g s", f)
	case f >= 100:
		return commas(int64(f+0.5)) + string(u)
	}
	return fmt.Sprintf("%.3g", f) + string(u)
}
