package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/cassandraflags"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/partmap/mapclient"
	"github.com/evenkeel/evenkeel/rebalance/leader"
	"github.com/evenkeel/evenkeel/rebalance/manager"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// adminFlags say where the process is that moves ranges, or how to be it.
type adminFlags struct {
	Admin      string `default:"http://127.0.0.1:9001" env:"EVENKEEL_ADMIN_URL" placeholder:"URL" help:"Admin address of listd, or of whoever else moves ranges."`
	AdminToken string `env:"EVENKEEL_ADMIN_TOKEN" placeholder:"TOKEN" help:"Bearer token that the admin address asks for. Better given in the environment, where ps doesn't show it."`
	Format     string `default:"table" enum:"table,json" help:"How to print: table or json."`

	cassandraflags.Flags
	Lease time.Duration `default:"3s" help:"With --cassandra: the lease of the servers' maps; the same for all servers and rebalancers of a keyspace."`
	// MoveRate is called like listd's.
	MoveRate int `default:"20000" help:"With --cassandra: most rows copied, compared and counted per second; 0: as many as possible."`
}

// exitRefused is the exit code of what does not fit: nothing was changed.
const exitRefused = 4

// wayIn is how a command reaches what moves ranges.
type wayIn struct {
	*adminapi.Client
	// direct: this process moves them itself, so it has to wait for their end.
	direct bool
}

// asks runs a command that moves ranges, or asks what moves: with --cassandra in
// this process, if nobody else leads; else where the leader is.
func (f *adminFlags) asks(ctx context.Context, std stdio, command func(ctx context.Context, in wayIn) error) error {
	if len(f.Cassandra) == 0 {
		c, err := f.remote()
		if err != nil {
			return err
		}
		return refusal(command(ctx, wayIn{Client: c}))
	}
	return refusal(f.directly(ctx, std, true, command))
}

// reads runs a command that only reads maps.
func (f *adminFlags) reads(ctx context.Context, std stdio, command func(ctx context.Context, in wayIn) error) error {
	if len(f.Cassandra) == 0 {
		return f.asks(ctx, std, command)
	}
	return refusal(f.directly(ctx, std, false, command))
}

func (f *adminFlags) remote() (*adminapi.Client, error) {
	if changed := f.Changed(); len(changed) > 0 {
		return nil, usageError("%s: only with --cassandra, which is not given", strings.Join(changed, ", "))
	}
	c, err := adminapi.NewClient(f.Admin, f.AdminToken)
	if err != nil {
		return nil, usageError("--admin: %w", err)
	}
	return c, nil
}

// refusal gives errors that say that something does not fit an exit code of their
// own.
func refusal(err error) error {
	var exit *exitError
	if err == nil || errors.As(err, &exit) {
		return err
	}
	switch store.KindOf(err) {
	case store.InvalidArgument, store.NotFound, store.Conflict:
		return &exitError{exitRefused, err}
	}
	return err
}

// directly runs a command over a handler in this process.
func (f *adminFlags) directly(ctx context.Context, std stdio, leads bool, command func(ctx context.Context, in wayIn) error) error {
	log := slog.New(slog.NewTextHandler(std.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	o, err := f.Options(log)
	if err != nil {
		return usageError("%w", err)
	}
	if f.LocalDC == "" {
		return usageError("--local-dc is missing: the data centre of this process, by the name that nodetool status shows")
	}
	if f.MoveRate < 0 {
		return usageError("--move-rate is a number of rows per second, or 0 for as many as possible, not %d", f.MoveRate)
	}
	if f.Lease < mapclient.MinLease || f.Lease > mapclient.MaxLease {
		return usageError("--lease is from %v to %v", mapclient.MinLease, mapclient.MaxLease)
	}
	st, err := cassandrastore.Open(ctx, o)
	if err != nil {
		return err
	}
	defer func() { _ = st.Close() }()
	// A shorter lease than the servers' would end waits before theirs are over.
	if err := mapclient.AgreeOnLease(ctx, st, f.Lease, false); err != nil {
		return err
	}
	maps, err := mapclient.NewNetwork(st, mapclient.Options{Lease: f.Lease})
	if err != nil {
		return err
	}
	defer maps.Close()
	names, err := listing.New(st, maps, listing.Options{})
	if err != nil {
		return err
	}
	m := manager.New(st, maps, manager.Options{RowsPerSecond: f.MoveRate, Logger: log})
	candidate := leader.New(st, leader.Options{Name: processName()})
	c, end := adminapi.Within(adminapi.New(adminapi.Options{
		Manager: m, Store: st, Maps: maps, Names: names,
		Leader: func(ctx context.Context) (leader.Holder, bool, bool) {
			h, mine := candidate.Leading()
			if mine {
				return h, true, true
			}
			h, err := leader.Current(ctx, st)
			return h, err == nil, false
		},
	}))
	defer end()
	if !leads {
		return command(ctx, wayIn{Client: c})
	}
	err = candidate.Try(ctx, func(ctx context.Context) error {
		ctx, stop := context.WithCancel(ctx)
		moved := make(chan error, 1)
		go func() { moved <- m.Run(ctx) }()
		err := command(ctx, wayIn{Client: c, direct: true})
		stop()
		<-moved
		return err
	})
	var held *leader.HeldError
	if errors.As(err, &held) && held.Holder.Admin != "" {
		// It goes where it can be done.
		there, cerr := adminapi.NewClient(held.Holder.Admin, f.AdminToken)
		if cerr != nil {
			return errors.Join(err, cerr)
		}
		fmt.Fprintf(std.err, "rebalancer: %s leads: the command goes to %s\n", &held.Holder, held.Holder.Admin)
		return command(ctx, wayIn{Client: there})
	}
	return err
}

func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("rebalancer on %s, process %d", host, os.Getpid())
}
