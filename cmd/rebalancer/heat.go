package main

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/evenkeel/evenkeel/internal/adminapi"
)

// heatFlags are the command-line flags of `map show --heat`, which draws the history of a bucket's ranges.
type heatFlags struct {
	Heat   bool          `help:"Draw what the ranges had or took by time instead."`
	Metric string        `default:"writes" enum:"writes,reads,rows,bytes" help:"With --heat: writes, reads, rows or bytes."`
	Last   time.Duration `default:"1h" help:"With --heat: so much of the past; 7 days are kept."`
	Prefix string        `placeholder:"PREFIX" help:"With --heat: only ranges that have keys with this prefix."`
}

const (
	heatWidth, heatHeight = 60, 40
	// heatKey is the number of characters of a key that the picture shows.
	heatKey = 24
	// shades are characters of growing darkness for growing figures. The first character stands for 0.
	shades = " .:-=+*#%@"
)

// heat draws how a figure of a bucket's ranges, such as their rows or puts, has changed over time. The picture is made
// of characters, with keys downwards and time to the right.
func (c *mapShowCmd) heat(ctx context.Context, std stdio) error {
	if c.Epoch != 0 {
		return usageError("--heat and --epoch: give one of them")
	}
	if c.Last <= 0 {
		return usageError("--last is a time above 0, not %v", c.Last)
	}
	now := std.now()
	q := url.Values{
		"bucket": {c.Bucket}, "metric": {c.Metric}, "from": {strconv.FormatInt(now.Add(-c.Last).Unix(), 10)},
		"to": {strconv.FormatInt(now.Unix(), 10)}, "width": {strconv.Itoa(heatWidth)}, "height": {strconv.Itoa(heatHeight)},
	}
	if c.Prefix != "" {
		q.Set("prefix", c.Prefix)
	}
	return c.asksLeader(ctx, std, func(ctx context.Context, in wayIn) error {
		p, err := in.Heat(ctx, q)
		if err != nil {
			return err
		}
		return c.print(std, p, func(w *failing) { drawHeat(w, &p, c.Metric) })
	})
}

// drawHeat draws to w how a figure of a bucket's ranges has changed over time. metric is the name of the figure, e.g.
// "rows". The picture is made of characters, with keys downwards and time to the right. The last known figure ends each
// line.
func drawHeat(w *failing, p *adminapi.Heat, metric string) {
	m := p.Metrics[metric]
	rows, columns := len(p.Keys)-1, len(p.Times)-1
	w.printf("%s of %s, %s; %s to %s, %s a column\n", metric, text(p.Bucket), m.Unit, p.From.Format(time.RFC3339),
		p.To.Format(time.RFC3339), time.Duration(p.StepS)*time.Second)
	if m.Max <= 0 {
		w.printf("nothing in this time: figures begin when the process first led the moves, and come every ten seconds\n")
	}
	for y := range rows {
		var line strings.Builder
		last := "unknown"
		for x := range columns {
			v := m.Cells[x*rows+y]
			line.WriteByte(shade(v, m.Max))
			if v >= 0 {
				last = strconv.FormatFloat(v, 'g', 4, 64)
			}
		}
		w.printf("%s |%s| %s\n", padded(startText(p.Keys[y])), line.String(), last)
	}
	if m.Max > 0 {
		w.printf("'%c' is up to %.4g, '%c' %.4g %s; '?': not known\n", shades[1], m.Max/float64(len(shades)-1),
			shades[len(shades)-1], m.Max, m.Unit)
	}
	for i := min(len(p.Events), heatMoves) - 1; i >= 0; i-- { // the newest come first
		e := &p.Events[i]
		when := e.Began
		if when.IsZero() {
			when = e.Ended
		}
		w.printf("%s %s [%s, %s): %s\n", when.Format(time.TimeOnly), e.Kind, startText(e.Start), endText(e.End), e.Why)
	}
}

// heatMoves is the largest number of moves of ranges that are listed below the picture of a bucket's history.
const heatMoves = 10

func shade(v, most float64) byte {
	switch n := len(shades) - 1; {
	case v < 0:
		return '?'
	case v == 0 || most <= 0:
		return shades[0]
	default:
		return shades[min(n, 1+int(v/most*float64(n)))]
	}
}

// padded returns key in exactly 24 characters: a short key with blanks at its end, and a long key cut off.
func padded(key string) string {
	if n := utf8.RuneCountInString(key); n > heatKey {
		return string([]rune(key)[:heatKey-1]) + "…"
	}
	return fmt.Sprintf("%-*s", heatKey, key)
}
