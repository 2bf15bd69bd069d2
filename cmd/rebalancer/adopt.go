package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/cassandraflags"
	"github.com/evenkeel/evenkeel/internal/adopt"
	"github.com/evenkeel/evenkeel/internal/cqltable"
	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
)

// adoptCmd is the group of commands that copy the rows of another store into a bucket: adopt cql, adopt s3 and adopt
// file.
type adoptCmd struct {
	CQL  adoptCQLCmd  `cmd:"" name:"cql" help:"${adopt_cql=}"`
	S3   adoptS3Cmd   `cmd:"" name:"s3" help:"Bring the names and metadata of another S3 store's objects into a bucket."`
	File adoptFileCmd `cmd:"" name:"file" help:"Bring the lines of a file into a bucket: keys, TSV, or JSON lines."`

	Status adoptStatusCmd `cmd:"" help:"Print how far a copy has come, by the file of --checkpoint."`
}

// adoptFlags are the command-line flags of all commands that copy rows into a bucket, whether from Cassandra tables,
// from S3 or from a file.
type adoptFlags struct {
	Bucket string `arg:"" help:"Name of the bucket; made if it is not there."`

	CatchUp bool `xor:"mode" env:"-" help:"${adopt_catch_up=}"`
	Verify  bool `xor:"mode" env:"-" help:"${adopt_verify=}"`
	DryRun  bool `env:"-" help:"Read, and print what would be done."`

	cassandraflags.Flags `group:"With --cassandra:"`
	Lease                time.Duration `placeholder:"DURATION" group:"With --cassandra:" help:"${terms_lease=}"`
	MaxRows              int64         `default:"100000" env:"-" help:"${adopt_max_rows=}"`
	Rate                 int           `default:"0" placeholder:"N" help:"Most rows read per second; 0: no limit."`
	Parallel             int           `default:"8" placeholder:"N" help:"Streams read at once."`
	Checkpoint           string        `env:"-" placeholder:"FILE" help:"${adopt_checkpoint=}"`
	Format               string        `default:"text" enum:"text,json" help:"${verify_format=}"`
	JSON                 daemon.JSON   `name:"json" env:"-" help:"Short for --format json."`
	Progress             string        `default:"auto" enum:"auto,bar,plain,none" help:"${move_progress=}"`

	back   adopt.Target // the target of --back; nil: rows go into the bucket
	memory int64        // bytes for rows of the source while it is compared
	within []byte       // the prefix of all keys
	took   time.Duration
}

type adoptCQLCmd struct {
	adoptFlags
	Table     []string `env:"-" required:"" placeholder:"KEYSPACE.TABLE" help:"${adopt_table=}"`
	Partition []string `env:"-" required:"" sep:"none" placeholder:"COLUMN=VALUE,…" help:"${adopt_partition=}"`
	Key       []string `env:"-" placeholder:"COLUMN" help:"${adopt_key=}"`
	Value     []string `env:"-" placeholder:"COLUMN" help:"${adopt_value=}"`
	Back      bool     `xor:"mode" env:"-" help:"${adopt_back=}"`
	MemoryMiB int64    `name:"memory-mib" default:"256" help:"${adopt_memory_mib=}"`
}

// Help returns the detailed help text of the command adopt cql, which --help prints.
func (adoptCQLCmd) Help() string {
	return `It reads partitions of a table in order, and puts each row into the bucket with the write time that it has
in the table. The application may go on, and may write to both meanwhile: to the table first, and to the
bucket when that is acknowledged. Then what is newer in the bucket wins, and what was deleted stays deleted.
A bucket that is not there is made, and cut by a sample of the table, so that no range has to be split while
rows come.

The order of keys is that of the table, so that both sides can be compared. The key of one clustering column of text or
blob is its bytes; other keys are tuples of the Go package keys, and -COLUMN turns the order around. Mappings that would
lose the order are refused.

Rows with a TTL, and those that are too large for an entry, are not adopted: they are listed and counted, and the exit
code is 1.

Examples:

    rebalancer adopt cql photos --cassandra 10.0.0.1 --local-dc dc1 --table app.files --partition bucket=photos
    rebalancer adopt cql photos … --partition bucket=photos,shard=0..255 --value meta --checkpoint photos.json
    rebalancer adopt cql photos … --catch-up              # afterwards: makes the bucket like the table
    rebalancer adopt cql photos … --verify                # reports what differs, and changes nothing
    rebalancer adopt cql photos … --back --dry-run        # after the cut-over: what the way back would write
    rebalancer adopt cql photos … --back                  # makes the table like the bucket

Never run --catch-up after the cut-over, when the bucket has what the table has not, nor --back before it.
docs/adopt.md has the whole way.

Exit codes: 0 done, or both sides are equal; 1 rows were refused, or differ; 2 bad flags; 3 the keyspace can't be used;
4 the table, or the mapping, can't be adopted, and nothing changed.`
}

