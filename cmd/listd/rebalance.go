package main

import (
	"cmp"
	"errors"
	"log/slog"
	"path/filepath"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon/rebalanceflags"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/version"
	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/assembly"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
)

// rebalanceFlags are the command-line flags about splits, merges and moves of partitions, e.g. --rebalance.
type rebalanceFlags struct {
	rebalanceflags.Flags
	Rebalance string `default:"here" enum:"here,elsewhere" help:"${rebalance_rebalance=}"`
	AdminURL  string `name:"admin-url" placeholder:"URL" help:"${rebalance_admin_url=}"`
}

// validate returns an error if a flag about balancing has an invalid value. cassandra is true if the store is
// Cassandra, and false if the store is embedded.
func (f *rebalanceFlags) validate(cassandra bool) error {
	if f.Rebalance == "elsewhere" && !cassandra {
		return errors.New("--rebalance elsewhere: only with --cassandra; nobody else can open the data directory")
	}
	if f.Rebalance == "elsewhere" && f.Retention != "" {
		return errors.New("--retention: with --rebalance elsewhere this process never applies rules; give them to those " +
			"that lead the moves")
	}
	if err := adminapi.CheckURL("--admin-url (EVENKEEL_ADMIN_URL)", f.AdminURL); err != nil {
		return err
	}
	return f.Flags.Validate()
}

// balancing returns the options for the splits, merges and moves of partitions by this server. adminURL is the URL of
// the server's own admin address, or "" if the server has none.
func (s *serveCmd) balancing(db *assembly.DB, log *slog.Logger, adminURL string) engine.Options {
	f := &s.rebalanceFlags.Flags
	balance := f.Options(db.Counts != nil, db.Wait())
	build := version.Current()
	o := engine.Options{
		Balance: &balance, MoveRate: f.MoveRate, HistoryFile: f.History, Version: build.Version, Commit: build.Commit, Log: log,
		Retention: f.Rules(), RetentionEvery: f.RetentionEvery,
	}
	if len(s.Cassandra) == 0 {
		o.HistoryFile = cmp.Or(f.History, filepath.Join(s.Data, "history"))
	} else {
		o.Aside = s.Rebalance == "elsewhere"
		o.Leader = &engine.Candidate{Name: engine.Name("listd"), Admin: cmp.Or(s.AdminURL, adminURL)}
	}
	return o
}
