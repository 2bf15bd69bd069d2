package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/cassandraflags"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/secrecy"
	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/assembly"
	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/commontime"
	"github.com/evenkeel/evenkeel/internal/rebalance/engine"
	"github.com/evenkeel/evenkeel/internal/rebalance/leader"
	"github.com/evenkeel/evenkeel/internal/rebalance/repair"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// verifyCmd is the command that checks the maps and rows of a store for damage, and can repair some of the damage.
type verifyCmd struct {
	Bucket               string         `arg:"" optional:"" help:"${verify_bucket=}"`
	Servers              adminapi.Flags `embed:"" group:"Without --cassandra:"`
	Data                 string         `placeholder:"DIR" help:"Check this data directory, while its listd does not run."`
	cassandraflags.Flags `group:"With --cassandra:"`
	Lease                time.Duration       `placeholder:"DURATION" group:"With --cassandra:" help:"${verify_lease=}"`
	MaxClockSkew         time.Duration       `placeholder:"DURATION" group:"With --cassandra:" help:"${verify_max_clock_skew=}"`
	Repair               bool                `env:"-" help:"Repair what can be repaired safely, and report it."`
	Adopt                bool                `env:"-" help:"${verify_adopt=}"`
	AdoptAll             bool                `env:"-" help:"${verify_adopt_all=}"`
	Discard              []store.PartitionID `placeholder:"PARTITION" env:"-" help:"${verify_discard=}"`
	SkipOrphans          bool                `help:"${verify_skip_orphans=}"`
	RowsPerSecond        int                 `default:"0" placeholder:"N" help:"Most rows read per second; 0: no limit."`
	Parallel             int                 `default:"4" placeholder:"N" help:"Partitions read at once."`
	StuckAfter           time.Duration       `default:"1h" help:"Age of a phase from which its move counts as stuck."`
	Format               string              `default:"text" enum:"text,json" help:"${verify_format=}"`
	JSON                 daemon.JSON         `name:"json" env:"-" help:"Short for --format json."`
	Progress             string              `default:"auto" enum:"auto,plain,none" help:"${verify_progress=}"`
}

// Help returns the detailed help text of the command verify, which --help prints.
func (verifyCmd) Help() string {
	return `It reads the names, the maps and all rows, and reports problems, their meaning and what to do. It may run while clients
write and ranges move: moves under way and pending sweeps are reported, but are no problems.

Examples:

    rebalancer verify                                   # what listd on this host serves
    rebalancer verify photos --repair
    rebalancer verify --data ./evenkeel-data            # listd does not run
    rebalancer verify --cassandra 10.0.0.1 --local-dc dc1 --rows-per-second 20000 --format json

After a restore the maps may be older than the rows, or newer: copies are never taken of all nodes and tables at one moment. Rows
are then in partitions that no map names ("orphan partition"), and no listing shows them. End all servers, look, then repair:

    rebalancer verify --data ./evenkeel-data            # says what is missing, how many rows, and what is known of it
    rebalancer verify --data ./evenkeel-data --adopt    # the maps were restored older than the rows
    rebalancer verify --data ./evenkeel-data --adopt-all  # the rows were restored older than the maps, or it can't be told
    rebalancer verify --data ./evenkeel-data            # has to say "clean"; only then start servers

An orphan partition is removed only when each of its rows is where the map says, as new or newer. Where nothing was restored, rows that
are nowhere else are deleted rows that came back: --repair --discard PARTITION removes them.

Exit codes: 0 clean (or all problems are mended); 1 there are problems; 2 bad flags; 3 the check could not be made,
or not to its end; 4 something could not be checked, or there is no such bucket.`
}

