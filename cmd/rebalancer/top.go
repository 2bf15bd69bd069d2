package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/internal/wait"
)

type topCmd struct {
	Every time.Duration `default:"5s" help:"Pause between two looks."`
	Limit int           `default:"20" help:"Most buckets to show."`
	Once  bool          `help:"Look once."`
	adminFlags
}

func (topCmd) Help() string {
	return `Shows the buckets that take the most requests, of the first thousand by name, and the moves under
way, again and again until a signal. Figures of a bucket are up to ten seconds old. With --format
json each look is a document.

Examples:

    rebalancer top
    rebalancer top --once --limit 5
    rebalancer top --format json | jq -c .buckets[0]`
}

const (
	// topBuckets is the largest number of buckets that one refresh of the screen reads.
	topBuckets = 1000
	topPage    = 200
	leastEvery = time.Second
	// clearScreen moves the cursor to the corner of a terminal and clears the screen.
	clearScreen = "\x1b[H\x1b[2J"
)

// top holds what the command top shows at one time: the busiest buckets, the moves under way, and the pauses of moves.
type top struct {
	At      time.Time          `json:"at"`
	Keeper  adminapi.Keeper    `json:"keeper"`
	Buckets []adminapi.Figures `json:"buckets"`
	// More is true if the store has further buckets that the command did not read.
	More   bool              `json:"more,omitempty"`
	Jobs   []scheduler.Job   `json:"jobs"`
	Pauses []adminapi.Paused `json:"pauses"`
}

// Run shows the busiest buckets, and refreshes the screen at intervals of --every until ctx ends. With --once, it shows
// the buckets once.
func (c *topCmd) Run(ctx context.Context, std stdio) error {
	if c.Every < leastEvery {
		return usageError("--every is at least %v, not %v", leastEvery, c.Every)
	}
	if c.Limit < 1 {
		return usageError("--limit is at least 1, not %d", c.Limit)
	}
	return c.asksLeader(ctx, std, func(ctx context.Context, in wayIn) error {
		for {
			t, err := c.look(ctx, std, in)
			if err == nil {
				err = c.show(std, t)
			}
			if err != nil || c.Once {
				return err
			}
			if wait.Sleep(ctx, c.Every) != nil {
				return nil
			}
		}
	})
}

func (c *topCmd) look(ctx context.Context, std stdio, in wayIn) (t top, err error) {
	t = top{At: std.now().UTC(), Buckets: []adminapi.Figures{}, Jobs: []scheduler.Job{}}
	for after := ""; ; {
		page, err := in.Buckets(ctx, after, topPage)
		if err != nil {
			return t, err
		}
		t.Keeper, t.Buckets = page.Keeper, append(t.Buckets, page.Buckets...)
		if after = page.Next; after == "" {
			break
		}
		if t.More = len(t.Buckets) >= topBuckets; t.More {
			break
		}
	}
	slices.SortStableFunc(t.Buckets, func(a, b adminapi.Figures) int {
		return cmp.Or(cmp.Compare(b.Writes+b.Reads, a.Writes+a.Reads), cmp.Compare(b.Rows, a.Rows))
	})
	t.Buckets = t.Buckets[:min(len(t.Buckets), c.Limit)]
	s, err := in.Status(ctx)
	for i := range s.Jobs {
		if s.Jobs[i].Ended.IsZero() {
			t.Jobs = append(t.Jobs, s.Jobs[i])
		}
	}
	t.Pauses = s.Pauses
	return t, err
}

func (c *topCmd) show(std stdio, t top) error {
	if c.Format == "json" {
		return daemon.PrintJSON(std.out, t)
	}
	var b bytes.Buffer
	w := &failing{w: &b}
	if !c.Once && terminal(std.out) {
		w.printf(clearScreen)
	}
	printTop(w, &t)
	if !c.Once && !terminal(std.out) {
		w.printf("\n")
	}
	_, err := std.out.Write(b.Bytes())
	return err
}

func printTop(w *failing, t *top) {
	w.printf("%s  %s looks after sizes\n", t.At.Format(time.RFC3339), text(t.Keeper.Name))
	if t.Keeper.Unattended != "" {
		w.printf("Sizes are not looked after: %s\n", t.Keeper.Unattended)
	}
	printPauses(w, t.Pauses, t.At)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "bucket\twrites/s\treads/s\trows\trows/s\tbytes\tranges\tlargest\tmoving\twaiting\n")
	for i := range t.Buckets {
		b := &t.Buckets[i]
		name := text(b.Bucket)
		if b.Error != "" {
			fmt.Fprintf(table, "%s\t%s\n", name, b.Error)
			continue
		}
		rows := commas(b.Rows)
		if !b.Known {
			rows = "at least " + rows
		}
		fmt.Fprintf(table, "%s\t%.1f\t%.1f\t%s\t%+.1f\t%s\t%s\t%s\t%d\t%d\n", name, b.Writes, b.Reads, rows, b.Growth,
			humanize.IBytes(uint64(max(0, b.Bytes))), commas(int64(b.Ranges)), commas(b.Largest), b.Moving, b.Waiting)
	}
	table.Flush()
	if len(t.Buckets) == 0 {
		w.printf("There are no buckets yet: listd bucket create NAME makes one\n")
	}
	if t.More {
		w.printf("Only the first %s buckets by name were looked at\n", commas(topBuckets))
	}
	for i := range t.Jobs {
		j := &t.Jobs[i]
		w.printf("job %s: %s %s, %s %s: %s of %s rows copied, %s compared, %s swept over\n", j.ID, text(j.Name), j.What, j.State,
			j.Phase, commas(j.Copied), commas(j.Rows), commas(j.Verified), commas(j.Searched))
	}
}
