package adopt

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/keytext"
)

// Form is that of the lines of a file.
type Form string

// The forms. Keys are as package keytext writes them.
const (
	Plain Form = "plain" // a key
	TSV   Form = "tsv"   // a key, and after the first tab the value as it is
	JSONL Form = "jsonl" // an object with "key", and perhaps "value": a text as it is, else its JSON
)

// longestLine has a key with each byte as \xNN, and a value of the largest size, escaped.
const longestLine = 6 * (store.MaxKeyBytes + store.MaxValueBytes)

// AddLines fills the spool with the lines of a file. It ends with the first line that can't be read, and names it.
// report receives the rows that are refused, and keys that come again.
func (s *Spool) AddLines(ctx context.Context, in io.Reader, form Form, report func(Finding)) (lines int64, err error) {
	scan := bufio.NewScanner(in)
	scan.Buffer(make([]byte, 64<<10), longestLine)
	scan.Split(splitLines)
	for scan.Scan() {
		lines++
		key, value, err := form.row(scan.Bytes())
		var fault string
		if err == nil {
			fault, err = s.add(ctx, key, value, lines)
		}
		if err != nil {
			return lines, fmt.Errorf("line %d: %w", lines, err)
		}
		if fault != "" {
			report(Finding{Key: key, Fault: fmt.Sprintf("line %d: %s", lines, fault)})
		}
	}
	if err := scan.Err(); err != nil {
		return lines, fmt.Errorf("line %d: %w", lines+1, err)
	}
	return lines, s.flush(ctx)
}

// splitLines is bufio.ScanLines, but keeps carriage returns: they are part of a value.
func splitLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// row reads a line; what it returns shares no memory with it.
func (f Form) row(line []byte) (key, value []byte, err error) {
	text := string(line)
	switch f {
	case TSV:
		before, after, found := bytes.Cut(line, []byte("\t"))
		if !found {
			return nil, nil, errors.New("it has no tab between a key and a value; --form plain is for keys alone")
		}
		text, value = string(before), bytes.Clone(after)
	case JSONL:
		var object struct {
			Key   *string
			Value json.RawMessage
		}
		if err := json.Unmarshal(line, &object); err != nil {
			return nil, nil, fmt.Errorf("it is no object of JSON: %w", err)
		}
		if object.Key == nil {
			return nil, nil, errors.New(`it has no member "key"`)
		}
		text, value = *object.Key, object.Value
		var plain *string
		if json.Unmarshal(object.Value, &plain) == nil {
			value = nil
			if plain != nil {
				value = []byte(*plain)
			}
		}
	}
	k, err := keytext.Parse(text)
	if err == nil && len(k) == 0 {
		err = errors.New("the key is empty")
	}
	return k, value, err
}