// Validate returns an error if a flag of adopt cql has an invalid value. The command-line parser kong calls Validate
// before Run.
func (c *adoptCQLCmd) Validate() error {
	switch {
	case slices.ContainsFunc(c.Table, func(name string) bool { return strings.Count(name, ".") != 1 }):
		return errors.New("--table is KEYSPACE.TABLE")
	case c.MemoryMiB < 1 || c.MemoryMiB > 1<<20:
		return errors.New("--memory-mib is from 1 to 1048576")
	case c.Checkpoint != "" && c.Back:
		return errors.New("--checkpoint is for the copy, not for --back")
	}
	return c.adoptFlags.Validate()
}

// Validate returns an error if one of the flags that all adopt commands share has an invalid value.
func (c *adoptFlags) Validate() error {
	switch {
	case len(c.Cassandra) == 0:
		return errors.New("--cassandra is missing: a node of the cluster that has evenkeel's keyspace")
	case c.LocalDC == "":
		return errors.New("--local-dc is missing: the data centre to read from, by the name that nodetool status shows")
	case c.Rate < 0 || c.Parallel < 1 || c.MaxRows < 2:
		return errors.New("--rate is not negative, --parallel at least 1, --max-rows at least 2")
	case c.DryRun && (c.CatchUp || c.Verify):
		return errors.New("--dry-run goes not with --catch-up, and not with --verify, which shows what a catch-up would do")
	case c.Checkpoint != "" && (c.CatchUp || c.Verify || c.DryRun):
		return errors.New("--checkpoint is for the copy, not for --catch-up, --verify or --dry-run")
	}
	return checkLease(c.Lease)
}

// task returns a text that identifies the source of the copy: the tables and how their columns become keys and values.
// A file of --checkpoint is only valid for the same text.
func (c *adoptCQLCmd) task() string {
	return fmt.Sprintf("%s partition=%q key=%q value=%q", strings.Join(c.Table, ","), c.Partition, c.Key, c.Value)
}

// Run copies rows of Cassandra tables into a bucket, or compares the tables with the bucket. With --back, Run writes
// the bucket's rows back to the tables.
func (c *adoptCQLCmd) Run(ctx context.Context, std stdio) error {
	o, err := c.Options(nil)
	if err != nil {
		return usageError("%w", err)
	}
	opening, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tables, err := cqltable.Open(opening, o, c.Table...)
	if err != nil {
		return refusal(err)
	}
	defer tables[0].Close()
	var all []adopt.Target
	var first *adopt.Mapping
	for i, t := range tables {
		m, err := adopt.NewMapping(t.Columns(), c.Key, c.Value)
		if err == nil && i == 0 {
			first = m
		}
		if err == nil {
			err = first.Fits(m)
		}
		if err != nil {
			return refused("%s can't be adopted: %w", c.Table[i], err)
		}
		partitions, err := m.Partitions(c.Partition...)
		if err != nil {
			return refused("--partition: %w", err)
		}
		source, err := adopt.FromTable(t, m, partitions, listing.DefaultMaxValueBytes)
		if err != nil {
			return refused("%w", err)
		}
		all = append(all, source)
	}
	source := adopt.Join(all...)
	c.memory = c.MemoryMiB << 20
	if c.Back {
		c.back = source
	}
	return c.adopt(ctx, std, source, c.task())
}

// adopt opens the keyspace, and copies the rows of source into the bucket, or compares source with the bucket. task is
// a text that identifies the source in the file of --checkpoint.
func (c *adoptFlags) adopt(ctx context.Context, std stdio, source adopt.Source, task string) error {
	db, err := openStore(ctx, "", false, &c.Flags, terms{lease: c.Lease})
	if err != nil {
		return err
	}
	defer db.Close()
	return refusal(c.run(ctx, std, source, fmt.Sprintf("%s to %s/%s", task, c.Keyspace, c.Bucket), db.Client))
}

