package main

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/evenkeel/evenkeel/internal/cleaning"
	"github.com/evenkeel/evenkeel/internal/rebalance/leader"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/rebalance"
	"github.com/evenkeel/evenkeel/rebalance/assembly"
)

// cleaning are the options of the cleaner of buckets of objects.
func (s *serveCmd) cleaning(
	db *assembly.DB, o *objects.Objects, blobs objects.Blobs, log *slog.Logger, adminURL string,
) cleaning.Options {
	clean := cleaning.Options{
		Buckets: db.Client, Objects: o, Registers: db.Store, Every: s.CleanEvery, RowsPerSecond: s.CleanRate, Log: log,
	}
	if _, none, _ := s.bodiesPlace(); !none { // else all bodies seem to be lost
		clean.AuditEvery, clean.Condemn = s.AuditEvery, s.CondemnOrphans
		clean.Claim = func(ctx context.Context) error { return claim(ctx, db, blobs, false) }
	}
	if len(s.Cassandra) > 0 {
		clean.Leader = &leader.Options{Name: rebalance.Name("listd"), Admin: cmp.Or(s.AdminURL, adminURL)}
	}
	return clean
}
