// Package logging protects a program's log from clients: long fields are cut, and the number of log lines per second
// with the same message is limited. The package counts the lines that it drops.
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

// Flags are the command-line flags about the log, e.g. --log-level. The command-line parser kong fills the fields.
type Flags struct {
	LogLevel  Level  `default:"info" help:"Least important log lines to print: debug, info, warn or error."`
	LogFormat string `default:"text" enum:"text,json" help:"Form of log lines: text or json."`
	LogRate   int    `default:"100" placeholder:"N" help:"${logging_log_rate=}"`
}

// Level is the level of the least important log lines that are printed, as a value of the flag --log-level: debug,
// info, warn or error.
type Level slog.Level

// UnmarshalText parses the name of a level: debug, info, warn or error.
func (l *Level) UnmarshalText(text []byte) error {
	if (*slog.Level)(l).UnmarshalText(text) != nil {
		return fmt.Errorf("a level is debug, info, warn or error, not %q", text)
	}
	return nil
}

func (l Level) String() string { return slog.Level(l).String() }

// Validate returns an error if a flag about the log has an invalid value.
func (f *Flags) Validate() error {
	if f.LogRate < 0 {
		return fmt.Errorf("--log-rate is a number of lines, or 0 for no limit, not %d", f.LogRate)
	}
	return nil
}

// Logger returns a log that prints to w in the format of the flag --log-format. The returned Limit drops log lines if
// more than --log-rate lines have the same message in a second, and counts the dropped lines.
func (f *Flags) Logger(w io.Writer) (*slog.Logger, *Limit) {
	o := &slog.HandlerOptions{Level: slog.Level(f.LogLevel), ReplaceAttr: cutAttr}
	var h slog.Handler = slog.NewTextHandler(w, o)
	if f.LogFormat == "json" {
		h = slog.NewJSONHandler(w, o)
	}
	l := &Limit{perSecond: f.LogRate, to: h, kinds: map[string]*kind{}}
	return slog.New(&handler{h, l}), l
}

// Unlimited returns a log that prints to the same output as log, but drops no lines. Unlimited is for log lines that
// operators cause and clients cannot cause.
func Unlimited(log *slog.Logger) *slog.Logger {
	if h, ok := log.Handler().(*handler); ok {
		return slog.New(h.Handler)
	}
	return log
}

const (
	// maxField is the largest length of a field of a log line as printed, in bytes.
	maxField = 1 << 10
	// maxKinds is the largest number of different messages that are counted separately, as some libraries make messages
	// from data. All further messages share one count.
	maxKinds = 256
)

// Limit limits how many log lines with the same message are printed in a second, and counts the lines that it drops. So
// clients cannot fill the disk by causing log lines.
type Limit struct {
	perSecond int // 0: no limit
	to        slog.Handler

	mu      sync.Mutex
	kinds   map[string]*kind // by message; "" is for all messages beyond maxKinds
	dropped uint64
	report  *time.Timer // for the next report; nil: none is due
}

// kind counts the log lines with one message: those printed in the current second, and those dropped since the last
// report.
type kind struct {
	second  int64 // the Unix time in which lines were printed
	lines   int
	dropped int // lines not printed since the last report
}

// take counts a log line with the given message. The result is true if the line may be printed, and false if the line
// is dropped.
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

// Report logs how many log lines were dropped since the last report, by message. A timer calls Report within a second
// after a line is dropped. A program should call Report before the program ends.
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

// Dropped returns the number of log lines that were not printed, because too many had the same message.
func (l *Limit) Dropped() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropped
}

// Metric returns a Prometheus counter of the log lines that were dropped because too many had the same message.
func (l *Limit) Metric() prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "evenkeel_log_lines_dropped_total", Help: "Log lines beyond --log-rate, which were not printed.",
	}, func() float64 { return float64(l.Dropped()) })
}

// handler is a slog.Handler that passes log lines on to the embedded Handler, except for the lines that limit drops.
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

// cutAttr shortens a too long field or message of a log line, and prints durations as text such as 1.5s. It is a
// slog.HandlerOptions.ReplaceAttr.
func cutAttr(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindDuration: // as JSON it would be a number of nanoseconds
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

// Cut returns the text of a field of a log line, shortened if the printed field would take more than 1 KiB. A shortened
// text ends with the number of bytes that are left out. A character that is printed as an escape counts with the length
// of the escape.
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

// longestEscape is the length in bytes of the longest escape in a quoted text, such as \U0010ffff.
const longestEscape = 10

// width returns the largest number of bytes that the rune r takes when r is printed in a quoted text, with escapes. The
// parameter text is the rest of the text, which begins with r.
func width(r rune, text string) int {
	if r == '"' || r == '\\' || r == utf8.RuneError || r == '<' || r == '>' || r == '&' || !strconv.IsPrint(r) {
		return longestEscape
	}
	_, n := utf8.DecodeRuneInString(text)
	return n
}

// ErrorLog returns a log for http.Server.ErrorLog, which writes to the log `to` at level debug. All its lines have the
// same message, with the server's text as a field.
//
// The server's texts contain parts of clients' requests. As messages they would all differ, and escape the limit of
// lines with one message.
func ErrorLog(to *slog.Logger) *log.Logger { return log.New(lines{to}, "", 0) }

type lines struct{ to *slog.Logger }

func (l lines) Write(p []byte) (int, error) {
	l.to.Debug("connection", "problem", string(bytes.TrimSpace(p)))
	return len(p), nil
}
