// Package logging protects a program's log from clients: long fields are cut, and lines of one
// kind are limited in number, and counted.
package logging

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// Flags are the command-line flags of the log, for kong.
type Flags struct {
	LogLevel  Level  `default:"info" help:"Least important log lines to print: debug, info, warn or error."`
	LogFormat string `default:"text" enum:"text,json" help:"Form of log lines: text or json."`
	LogRate   int    `default:"100" placeholder:"N" help:"${logging_log_rate=}"`
}

// Level is the least important kind of lines.
type Level slog.Level

// UnmarshalText reads the name of a level.
func (l *Level) UnmarshalText(text []byte) error {
	if (*slog.Level)(l).UnmarshalText(text) != nil {
		return fmt.Errorf("a level is debug, info, warn or error, not %q", text)
	}
	return nil
}

func (l Level) String() string { return slog.Level(l).String() }

// Validate checks the flags.
func (f *Flags) Validate() error {
	if f.LogRate < 0 {
		return fmt.Errorf("--log-rate is a number of lines, or 0 for no limit, not %d", f.LogRate)
	}
	return nil
}

// Logger makes a program's log.
func (f *Flags) Logger(w io.Writer) (*slog.Logger, *Limit) {
	o := &slog.HandlerOptions{Level: slog.Level(f.LogLevel), ReplaceAttr: cutAttr}
	var h slog.Handler = slog.NewTextHandler(w, o)
	if f.LogFormat == "json" {
		h = slog.NewJSONHandler(w, o)
	}
	l := &Limit{perSecond: f.LogRate, to: h, kinds: map[string]*kind{}}
	return slog.New(&handler{h, l}), l
}

// Unlimited returns a log without the limit of lines, for lines that operators cause.
func Unlimited(log *slog.Logger) *slog.Logger {
	if h, ok := log.Handler().(*handler); ok {
		return slog.New(h.Handler)
	}
	return log
}

const (
	// maxField bounds a field as it is printed.
	maxField = 1 << 10
	// maxKinds bounds the messages that are counted apart: libraries make messages from
	// data.
	maxKinds = 256
)

// Limit limits and counts lines.
type Limit struct {
	perSecond int // 0: any number
	to        slog.Handler

	mu      sync.Mutex
	kinds   map[string]*kind // by message; "" has those beyond maxKinds
	dropped uint64
	report  *time.Timer // nil: none is due
}

// kind is the lines with one message.
type kind struct {
	second  int64 // of the lines counted
	lines   int
	dropped int // since the last report
}

// take reports whether a line may be printed.
func (l *Limit) take(message string) bool {
	if l.perSecond == 0 {
		return true
	}
	second := time.Now().Unix()
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kinds[message]
	if k == nil {
		if len(l.kinds) >= maxKinds {
			message = ""
		}
		if k = l.kinds[message]; k == nil {
			k = &kind{}
			l.kinds[message] = k
		}
	}
	if k.second != second {
		k.second, k.lines = second, 0
	}
	if k.lines < l.perSecond {
		k.lines++
		return true
	}
	k.dropped++
	l.dropped++
	if l.report == nil {
		l.report = time.AfterFunc(time.Second, l.Report)
	}
	return false
}

// Report logs how many lines were dropped since the last report. It is called automatically
// within a second; a program calls it at its end.
func (l *Limit) Report() {
	l.mu.Lock()
	if l.report != nil {
		l.report.Stop()
		l.report = nil
	}
	counts := map[string]int{}
	for message, k := range l.kinds {
		if k.dropped > 0 {
			counts[message], k.dropped = k.dropped, 0
		}
	}
	l.mu.Unlock()
	for message, lines := range counts {
		const what = "log lines were dropped: there were more than --log-rate of their kind in a second"
		r := slog.NewRecord(time.Now(), slog.LevelWarn, what, 0)
		r.AddAttrs(slog.Int("lines", lines), slog.String("kind", message))
		_ = l.to.Handle(context.Background(), r)
	}
}

// Dropped is how many lines were dropped.
func (l *Limit) Dropped() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropped
}

// Metric counts dropped lines.
func (l *Limit) Metric() prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "evenkeel_log_lines_dropped_total", Help: "Log lines beyond --log-rate, which were not printed.",
	}, func() float64 { return float64(l.Dropped()) })
}

// handler limits the lines of another handler.
type handler struct {
	slog.Handler
	limit *Limit
}

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	if !h.limit.take(Cut(r.Message)) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.Handler.WithAttrs(attrs), h.limit}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name), h.limit}
}

// cutAttr cuts a field, or the message; see slog.HandlerOptions.ReplaceAttr.
func cutAttr(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindDuration: // JSON would have a number of nanoseconds
		a.Value = slog.StringValue(a.Value.Duration().String())
	case slog.KindString:
		a.Value = slog.StringValue(Cut(a.Value.String()))
	case slog.KindAny:
		switch v := a.Value.Any().(type) {
		case error:
			a.Value = slog.StringValue(Cut(v.Error()))
		default:
			if text := fmt.Sprintf("%+v", v); cost(text) > maxField {
				a.Value = slog.StringValue(Cut(text))
			}
		}
	}
	return a
}

// Cut shortens a text that is long when printed with escapes.
func Cut(text string) string {
	if len(text) <= maxField/longestEscape {
		return text
	}
	size := 0
	for i, r := range text {
		if size += width(r, text[i:]); size > maxField {
			return text[:i] + "…(" + strconv.Itoa(len(text)-i) + " bytes more)"
		}
	}
	return text
}

func cost(text string) (size int) {
	for i, r := range text {
		size += width(r, text[i:])
	}
	return size
}

// longestEscape is the length of \U0010ffff.
const longestEscape = 10

// width is an upper bound of a rune's length in a quoted text.
func width(r rune, text string) int {
	if r == '"' || r == '\\' || r == utf8.RuneError || r == '<' || r == '>' || r == '&' || !strconv.IsPrint(r) {
		return longestEscape
	}
	_, n := utf8.DecodeRuneInString(text)
	return n
}

// ErrorLog is an http.Server's log, whose lines have one message: their text has parts of
// clients' requests.
func ErrorLog(to *slog.Logger) *log.Logger { return log.New(lines{to}, "", 0) }

type lines struct{ to *slog.Logger }

func (l lines) Write(p []byte) (int, error) {
	l.to.Debug("connection", "problem", string(bytes.TrimSpace(p)))
	return len(p), nil
}
