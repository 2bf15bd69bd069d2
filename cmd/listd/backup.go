package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/term"

	"github.com/evenkeel/evenkeel/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/daemon/adminapi"
	"github.com/evenkeel/evenkeel/internal/daemon/secrecy"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

type backupCmd struct {
	Dir string `arg:"" help:"New directory for the backup, on the machine of the server, outside its data directory."`
	adminapi.Flags
	Progress string `default:"auto" enum:"auto,plain,none" help:"How to show progress, on standard error: plain lines, none, or auto: lines on a terminal only."`
}

func (*backupCmd) Help() string {
	return `Copies what a running server keeps in its data directory, as it is at one moment, while the
server goes on. Everything that was acknowledged before is in it. The directory gets its
name when the backup is complete and synced; until then it is called DIR.partial.

On the file system of the data directory a backup takes little space and time: tables, which
never change, are hard links. Such a backup is lost together with the disk: copy it elsewhere.
What is in Cassandra is backed up otherwise: see docs/backup.md.

Examples:

  listd backup /srv/backups/monday
  listd backup /mnt/other-disk/monday --admin http://127.0.0.1:9001`
}

// Run has the server make a backup.
func (b *backupCmd) Run(ctx context.Context, std stdio) error {
	dir, err := filepath.Abs(b.Dir)
	if err != nil {
		return err
	}
	c, err := b.Client()
	if err != nil {
		return daemon.Exit(exitUsage, err)
	}
	ctx, release := daemon.Signals(ctx)
	defer release()
	begun := time.Now()
	show := showSizes(b.Progress, std.err, "backed up")
	size, err := c.Backup(ctx, dir, show.now)
	show.end()
	if ctx.Err() != nil {
		return errors.New("interrupted: nothing is left of the backup")
	}
	if err != nil {
		return err
	}
	took := time.Since(begun).Round(time.Millisecond)
	_, err = fmt.Fprintf(std.out, "backed up %s to %s in %v\n", sizeText(size), dir, took)
	return err
}

type restoreCmd struct {
	Dir      string `arg:"" help:"The backup: a directory that listd backup has made, or a copy of one. It is only read."`
	Data     string `required:"" placeholder:"NEW" help:"New or empty directory to restore into: the data directory of a server to be."`
	Progress string `default:"auto" enum:"auto,plain,none" help:"How to show progress, on standard error: plain lines, none, or auto: lines on a terminal only."`
}

func (*restoreCmd) Help() string {
	return `Copies a backup into a new data directory, and opens it there as a check. The backup is only
read; it may be restored again and again.

Example:

  listd restore /srv/backups/monday --data /srv/restored
  rebalancer verify --data /srv/restored
  listd serve --data /srv/restored

Exit codes: 0 done; 1 failed; 2 bad flags; 3 the backup is none, is damaged, or was made by
a newer listd, or NEW is not empty. Then nothing is left in NEW.`
}

// Run restores.
func (r *restoreCmd) Run(ctx context.Context, std stdio) error {
	ctx, release := daemon.Signals(ctx)
	defer release()
	secrecy.Umask()
	// What is dead is collected by the server to be, by its own flag.
	const never = 100 * 365 * 24 * time.Hour
	o := pebblestore.Options{TombstoneGrace: never}
	begun := time.Now()
	show := showSizes(r.Progress, std.err, "restored")
	size, err := pebblestore.Restore(ctx, r.Dir, r.Data, o, show.now)
	show.end()
	if err != nil {
		return daemon.Exit(exitStore, err)
	}
	buckets, err := countBuckets(ctx, r.Data, o)
	if err != nil {
		return daemon.Exit(exitStore, fmt.Errorf(
			"%s is restored, but its buckets can't be read; rebalancer verify --data %s says what is wrong: %w", r.Data, r.Data, err))
	}
	_, err = fmt.Fprintf(std.out, `restored %s into %s in %v: %d buckets
check it:  rebalancer verify --data %s
serve it:  listd serve --data %s
`, sizeText(size), r.Data, time.Since(begun).Round(time.Millisecond), buckets, r.Data, r.Data)
	return err
}

// countBuckets opens a data directory and reads the names of its buckets.
func countBuckets(ctx context.Context, dir string, o pebblestore.Options) (n int, err error) {
	s, err := pebblestore.Open(dir, o)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	c, err := listing.NewEmbedded(s, listing.Options{})
	if err != nil {
		return 0, err
	}
	defer c.Maps().Close()
	for _, err := range c.Buckets(ctx, "", "") {
		if err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

func sizeText(s store.Size) string {
	const mib = 1 << 20
	if s.Bytes < 10*mib {
		return fmt.Sprintf("%d files, %d bytes", s.Files, s.Bytes)
	}
	return fmt.Sprintf("%d files, %d MiB", s.Files, s.Bytes/mib)
}

// sizes shows how far a copy is.
type sizes struct {
	now func(store.Size)
	end func()
}

// showSizes makes what --progress asks for.
func showSizes(kind string, w io.Writer, what string) sizes {
	if f, ok := w.(*os.File); kind == "none" || kind == "auto" && !(ok && term.IsTerminal(int(f.Fd()))) {
		return sizes{func(store.Size) {}, func() {}}
	}
	var last atomic.Pointer[store.Size]
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(lineEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if s := last.Load(); s != nil {
					fmt.Fprintf(w, "%s %s\n", what, sizeText(*s))
				}
			case <-quit:
				return
			}
		}
	}()
	return sizes{func(s store.Size) { last.Store(&s) }, func() { close(quit); <-done }}
}
