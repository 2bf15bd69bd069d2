package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/secrecy"
	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/assembly"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

type backupCmd struct {
	Dir            string `arg:"" help:"New directory for the backup, on the machine of the server, outside its data directory."`
	adminapi.Flags `group:"Server:"`
	Progress       string `default:"auto" enum:"auto,plain,none" help:"${backup_progress=}"`
}

func (*backupCmd) Help() string {
	return `Copies the data directory of a running server, as it is at one moment. The backup has
everything that was acknowledged before. The directory is called DIR.partial until the backup
is complete and synced.

On the file system of the data directory a backup takes little space and time: tables, which
never change, are hard links. Such a backup is lost together with the disk: copy it elsewhere.
For backups of Cassandra see docs/backup.md.

Examples:

  listd backup /srv/backups/monday
  listd backup /mnt/other-disk/monday --admin http://127.0.0.1:9001`
}

func (b *backupCmd) Run(ctx context.Context, std stdio) error {
	dir, err := filepath.Abs(b.Dir)
	if err != nil {
		return err
	}
	c, err := b.Client()
	if err != nil {
		return daemon.Exit(daemon.ExitUsage, err)
	}
	ctx, release := daemon.Signals(ctx)
	defer release()
	begun := time.Now()
	now, end := showSizes(b.Progress, std.err, "backed up", 0)
	size, err := c.Backup(ctx, dir, now)
	end()
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
	Data     string `required:"" placeholder:"NEW" help:"New or empty directory to restore into, for a server to use."`
	Progress string `default:"auto" enum:"auto,plain,none" help:"${backup_progress=}"`
}

func (*restoreCmd) Help() string {
	return `Copies a backup into a new data directory, and opens that as a check. The backup is only read,
and can be restored any number of times.

Example:

  listd restore /srv/backups/monday --data /srv/restored
  rebalancer verify --data /srv/restored
  listd serve --data /srv/restored

Exit codes: 0 done; 1 failed; 2 bad flags; 3 the backup is none, is damaged, or was made by
a newer listd, or NEW is not empty. Then nothing is left in NEW.`
}

func (r *restoreCmd) Run(ctx context.Context, std stdio) error {
	ctx, release := daemon.Signals(ctx)
	defer release()
	secrecy.Umask()
	// The restore collects no tombstones. The server that will use the directory collects them as its own flag says.
	const never = 100 * 365 * 24 * time.Hour
	o := pebblestore.Options{TombstoneGrace: never}
	begun := time.Now()
	now, end := showSizes(r.Progress, std.err, "restored", bytesBelow(r.Dir))
	size, err := pebblestore.Restore(ctx, r.Dir, r.Data, o, now)
	end()
	if err != nil {
		return daemon.Exit(daemon.ExitUnusable, err)
	}
	o.ReadOnly = true
	buckets, err := countBuckets(ctx, r.Data, o)
	if err != nil {
		return daemon.Exit(daemon.ExitUnusable, fmt.Errorf(
			"%s is restored, but its buckets can't be read; rebalancer verify --data %s says what is wrong: %w", r.Data, r.Data,
			err))
	}
	_, err = fmt.Fprintf(std.out, `restored %s into %s in %v: %d buckets
check it:  rebalancer verify --data %s
serve it:  listd serve --data %s
`, sizeText(size), r.Data, time.Since(begun).Round(time.Millisecond), buckets, r.Data, r.Data)
	return err
}

// countBuckets opens the data directory dir with the options o, returns the number of buckets in dir, and closes dir.
// It checks that a restored directory can be read.
func countBuckets(ctx context.Context, dir string, o pebblestore.Options) (n int, err error) {
	s, err := pebblestore.Open(dir, o)
	if err != nil {
		return 0, err
	}
	db, err := assembly.Open(ctx, s, assembly.Options{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for _, err := range db.Buckets(ctx, "", "") {
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

// bytesBelow returns the total size in bytes of the files below the directory dir. Files that cannot be read are left
// out.
func bytesBelow(dir string) (total int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			total += info.Size()
		}
		return nil
	})
	return total
}

// showSizes shows on w how much of a backup or restore is copied, until the caller calls end. The caller reports the
// size copied so far by calling now. The parameters are:
//   - kind: the value of --progress: plain, auto or none
//   - what: a verb such as "restored"
//   - total: the expected size in bytes, or 0 if unknown
func showSizes(kind string, w io.Writer, what string, total int64) (now func(store.Size), end func()) {
	if kind == "none" || kind == "auto" && !daemon.Terminal(w) {
		return func(store.Size) {}, func() {}
	}
	var last atomic.Pointer[store.Size]
	began := time.Now()
	return func(s store.Size) { last.Store(&s) }, daemon.PrintEvery(daemon.LineEvery, w, func() string {
		if s := last.Load(); s != nil {
			return what + " " + sizeLine(*s, total, time.Since(began))
		}
		return ""
	})
}

// sizeLine returns a line of text for progress, with the size copied so far, the rate, and the time left. The parameter
// total is the expected size in bytes, or 0 if unknown. The parameter took is the time since the start.
func sizeLine(s store.Size, total int64, took time.Duration) string {
	const mib = 1 << 20
	rate := float64(s.Bytes) / max(took.Seconds(), 1e-3)
	line := sizeText(s)
	if total > 0 {
		line += fmt.Sprintf(" (%d %%)", min(100, 100*s.Bytes/total))
	}
	return line + fmt.Sprintf(", %.0f MiB/s", rate/mib) + daemon.Left(s.Bytes, total, rate)
}