func (c *adoptFlags) run(
	ctx context.Context, std stdio, source adopt.Source, what string, client *listing.Client,
) error {
	out := &failing{w: std.out}
	if c.CatchUp || c.Verify || c.back != nil {
		// A row that is absent here may have been acknowledged in another data centre. It would be overwritten or
		// deleted.
		client = client.Everywhere()
	}
	bucket, err := client.BucketID(ctx, c.Bucket)
	there := err == nil
	if err != nil && !errors.Is(err, listing.ErrNoSuchBucket) {
		return err
	}
	if !there && (c.CatchUp || c.Verify || c.back != nil) {
		return refused("there is no bucket %s: copy first, without --catch-up, --verify and --back", text(c.Bucket))
	}
	if there {
		settings, err := client.Bucket(c.Bucket).Settings(ctx)
		if err != nil {
			return err
		}
		if len(settings) > 0 {
			return refused("%s is a bucket of objects, whose rows have a form of their own: adopt into a plain one",
				text(c.Bucket))
		}
	}
	var done *adopt.Done
	task := fmt.Sprintf("%s (%s)", what, bucket)
	if c.Checkpoint != "" && there {
		if done, err = adopt.LoadDone(c.Checkpoint, task, source.Parts()); err != nil {
			return refused("%w; remove it to begin anew", err)
		}
	}
	if c.back != nil {
		cuts, err := adopt.BackCuts(ctx, client.Bucket(c.Bucket), c.back, c.Parallel)
		if err != nil {
			return err
		}
		done = adopt.NewDone(task, source.Parts(), cuts, 0)
	}
	if done == nil {
		sample, err := adopt.TakeSample(ctx, source, c.Parallel, wait.NewPacer(c.Rate))
		if store.KindOf(err) == store.Corrupt {
			return refused("%w", err)
		}
		if err != nil {
			return err
		}
		cuts := sample.Cuts(c.MaxRows*2/3, 64<<20)
		if c.DryRun {
			if c.Format == "json" {
				return daemon.PrintJSON(std.out, map[string]any{
					"partitions": source.Parts(), "rows": sample.Rows(), "row_bytes": sample.RowBytes,
					"bucket_exists": there, "cuts": keytext.Keys(cuts),
				})
			}
			out.printf("%s partitions with about %s rows of %s bytes", commas(int64(source.Parts())), commas(sample.Rows()),
				commas(int64(sample.RowBytes)))
			if there {
				out.printf("; the bucket exists, and keeps its ranges\n")
			} else {
				out.printf("; the bucket would be made with %s ranges\n", commas(int64(len(cuts)+1)))
			}
			return out.err
		}
		if !there {
			if err := client.CreateBucket(ctx, c.Bucket, cuts...); err != nil {
				return err
			}
			if bucket, err = client.BucketID(ctx, c.Bucket); err != nil {
				return err
			}
			task = fmt.Sprintf("%s (%s)", what, bucket)
		}
		parts := source.Parts()
		if c.CatchUp || c.Verify {
			parts = 1
		}
		streams := sample.Streams(max((c.Parallel+parts-1)/parts, 1))
		done = adopt.NewDone(task, source.Parts(), streams, sample.Rows())
	}
	a := adopt.New(adopt.Options{
		Source: source, Bucket: client.Bucket(c.Bucket), Pace: wait.NewPacer(c.Rate), Parallel: c.Parallel,
		Memory: c.memory,
		Spans:  adopt.Within(adopt.Spans(done.Cuts()), c.within), Report: func(f adopt.Finding) { c.finding(out, f) },
	})
	if !c.CatchUp && !c.Verify && c.back == nil {
		if err := a.Ready(ctx); errors.Is(err, adopt.ErrForgotten) {
			return refused("%w; nothing was changed: give a later --as-of, by which the rows replace what was written "+
				"before, or adopt into a new bucket", err)
		}
	}
	err = c.work(ctx, std, a, done)
	c.summary(out, a.Counts(), err)
	if k := store.KindOf(err); ctx.Err() == nil && (k == store.Unavailable || k == store.Timeout) {
		err = fmt.Errorf("%w; what has been done stays: run the same command again", err)
	}
	if errors.Is(err, adopt.ErrForgotten) {
		err = fmt.Errorf("%w; some rows are there: pause moves (rebalancer pause), and run the same command again with a "+
			"later --as-of, by which the rows replace what was written before, or into a new bucket", err)
	}
	if errors.Is(err, adopt.ErrMemory) {
		err = fmt.Errorf("%w: run the same command again with a larger --memory-mib", err)
	}
	if err != nil {
		return daemon.Exit(daemon.ExitFailed, err) // some rows are written
	}
	switch n := a.Counts(); {
	case c.Verify && n.Different.Load() > 0:
		return daemon.Exit(daemon.ExitFailed, fmt.Errorf("%d keys differ", n.Different.Load()))
	case n.Refused.Load() > 0:
		return daemon.Exit(daemon.ExitFailed, fmt.Errorf("%d rows were refused", n.Refused.Load()))
	case c.Checkpoint != "" && done.Refused() > 0:
		return daemon.Exit(daemon.ExitFailed, fmt.Errorf("%d rows were refused by runs before: rebalancer adopt status %s",
			done.Refused(), c.Checkpoint))
	}
	return out.err
}

