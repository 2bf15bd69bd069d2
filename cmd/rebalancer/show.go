package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/cleaning"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
)

type statusCmd struct {
	Bucket string `arg:"" optional:"" help:"Print size, growth and next decision of each range of this bucket."`
	adminFlags
}

func (statusCmd) Help() string {
	return `Prints the leader, the moves with their progress, what waits and why, the last jobs, and the
processes that use the keyspace; of a bucket, each range with its rows (an estimate begins with "about"), the last count, rows
put and gained per second, and the policy's verdict. With --cassandra the answer comes from
the leader's admin address.

Examples:

    rebalancer status
    rebalancer status photos
    rebalancer status photos --format json`
}

// Run prints the moves under way and all processes. If the command names a bucket, Run prints the sizes of the bucket's
// ranges instead.
func (c *statusCmd) Run(ctx context.Context, std stdio) error {
	return c.asksLeader(ctx, std, func(ctx context.Context, in wayIn) error {
		if c.Bucket != "" {
			return printSizes(ctx, std, in, c.Bucket, c.Format)
		}
		s, err := in.Status(ctx)
		if err != nil {
			return err
		}
		cluster, err := in.Cluster(ctx)
		if err != nil {
			cluster.ProcessesError = err.Error()
		}
		answer := struct {
			adminapi.Status
			Processes      []adminapi.Peer `json:"processes"`
			ProcessesError string          `json:"processes_error,omitempty"`
		}{s, cluster.Processes, cluster.ProcessesError}
		return c.print(std, answer, func(w *failing) {
			printStatus(w, &s, std.now())
			printProcesses(w, &cluster, std.now())
		})
	})
}

