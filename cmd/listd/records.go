package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// record is one line of the input of the command load: a key and its value.
type record struct {
	line       int // counted from 1
	key, value []byte
	// bad is the reason why the line cannot be loaded, or nil if the line is good.
	bad error
}

// maxKeyBytes and maxValueBytes are the largest sizes, in bytes, of the key and the value of a line. The limit of keys
// is that of S3. The limit of values is the largest that a server can be configured to accept.
const (
	maxKeyBytes   = 1024
	maxValueBytes = 64 << 10
)

var (
	errEmptyKey = errors.New("the key is empty")
	errLongKey  = errors.New("the key has more than 1024 bytes")
	errLongLine = errors.New("the line is too long")
	errNoTab    = errors.New("there is no TAB between key and value")
)

// records reads the input of the command load line by line. A line is a key without any escapes. If tsv is true, a line
// is a key, a TAB and a value.
type records struct {
	r    *bufio.Reader
	end  byte // ends a line: '\n' or 0
	tsv  bool // a line is key TAB value
	line int
}

func newRecords(r io.Reader, nul, tsv bool) *records {
	rs := &records{r: bufio.NewReaderSize(r, maxKeyBytes+maxValueBytes+2), end: '\n', tsv: tsv}
	if nul {
		rs.end = 0
	}
	return rs
}

// next returns the record of the next line, or io.EOF after the last line. The last line may lack its line end. For a
// bad line, next returns a record with the field bad set, and no error.
func (rs *records) next() (record, error) {
	data, err := rs.r.ReadSlice(rs.end)
	long := errors.Is(err, bufio.ErrBufferFull)
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = rs.r.ReadSlice(rs.end) // skip the rest of a line that is too long
	}
	if err != nil && (!errors.Is(err, io.EOF) || len(data) == 0 && !long) {
		return record{}, err
	}
	rs.line++
	rec := record{line: rs.line}
	if long {
		rec.bad = errLongLine
		return rec, nil
	}
	data = bytes.Clone(data)
	if n := len(data); n > 0 && data[n-1] == rs.end {
		data = data[:n-1]
	}
	rec.key = data
	if rs.tsv {
		key, value, found := bytes.Cut(data, []byte{'\t'})
		if !found {
			rec.bad = errNoTab
			return rec, nil
		}
		rec.key, rec.value = key, value
	}
	switch {
	case len(rec.key) == 0:
		rec.bad = errEmptyKey
	case len(rec.key) > maxKeyBytes:
		rec.bad = errLongKey
	}
	return rec, nil
}

func countRecords(r io.Reader, nul bool) (int, error) {
	rs := newRecords(r, nul, false)
	for {
		if _, err := rs.next(); errors.Is(err, io.EOF) {
			return rs.line, nil
		} else if err != nil {
			return 0, err
		}
	}
}
