package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/keyspread"
	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/store"
)

// moveFlags are the command-line flags of every command that moves ranges, such as split and merge.
type moveFlags struct {
	adminFlags
	DryRun   bool   `help:"Only show what would be done."`
	NoWait   bool   `help:"Print the number of the job and do not wait for its end. Not with --cassandra."`
	Progress string `default:"auto" enum:"auto,bar,plain,none" help:"${move_progress=}"`
}

const keysHelp = `Keys are UTF-8 with \xNN for any other byte and \\ for a backslash.`

type splitCmd struct {
	Bucket string        `arg:"" help:"Name of the bucket."`
	At     []keytext.Key `required:"" sep:"none" placeholder:"KEY" help:"Cut in front of this key; may be repeated."`
	moveFlags
}

func (splitCmd) Help() string {
	return `Cuts the ranges of a bucket in front of the given keys. The cut itself is the shortest
separator between the key and the one below it. The largest part of each range stays in its
partition; the others move to fresh ones while clients work. Existing cuts stay. ` + keysHelp + `

Examples:

    rebalancer split photos --at 2024/ --at 2025/
    rebalancer split photos --at 2024/ --dry-run --format json`
}

// Run requests that the leader split ranges of the bucket at the keys of --at.
func (c *splitCmd) Run(ctx context.Context, std stdio) error {
	return c.move(ctx, std, c.Bucket, scheduler.Ask{Kind: scheduler.Split, Keys: keysOf(c.At)})
}

type mergeCmd struct {
	Bucket string   `arg:"" help:"Name of the bucket."`
	Range  []string `required:"" sep:"none" placeholder:"START..END" help:"${merge_range=}"`
	Force  bool     `env:"-" help:"Merge also into more than max_rows rows."`
	moveFlags
}

const rangeHelp = `A range is written START..END: from START (inclusive) to END (exclusive). An empty START is
the first key, an empty END the end of the bucket. Both must be cuts of the bucket, as map
show prints them; write two dots in a key as \x2e\x2e.`

func (mergeCmd) Help() string {
	return `Joins neighbouring ranges in one fresh partition while clients work.

` + rangeHelp + `

Examples:

    rebalancer merge photos --range 2024/01..2024/04
    rebalancer merge photos --range ..2019/      # everything below 2019/`
}

// Run requests that the leader merge the ranges of --range.
func (c *mergeCmd) Run(ctx context.Context, std stdio) error {
	spans, err := parseSpans(c.Range)
	if err != nil {
		return err
	}
	return c.move(ctx, std, c.Bucket, scheduler.Ask{Kind: scheduler.Merge, Spans: spans, Force: c.Force})
}

type refreshCmd struct {
	Bucket string   `arg:"" help:"Name of the bucket."`
	Range  []string `sep:"none" placeholder:"START..END" help:"Only these ranges; may be repeated."`
	moveFlags
}

func (refreshCmd) Help() string {
	return `Rewrites each range into a fresh partition, without the tombstones of the old one.

` + rangeHelp + `

Examples:

    rebalancer refresh photos
    rebalancer refresh photos --range 2024/01..2024/02`
}

// Run requests that the leader rewrite ranges of the bucket into new partitions without tombstones.
func (c *refreshCmd) Run(ctx context.Context, std stdio) error {
	spans, err := parseSpans(c.Range)
	if err != nil {
		return err
	}
	return c.move(ctx, std, c.Bucket, scheduler.Ask{Kind: scheduler.Refresh, Spans: spans})
}

type presplitCmd struct {
	Bucket  string         `arg:"" help:"Name of the bucket."`
	AtFile  string         `placeholder:"FILE" xor:"cuts" help:"Cut at these keys, one per line, ascending; - is standard input."`
	Count   int            `placeholder:"N" xor:"cuts" help:"Cut into N ranges, as evenly as the keys of --like are spread."`
	Append  bool           `xor:"cuts" help:"Cut ahead of the highest key, for keys that are appended at --rate."`
	Like    string         `placeholder:"FILE" help:"${presplit_like=}"`
	Rate    rate           `placeholder:"ROWS/UNIT" help:"With --append: rate of new rows: 1500/s, 100000/min, 6M/h."`
	For     time.Duration  `placeholder:"DURATION" help:"With --append: duration of the rate, such as 2h."`
	MaxRows int64          `placeholder:"ROWS" env:"-" help:"${presplit_max_rows=}"`
	PinFor  *time.Duration `placeholder:"DURATION" help:"${presplit_pin_for=}"`
	moveFlags
}

