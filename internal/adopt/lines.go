package adopt

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/store"
)

// Form says how a line of a file holds a row: as a key alone, as a key and a value with a tab between them, or as JSON.
type Form string

// These are the forms of lines. A key in a line is UTF-8, with \xNN for any other byte, as package keytext defines.
const (
	Plain Form = "plain" // a key
	TSV   Form = "tsv"   // a key, a tab, and the value without any escapes
	// an object such as {"key":"a","value":"b"}; the value may be absent. A JSON string stands for its text, other JSON
	// for itself.
	JSONL Form = "jsonl"
)

// longestLine is the largest length of a line in bytes; longer lines can't be read. It suffices for the longest key and
// the longest value, with each byte escaped, as in \x00.
const longestLine = 6 * (store.MaxKeyBytes + store.MaxValueBytes)

// AddLines adds the rows in the lines of a file to the spool, and returns the number of lines read. It calls report for
// each row that cannot be copied into a bucket, and for each key that an earlier line has, too. It stops at the first
// line that cannot be read; the error names the line.
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

// splitLines is a bufio.SplitFunc that returns lines without their line feeds. Unlike bufio.ScanLines it keeps carriage
// returns at the ends of lines, as they are part of a value.
func splitLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// row returns the key and the value of the row in a line of the form f. It fails if the line does not have this form,
// or if the key is empty. The results are copies, which do not change with the line.
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