// Validate returns an error if a flag of the command verify has an invalid value. The command-line parser kong calls
// Validate before Run.
func (v *verifyCmd) Validate() error {
	switch {
	case v.Data != "" && len(v.Cassandra) > 0:
		return errors.New("--data and --cassandra: one of them")
	case len(v.Cassandra) > 0 && v.LocalDC == "":
		return errors.New("--local-dc is missing: the data centre to read from, by the name that nodetool status shows")
	case len(v.Cassandra) == 0 && len(v.Changed()) > 0:
		return fmt.Errorf("%s: only with --cassandra, which is not given", strings.Join(v.Changed(), ", "))
	case (v.Adopt || v.AdoptAll) && v.Data == "" && len(v.Cassandra) == 0:
		return errors.New("--adopt and --adopt-all: with --data or --cassandra only, when all servers have ended")
	case (v.Adopt || v.AdoptAll) && v.SkipOrphans:
		return errors.New("--adopt and --adopt-all look for partitions that nobody names: not with --skip-orphans")
	case len(v.Discard) > 0 && !v.Repair && !v.Adopt && !v.AdoptAll:
		return errors.New("--discard removes a partition: only with --repair, --adopt or --adopt-all")
	case v.RowsPerSecond < 0, v.Parallel < 1, v.StuckAfter <= 0:
		return errors.New("--rows-per-second, --parallel and --stuck-after are above zero")
	case v.MaxClockSkew != 0 && v.MaxClockSkew < commontime.MinLimit:
		return fmt.Errorf("--max-clock-skew is at least %v", commontime.MinLimit)
	}
	return checkLease(v.Lease)
}

// options returns the options of the check that the flags give.
func (v *verifyCmd) options() repair.Options {
	o := repair.Options{
		Repair: v.Repair, Discard: v.Discard, SkipOrphans: v.SkipOrphans, RowsPerSecond: v.RowsPerSecond,
		Parallel: v.Parallel, StuckAfter: v.StuckAfter,
	}
	switch {
	case v.AdoptAll:
		o.Adopt = repair.AdoptAll
	case v.Adopt:
		o.Adopt = repair.AdoptNewer
	}
	return o
}

// Run checks the store and prints the problems. Run returns an error if the store has problems.
func (v *verifyCmd) Run(ctx context.Context, std stdio) error {
	out := &findings{w: &failing{w: std.out}, json: v.Format == "json", describe: v.describe}
	check := v.here
	if v.Data == "" && len(v.Cassandra) == 0 {
		check = v.remote
	}
	sum, err := check(ctx, std, out)
	out.summary(sum, err)
	switch {
	case err != nil && sum.Problems == 0:
		var exit *daemon.ExitError
		if err = refusal(err); errors.As(err, &exit) {
			return err
		}
		return daemon.Exit(daemon.ExitUnusable, err)
	case err != nil:
		return daemon.Exit(daemon.ExitFailed, fmt.Errorf("there are problems, and the check did not end: %w", err))
	case sum.Problems > 0:
		return daemon.Exit(daemon.ExitFailed, fmt.Errorf("%d problems", sum.Problems))
	case sum.Unchecked > 0:
		return refused("%d things could not be checked", sum.Unchecked)
	}
	return out.w.err
}

// remote asks a listd server to check the store that the server has open, and prints each finding at once. sum has the
// counts of the check.
func (v *verifyCmd) remote(ctx context.Context, std stdio, out *findings) (sum repair.Summary, err error) {
	c, err := v.Servers.Client()
	if err != nil {
		return sum, usageError("%w", err)
	}
	var now atomic.Pointer[repair.Summary]
	now.Store(new(repair.Summary))
	stop := v.showProgress(std.err, func() repair.Summary { return *now.Load() })
	defer stop()
	ask := adminapi.Verify{Bucket: v.Bucket, Options: v.options(), StuckAfterMs: v.StuckAfter.Milliseconds()}
	return c.Verify(ctx, ask, out.finding, func(s repair.Summary) { now.Store(&s) })
}

