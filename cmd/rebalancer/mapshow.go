package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/adminapi"
)

type mapCmd struct {
	Show    mapShowCmd    `cmd:"" help:"Print the ranges of a bucket and where they are."`
	History mapHistoryCmd `cmd:"" help:"Print the last epochs of a bucket's map."`
	Diff    mapDiffCmd    `cmd:"" help:"Print what differs between two epochs of a bucket's map."`
}

type mapShowCmd struct {
	Bucket string `arg:"" help:"Name of the bucket."`
	Epoch  uint64 `placeholder:"N" help:"Print the map of this epoch, if it is still kept."`
	heatFlags
	adminFlags
}

func (mapShowCmd) Help() string {
	return `With --format json:

    {"version":1,"bucket":"b","epoch":7,"partitions":[{"id":"…","start":"","end":"m","phase":"settled","to":""},…]}

An empty end is the end of the bucket. Keys that are not UTF-8 are {"b64":"…"}.

With --heat it draws what the ranges had or took instead: keys downwards, time to the right, and
a darker sign for more. With --format json that is an answer of /v1/heat.`
}

// Run prints the map of a bucket, which lists the bucket's ranges and their partitions. With --heat, Run draws the
// history of the ranges instead.
func (c *mapShowCmd) Run(ctx context.Context, std stdio) error {
	if c.Heat {
		return c.heat(ctx, std)
	}
	return c.reads(ctx, std, func(ctx context.Context, in wayIn) error {
		if c.Format == "json" {
			body, err := in.Map(ctx, c.Bucket, c.Epoch)
			if err != nil {
				return err
			}
			defer body.Close()
			// The answer may be large. So it is printed while it arrives, with the version in front.
			if begin := make([]byte, 1); err == nil {
				_, err = io.ReadFull(body, begin)
			}
			if err == nil {
				_, err = fmt.Fprintf(std.out, `{"version":%d,`, daemon.JSONVersion)
			}
			if err == nil {
				_, err = io.Copy(std.out, body)
			}
			return err
		}
		m, err := wholeMap(ctx, in, c.Bucket, c.Epoch)
		if err != nil {
			return err
		}
		t := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
		fmt.Fprintf(t, "start\tend\tpartition\tphase\tto\n")
		for i := range m.Partitions {
			p := &m.Partitions[i]
			phase := phaseText(p)
			if p.PinnedUntil.After(std.now()) {
				phase += ", pinned until " + p.PinnedUntil.Format(time.RFC3339)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", startText(p.Start), endText(p.End), p.ID, phase, p.To)
		}
		t.Flush()
		_, err = fmt.Fprintf(std.out, "epoch %d of %s\n", m.Epoch, text(c.Bucket))
		return err
	})
}

func phaseText(p *adminapi.Partition) string {
	if p.SweepPending {
		return "sweeping"
	}
	return p.Phase
}

type mapHistoryCmd struct {
	Bucket string `arg:"" help:"Name of the bucket."`
	Limit  int    `default:"20" help:"Most epochs to print."`
	adminFlags
}

// Run prints the last epochs of a bucket's map, which are the numbered versions of the map, each with the moves that
// were under way.
func (c *mapHistoryCmd) Run(ctx context.Context, std stdio) error {
	if c.Limit < 1 {
		return usageError("--limit is at least 1, not %d", c.Limit)
	}
	return c.reads(ctx, std, func(ctx context.Context, in wayIn) error {
		h, err := in.History(ctx, c.Bucket, c.Limit)
		if err != nil {
			return err
		}
		return c.print(std, h, func(w *failing) {
			t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
			fmt.Fprintf(t, "epoch\tchanged\tstate\tranges\tbatches\n")
			for _, e := range h.Epochs {
				var batches []string
				for i := range e.Batches {
					batches = append(batches, fmt.Sprintf("%d %s", e.Batches[i].ID, phaseOf(&e.Batches[i])))
				}
				fmt.Fprintf(t, "%d\t%s\t%s\t%d\t%s\n", e.Epoch, e.Changed.Format(time.RFC3339), e.State, e.Ranges,
					strings.Join(batches, ", "))
			}
			t.Flush()
		})
	})
}

type mapDiffCmd struct {
	Bucket string `arg:"" help:"Name of the bucket."`
	From   uint64 `placeholder:"N" help:"Older epoch; the one before --to if it isn't given."`
	To     uint64 `placeholder:"N" help:"Newer epoch; the newest if it isn't given."`
	adminFlags
}

func (mapDiffCmd) Help() string {
	return `Prints a line with - for each range that only the older map has, and one with + for each
that only the newer one has. Of large maps only what the last hour's epochs were made of is
kept.`
}

// Run prints which ranges of a bucket differ between two epochs, which are numbered versions of the bucket's map.
func (c *mapDiffCmd) Run(ctx context.Context, std stdio) error {
	return c.reads(ctx, std, func(ctx context.Context, in wayIn) error {
		newer, err := wholeMap(ctx, in, c.Bucket, c.To)
		if err != nil {
			return err
		}
		if c.From == 0 && newer.Epoch == 1 {
			return refused("epoch 1 is the first: there is none before it")
		}
		older, err := wholeMap(ctx, in, c.Bucket, cmp.Or(c.From, newer.Epoch-1))
		if err != nil {
			return err
		}
		gone, come := without(older.Partitions, newer.Partitions), without(newer.Partitions, older.Partitions)
		if c.Format == "json" {
			return daemon.PrintJSON(std.out, map[string]any{
				"bucket": c.Bucket, "from": older.Epoch, "to": newer.Epoch, "gone": gone, "come": come,
			})
		}
		w := &failing{w: std.out}
		w.printf("epoch %d to %d of %s: %d ranges to %d\n",
			older.Epoch, newer.Epoch, text(c.Bucket), len(older.Partitions), len(newer.Partitions))
		type line struct {
			sign string
			p    adminapi.Partition
		}
		var lines []line
		for _, p := range gone {
			lines = append(lines, line{"-", p})
		}
		for _, p := range come {
			lines = append(lines, line{"+", p})
		}
		slices.SortStableFunc(lines, func(a, b line) int { return slices.Compare(a.p.Start, b.p.Start) })
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, l := range lines {
			fmt.Fprintf(t, "%s [%s, %s)\t%s\t%s\t%s\n", l.sign, startText(l.p.Start), endText(l.p.End), l.p.ID, phaseText(&l.p), l.p.To)
		}
		t.Flush()
		return w.err
	})
}

func wholeMap(ctx context.Context, in wayIn, bucket string, epoch uint64) (m adminapi.Map, err error) {
	body, err := in.Map(ctx, bucket, epoch)
	if err != nil {
		return m, err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(&m); err != nil {
		return m, fmt.Errorf("the map was cut off: %w", err)
	}
	return m, nil
}

// without returns the partitions of the list a that the list b lacks, or has with another range or state.
func without(a, b []adminapi.Partition) []adminapi.Partition {
	key := func(p *adminapi.Partition) string {
		return fmt.Sprintf("%q %q %s %s %s %v", p.Start, p.End, p.ID, p.Phase, p.To, p.SweepPending)
	}
	there := map[string]bool{}
	for i := range b {
		there[key(&b[i])] = true
	}
	out := []adminapi.Partition{}
	for i := range a {
		if !there[key(&a[i])] {
			out = append(out, a[i])
		}
	}
	return out
}
