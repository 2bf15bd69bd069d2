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

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/keytext"
)

// Done is how far a copy has come. It is safe for concurrent use.
type Done struct {
	mu    sync.Mutex
	state state
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
}

// stream is how far one span of one part is copied: up to and including the key Last, if there is one.
type stream struct {
	Last  *keytext.Key `json:"last,omitempty"`
	Ended bool         `json:"ended,omitempty"`
}

const doneVersion = 1

// NewDone returns the beginning of a task over parts that are cut.
func NewDone(task string, parts int, cuts [][]byte, rows int64) *Done {
	return &Done{state: state{doneVersion, task, cuts, rows, make([]stream, parts*(len(cuts)+1))}}
}

// LoadDone reads a file that Save wrote for the same task; nil if there is no file.
func LoadDone(file, task string, parts int) (*Done, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	d := &Done{}
	if err == nil {
		err = json.Unmarshal(text, &d.state)
	}
	switch s := &d.state; {
	case err != nil:
	case s.Version != doneVersion:
		err = fmt.Errorf("the version of its form is %d: %d is known", s.Version, doneVersion)
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

// Save writes the progress. A crash leaves the old file or the new one.
func (d *Done) Save(file string) error {
	d.mu.Lock()
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

// Begun reports whether anything was copied.
func (d *Done) Begun() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.state.Streams {
		if s.Last != nil || s.Ended {
			return true
		}
	}
	return false
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

func (d *Done) set(part, span int, last []byte, ended bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := &d.state.Streams[part*(len(d.state.Cuts)+1)+span]
	if at.Ended = ended; !ended {
		key := keytext.Key(last)
		at.Last = &key
	}
}