// printProcesses prints a table of the processes that use a shared store. For an embedded store, which has only one
// process, printProcesses prints nothing.
func printProcesses(w *failing, c *adminapi.Cluster, now time.Time) {
	if c.Terms == nil {
		if c.ProcessesError != "" {
			w.printf("The processes are not known: %s\n", c.ProcessesError)
		}
		return
	}
	w.printf("\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "process\tdata centre\tversion\tschemas\tsince\tadmin\t\n")
	for i := range c.Processes {
		p := &c.Processes[i]
		schemas, note := "?", ""
		if len(p.Schemas) > 0 {
			schemas = fmt.Sprintf("%d to %d", p.Schemas[0], p.Schemas[len(p.Schemas)-1])
		}
		switch {
		case p.Silent:
			note = "silent since " + ago(now, p.Seen)
		case p.Leads:
			note = "leads"
			if len(p.Shards) > 0 {
				note += " shards " + numbers(p.Shards)
			}
		}
		if len(p.CleaningShards) > 0 && !p.Silent {
			note = strings.TrimPrefix(note+", cleans shards "+numbers(p.CleaningShards), ", ")
		}
		since := ""
		if !p.Since.IsZero() {
			since = ago(now, p.Since)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", text(p.Name), text(p.DataCentre), text(p.Version), schemas, since,
			text(p.Admin), note)
	}
	t.Flush()
	if c.ProcessesError != "" {
		w.printf("Processes of other data centres may be missing: %s\n", c.ProcessesError)
	}
	w.printf("Schema of the keyspace: version %d\n", c.Terms.Schema)
}

// asksLeader runs a command with a client of the leader, the process that carries out moves of ranges. If no process is
// the leader, asksLeader returns an error. Unlike asks, asksLeader never makes this process the leader.
func (f *adminFlags) asksLeader(ctx context.Context, std stdio, command func(ctx context.Context, in wayIn) error) error {
	if len(f.Cassandra) == 0 {
		return f.asks(ctx, std, command)
	}
	return f.reads(ctx, std, func(ctx context.Context, in wayIn) error {
		s, err := in.Status(ctx)
		switch {
		case err != nil:
			return err
		case s.Leader == nil:
			return refused("no rebalancer leads: nothing moves")
		case s.Leader.Admin == "":
			return refused("%s leads until %s, and takes no commands", cmp.Or(s.Leader.Name, s.Leader.ID.String()),
				s.Leader.Until.Format(time.RFC3339))
		}
		there, err := f.Servers.At(cmp.Or(s.Leader.Name, s.Leader.ID.String()), s.Leader.Admin)
		if err != nil {
			return err
		}
		return command(ctx, wayIn{Client: there})
	})
}

// printCleaning prints which processes clean the buckets of objects, which means to delete what the buckets no longer
// need, and how far the cleaning is. If c is nil, nothing is printed.
func printCleaning(w *failing, c *cleaning.Status, now time.Time) {
	switch {
	case c == nil:
		return
	case !c.Leading && c.Leader == nil:
		w.printf("Nobody cleans buckets of objects\n")
		return
	case !c.Leading:
		w.printf("Another process cleans buckets of objects: %s, at %s\n", cmp.Or(c.Leader.Name, c.Leader.ID.String()),
			cmp.Or(c.Leader.Admin, "no admin address"))
		return
	case c.Paused:
		w.printf("Buckets of objects are not cleaned while moves are paused\n")
	}
	tell := func(r *cleaning.Round) {
		w.printf("%s of %s: %s rows, %s versions burned, %s deleted with %s bytes, %s wait for the grace\n",
			ago(now, r.Began), many(int(r.Buckets), "bucket"), commas(r.Rows), commas(r.Burned), commas(r.Deleted),
			commas(r.Bytes), commas(r.Waiting))
		if r.Failed > 0 {
			w.printf("  %s steps failed: %s\n", commas(r.Failed), r.Error)
		}
	}
	if c.Last == nil && c.Now == nil {
		w.printf("This process cleans buckets of objects, begun %s; no round has ended yet\n", ago(now, c.Since))
	}
	if c.Last != nil {
		w.printf("This process cleans buckets of objects: last round begun ")
		tell(c.Last)
	}
	if c.Now != nil {
		w.printf("This process cleans buckets of objects: present round begun ")
		tell(c.Now)
	}
	printAudit(w, "last audit", c.LastAudit, now)
	printAudit(w, "present audit", c.Audit, now)
	printAudit(w, "last scrub", c.LastScrub, now)
	printAudit(w, "present scrub", c.Scrub, now)
}

// printAudit prints the counts and the findings of an audit, which compares versions of objects with their bodies. The
// parameter which names the audit, e.g. "last audit". If a is nil, printAudit prints nothing.
func printAudit(w *failing, which string, a *cleaning.Audit, now time.Time) {
	if a == nil {
		return
	}
	w.printf("Bodies of objects: %s begun %s", which, ago(now, a.Began))
	if !a.Ended.IsZero() {
		w.printf(", ended %s", ago(now, a.Ended))
	}
	w.printf(", of %s\n  found: %s\n", sumText(&a.Compared), a.Faults)
	for i := range a.Found {
		w.printf("  bucket %s: %s\n", text(a.Found[i].Bucket), a.Found[i].Faults)
	}
	if a.Error != "" {
		w.printf("  interrupted, and goes on later: %s\n", a.Error)
	}
}

// numbers returns the numbers of shards as text, with blanks between them, e.g. "0 3 5". A shard is a group of buckets
// whose moves one process carries out.
func numbers(shards []int) string { return strings.Trim(fmt.Sprint(shards), "[]") }

func printShares(w *failing, all []adminapi.Share) {
	for _, x := range all {
		here := ""
		if x.Here {
			here = " (this process)"
		}
		w.printf("  %s%s: %s\n", cmp.Or(x.Name, "nobody"), here, numbers(x.Shards))
	}
}

func printStatus(w *failing, s *adminapi.Status, now time.Time) {
	switch {
	case len(s.Shards) > 1:
		w.printf("Each leads the moves of some shards of the buckets:\n")
		printShares(w, s.Shards)
	case s.Leader != nil && s.Leading:
		w.printf("This process leads: %s, since %s\n", cmp.Or(s.Leader.Name, s.Leader.ID.String()), ago(now, s.Leader.Since))
	case s.Leader != nil:
		w.printf("Another process leads: %s, at %s\n", cmp.Or(s.Leader.Name, s.Leader.ID.String()), cmp.Or(s.Leader.Admin, "no admin address"))
	case s.Leading:
		w.printf("This process leads: it has its store for itself\n")
	default:
		w.printf("Nobody leads\n")
	}
	if s.Unattended != "" {
		w.printf("Sizes are not looked after: %s\n", s.Unattended)
	}
	if s.OtherLimits != "" {
		w.printf("Limits differ: %s\n", s.OtherLimits)
	}
	printPauses(w, s.Pauses, now)
	if s.PausesError != "" {
		w.printf("Whether moves are paused is not known: %s\n", s.PausesError)
	}
	if s.MostRate > 0 {
		w.printf("At most %s rows per second, of %s while nobody else waits for the store\n", commas(int64(s.Rate)), commas(int64(s.MostRate)))
	}
	if len(s.CleaningShards) > 1 {
		w.printf("Each cleans the buckets of objects of some shards:\n")
		printShares(w, s.CleaningShards)
	}
	printCleaning(w, s.Cleaning, now)
	printRetention(w, s.Retention, s.Leading, now)
	if len(s.Buckets) == 0 {
		w.printf("Nothing moves\n")
	}
	for i := range s.Buckets {
		printBucket(w, &s.Buckets[i], s.Jobs, now)
	}
	if len(s.Jobs) > 0 {
		w.printf("\n")
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintf(t, "job\tbucket\twhat\tasked\tstate\trows\tcopied\tcompared\tswept over\n")
		const shown = 10
		jobs := s.Jobs[max(0, len(s.Jobs)-shown):]
		for i := range jobs {
			j := &jobs[i]
			state := string(j.State)
			if j.Phase != "" {
				state += ", " + j.Phase
			}
			if j.Error != "" {
				state += ": " + j.Error
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", j.ID, text(j.Name), j.What, ago(now, j.Asked), state,
				commas(j.Rows), commas(j.Copied), commas(j.Verified), commas(j.Searched))
		}
		t.Flush()
	}
	w.printf("\n")
	if b := s.Round; !b.Began.IsZero() {
		what := "what was written to"
		if b.Everything {
			what = "everything"
		}
		// The list of buckets is stored as a bucket, too, but no user has created it.
		w.printf("Looked at the sizes of %s %s: %s, %s, with the list of buckets where it has changed\n",
			what, ago(now, b.Began), many(b.Buckets, "bucket"), many(b.Ranges, "range"))
		w.printf("  so far %s recounts of %s rows (%d wait)%s%s\n", commas(b.Counted), commas(b.Rows), b.Waiting,
			tally("; decided ", b.Decided), tally("; rows moved by ", b.Moved))
		if b.Late != "" {
			w.printf("  late: a bucket has waited for %s to be looked at\n", b.Late)
		}
		if !b.CountersAwaySince.IsZero() {
			w.printf("  counters away since %s\n", b.CountersAwaySince.Format(time.RFC3339))
		}
		if b.Error != "" {
			w.printf("  failed: %s\n", b.Error)
		}
		const shown = 10
		for i, r := range b.Why {
			if i == shown {
				w.printf("  and %d more\n", len(b.Why)-shown)
				break
			}
			w.printf("  %s [%s, %s): %s\n", text(cmp.Or(r.Bucket, r.ID)), startText(r.Start), endText(r.End), r.Text)
		}
	}
	if c := s.Scan; !c.Began.IsZero() {
		state := "under way"
		if !c.Ended.IsZero() {
			state = "ended " + ago(now, c.Ended)
		}
		w.printf("Scan for what was left unfinished: %s; %d roots, %d with something to do\n", state, c.Roots, c.Found)
		if c.Error != "" {
			w.printf("  failed: %s\n", c.Error)
		}
	}
}

func printBucket(w *failing, b *adminapi.Bucket, jobs []scheduler.Job, now time.Time) {
	state := "waits"
	switch {
	case b.Paused:
		state = "is paused"
	case b.Running:
		state = "moves"
	}
	w.printf("\n%s %s", text(cmp.Or(b.Name, b.ID)), state)
	if b.Epoch > 0 {
		w.printf("; epoch %d, %d ranges", b.Epoch, b.Ranges)
	}
	w.printf("\n")
	for _, batch := range b.Batches {
		rows := int64(0)
		for i := range jobs {
			for _, g := range jobs[i].Goals {
				if g.Batch == batch.ID && (jobs[i].Name == b.Name || jobs[i].Name == b.ID) {
					rows += g.Copies
				}
			}
		}
		w.printf("  batch %d: %s, %d ranges, %s\n", batch.ID, phaseOf(&batch), batch.Ranges, batchBar(&batch, rows))
	}
	for i, f := range b.Failures {
		const shown = 5
		if i == shown {
			w.printf("  and %d more\n", len(b.Failures)-shown)
			break
		}
		w.printf("  %s: %s\n", ago(now, f.At), f.Error)
	}
}

// batchBar returns the progress of a batch, which is a group of ranges that move together, as a bar of text. rows is
// the number of rows to move. If rows is 0, the result has only the counts of rows done.
func batchBar(b *adminapi.Batch, rows int64) string {
	counts := fmt.Sprintf("%s copied, %s compared, %s swept over", commas(b.Copied), commas(b.Verified), commas(b.Searched))
	if rows <= 0 {
		return counts
	}
	n := int(min(barWidth, barWidth*(b.Copied+b.Verified+b.Searched)/(passes*rows)))
	return fmt.Sprintf("[%s%s] %s of %s", strings.Repeat("#", n), strings.Repeat(".", barWidth-n), counts, commas(rows))
}

// phaseOf returns the name of the current phase of a batch, which is a group of ranges that move together. A settled
// batch that is still listed is "sweeping", as its old partitions are being deleted.
func phaseOf(b *adminapi.Batch) string {
	if b.Phase == "settled" {
		return "sweeping"
	}
	return b.Phase
}

func ago(now, then time.Time) string {
	return now.Sub(then).Round(time.Second).String() + " ago"
}

// holdFlags are the command-line flags of the commands that pause, resume or drop moves: pause, resume and abort.
type holdFlags struct {
	Bucket string `arg:"" optional:"" help:"Name of the bucket; without it, all buckets."`
	DryRun bool   `help:"Only check whether it is possible."`
	adminFlags
}

type abortCmd struct{ holdFlags }

func (abortCmd) Help() string {
	return `Drops requested moves that have not begun. Those that have begun continue to their end.`
}

// Run drops the requested moves that have not begun, of one bucket or of all buckets.
func (c *abortCmd) Run(ctx context.Context, std stdio) error {
	return c.asksLeader(ctx, std, func(ctx context.Context, in wayIn) error {
		d, err := in.Abort(ctx, adminapi.Which{Bucket: c.Bucket, DryRun: c.DryRun})
		if err != nil {
			return err
		}
		answer := map[string]any{"bucket": c.Bucket, "did": "aborted", "dropped": d.Dropped, "dry_run": c.DryRun}
		return c.print(std, answer, func(w *failing) {
			if c.DryRun {
				w.printf("%s can be aborted; nothing was done: that was a dry run\n", ofBucket(c.Bucket))
			} else {
				w.printf("%s: %d moves dropped that had not begun\n", ofBucket(c.Bucket), d.Dropped)
			}
		})
	})
}

// tally returns a text that begins with title and says how many decisions of each kind were made, e.g. splits. m has
// the number of decisions by kind. Decisions to do nothing, or to recount, are left out. The text is empty if no other
// decision was made.
func tally(title string, m map[string]int64) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if m[k] > 0 && !strings.HasPrefix(k, "none") && !strings.HasPrefix(k, "recount") {
			parts = append(parts, fmt.Sprintf("%s %s", k, commas(m[k])))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return title + strings.Join(parts, ", ")
}
