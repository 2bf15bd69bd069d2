package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/bodies"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/cassandraflags"
	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/internal/cleaning"
	"github.com/evenkeel/evenkeel/internal/hints"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
)

// objectsFlags are the command-line flags that say where the rows of a store are, and where the bodies of the store's
// objects are.
type objectsFlags struct {
	Bucket               string `arg:"" optional:"" help:"${audit_bucket=}"`
	Data                 string `placeholder:"DIR" help:"${audit_data=}"`
	Bodies               string `placeholder:"URL" help:"${audit_bodies=}"`
	cassandraflags.Flags `group:"With --cassandra:"`
	Lease                time.Duration `placeholder:"DURATION" group:"With --cassandra:" help:"${terms_lease=}"`
	Rate                 int           `default:"0" placeholder:"N" help:"${audit_rate=}"`
	Format               string        `default:"text" enum:"text,json" help:"${verify_format=}"`
	JSON                 daemon.JSON   `name:"json" env:"-" help:"Short for --format json."`
}

// auditCmd is the command that finds versions of objects without a body, and bodies that belong to no version.
type auditCmd struct {
	objectsFlags
	Condemn   bool   `env:"-" help:"${audit_condemn=}"`
	Checksums bool   `env:"-" help:"${audit_checksums=}"`
	BodyRate  int    `name:"mib-per-second" default:"0" placeholder:"N" env:"-" help:"${audit_body_rate=}"`
	Continue  string `placeholder:"TOKEN" env:"-" help:"${audit_continue=}"`
	Progress  string `default:"auto" enum:"auto,plain,none" help:"${verify_progress=}"`
}

// Help returns the detailed help text of the command audit, which --help prints.
func (auditCmd) Help() string {
	return `It reads the versions of objects and the names of bodies once, in the same order, and looks twice at what
does not fit. Servers may serve meanwhile, over Cassandra. They make audits, too (listd serve --audit-every), and log
the first findings only. What it finds:

    lost body      a version is seen whose body is not there, or has another size: reading it fails. Bring the
                   file back from a backup, by the name that is printed, or delete the version
    damaged body   with --checksums: the body has another checksum than when it was put. Do the same
    orphan         a body that belongs to no version and to no upload, and is older than a put may take; also below
                   the name of a deleted bucket
    unlisted part  a part of an upload that its version does not have
    stranger       a file with a name that no version gives, or below the name of a bucket that was never there, as
                   far as is known: look where it comes from
    damaged row    a row of the bucket that can't be read: rebalancer verify

Orphans and unlisted parts take space, and do no other harm: puts that were killed leave them. Look at them first,
then run the same with --condemn. It deletes unlisted parts, and whole bodies that are older than 11 days, as a row may
come until then, also of deleted buckets; the cleaner of the servers deletes parts without a version a day later. It is
for good: after a restore make sure that no rows are missing, whose bodies look like orphans.

Make sure that --bodies is what these servers have: with another place all bodies seem to be lost, and
those that are there seem to be orphans. Nothing is condemned in a bucket in which a body is lost.

Examples:

    rebalancer audit --data ./evenkeel-data                            # listd does not run
    rebalancer audit --cassandra 10.0.0.1 --local-dc dc1 --bodies file:///srv/bodies --rate 20000
    rebalancer audit photos --cassandra 10.0.0.1 --local-dc dc1 --bodies file:///srv/bodies --condemn
    rebalancer audit --cassandra 10.0.0.1 --local-dc dc1 --bodies file:///srv/bodies --checksums --mib-per-second 50
    rebalancer audit --data ./evenkeel-data --json | jq 'select(.fault)'

Exit codes: 0 clean, or all was condemned; 1 something is wrong; 2 bad flags; 3 the audit could not be made, or
not to its end: then it prints the token for --continue; 4 something could not be judged, or there is no such
bucket.`
}

