package bench

import (
	"bytes"
	"fmt"
	"html"
	"math"

	"github.com/evenkeel/evenkeel/bench/layouts"
)

// Sizes of the parts of a chart, in pixels.
const (
	barHeight   = 14
	barStep     = 18
	chartWidth  = 760
	labelWidth  = 200
	valueWidth  = 120
	panelMargin = 34
)

// chart returns an SVG picture of the median times measured on one store: a panel of bars for each measure, on one
// logarithmic scale. The bar of evenkeel has a colour of its own.
func (r *Report) chart(store string) []byte {
	var groups [][]Line
	least, most, height := math.Inf(1), 0.0, 40
	for _, lines := range r.groups() {
		if lines[0].Store != store {
			continue
		}
		groups = append(groups, lines)
		height += panelMargin + barStep*len(lines)
		for _, l := range lines {
			least, most = min(least, l.P50), max(most, l.P50)
		}
	}
	low := math.Floor(math.Log10(least))
	high := math.Ceil(math.Log10(most) + 1e-9)
	at := func(us float64) float64 {
		return (math.Log10(us) - low) / (high - low) * (chartWidth - labelWidth - valueWidth)
	}
	var b bytes.Buffer
	p := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	p(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n",
		chartWidth, height)
	p(`<rect width="100%%" height="100%%" fill="#fff"/>` + "\n")
	p(`<text x="8" y="18" font-weight="bold">%s: median times, logarithmic</text>`+"\n",
		html.EscapeString(title(store)))
	for e := low; e <= high; e++ {
		x := labelWidth + at(math.Pow(10, e))
		p(`<path d="M%.0f 26V%d" stroke="#ddd"/><text x="%.0f" y="%d" fill="#888" text-anchor="middle">%s</text>`+"\n",
			x, height-14, x, height-3, power(e))
	}
	y := 30
	for _, lines := range groups {
		y += panelMargin
		p(`<text x="8" y="%d" font-weight="bold">%s: %s</text>`+"\n", y-8, html.EscapeString(lines[0].Set),
			html.EscapeString(lines[0].Measure))
		for _, l := range lines {
			colour := "#9ab"
			if l.Layout == layouts.NameEvenkeel {
				colour = "#27a"
			}
			width := max(at(l.P50), 1)
			p(`<text x="%d" y="%d" text-anchor="end">%s</text><rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/><text x="%.1f" y="%d">%s</text>`+"\n",
				labelWidth-6, y+11, html.EscapeString(l.Layout), labelWidth, y, width, barHeight, colour, labelWidth+width+4, y+11, html.EscapeString(l.label()))
			y += barStep
		}
	}
	p("</svg>\n")
	return b.Bytes()
}

func (l *Line) label() string {
	text := micros(l.P50)
	if l.Ratio > 0 && l.Layout != layouts.NameEvenkeel {
		text += " (x " + times(l.Ratio) + ")"
	}
	return text
}

// power returns the label for 10 to the power of e microseconds, e.g. "10 ms" for e = 4.
func power(e float64) string {
	switch us := math.Pow(10, e); {
	case us < 1e3:
		return fmt.Sprintf("%.0f µs", us)
	case us < 1e6:
		return fmt.Sprintf("%.0f ms", us/1e3)
	default:
		return fmt.Sprintf("%.0f s", us/1e6)
	}
}
