package adopt

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/store"
)

// Done is the progress of a copy from a source into a bucket: for each stream of rows, up to which key it is copied. It
// can be saved to a file, so that the copy can go on after a restart. It is safe for concurrent use.
type Done struct {
	mu    sync.Mutex
	state state
	began time.Time     // start of this process's work
	spent time.Duration // time spent by earlier processes
}

// state is the content, as JSON, of the file with the progress of a copy into a bucket.
type state struct {
	Version int `json:"version"`
	// Task names the source and the bucket of the copy.
	Task string `json:"task"`
	// Cuts are the keys that divide all keys into intervals, in ascending order.
	Cuts keytext.Keys `json:"cuts"`
	// Rows is about the number of rows of the source.
	Rows int64 `json:"rows"`
	// Streams say how far each interval of keys is copied: first all intervals of the first part of the source (e.g. a
	// partition of a table), then those of the second part, and so on.
	Streams []stream `json:"streams"`
	// Read is the number of rows that were read so far, and Refused is the number of these rows that could not be
	// copied. Refusals lists the first ones, with reasons.
	Read     int64     `json:"read"`
	Refused  int64     `json:"refused"`
	Refusals []refusal `json:"refusals,omitempty"`
	// Seconds is the time that all runs of the copy have taken up to the time Saved.
	Seconds float64   `json:"seconds"`
	Saved   time.Time `json:"saved"`
}

// refusal is a row that could not be copied into the bucket, with the reason (Fault). A key of more than 256 bytes is
// cut short.
type refusal struct {
	Key   keytext.Key `json:"key"`
	Fault string      `json:"fault"`
}

// mostRefusals is the largest number of rows that a progress file lists as not copied. refusalKeySize is the largest
// number of bytes of each listed key; the rest of the key is cut off.
const (
	mostRefusals   = 20
	refusalKeySize = 256
)

// stream is the progress of copying one interval of keys from one part of the source, such as a partition of a table.
// The rows up to and including the key Last are copied. If Last is nil, no row is copied yet. Ended is true if all rows
// are copied.
type stream struct {
	Last  *keytext.Key `json:"last,omitempty"`
	Ended bool         `json:"ended,omitempty"`
}

const doneVersion = 1

// NewDone returns the progress of a copy that has not begun. The parameters are:
//   - task: a text that names the source and the bucket of the copy
//   - parts: the number of parts of the source, e.g. partitions of a table
//   - cuts: the keys that divide all keys into intervals
//   - rows: about the number of rows of the source
func NewDone(task string, parts int, cuts [][]byte, rows int64) *Done {
	return &Done{began: time.Now(), state: state{
		Version: doneVersion, Task: task, Cuts: cuts, Rows: rows, Streams: make([]stream, parts*(len(cuts)+1)),
	}}
}

// LoadDone reads the progress of a copy from a file that Save wrote, for a copy that goes on. If there is no such file,
// it returns nil without an error. It fails if the file belongs to another copy: one with another task (a text), or
// with another number of parts of the source.
func LoadDone(file, task string, parts int) (*Done, error) {
	d, err := ReadDone(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	switch s := &d.state; {
	case s.Task != task:
		err = fmt.Errorf("it is of another task: %s; this one is %s", s.Task, task)
	case len(s.Streams) != parts*(len(s.Cuts)+1):
		err = fmt.Errorf("it has %d streams: %d are expected", len(s.Streams), parts*(len(s.Cuts)+1))
	}
	if err != nil {
		return nil, fmt.Errorf("the progress in %s: %w", file, err)
	}
	return d, nil
}

// ReadDone reads the progress of any copy from a file that Save wrote, to show the progress to people.
func ReadDone(file string) (*Done, error) {
	d := &Done{began: time.Now()}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &d.state)
	}
	if err == nil && d.state.Version != doneVersion {
		err = fmt.Errorf("the version of its form is %d: %d is known", d.state.Version, doneVersion)
	}
	d.spent = time.Duration(d.state.Seconds * float64(time.Second))
	if err != nil {
		return nil, fmt.Errorf("the progress in %s: %w", file, err)
	}
	return d, nil
}

