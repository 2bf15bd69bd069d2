// Package rebalance is what a process runs that keeps the buckets of a store in shape:
// it stands by to lead, moves ranges and looks after sizes while it does, and takes
// commands. It is the same in listd and in rebalancer run.
package rebalance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/daemon/adminapi"
	"github.com/evenkeel/evenkeel/internal/rebalance/balancer"
	"github.com/evenkeel/evenkeel/internal/rebalance/leader"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// Options of a keeper. Store, Buckets and the policy of Balance are required.
type Options struct {
	Store   store.Store
	Buckets *listing.Client
	// Balance is how sizes are looked after; with Every 0 they are not.
	Balance balancer.Options
	// Counts is where sizes are counted; nil: nowhere, and each look counts every row.
	Counts counter.Backend
	// MoveRate is the most rows copied and compared per second; 0: no limit.
	MoveRate int
	// Leader has the processes of a shared store elect one that does the work; nil:
	// this process has its store for itself.
	Leader *leader.Options
	// Aside: never lead, and leave the work to others.
	Aside bool
	// Log is told what begins, ends and fails; nothing if nil.
	Log *slog.Logger
	// Now is the wall clock, time.Now if nil.
	Now func() time.Time
}

// EmbeddedWait is what a wait of a move takes at most where one process has the store
// for itself: for writes under way.
const EmbeddedWait = time.Second

// Wait is what a wait of a move takes at most with a lease.
func Wait(lease time.Duration) time.Duration { return lease + lease/10 }

// Keeper is all of it. Its methods are safe for concurrent use; Run is for one
// goroutine at a time.
type Keeper struct {
	m         *scheduler.Scheduler
	sizes     *balancer.Balancer // nil: nobody looks after them
	candidate *leader.Candidate  // nil: this process has its store for itself
	aside     bool
	api       http.Handler
	log       *slog.Logger
}

// New makes a keeper. Nothing is read or written until Run.
func New(o Options) *Keeper {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	maps := o.Buckets.Maps()
	m := scheduler.New(o.Store, maps, scheduler.Options{
		RowsPerSecond: o.MoveRate, Logger: o.Log, Now: o.Now,
	})
	k := &Keeper{m: m, aside: o.Aside, log: o.Log}
	if o.Balance.Every > 0 && !o.Aside {
		b, counts := o.Balance, o.Counts
		b.Now, b.Logger = o.Now, o.Log
		if b.Exact = counts == nil; b.Exact {
			counts = counter.NewMemory(nil)
		}
		k.sizes = balancer.New(o.Store, maps, k.m, counts, b)
	}
	a := adminapi.Options{
		Manager: k.m, Balancer: k.sizes, Store: o.Store, Maps: maps, Names: o.Buckets, Buckets: o.Buckets, Rows: o.Store,
		MaxRows: o.Balance.Policy.MaxRows, Every: o.Balance.Every, Now: o.Now,
	}
	if o.Leader != nil {
		k.candidate = leader.New(o.Store, *o.Leader)
		a.Leader = k.candidate.Leader
	}
	k.api = adminapi.New(a)
	return k
}

// API is the handler of everything below /v1/; see adminapi.
func (k *Keeper) API() http.Handler { return k.api }

// Leading reports whether this process does the work at present.
func (k *Keeper) Leading() bool {
	if k.candidate == nil {
		return true
	}
	_, mine := k.candidate.Leading()
	return mine
}

// lead does the work until ctx ends.
func (k *Keeper) lead(ctx context.Context) error {
	var sizes sync.WaitGroup
	if k.sizes != nil {
		sizes.Go(func() { _ = k.sizes.Run(ctx) }) // it ends with ctx
	}
	defer sizes.Wait()
	return k.m.Run(ctx)
}

// Run does the work until ctx ends, while this process leads. It returns when nothing
// moves any more and the lease is given up: with an error only where this process
// never can lead, since the record of who leads is damaged or of a later version.
func (k *Keeper) Run(ctx context.Context) error {
	switch {
	case k.aside:
		k.log.Info("moves are left to other processes")
		<-ctx.Done()
		return nil
	case k.candidate == nil:
		_ = k.lead(ctx)
		return nil
	}
	for ctx.Err() == nil {
		err := k.candidate.Run(ctx, func(ctx context.Context) error {
			k.log.Info("this process leads the moves now")
			return k.lead(ctx)
		}, func(err error) {
			var held *leader.HeldError
			if errors.As(err, &held) {
				k.log.Info("another process leads the moves", "leader", held.Holder.String(), "admin", held.Holder.Admin)
				return
			}
			k.log.Warn("this process does not lead the moves", "error", err)
		})
		if ctx.Err() == nil && store.KindOf(err) == store.Corrupt {
			k.log.Error("nothing is moved by this process", "error", err)
			return err
		}
	}
	return nil
}

// Name is what people know a process of a program by.
func Name(program string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s on %s, process %d", program, host, os.Getpid())
}