// Validate returns an error if a flag of the command audit has an invalid value. The command-line parser kong calls
// Validate before Run.
func (a *auditCmd) Validate() error {
	if err := a.objectsFlags.validate(); err != nil {
		return err
	}
	if a.Condemn && a.Bucket == "" {
		return errors.New("--condemn has bodies deleted: name the bucket")
	}
	if a.BodyRate < 0 || a.BodyRate > 0 && !a.Checksums {
		return errors.New("--mib-per-second is not negative, and is for --checksums")
	}
	if _, _, ok := strings.Cut(a.Continue, ":"); a.Continue != "" && !ok {
		return fmt.Errorf("--continue %.100q is no token of an audit", a.Continue)
	}
	return nil
}

func (a *objectsFlags) validate() error {
	switch {
	case a.Data != "" && len(a.Cassandra) > 0:
		return errors.New("--data and --cassandra: one of them")
	case a.Data == "" && len(a.Cassandra) == 0:
		return errors.New("--data or --cassandra is missing: where the rows are")
	case len(a.Cassandra) > 0 && a.LocalDC == "":
		return errors.New("--local-dc is missing: the data centre to read from, by the name that nodetool status shows")
	case len(a.Cassandra) == 0 && len(a.Changed()) > 0:
		return fmt.Errorf("%s: only with --cassandra, which is not given", strings.Join(a.Changed(), ", "))
	case len(a.Cassandra) > 0 && a.Bodies == "":
		return errors.New("--bodies is missing: where the servers keep the bodies of objects")
	case a.Rate < 0:
		return errors.New("--rate is not negative")
	}
	if err := checkLease(a.Lease); err != nil {
		return err
	}
	_, err := a.bodiesPlace()
	return err
}

func (a *objectsFlags) bodiesPlace() (bodies.Place, error) {
	if a.Bodies == "" {
		return bodies.Place{Dir: filepath.Join(a.Data, "bodies")}, nil
	}
	return bodies.Parse(a.Bodies)
}

// sumText returns one line of text with the counts of an audit, which is a comparison of versions of objects with their
// bodies.
func sumText(s *cleaning.Compared) string {
	text := fmt.Sprintf("%s buckets, %s rows, %s bodies (%s of uploads, %s of deleted versions, %s of puts under way); "+
		"%s problems, %s condemned, %s unjudged", commas(s.Buckets), commas(s.Rows), commas(s.Blobs), commas(s.InUse),
		commas(s.Waiting), commas(s.Young), commas(s.Problems), commas(s.Condemned), commas(s.Unjudged))
	if s.Checked+s.Unchecked > 0 {
		text += fmt.Sprintf("; %s versions compared with checksums, %s have none", commas(s.Checked), commas(s.Unchecked))
	}
	return text
}

// auditing is one run of the command audit, which compares versions of objects with their bodies.
type auditing struct {
	*auditCmd
	out   *failing
	wide  care.Objects
	pacer *wait.Pacer
	bytes *wait.Pacer // of bodies, in KiB

	mu  sync.Mutex
	sum cleaning.Compared
	at  string // token by which an audit goes on after what was compared
}

// Run compares the versions of objects with their bodies, and prints what does not fit, e.g. a version without a body.
// Run returns an error if something does not fit.
func (a *auditCmd) Run(ctx context.Context, std stdio) error {
	x := &auditing{auditCmd: a, out: &failing{w: std.out}, pacer: wait.NewPacer(a.Rate), at: a.Continue,
		bytes: wait.NewPacer(a.BodyRate << 10)}
	err := a.open(ctx, !a.Condemn, func(o care.Objects, c *listing.Client) error { return x.run(ctx, o, c, std.err) })
	x.summary(err)
	if err != nil {
		if x.at != "" {
			fmt.Fprintf(std.err, "rebalancer: go on with --continue %s\n", x.at)
		}
		if _, ok := errors.AsType[*daemon.ExitError](err); ok {
			return err
		}
		if kind := store.KindOf(err); kind == store.NotFound || kind == store.InvalidArgument {
			return daemon.Exit(daemon.ExitRefused, err)
		}
		return daemon.Exit(daemon.ExitUnusable, err)
	}
	switch s := x.sum; {
	case s.Problems > s.Condemned:
		return daemon.Exit(daemon.ExitFailed, fmt.Errorf("%d problems", s.Problems-s.Condemned))
	case s.Unjudged > 0:
		return refused("%d bodies could not be judged: too many keys above 400 bytes begin alike", s.Unjudged)
	}
	return x.out.err
}