// work copies the rows of the source into the bucket, or compares the source with the bucket, and shows the progress.
// The parameter done is the progress of the copy so far. While work copies, it saves done to the file of --checkpoint
// every second.
func (c *adoptFlags) work(ctx context.Context, std stdio, a *adopt.Adoption, done *adopt.Done) (err error) {
	n := a.Counts()
	began := time.Now()
	p := daemon.Progress{
		Unit: "rows",
		Now:  func() (string, int64, int64) { return "adopt " + c.Bucket, n.Read.Load(), done.Rows() },
		Line: func(took time.Duration) string {
			rate := float64(n.Read.Load()) / took.Seconds()
			line := fmt.Sprintf("adopt %s: %s rows", c.Bucket, commas(n.Read.Load()))
			if done.Rows() > 0 {
				line = fmt.Sprintf("adopt %s: %s of about %s rows", c.Bucket, commas(n.Read.Load()), commas(done.Rows()))
			}
			line += fmt.Sprintf(", %s rows/s", commas(int64(rate)))
			if left := done.Rows() - n.Read.Load(); left > 0 && rate > 0 {
				line += fmt.Sprintf(", %v left", time.Duration(float64(left)/rate*float64(time.Second)).Round(time.Second))
			}
			return line
		},
	}
	defer p.Show(c.Progress, std.err)()
	defer func() { c.took = time.Since(began) }()
	switch {
	case c.back != nil:
		return a.Back(ctx, c.back, c.DryRun)
	case c.CatchUp || c.Verify:
		return a.Compare(ctx, c.CatchUp)
	}
	if c.Checkpoint == "" {
		return a.Copy(ctx, done)
	}
	save := func() error {
		err := done.Save(c.Checkpoint)
		if err != nil {
			err = fmt.Errorf("the progress can't be saved: %w; what has been copied stays: free space for --checkpoint, and "+
				"run the same command again", err)
		}
		return err
	}
	if err := save(); err != nil {
		return err
	}
	said := false
	stop := wait.Every(time.Second, func() {
		err := save()
		if err != nil && !said {
			fmt.Fprintln(std.err, "rebalancer:", err)
		}
		said = err != nil
	})
	err = a.Copy(ctx, done)
	stop()
	return cmp.Or(err, save())
}

func (c *adoptFlags) finding(out *failing, f adopt.Finding) {
	if c.Format == "json" {
		printLine(out, map[string]any{"key": keytext.Key(f.Key), "fault": f.Fault})
		return
	}
	out.printf("%s: %s\n", shownKey(f.Key), f.Fault)
}

// shownKey returns a key as text for people, with escapes such as \xff. The text is cut after 256 bytes of the key, as
// a key may have 64 KiB.
func shownKey(key []byte) string {
	const shown = 256
	if len(key) <= shown {
		return keytext.Format(key)
	}
	return fmt.Sprintf("%s… (%s bytes)", keytext.Format(key[:shown]), commas(int64(len(key))))
}

func (c *adoptFlags) summary(out *failing, n *adopt.Counts, err error) {
	if c.Format == "json" {
		reason := ""
		if err != nil {
			reason = err.Error()
		}
		printLine(out, map[string]any{
			"version": daemon.JSONVersion, "complete": err == nil, "error": reason, "summary": map[string]any{
				"read": n.Read.Load(), "put": n.Put.Load(), "deleted": n.Deleted.Load(), "refused": n.Refused.Load(),
				"different": n.Different.Load(), "read_again": n.Again.Load(), "seconds": c.took.Seconds(),
			},
		})
		return
	}
	rate := float64(n.Read.Load()) / max(c.took.Seconds(), 1e-3)
	out.printf("%s rows read (%s rows/s)", commas(n.Read.Load()), commas(int64(rate)))
	switch {
	case c.Verify:
		out.printf(", %s keys differ", commas(n.Different.Load()))
	case c.back != nil && c.DryRun:
		out.printf(" of the table, %s keys differ: %s to put, %s to delete", commas(n.Different.Load()), commas(n.Put.Load()),
			commas(n.Deleted.Load()))
	case c.CatchUp || c.back != nil:
		out.printf(", %s keys differed: %s put, %s deleted", commas(n.Different.Load()), commas(n.Put.Load()),
			commas(n.Deleted.Load()))
	default:
		out.printf(", %s put", commas(n.Put.Load()))
	}
	out.printf("; %s refused\n", commas(n.Refused.Load()))
}
