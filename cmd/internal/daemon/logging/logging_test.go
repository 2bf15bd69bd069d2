package logging_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon/logging"
)

// written is a log that many write to.
type written struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

type loud struct{ text string }

func (l loud) LogValue() slog.Value { return slog.StringValue(l.text) }

// TestFieldsAreCut whatever they are made of and however they come in.
func TestFieldsAreCut(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		for _, piece := range []string{"a", " ", "\x00", "\x1b", "\"", "\\", "ü", "\xff", "\u2028", "\U000e0001", "<",
			"&"} {
			long := strings.Repeat(piece, 100_000)
			var w written
			f := logging.Flags{LogFormat: format}
			log, _ := f.Logger(&w)
			for _, say := range []func(){
				func() { log.Info("m", "k", long) },
				func() { log.Info(long) },
				func() { log.Info("m", "k", errors.New(long)) },
				func() { log.Info("m", "k", fmt.Errorf("more: %w", errors.New(long))) },
				func() { log.Info("m", "k", []string{long}) },
				func() { log.Info("m", "k", []byte(long)) },
				func() { log.Info("m", "k", struct{ T string }{long}) },
				func() { log.Info("m", "k", loud{long}) },
				func() { log.Info("m", slog.Group("g", slog.Any("k", loud{long}))) },
				func() { log.With("k", long).Info("m") },
				func() { log.WithGroup("g").With(slog.Group("h", slog.String("k", long))).Info("m") },
			} {
				w.b.Reset()
				say()
				require.Less(t, w.b.Len(), 1<<10+200, "%s %q: %.100q", format, piece, w.String())
				require.Greater(t, w.b.Len(), 100)
				require.Equal(t, 1, strings.Count(w.String(), "\n"))
			}
			require.Contains(t, w.String(), " bytes more)")
		}
		var w written
		log, _ := (&logging.Flags{LogFormat: format}).Logger(&w)
		log.Info("m", "k", strings.Repeat("a", 1000), "n", 7, "l", []string{"x", "y"}, "e", errors.New("why"))
		require.NotContains(t, w.String(), "more")
		require.Regexp(t, `(e=why|"e":"why")`, w.String())
	}
}

// TestLinesAreLimited by kind, and the number of those dropped is told, also when nothing
// is logged any more.
// Durations have their unit in both forms.
func TestDurationsHaveUnits(t *testing.T) {
	for format, want := range map[string]string{"text": "took=1.5s", "json": `"took":"1.5s"`} {
		w := &written{}
		log, _ := (&logging.Flags{LogFormat: format}).Logger(w)
		log.Info("done", "took", 1500*time.Millisecond)
		require.Contains(t, w.String(), want)
	}
}

func TestLinesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w written
		log, limit := (&logging.Flags{LogFormat: "text", LogRate: 10}).Logger(&w)
		registry := prometheus.NewRegistry()
		require.NoError(t, registry.Register(limit.Metric()))
		for i := range 1000 {
			log.With("from", "everywhere").Info("a client's fault", "i", i)
		}
		log.Error("the store has failed")
		require.Equal(t, 11, strings.Count(w.String(), "\n"))
		require.Contains(t, w.String(), "the store has failed", "what is rare is not hidden by what is not")
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		require.Contains(t, w.String(), `lines=990 kind="a client's fault"`)
		log.Info("a client's fault")
		require.Equal(t, 13, strings.Count(w.String(), "\n"), "a new second")
		time.Sleep(time.Minute)
		require.Equal(t, 13, strings.Count(w.String(), "\n"), "it is told once")
		require.EqualValues(t, 990, limit.Dropped())
		families, err := registry.Gather()
		require.NoError(t, err)
		require.EqualValues(t, 990, families[0].GetMetric()[0].GetCounter().GetValue())

		// Messages that clients make up have a limit together.
		w.b.Reset()
		for i := range 10_000 {
			log.Info(fmt.Sprint("made up ", i))
		}
		require.Less(t, strings.Count(w.String(), "\n"), 300)
		limit.Report()
		require.Contains(t, w.String(), `kind=""`)
		limit.Report()

		// What operators cause is cut only.
		w.b.Reset()
		for range 1000 {
			logging.Unlimited(log).Info("a key", "scope", strings.Repeat("x", 10_000))
		}
		require.Equal(t, 1000, strings.Count(w.String(), "\n"))
		require.Less(t, len(w.String()), 1000*1200)

		// Without a limit.
		w.b.Reset()
		log, limit = (&logging.Flags{LogFormat: "text"}).Logger(&w)
		for range 5000 {
			log.Info("m")
		}
		require.Equal(t, 5000, strings.Count(w.String(), "\n"))
		require.Zero(t, limit.Dropped())
	})
	require.Error(t, (&logging.Flags{LogRate: -1}).Validate())
}

func TestServersComplaintsAreOfOneKind(t *testing.T) {
	var w written
	log, _ := (&logging.Flags{LogLevel: logging.Level(slog.LevelDebug), LogRate: 10}).Logger(&w)
	e := logging.ErrorLog(log)
	for i := range 100 {
		e.Printf("http: %d %s", i, strings.Repeat("x", 10_000))
	}
	require.LessOrEqual(t, strings.Count(w.String(), "\n"), 20)
	require.Less(t, len(w.String()), 20*1200)
}