func (presplitCmd) Help() string {
	return `Cuts a bucket ahead of future keys. Existing rows move to the partitions of their new ranges. ` + keysHelp + `

With --append it forecasts keys from the highest ones (numbers in any alphabet, dates and
times, UUIDv7, ULID and the like, with any text around them), and prepares empty partitions,
each for nine tenths of the most rows, so that no row has to move. It takes existing cuts
into account, so it may be repeated. If keys can't be forecast it says why.

Examples:

    rebalancer presplit photos --at-file cuts.txt
    rebalancer presplit photos --count 64 --like last-month.txt --pin-for 48h
    rebalancer presplit orders --append --rate 100000/min --for 2h --dry-run
    rebalancer presplit new-orders --append --rate 6M/h --for 24h --like sample-keys.txt`
}

// pinned is how long the cuts of the command presplit stay in place by default, before merges may undo them.
// pinnedAfter is that time for cuts ahead of appended keys, counted from the end of the appends.
const (
	pinned      = 72 * time.Hour
	pinnedAfter = time.Hour
)

// Run requests cuts that divide the bucket into ranges before the keys come.
func (c *presplitCmd) Run(ctx context.Context, std stdio) error {
	ask := scheduler.Ask{Kind: scheduler.Presplit}
	pin := pinned
	var err error
	if c.Append {
		pin = c.For + pinnedAfter
		ask.Append, err = c.appends(std)
	} else {
		ask.Keys, err = c.cuts(std)
	}
	if err != nil {
		return err
	}
	if c.PinFor != nil {
		pin = *c.PinFor
	}
	if pin < 0 {
		return usageError("--pin-for is a duration from now on, not %v", pin)
	}
	if pin > 0 {
		ask.PinUntil = std.now().Add(pin).UTC()
	}
	return c.move(ctx, std, c.Bucket, ask)
}

// rate is a number of rows per second. On the command line a rate has a unit of time, e.g. 100000/min.
type rate float64

var (
	rateUnits = map[string]float64{
		"s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hour": 3600, "d": 86400, "day": 86400,
	}
	rateTimes = map[string]float64{"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
)

// UnmarshalText parses a rate such as 100000/min, 1500/s or 6M/h.
func (r *rate) UnmarshalText(text []byte) error {
	number, unit, found := strings.Cut(strings.TrimSpace(string(text)), "/")
	if !found {
		return fmt.Errorf("a rate needs a unit: %s/s, %s/min or %s/h", number, number, number)
	}
	seconds, known := rateUnits[strings.TrimPrefix(strings.TrimSpace(unit), "1")]
	if !known {
		return fmt.Errorf("the unit of a rate is s, min, h or d, not %q: as in 100000/min", unit)
	}
	number = strings.TrimSpace(strings.ReplaceAll(number, ",", ""))
	digits := strings.TrimRight(number, "kKMG")
	times, known := rateTimes[number[len(digits):]]
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || !known || !(n > 0) || n*times > 1e12 {
		return fmt.Errorf("a rate is a number of rows above 0 and a unit of time, as in 100000/min, 1500/s or 6M/h, not %q", text)
	}
	*r = rate(n * times / seconds)
	return nil
}

// appends returns the appends that the flags --rate, --for, --max-rows and --like describe: how many rows will be added
// behind the highest key, and for how long. The leader makes cuts ahead of these rows.
func (c *presplitCmd) appends(std stdio) (*scheduler.Append, error) {
	switch {
	case c.Rate == 0:
		return nil, usageError("--append needs --rate: how many rows come, as in 100000/min")
	case c.For <= 0:
		return nil, usageError("--append needs --for: how long rows come at that rate, as in 2h")
	case c.MaxRows < 0:
		return nil, usageError("--max-rows is a number of rows, not %d", c.MaxRows)
	}
	a := &scheduler.Append{RowsPerSecond: float64(c.Rate), ForS: c.For.Seconds(), MaxRows: c.MaxRows}
	if c.Like == "" {
		return a, nil
	}
	keys, err := c.samples(std)
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return nil, refused("%s has no keys", c.Like)
	}
	const most = 5000 // this many keys are enough to learn from
	a.Like = keys[max(0, len(keys)-most):]
	return a, nil
}

// samples returns the keys in the file of --like, sorted and without duplicates.
func (c *presplitCmd) samples(std stdio) (keytext.Keys, error) {
	keys, err := readKeys(c.Like, std.in)
	slices.SortFunc(keys, bytes.Compare)
	return slices.CompactFunc(keys, bytes.Equal), err
}

