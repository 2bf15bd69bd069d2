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

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/keytext"
)

// Done is how far a copy has come. It is safe for concurrent use.
type Done struct {
	mu    sync.Mutex
	state state
	began time.Time     // of this process's work
	spent time.Duration // by others before
}

// state is the form of the file.
type state struct {
	Version int `json:"version"`
	// Task says what is copied to where.
	Task string `json:"task"`
	// Cuts divide the keys into spans.
	Cuts keytext.Keys `json:"cuts"`
	// Rows is about how many there are.
	Rows int64 `json:"rows"`
	// Streams are those of all spans of the first part, and so on.
	Streams []stream `json:"streams"`
	// Read and Refused are the rows up to where the streams have come; Refusals are the first ones that were refused.
	Read     int64     `json:"read"`
	Refused  int64     `json:"refused"`
	Refusals []refusal `json:"refusals,omitempty"`
	// Seconds were spent by all runs, until Saved.
	Seconds float64   `json:"seconds"`
	Saved   time.Time `json:"saved"`
}

// refusal is a row that was not adopted; its key is the beginning of a long one.
type refusal struct {
	Key   keytext.Key `json:"key"`
	Fault string      `json:"fault"`
}

// Of refused rows a file has the first ones, with so many bytes of the key.
const (
	mostRefusals   = 20
	refusalKeySize = 256
)

// stream is how far one span of one part is copied: up to and including the key Last, if there is one.
type stream struct {
	Last  *keytext.Key `json:"last,omitempty"`
	Ended bool         `json:"ended,omitempty"`
}

const doneVersion = 1

// NewDone returns the beginning of a task over parts that are cut.
func NewDone(task string, parts int, cuts [][]byte, rows int64) *Done {
	return &Done{began: time.Now(), state: state{
		Version: doneVersion, Task: task, Cuts: cuts, Rows: rows, Streams: make([]stream, parts*(len(cuts)+1)),
	}}
}

// LoadDone reads a file that Save wrote for the same task; nil if there is no file.
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

// ReadDone reads a file that Save wrote, of any task.
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

// Status is how far a copy has come.
type Status struct {
	// Task says what is copied to where.
	Task string `json:"task"`
	// Phase is "copying", whether a process runs or not, or "copied".
	Phase string `json:"phase"`
	// Read are the rows that were read, of about Rows.
	Read          int64     `json:"read"`
	Rows          int64     `json:"rows"`
	Streams       int       `json:"streams"`
	StreamsEnded  int       `json:"streams_ended"`
	Seconds       float64   `json:"seconds"`
	RowsPerSecond float64   `json:"rows_per_second"`
	Saved         time.Time `json:"saved"`
	// Refused are the rows that were not adopted; Refusals are the first ones.
	Refused  int64     `json:"refused"`
	Refusals []refusal `json:"refusals"`
}

// Status returns how far the copy had come when it was saved.
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

// Save writes the progress. A crash leaves the old file or the new one.
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

// Rows is about how many rows there are.
func (d *Done) Rows() int64 { return d.state.Rows }

// Cuts are where the keys are divided.
func (d *Done) Cuts() [][]byte { return d.state.Cuts }

// Refused counts the rows that were not adopted, by all runs.
func (d *Done) Refused() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state.Refused
}

// Spans are what the cuts divide all keys into.
func Spans(cuts [][]byte) []Span {
	out := make([]Span, len(cuts)+1)
	for i, cut := range cuts {
		out[i].To, out[i+1].From = cut, cut
	}
	return out
}

// Within narrows spans, whose cuts have a prefix, to the keys that have it.
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

// set notes a page: the rows that were read and, of them, refused; what comes after last is left, unless it has ended.
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
