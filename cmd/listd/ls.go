package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/keytext"
)

type lsCmd struct {
	serverFlags `group:"Server:"`
	Prefix      keytext.Key `help:"Only keys that begin with this."`
	Delimiter   keytext.Key `help:"List keys that have this after the prefix once for all keys with the same part up to it."`
	After       keytext.Key `placeholder:"KEY" help:"Only keys after this one (before it, in reverse)."`
	Reverse     bool        `help:"Highest keys first."`
	Limit       int         `placeholder:"N" help:"Print at most so many lines; 0: no limit."`
	Parallel    int         `default:"1" help:"Read N pieces of the bucket at once; the output stays in order."`
	Format      string      `default:"text" enum:"text,json,null" help:"${ls_format=}"`
	JSON        daemon.JSON `name:"json" env:"-" help:"Short for --format json."`
	Bucket      string      `arg:"" help:"Name of the bucket."`
}

func (*lsCmd) Help() string {
	return `Lists the keys of a bucket in bytewise order. Keys in flags and in text
output are UTF-8 with \xNN for any other byte and \\ for a backslash; --format null
prints them raw, --format json as a string or {"b64":"…"} where they are not UTF-8.

Examples:

  listd ls files --prefix /usr/share/ --delimiter /
  listd ls files --reverse --limit 10
  listd ls files --after /usr/lib --format json
  listd ls files --parallel 8 --format null | tr '\0' '\n' | wc -l`
}

// These constants limit a listing by several readers at once. maxParallel is the largest number of readers that
// --parallel allows. The listing is divided into piecesPerReader pieces for each reader. Of each piece, at most
// pagesAhead pages wait in memory until they are printed.
const (
	maxParallel     = 256
	piecesPerReader = 8
	pagesAhead      = 32
)

func (l *lsCmd) Run(ctx context.Context, std stdio) error {
	if l.Limit < 0 {
		return daemon.UsageError("--limit is a number of lines, or 0 for no limit, not %d", l.Limit)
	}
	if l.Parallel < 1 || l.Parallel > maxParallel {
		return daemon.UsageError("--parallel is 1 to %d, not %d", maxParallel, l.Parallel)
	}
	r, err := l.connect(l.Parallel)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	pieces, err := l.pieces(ctx, r)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(std.out, 64<<10)
	err = l.print(l.read(ctx, r, pieces), out)
	return cmp.Or(err, out.Flush())
}

// query returns the parameters of the URL that all requests of the listing share, e.g. the prefix and the delimiter.
func (l *lsCmd) query() url.Values {
	q := url.Values{"list-type": {"2"}, "encoding-type": {"url"}}
	for name, key := range map[string]keytext.Key{"prefix": l.Prefix, "delimiter": l.Delimiter, "start-after": l.After} {
		if len(key) > 0 {
			q.Set(name, string(key))
		}
	}
	if l.Reverse {
		q.Set("evenkeel-reverse", "true")
	}
	return q
}

// pieces divides the listing into intervals of keys, which several readers read at the same time. The result has the
// URL parameters of each interval, in the order of the listing.
func (l *lsCmd) pieces(ctx context.Context, r *remote) ([]url.Values, error) {
	if l.Parallel == 1 {
		return []url.Values{l.query()}, nil
	}
	q := l.query()
	q.Del("list-type")
	q.Set("evenkeel-splits", strconv.Itoa(piecesPerReader*l.Parallel))
	answer, err := r.do(ctx, &call{method: http.MethodGet, bucket: l.Bucket, query: q})
	if err != nil {
		return nil, err
	}
	var points struct{ Key []urlText }
	if err := xml.Unmarshal(answer, &points); err != nil {
		return nil, fmt.Errorf("the split points: %w", err)
	}
	var pieces []url.Values
	from := urlText("")
	for i := 0; i <= len(points.Key); i++ {
		piece := l.query()
		if from != "" {
			piece.Set("evenkeel-from", string(from))
		}
		if i < len(points.Key) {
			from = points.Key[i]
			piece.Set("evenkeel-to", string(from))
		}
		pieces = append(pieces, piece)
	}
	if l.Reverse {
		slices.Reverse(pieces)
	}
	return pieces, nil
}

// urlText is a text that the server sends URL-encoded, because the client asks for encoding-type=url. A urlText holds
// the decoded text.
type urlText string

func (u *urlText) UnmarshalText(text []byte) error {
	s, err := url.PathUnescape(string(text))
	*u = urlText(s)
	return err
}

