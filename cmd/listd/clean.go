package main

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/evenkeel/evenkeel/internal/assembly"
	"github.com/evenkeel/evenkeel/internal/cleaning"
	"github.com/evenkeel/evenkeel/internal/hints"
	"github.com/evenkeel/evenkeel/internal/processes"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/internal/rebalance/leader"
	"github.com/evenkeel/evenkeel/objects"
)

// cleaning returns the options of the cleaner, the background work that deletes what the buckets of objects no longer
// need, e.g. the bodies of deleted objects. adminURL is the URL of this server's admin address, or "".
func (s *serveCmd) cleaning(
	db *assembly.DB, o *objects.Objects, blobs objects.Blobs, journal *hints.Journal, log *slog.Logger, adminURL string,
) cleaning.Options {
	clean := cleaning.Options{
		Buckets: db.Client, Objects: o, Registers: db.Store, Every: s.CleanEvery, RowsPerSecond: s.CleanRate, Log: log,
		Hints: journal, AllEvery: s.CleanAll,
	}
	if _, none, _ := s.bodiesPlace(); !none { // else an audit would report all bodies as lost
		clean.AuditEvery, clean.ScrubMiBPerSecond, clean.Condemn = s.AuditEvery, s.ScrubMiB, s.CondemnOrphans
		clean.Claim = func(ctx context.Context) error { return s.claim(ctx, db, blobs, false) }
	}
	if len(s.Cassandra) > 0 {
		clean.Leader = &leader.Options{Name: engine.Name("listd"), Admin: cmp.Or(s.AdminURL, adminURL)}
	}
	if db.Presence != nil {
		clean.Noting = func(ctx context.Context) (bool, error) { return processes.AllHint(ctx, db.Store) }
		clean.Live = func(ctx context.Context) (int, error) { return processes.Cleaners(ctx, db.Store) }
	}
	return clean
}