func (x *auditing) summary(err error) {
	if x.Format == "json" {
		text := ""
		if err != nil {
			text = err.Error()
		}
		printLine(x.out, map[string]any{
			"version": daemon.JSONVersion, "summary": x.sum, "complete": err == nil, "error": text, "continue": x.at,
		})
		return
	}
	if err != nil && x.sum == (cleaning.Compared{}) {
		return // there was no audit
	}
	x.out.printf("%s\n", sumText(&x.sum))
	if err == nil && x.sum.Problems+x.sum.Unjudged == 0 {
		x.out.printf("clean\n")
	}
}

// printLine prints the value v as one line of JSON to w.
func printLine(w *failing, v any) {
	b, err := json.Marshal(v)
	if err == nil {
		w.printf("%s\n", b)
	} else if w.err == nil {
		w.err = err
	}
}

// open opens the store of rows and the store of object bodies, calls work with both, and closes both. Reads of objects
// go through a quorum of each data centre. If readOnly is true, the files of a data directory are not changed.
func (a *objectsFlags) open(
	ctx context.Context, readOnly bool, work func(o care.Objects, c *listing.Client) error,
) (err error) {
	at, err := a.bodiesPlace()
	if err != nil {
		return usageError("%w", err)
	}
	if at.Dir != "" {
		if _, err := os.Stat(at.Dir); err != nil {
			return fmt.Errorf("the directory of bodies: %w", err)
		}
	}
	db, err := openStore(ctx, a.Data, readOnly, &a.Flags, terms{lease: a.Lease})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	blobs, err := at.Look(ctx, slog.Default())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, blobs.Close()) }()
	if err := checkOwner(ctx, db.Store, blobs); err != nil {
		return err
	}
	journal := hints.New(db.Store, slog.Default())
	defer journal.Close()
	o, err := objects.New(db.Client, blobs, objects.Options{Hints: journal})
	if err != nil {
		return err
	}
	return work(care.Of(o).Everywhere(), db.Client)
}

// checkOwner returns an error if the bodies in blobs do not belong to the rows of the store. The mark _owner among the
// bodies says to which store they belong. A missing mark is an error if the rows record that servers have made one.
// checkOwner makes no mark, as only servers do.
func checkOwner(ctx context.Context, rows store.Registers, blobs objects.Blobs) error {
	owner, err := care.Owner(ctx, blobs)
	if err != nil {
		return err
	}
	if owner == "" {
		claimed, err := bodies.Claimed(ctx, rows)
		if err == nil && claimed {
			err = refused("the place of bodies has no mark _owner, although servers have marked it: is --bodies that of the " +
				"servers, and mounted?")
		}
		return err
	}
	id, err := mapclient.Identified(ctx, rows)
	switch {
	case err != nil:
	case id == 0: // a server gives the rows their id before it marks a place
		err = refused("the bodies belong to another store (%s; the rows have no id, as their servers have marked no place "+
			"of bodies): is --bodies that of the servers?", owner)
	case owner != id.String():
		err = refused("the bodies belong to another store (%s; the rows are those of %s): is --bodies that of the servers?",
			owner, id)
	}
	return err
}

func (x *auditing) run(ctx context.Context, o care.Objects, c *listing.Client, progress io.Writer) error {
	x.wide = o
	began := time.Now()
	describe := func() string {
		x.mu.Lock()
		defer x.mu.Unlock()
		rate := float64(x.sum.Rows+x.sum.Blobs) / max(time.Since(began).Seconds(), 1e-3)
		return fmt.Sprintf("audit: %s; %s rows and bodies/s; at %s", sumText(&x.sum), commas(int64(rate)),
			cmp.Or(x.at, "the beginning"))
	}
	if x.Progress == "plain" || x.Progress == "auto" && daemon.Terminal(progress) {
		stop := daemon.PrintEvery(daemon.LineEvery, progress, describe)
		defer stop()
	}
	return x.buckets(ctx, c)
}