// listed is one page of a listing, as the server's XML answer has it.
type listed struct {
	Contents              []line
	CommonPrefixes        []struct{ Prefix urlText }
	IsTruncated           bool
	NextContinuationToken string
}

type result struct {
	page *listed
	err  error
}

// read starts to read all pieces of the listing, which are intervals of keys, given by URL parameters. At most
// --parallel pieces are read at the same time. The result has a channel of pages for each piece. Reading ends when ctx
// ends.
func (l *lsCmd) read(ctx context.Context, r *remote, pieces []url.Values) []chan result {
	slots := make(chan struct{}, l.Parallel)
	pages := make([]chan result, len(pieces))
	for i := range pieces {
		pages[i] = make(chan result, pagesAhead)
	}
	go func() {
		for i, q := range pieces {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			go func() {
				defer func() { <-slots }()
				l.readPiece(ctx, r, q, pages[i])
			}()
		}
	}()
	return pages
}

// readPiece reads one piece of the listing, which is an interval of keys with the URL parameters q. It sends each page
// to out, and closes out at the end. After an error no further page follows.
func (l *lsCmd) readPiece(ctx context.Context, r *remote, q url.Values, out chan<- result) {
	defer close(out)
	if l.Limit > 0 && l.Limit < 1000 {
		q.Set("max-keys", strconv.Itoa(l.Limit))
	}
	for {
		var p listed
		answer, err := r.do(ctx, &call{method: http.MethodGet, bucket: l.Bucket, query: q})
		if err == nil {
			err = xml.Unmarshal(answer, &p)
		}
		if err == nil && p.IsTruncated && p.NextContinuationToken == "" {
			err = errors.New("the server's page is truncated, without a continuation token")
		}
		select {
		case out <- result{&p, err}:
		case <-ctx.Done():
			return
		}
		if err != nil || !p.IsTruncated {
			return
		}
		q.Set("continuation-token", p.NextContinuationToken)
	}
}

// line is one line of the output of the command ls: a key with its fields, or a common prefix. If Prefix is true, Key
// is the common prefix, and the other fields are unset.
type line struct {
	Prefix       bool `xml:"-"`
	Key          urlText
	LastModified time.Time
	ETag         string
	Size         int64
}

// lines returns the keys and common prefixes of a page as one list, in the order of the listing: descending if reverse
// is true.
func (p *listed) lines(reverse bool) []line {
	all := p.Contents
	for _, c := range p.CommonPrefixes {
		all = append(all, line{Key: c.Prefix, Prefix: true})
	}
	slices.SortFunc(all, func(a, b line) int {
		if reverse {
			a, b = b, a
		}
		return strings.Compare(string(a.Key), string(b.Key))
	})
	return all
}

// print writes the lines of all pieces to out, piece after piece, until --limit lines are written. pages has a channel
// with the pages of each piece.
func (l *lsCmd) print(pages []chan result, out *bufio.Writer) error {
	n := 0
	last := line{}
	emit := l.writer(out)
	for _, piece := range pages {
		for res := range piece {
			if res.err != nil {
				return res.err
			}
			for _, at := range res.page.lines(l.Reverse) {
				// Keys with one common prefix may lie in two pieces: the prefix is printed once.
				if at.Prefix && last.Prefix && at.Key == last.Key {
					continue
				}
				last = at
				if err := emit(at); err != nil {
					return err
				}
				if n++; n == l.Limit {
					return nil
				}
			}
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// writer returns a function that writes one line to out in the format of the flag --format: text, json or null.
func (l *lsCmd) writer(out *bufio.Writer) func(line) error {
	switch l.Format {
	case "null":
		return func(at line) error {
			_, _ = out.WriteString(string(at.Key))
			return out.WriteByte(0)
		}
	case "json":
		e := json.NewEncoder(io.Writer(out))
		e.SetEscapeHTML(false)
		return func(at line) error {
			if at.Prefix {
				return e.Encode(struct {
					Prefix keytext.Key `json:"prefix"`
				}{keytext.Key(at.Key)})
			}
			return e.Encode(struct {
				Key      keytext.Key `json:"key"`
				Size     int64       `json:"size"`
				ETag     string      `json:"etag"`
				Modified time.Time   `json:"modified"`
			}{keytext.Key(at.Key), at.Size, strings.Trim(at.ETag, `"`), at.LastModified})
		}
	}
	var text []byte
	return func(at line) error {
		text = append(keytext.Append(text[:0], []byte(at.Key)), '\n')
		_, err := out.Write(text)
		return err
	}
}