// here opens the store and checks the store in this process, without any server. sum has the counts of the check.
func (v *verifyCmd) here(ctx context.Context, std stdio, out *findings) (sum repair.Summary, err error) {
	o := v.options()
	said := terms{lease: v.Lease, skew: v.MaxClockSkew, damaged: v.Lease != 0 && v.MaxClockSkew != 0}
	db, err := openStore(ctx, v.Data, !v.Repair && o.Adopt == repair.AdoptNone, &v.Flags, said)
	if errors.Is(err, store.Corrupt) && len(v.Cassandra) > 0 && !said.damaged {
		err = fmt.Errorf("%w; to check the rest give --lease and --max-clock-skew of the servers", err)
	}
	if err != nil {
		return sum, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	o.Report, o.LostSettings = out.finding, care.LostSettings
	work := func(ctx context.Context) error {
		check := repair.New(db.Store, db.Client, o)
		stop := v.showProgress(std.err, check.Progress)
		defer stop()
		sum, err = check.Run(ctx, v.Bucket)
		return err
	}
	if o.Adopt != repair.AdoptNone && v.Data == "" {
		err = v.alone(ctx, db.Store, work)
	} else {
		err = work(ctx)
	}
	return sum, err
}

// alone runs work while this process holds all leases to move ranges, so that no other process moves ranges meanwhile.
// If another process holds one of the leases, alone fails, and work does not run.
func (v *verifyCmd) alone(ctx context.Context, regs store.Registers, work func(ctx context.Context) error) error {
	err := leader.NewShards(regs, leader.Options{Name: engine.Name("rebalancer")}, nil).Try(ctx, work)
	if _, ok := errors.AsType[*leader.HeldError](err); ok {
		return fmt.Errorf("servers run, or ended less than half a minute ago: --adopt has to be alone; end them and try again: %w", err)
	}
	return err
}

// openStore opens the store of a command: the data directory with the path data or, if data is empty, a keyspace in
// Cassandra that servers use, with the settings t. The counters of sizes do not count the command's writes. If readOnly
// is true, the files of a data directory are not changed.
func openStore(
	ctx context.Context, data string, readOnly bool, f *cassandraflags.Flags, t terms,
) (*assembly.DB, error) {
	if data == "" {
		opening, cancel := context.WithTimeout(ctx, openTimeout)
		defer cancel()
		t.used = true
		return openKeyspace(opening, f, t, nil, nil)
	}
	// A check must not create the directory.
	if _, err := os.Stat(filepath.Join(data, pebblestore.FormatFile)); err != nil {
		return nil, fmt.Errorf("--data: %s is not a data directory of listd: %w", data, err)
	}
	secrecy.Umask()
	// Only listd collects tombstones, as its own flag says.
	const never = 100 * 365 * 24 * time.Hour
	s, err := pebblestore.Open(data, pebblestore.Options{TombstoneGrace: never, ReadOnly: readOnly})
	if err != nil {
		return nil, err
	}
	return assembly.Open(ctx, s, assembly.Options{})
}

// findings prints what a check of a store finds, as text or as JSON.
type findings struct {
	w        *failing
	json     bool
	describe func(repair.Summary) string
}

func (f *findings) finding(x repair.Finding) {
	if f.json {
		printLine(f.w, x)
	} else {
		f.w.printf("%s\n", x)
	}
}

func (f *findings) summary(s repair.Summary, err error) {
	if f.json {
		text := ""
		if err != nil {
			text = err.Error()
		}
		printLine(f.w, map[string]any{"version": daemon.JSONVersion, "summary": s, "complete": err == nil, "error": text})
		return
	}
	if err != nil && s == (repair.Summary{}) {
		return // there was no check
	}
	f.w.printf("%s\n", f.describe(s))
	if err == nil && s.Problems+s.Unchecked == 0 {
		f.w.printf("clean\n")
	}
}

// describe returns the summary s of a check as one line of text. The list of buckets is stored as a bucket, too, but is
// not counted in the line.
func (v *verifyCmd) describe(s repair.Summary) string {
	buckets := commas(s.Buckets) + " buckets"
	if v.Bucket == "" && s.Buckets > 0 {
		buckets = fmt.Sprintf("%s buckets and the list of them", commas(s.Buckets-1))
	}
	adopted := ""
	if s.Adopted > 0 {
		adopted = fmt.Sprintf(" (%s rows copied)", commas(s.Adopted))
	}
	return fmt.Sprintf("%s, %s partitions, %s rows; %d problems, %d mended%s, %d unchecked",
		buckets, commas(s.Partitions), commas(s.Rows), s.Problems, s.Mended, adopted, s.Unchecked)
}

// showProgress shows the progress of a check on w until the caller calls stop. The function now returns the counts so
// far.
func (v *verifyCmd) showProgress(w io.Writer, now func() repair.Summary) (stop func()) {
	began := time.Now()
	describe := func() string {
		s := now()
		rate := float64(s.Rows) / max(time.Since(began).Seconds(), 1e-3)
		return fmt.Sprintf("%s, %s rows/s", v.describe(s), commas(int64(rate)))
	}
	switch {
	case v.Progress == "plain":
		return daemon.PrintEvery(10*time.Second, w, func() string { return "verify: " + describe() })
	case v.Progress == "auto" && daemon.Terminal(w):
		b := progressbar.NewOptions(-1, progressbar.OptionSetWriter(w), progressbar.OptionClearOnFinish())
		stop := wait.Every(200*time.Millisecond, func() { b.Describe(describe()) })
		return func() {
			stop()
			_ = b.Finish()
		}
	}
	return func() {}
}