// buckets audits the bucket that the command names, or all buckets if the command names none. With --continue the audit
// begins at the position of that token.
func (x *auditing) buckets(ctx context.Context, c *listing.Client) error {
	from, inside, _ := strings.Cut(x.Continue, ":")
	if x.Bucket != "" {
		if from != "" && from != x.Bucket {
			return store.Errorf(store.InvalidArgument, "--continue is of bucket %s", from)
		}
		err := x.bucket(ctx, x.Bucket, inside)
		if errors.Is(err, listing.ErrNoSuchBucket) {
			found, uerr := x.unnamed(ctx, x.Bucket)
			if found || uerr != nil {
				return uerr
			}
		}
		return err
	}
	for info, err := range c.Buckets(ctx, "", "") {
		if err != nil {
			return err
		}
		if info.Name < from {
			continue
		}
		if info.Name != from {
			inside = ""
		}
		err := x.bucket(ctx, info.Name, inside)
		// the bucket was deleted meanwhile
		if errors.Is(err, objects.ErrPlain) || store.KindOf(err) == store.NotFound {
			continue
		}
		if err != nil {
			return err
		}
	}
	for name, err := range x.wide.Unnamed(ctx) {
		if err == nil {
			_, err = x.unnamed(ctx, name)
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}

// unnamed audits the bodies below name, which is the name of no present bucket, e.g. of a deleted one. The result found
// is true if bodies exist below name.
func (x *auditing) unnamed(ctx context.Context, name string) (found bool, err error) {
	var guilty cleaning.Guilty
	err = x.wide.AuditUnnamed(ctx, name, func(part care.Audited) error {
		found = found || part.Blobs > 0
		return x.take(ctx, name, &part, &guilty)
	})
	if err == nil && x.Condemn {
		var n int64
		n, err = guilty.CondemnUnnamed(ctx, name, x.wide, x.pacer)
		x.mu.Lock()
		x.sum.Condemned += n
		x.mu.Unlock()
	}
	return found, store.Wrap("audit the bodies of bucket "+name+", which is not there", err)
}

// take handles one part of an audit's result. It prints and counts the findings in part, and remembers in guilty which
// bodies --condemn is to delete. Then take waits as long as --rate demands.
func (x *auditing) take(ctx context.Context, bucket string, part *care.Audited, guilty *cleaning.Guilty) error {
	for i := range part.Findings {
		x.finding(bucket, &part.Findings[i])
	}
	guilty.Take(part)
	x.mu.Lock()
	x.sum.Take(part)
	if part.Next != "" {
		x.at = bucket + ":" + part.Next
	}
	x.mu.Unlock()
	if err := cmp.Or(x.out.err, ctx.Err()); err != nil {
		return err
	}
	return x.pacer.Take(ctx, int(part.Rows+part.Blobs))
}

func (x *auditing) bucket(ctx context.Context, name, from string) error {
	b, err := x.wide.Open(ctx, name) // bodies that are condemned below were found in this very bucket
	if err != nil {
		return err
	}
	var guilty cleaning.Guilty
	var pace func(context.Context, int64) error
	if x.Checksums {
		pace = func(ctx context.Context, n int64) error { return x.bytes.Take(ctx, int(n>>10)) }
	}
	err = b.Audit(ctx, from, pace, func(part care.Audited) error {
		return x.take(ctx, name, &part, &guilty)
	})
	if err != nil {
		return store.Wrap("audit bucket "+name, err)
	}
	x.mu.Lock()
	x.sum.Buckets++
	x.mu.Unlock()
	if !x.Condemn {
		return nil
	}
	n, err := guilty.Condemn(ctx, b, x.pacer)
	x.mu.Lock()
	x.sum.Condemned += n
	x.mu.Unlock()
	return store.Wrap("bucket "+name, err)
}

// finding prints f, one finding of the audit in bucket, as text or JSON.
func (x *auditing) finding(bucket string, f *care.Finding) {
	if x.Format == "json" {
		key := any(nil)
		if f.Key != nil {
			key = text(string(f.Key))
		}
		printLine(x.out, map[string]any{
			"fault": f.Fault, "bucket": bucket, "key": key, "version_id": f.Version, "blob": f.Blob,
			"size": f.Size, "want": f.Want,
		})
		return
	}
	x.out.printf("%s: bucket %s", f.Fault, text(bucket))
	if at := f.String(); at != "" {
		x.out.printf(", %s", at)
	}
	x.out.printf("\n")
}