// cuts returns the keys at which the bucket is to be cut. They are the keys in the file of --at-file, or --count - 1
// cuts that divide the keys of --like evenly.
func (c *presplitCmd) cuts(std stdio) (keytext.Keys, error) {
	switch {
	case c.Rate != 0 || c.For != 0 || c.MaxRows != 0:
		return nil, usageError("--rate, --for and --max-rows go with --append")
	case c.AtFile != "" && c.Like != "":
		return nil, usageError("--like goes with --count or --append")
	case c.AtFile != "":
		keys, err := readKeys(c.AtFile, std.in)
		if err != nil {
			return nil, err
		}
		for i, k := range keys {
			switch {
			case i == 0:
			case bytes.Equal(k, keys[i-1]):
				return nil, refused("%s, line %d: the cut %s repeats the one before it", c.AtFile, i+1, keytext.Key(k))
			case bytes.Compare(k, keys[i-1]) < 0:
				return nil, refused("%s, line %d: the cut %s is below the one before it, %s: cuts ascend",
					c.AtFile, i+1, keytext.Key(k), keytext.Key(keys[i-1]))
			}
		}
		if len(keys) == 0 {
			return nil, refused("%s has no cuts", c.AtFile)
		}
		return keys, nil
	case c.Count == 0:
		return nil, usageError("give the cuts by --at-file, or --count and --like, or --append with --rate and --for")
	case c.Like == "":
		return nil, usageError("--count needs --like: keys like those to come")
	case c.Count < 2:
		return nil, usageError("--count is at least 2, not %d", c.Count)
	}
	keys, err := c.samples(std)
	if err != nil {
		return nil, err
	}
	if len(keys) < c.Count {
		return nil, refused("%s has %d different keys: too few for %d ranges", c.Like, len(keys), c.Count)
	}
	var cuts keytext.Keys
	for i := 1; i < c.Count; i++ {
		at := i * len(keys) / c.Count
		cuts = append(cuts, keyspread.Separator(keys[at-1], keys[at]))
	}
	return cuts, nil
}

func refused(format string, args ...any) error {
	return daemon.Exit(daemon.ExitRefused, fmt.Errorf(format, args...))
}

// readKeys returns the keys in the file at path, one per line. The path "-" stands for stdin. An empty line is an
// error.
func readKeys(path string, stdin io.Reader) (keys keytext.Keys, err error) {
	in, name, err := daemon.Input(path, stdin)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	lines := bufio.NewScanner(in)
	const longest = 4*store.MaxKeyBytes + 2 // each byte of a key as \xNN
	lines.Buffer(nil, longest)
	for n := 1; lines.Scan(); n++ {
		k, err := keytext.Parse(lines.Text())
		if err == nil && len(k) == 0 {
			err = errors.New("the line is empty")
		}
		if err != nil {
			return nil, refused("%s, line %d: %w", name, n, err)
		}
		keys = append(keys, k)
	}
	if err := lines.Err(); err != nil {
		return nil, refused("%s, line %d: %w", name, len(keys)+1, err)
	}
	return keys, nil
}

func keysOf(keys []keytext.Key) (out keytext.Keys) {
	for _, k := range keys {
		out = append(out, k)
	}
	return out
}

// parseSpans parses texts of the form START..END into intervals of keys. An empty START or END leaves the interval
// without a bound on that side.
func parseSpans(texts []string) (spans []adminapi.Span, err error) {
	for _, t := range texts {
		start, end, found := strings.Cut(t, "..")
		if !found {
			return nil, usageError("--range %s: it is written START..END", t)
		}
		if strings.Contains(end, "..") || strings.HasPrefix(end, ".") {
			return nil, usageError(`--range %s: where the range begins and ends is not clear: write dots of keys as \x2e`, t)
		}
		var s adminapi.Span
		if s.Start, err = keytext.Parse(start); err == nil {
			s.End, err = keytext.Parse(end)
		}
		if err != nil {
			return nil, usageError("--range: %w", err)
		}
		spans = append(spans, s)
	}
	return spans, nil
}

// move sends a request for moves of ranges, prints the moves, and waits until the moves have ended. With --no-wait,
// move does not wait.
func (f *moveFlags) move(ctx context.Context, std stdio, bucket string, request scheduler.Ask) error {
	if f.NoWait && len(f.Cassandra) > 0 {
		return usageError("--no-wait leaves the work to another process: not with --cassandra")
	}
	return f.way(ctx, std, func(ctx context.Context, in wayIn) error {
		a, err := in.Moves(ctx, adminapi.Moves{Bucket: bucket, Ask: request, DryRun: f.DryRun})
		if err != nil {
			return err
		}
		if f.Format == "table" {
			printMoves(std.out, &a, f.DryRun)
		}
		return f.end(ctx, std, in, &a)
	})
}

// way runs a command that moves ranges, with a client for its requests. With --dry-run the command only reads maps of
// buckets. Otherwise it needs the leader, the process that carries out moves.
func (f *moveFlags) way(ctx context.Context, std stdio, command func(ctx context.Context, in wayIn) error) error {
	if f.DryRun {
		return f.reads(ctx, std, command)
	}
	return f.asks(ctx, std, command)
}

