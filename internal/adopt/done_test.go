package adopt_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/adopt"
)

// TestProgressOfEarlierRuns: the time of all runs adds up, and a status of rows per second is of all of them.
func TestProgressOfEarlierRuns(t *testing.T) {
	file := filepath.Join(t.TempDir(), "done.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"version":1,"task":"task","cuts":["k"],"rows":70,"streams":[
		{"ended":true},{"last":"x"},{"ended":true},{}],"read":600,"refused":21,"refusals":[{"key":"a","fault":"why"}],
		"seconds":300,"saved":"2026-01-02T03:04:05Z"}`), 0o600))
	d, err := adopt.LoadDone(file, "task", 2)
	require.NoError(t, err)
	s := d.Status()
	require.Equal(t, "copying", s.Phase)
	require.Equal(t, []int{4, 2}, []int{s.Streams, s.StreamsEnded})
	require.Equal(t, []int64{600, 70, 21}, []int64{s.Read, s.Rows, s.Refused})
	require.Equal(t, []float64{300, 2}, []float64{s.Seconds, s.RowsPerSecond})
	require.Equal(t, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), s.Saved)
	require.Len(t, s.Refusals, 1)
	require.Equal(t, [][]byte{[]byte("k")}, d.Cuts())
	require.EqualValues(t, 21, d.Refused())
	require.EqualValues(t, 70, d.Rows())

	begun := time.Now()
	require.NoError(t, d.Save(file))
	for range 2 {
		d, err = adopt.LoadDone(file, "task", 2)
		require.NoError(t, err)
		s = d.Status()
		require.InDelta(t, 300, s.Seconds, time.Since(begun).Seconds()+0.1)
		require.GreaterOrEqual(t, s.Seconds, 300.0)
		require.WithinRange(t, s.Saved, begun.Add(-time.Second), time.Now().Add(time.Second))
		require.NoError(t, d.Save(file))
	}
}

func TestNewProgress(t *testing.T) {
	s := adopt.NewDone("task", 3, [][]byte{[]byte("k")}, 5).Status()
	require.Equal(t, []int{6, 0}, []int{s.Streams, s.StreamsEnded})
	require.Equal(t, "copying", s.Phase)
	require.Zero(t, s.RowsPerSecond)
	require.NotNil(t, s.Refusals, "an empty list in JSON")
}

// TestProgressThatCannotBeRead: a damaged file, or one of a later version, is an error, and not a copy from its
// beginning.
func TestProgressThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "done.json")
	for text, says := range map[string]string{
		`{"version":1,"task":"task"`: "unexpected end", `{"version":2,"task":"task"}`: "version of its form is 2",
		``: "unexpected end", `{"version":1,"task":"task","streams":[]}`: "0 streams: 1 are expected",
		`{"version":1,"task":"task","streams":[{},{}]}`: "2 streams: 1 are expected",
		`{"version":1,"task":"other","streams":[{}]}`:   "another task: other; this one is task",
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		d, err := adopt.LoadDone(file, "task", 1)
		require.ErrorContains(t, err, says)
		require.ErrorContains(t, err, file)
		require.Nil(t, d)
	}
	_, err := adopt.ReadDone(file + ".none")
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = adopt.LoadDone(dir, "task", 1)
	require.Error(t, err, "a directory")
}

// TestProgressThatCannotBeSaved: the error is returned, and nothing is left behind.
func TestProgressThatCannotBeSaved(t *testing.T) {
	dir, d := t.TempDir(), adopt.NewDone("task", 1, nil, 0)
	require.ErrorIs(t, d.Save(filepath.Join(dir, "none", "done.json")), fs.ErrNotExist)
	taken := filepath.Join(dir, "taken")
	require.NoError(t, os.MkdirAll(filepath.Join(taken, "full"), 0o700))
	require.Error(t, d.Save(taken))
	require.NoError(t, d.Save(filepath.Join(dir, "done.json")))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 2)
}

func TestSpansWithinAPrefix(t *testing.T) {
	span := func(from, to string) (s adopt.Span) {
		if from != "" {
			s.From = []byte(from)
		}
		if to != "" {
			s.To = []byte(to)
		}
		return s
	}
	for _, c := range []struct {
		cuts, prefix string
		want         []adopt.Span
	}{
		{"", "", []adopt.Span{{}}},
		{"", "p", []adopt.Span{span("p", "q")}},
		{"c", "", []adopt.Span{{To: []byte("c")}, {From: []byte("c")}}},
		{"p", "p", []adopt.Span{span("p", "p"), span("p", "q")}},
		{"px", "p", []adopt.Span{span("p", "px"), span("px", "q")}},
		{"\xffx", "\xff", []adopt.Span{span("\xff", "\xffx"), span("\xffx", "")}},
	} {
		var cuts [][]byte
		if c.cuts != "" {
			cuts = append(cuts, []byte(c.cuts))
		}
		got := adopt.Within(adopt.Spans(cuts), []byte(c.prefix))
		require.Len(t, got, len(c.want))
		for i := range got {
			require.Equal(t, string(c.want[i].From), string(got[i].From), "%+v", c)
			require.Equal(t, c.want[i].To, got[i].To, "%+v", c)
		}
	}
}
