package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/objects/fileblobs"
)

type bodiesCmd struct {
	Migrate bodiesMigrateCmd `cmd:"" help:"Move the bodies of an old directory into folders by a hash of their keys."`
}

// migrating is a directory of object bodies whose layout can be changed. The directories of package fileblobs are such.
type migrating interface {
	fileblobs.Store
	// HasMark reports whether the directory has the marker file which says that new blobs go into subdirectories chosen
	// by a hash of the object's key. Migrate moves the files of all blobs there.
	HasMark() bool
	Migrate(ctx context.Context, each func(bucket string, keys int64) error) error
}

// bodiesMigrateCmd is the command that moves the object bodies of an old directory into other folders. The old
// directory has one folder for each bucket. The new folders are named by a hash of the objects' keys.
type bodiesMigrateCmd struct {
	Dir            string      `arg:"" help:"${migrate_dir=}"`
	NoOlderServers bool        `env:"-" help:"${migrate_no_older=}"`
	Rate           int         `env:"-" default:"0" placeholder:"N" help:"${migrate_rate=}"`
	Format         string      `default:"text" enum:"text,json" help:"${verify_format=}"`
	JSON           daemon.JSON `name:"json" env:"-" help:"Short for --format json."`
	Progress       string      `default:"auto" enum:"auto,plain,none" help:"${verify_progress=}"`
}

// Help returns the detailed help text of the command bodies migrate, which --help prints.
func (bodiesMigrateCmd) Help() string {
	return `For directories of bodies that were first used by a listd that kept one folder for each bucket: ext4 refuses a
bucket's next key at some two million. Now the keys of a bucket are in 4096 folders, by a hash.

Servers of this version serve meanwhile, with the directory or without it, and need no restart. Older ones, and older
rebalancers that audit, would not find the bodies that have been moved: end them all first, on all machines that share
the directory, and say so with --no-older-servers. From then on they refuse the directory when they start.

It can be interrupted and run again, also by several at once; run it as the user of listd. Bodies that are brought back
from an older backup later, into the folder of their bucket, are read there; running this again moves them.

Examples:

    sudo -u evenkeel rebalancer bodies migrate /var/lib/evenkeel/bodies --no-older-servers --rate 1000
    rebalancer bodies migrate /srv/bodies --json

Exit codes: 0 all bodies are in the folders of their hashes; 2 bad flags; 3 the directory can't be used, or not all
were moved: run it again; 4 refused, and nothing changed.`
}

// Validate returns an error if --rate is negative. The command-line parser kong calls Validate before Run.
func (m *bodiesMigrateCmd) Validate() error {
	if m.Rate < 0 {
		return errors.New("--rate is not negative")
	}
	return nil
}

// Run moves the object bodies of an old directory into folders that are named by a hash of the objects' keys.
func (m *bodiesMigrateCmd) Run(ctx context.Context, std stdio) error {
	s, err := m.open(ctx)
	if err != nil {
		return err
	}
	out, pacer, began := &failing{w: std.out}, wait.NewPacer(m.Rate), time.Now()
	var mu sync.Mutex
	var at string
	var keys, buckets int64
	if m.Progress == "plain" || m.Progress == "auto" && daemon.Terminal(std.err) {
		stop := daemon.PrintEvery(daemon.LineEvery, std.err, func() string {
			mu.Lock()
			defer mu.Unlock()
			return fmt.Sprintf("migrate: %s keys moved, %s keys/s; at bucket %s", commas(keys),
				commas(int64(float64(keys)/max(time.Since(began).Seconds(), 1e-3))), text(at))
		})
		defer stop()
	}
	err = s.Migrate(ctx, func(bucket string, moved int64) error {
		mu.Lock()
		if bucket != at {
			buckets++
		}
		at, keys = bucket, keys+moved
		mu.Unlock()
		return pacer.Take(ctx, int(moved))
	})
	err = errors.Join(err, s.Close())
	if m.Format == "json" {
		why := ""
		if err != nil {
			why = err.Error()
		}
		printLine(out, map[string]any{
			"version": daemon.JSONVersion, "summary": map[string]int64{"buckets": buckets, "keys": keys},
			"complete": err == nil, "error": why,
		})
	} else {
		out.printf("%s keys of %s buckets moved\n", commas(keys), commas(buckets))
		if err == nil {
			out.printf("all bodies are in the folders of their hashes\n")
		}
	}
	if err != nil {
		return daemon.Exit(daemon.ExitUnusable, fmt.Errorf("not all bodies were moved; run it again: %w", err))
	}
	return out.err
}

// open opens the directory of object bodies. It refuses a directory of another user, and one without the file _owner,
// which servers put into their directory. Without --no-older-servers, open also refuses a directory that older programs
// may still use.
func (m *bodiesMigrateCmd) open(ctx context.Context) (s migrating, err error) {
	info, err := os.Stat(m.Dir)
	if err != nil {
		return nil, daemon.Exit(daemon.ExitUnusable, fmt.Errorf("the directory of bodies: %w", err))
	}
	if of, ok := info.Sys().(*syscall.Stat_t); ok && int(of.Uid) != os.Geteuid() {
		return nil, refused("%s belongs to user %d: run this as that user, who could not read the new folders otherwise",
			m.Dir, of.Uid)
	}
	dir, err := fileblobs.Look(m.Dir)
	if err != nil {
		return nil, refusal(err)
	}
	s = dir.(migrating)
	owner, err := care.Owner(ctx, s)
	switch {
	case err != nil:
	case owner == "":
		err = refused("%s has no mark _owner, as directories of bodies have that a listd has opened: is it the one, and "+
			"mounted?", m.Dir)
	case !s.HasMark() && !m.NoOlderServers:
		err = refused("older servers and audits would lose the bodies that are moved: end them all, and say so with " +
			"--no-older-servers")
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}