// end waits until the job in the answer a has ended, and prints the result. A job is a request for moves that the
// leader has accepted. Without a job, or with --no-wait, end does not wait.
func (f *moveFlags) end(ctx context.Context, std stdio, in wayIn, a *adminapi.Answer) error {
	if a.Job != nil && !f.NoWait {
		j, err := f.follow(ctx, std, in.Client, *a.Job)
		if err != nil {
			return err
		}
		a.Job = &j
	}
	if f.Format == "json" {
		if err := daemon.PrintJSON(std.out, a); err != nil {
			return err
		}
	}
	j := a.Job
	switch {
	case j == nil:
		return nil
	case j.State == scheduler.JobFailed:
		return refused("job %s of %s: %s", j.ID, j.Name, j.Error)
	case f.Format == "json" || len(j.Goals) == 0:
		return nil
	case j.State != scheduler.JobDone:
		_, err := fmt.Fprintf(std.out, "job %s is under way: rebalancer status shows how far it is\n", j.ID)
		return err
	}
	_, err := fmt.Fprintf(std.out, "done: %s rows copied, in %v\n", commas(j.Rows), j.Ended.Sub(j.Asked).Round(100*time.Millisecond))
	return err
}

// followEvery is the pause between two requests for the state of a job, while a command waits for the end of the job.
const followEvery = 200 * time.Millisecond

// follow shows the progress of the job j, which is an accepted request for moves, until j ends. The result is the last
// known state of the job.
func (f *moveFlags) follow(ctx context.Context, std stdio, c *adminapi.Client, j scheduler.Job) (scheduler.Job, error) {
	if !j.Ended.IsZero() {
		return j, nil
	}
	var last atomic.Pointer[scheduler.Job]
	begun := j
	last.Store(&begun)
	defer showJob(f.Progress, std.err, j.What+" "+j.Name, &last)()
	failures := 0
	for j.Ended.IsZero() {
		select {
		case <-time.After(followEvery):
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.Canceled) && len(f.Cassandra) == 0 {
				return j, fmt.Errorf("interrupted; the job goes on: rebalancer status shows how far it is")
			}
			return j, fmt.Errorf("interrupted: the next leader completes moves that have begun: %w", context.Cause(ctx))
		}
		next, err := c.Job(ctx, j.ID)
		if err == nil && !next.Asked.Equal(j.Asked) {
			return j, errors.New("the state of the job is unknown: the process was started again, and has given its id to " +
				"another one. What had begun goes on; rebalancer status shows it")
		}
		if err == nil {
			j, failures = next, 0
			last.Store(&next)
			continue
		}
		// The process may be restarting. Then it does not know the job yet.
		const most = 20
		if failures++; store.KindOf(err) != store.Unavailable || failures == most {
			return j, fmt.Errorf("the state of the job is unknown: %w", err)
		}
	}
	return j, nil
}

// printMoves prints, as a table, the requested moves of ranges. The parameter dry is true if the moves will not be
// carried out.
func printMoves(out io.Writer, a *adminapi.Answer, dry bool) {
	for _, n := range a.Notes {
		fmt.Fprintln(out, n)
	}
	if len(a.Moves) == 0 {
		fmt.Fprintln(out, "nothing moves")
		return
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "start\tend\trows\tcopied\tcuts\n")
	for i, m := range a.Moves {
		if i == movesShown {
			break
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", startText(m.Start), endText(m.End), commas(m.Rows), commas(m.Copies), cutsText(m.Cuts))
	}
	t.Flush()
	if rest := len(a.Moves) - movesShown; rest > 0 {
		fmt.Fprintf(out, "... and %d more: --format json prints them\n", rest)
	}
	if dry && a.Learned != nil {
		fmt.Fprintln(out, "the cuts:")
		n := 0
		for _, m := range a.Moves {
			for _, c := range m.Cuts {
				if n++; n <= movesShown {
					fmt.Fprintln(out, " ", keytext.Format(c))
				}
			}
		}
		if n > movesShown {
			fmt.Fprintf(out, "  ... and %d more: --format json prints them\n", n-movesShown)
		}
	}
	if dry {
		fmt.Fprintln(out, "nothing was done: that was a dry run")
	}
}

func startText(k adminapi.Key) string {
	if len(k) == 0 {
		return "(first)"
	}
	return k.String()
}

func endText(k adminapi.Key) string {
	if len(k) == 0 {
		return "(no end)"
	}
	return k.String()
}

func cutsText(cuts keytext.Keys) string {
	const shown = 8
	var parts []string
	for i, c := range cuts {
		if i == shown {
			parts = append(parts, fmt.Sprintf("and %d more", len(cuts)-shown))
			break
		}
		parts = append(parts, keytext.Format(c))
	}
	if len(parts) == 0 {
		return "(none: one range)"
	}
	return strings.Join(parts, " ")
}