// Status is a summary of how far a copy from a source into a bucket has come, e.g. how many rows were read. It can be
// printed as JSON.
type Status struct {
	// Task names the source and the bucket of the copy.
	Task string `json:"task"`
	// Phase is "copied" if all streams of rows have ended, else "copying", whether a process runs or not.
	Phase string `json:"phase"`
	// Read is the number of rows read so far, and Rows is about the number of all rows. Streams is the number of
	// streams of rows, of which StreamsEnded have ended.
	Read          int64     `json:"read"`
	Rows          int64     `json:"rows"`
	Streams       int       `json:"streams"`
	StreamsEnded  int       `json:"streams_ended"`
	Seconds       float64   `json:"seconds"`
	RowsPerSecond float64   `json:"rows_per_second"`
	Saved         time.Time `json:"saved"`
	// Refused is the number of rows that could not be copied. Refusals are the first of these rows.
	Refused  int64     `json:"refused"`
	Refusals []refusal `json:"refusals"`
}

// Status returns how far the copy has come, e.g. how many rows were read. Its times are as of the last call of Save.
func (d *Done) Status() Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := &d.state
	out := Status{
		Task: s.Task, Phase: "copied", Read: s.Read, Rows: s.Rows, Streams: len(s.Streams), Seconds: s.Seconds,
		Saved: s.Saved, RowsPerSecond: float64(s.Read) / max(s.Seconds, 1e-3), Refused: s.Refused,
		Refusals: append([]refusal{}, s.Refusals...),
	}
	for _, one := range s.Streams {
		if one.Ended {
			out.StreamsEnded++
		} else {
			out.Phase = "copying"
		}
	}
	return out
}

// Save writes the progress of the copy to a file, which it replaces as a whole. After a crash, the file has the old
// content or the new one, never a mixture.
func (d *Done) Save(file string) error {
	d.mu.Lock()
	d.state.Saved = time.Now().UTC()
	d.state.Seconds = (d.spent + time.Since(d.began)).Seconds()
	text, err := json.Marshal(&d.state)
	d.mu.Unlock()
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// Rows returns an estimate of the number of rows of the whole source.
func (d *Done) Rows() int64 { return d.state.Rows }

// Cuts returns the keys that divide all keys into intervals. Each interval is copied on its own, at the same time as
// others.
func (d *Done) Cuts() [][]byte { return d.state.Cuts }

// Refused returns the number of rows that could not be copied, in this run and in earlier runs of the same copy.
func (d *Done) Refused() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state.Refused
}

// Spans returns the intervals into which the given cuts divide all keys. The result has one interval more than there
// are cuts: for the cuts f and m these are the keys below f, from f to below m, and from m on.
func Spans(cuts [][]byte) []Span {
	out := make([]Span, len(cuts)+1)
	for i, cut := range cuts {
		out[i].To, out[i+1].From = cut, cut
	}
	return out
}

// Within limits the given intervals of keys to the keys that begin with a prefix. It changes the intervals in place and
// returns them. All bounds between the intervals must begin with the prefix.
func Within(spans []Span, prefix []byte) []Span {
	end := store.PrefixEnd(prefix)
	for i := range spans {
		s := &spans[i]
		if bytes.Compare(s.From, prefix) < 0 {
			s.From = prefix
		}
		if end != nil && (s.To == nil || bytes.Compare(end, s.To) < 0) {
			s.To = end
		}
	}
	return spans
}

func (d *Done) left(part, span int, s Span) (Span, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := &d.state.Streams[part*(len(d.state.Cuts)+1)+span]
	if at.Last != nil {
		s.From, s.After = *at.Last, true
	}
	return s, at.Ended
}

// set records that one page of rows was copied. part is the number of the source's part, and span is the number of the
// interval of keys. refused has those rows of the page that could not be copied. If ended is true, the interval is
// done. If it is false, the copy goes on after the last row of the page.
func (d *Done) set(part, span int, page, refused []Row, ended bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := &d.state.Streams[part*(len(d.state.Cuts)+1)+span]
	if at.Ended = ended; !ended {
		key := keytext.Key(bytes.Clone(page[len(page)-1].Key))
		at.Last = &key
	}
	d.state.Read += int64(len(page))
	d.state.Refused += int64(len(refused))
	for i := range refused {
		if len(d.state.Refusals) < mostRefusals {
			key := bytes.Clone(refused[i].Key[:min(len(refused[i].Key), refusalKeySize)])
			d.state.Refusals = append(d.state.Refusals, refusal{key, string(refused[i].Refused)})
		}
	}
}
