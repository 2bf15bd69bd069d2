package main

import (
	"bufio"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/keytext"
)

// purgeFlags are the command-line flags of the commands that delete many keys: rm with prefixes, and bucket delete.
type purgeFlags struct {
	Yes         bool        `short:"y" env:"-" help:"Do not ask."`
	DryRun      bool        `env:"-" help:"${purge_dry_run=}"`
	Concurrency int         `default:"128" help:"${purge_concurrency=}"`
	Progress    string      `default:"auto" enum:"auto,bar,plain,none" help:"${purge_progress=}"`
	Format      string      `default:"text" enum:"text,json" help:"What was deleted, as text or json."`
	JSON        daemon.JSON `name:"json" env:"-" help:"Short for --format json."`
}

func (f *purgeFlags) check() error {
	if f.Concurrency < 1 || f.Concurrency > 4096 {
		return daemon.UsageError("--concurrency is 1 to 4096, not %d", f.Concurrency)
	}
	return nil
}

var terminal = daemon.Terminal // a variable so that tests can replace it

// ask asks the user a question before keys are deleted, and returns an error if the answer is not yes. With --yes or
// --dry-run, ask asks nothing and returns nil. The question goes to standard error, as standard output is for results.
func (f *purgeFlags) ask(std stdio, question string) error {
	if f.Yes || f.DryRun {
		return nil
	}
	if !terminal(std.in) {
		return daemon.UsageError("nobody can be asked here: --yes deletes all the same")
	}
	fmt.Fprintf(std.err, "%s [y/N] ", question)
	line, _ := bufio.NewReader(std.in).ReadString('\n') // an error counts as the answer no
	if yes := strings.ToLower(strings.TrimSpace(line)); yes != "y" && yes != "yes" {
		return errors.New("nothing was deleted")
	}
	return nil
}

// purged is the printed result of a command that deletes many keys: rm, or bucket delete with all keys.
type purged struct {
	Bucket keytext.Key `json:"bucket"`
	// Prefixes are the prefixes whose keys were deleted. An empty prefix stands for all keys.
	Prefixes []keytext.Key `json:"prefixes"`
	// Keys is the number of deleted keys. For the command bucket delete on a bucket of objects, Keys is the number of
	// deleted versions. Keys is nil if whole ranges of keys were deleted, whose keys are not counted.
	Keys   *int64 `json:"keys,omitempty"`
	DryRun bool   `json:"dry_run"`
	// Complete is true if everything was deleted, or counted with --dry-run.
	Complete bool `json:"complete"`
	// BucketDeleted is true if the command bucket delete has deleted the bucket itself.
	BucketDeleted bool `json:"bucket_deleted,omitempty"`
}

func (p *purged) print(std stdio, format string) error {
	if format == "json" {
		return daemon.PrintJSON(std.out, p)
	}
	switch {
	case p.DryRun && p.Complete:
		fmt.Fprintf(std.out, "would delete %d keys%s\n", *p.Keys, p.of())
	case p.DryRun:
	case p.Keys != nil:
		fmt.Fprintf(std.out, "deleted %d keys\n", *p.Keys)
	case p.Complete:
		fmt.Fprintf(std.out, "deleted all keys%s\n", p.of())
	}
	return nil
}

// of returns the end of a message about deleted keys, which names their prefixes, e.g. ` that begin with "a/"`. The
// result is "" if all keys were deleted.
func (p *purged) of() string {
	var names []string
	for _, prefix := range p.Prefixes {
		if len(prefix) == 0 {
			return ""
		}
		names = append(names, fmt.Sprintf("%q", prefix.String()))
	}
	if len(names) == 0 {
		return ""
	}
	return " that begin with " + strings.Join(names, " or ")
}

// purge is one run of a command that deletes many keys of a bucket, with its flags and the progress so far.
type purge struct {
	*purgeFlags
	r      *remote
	bucket string
	n      atomic.Int64           // the keys deleted one by one, or counted
	single atomic.Bool            // whether keys are deleted one by one
	upTo   atomic.Pointer[string] // the key that the deletion of ranges has reached
}

func (f *purgeFlags) purge(bucket string, server *serverFlags) (*purge, error) {
	r, err := server.connect(f.Concurrency)
	return &purge{purgeFlags: f, r: r, bucket: bucket}, err
}

// show shows how many keys are deleted or counted, until the caller calls end.
func (p *purge) show(std stdio) (end func()) {
	began := time.Now()
	what := func() string {
		switch at := p.upTo.Load(); {
		case p.DryRun:
			return "counted"
		case at != nil && !p.single.Load():
			return "deleted all keys up to " + keytext.Format([]byte(*at)) + ";"
		}
		return "deleted"
	}
	shown := daemon.Progress{
		Unit: "keys",
		Now:  func() (string, int64, int64) { return what(), p.n.Load(), 0 },
		Line: func(took time.Duration) string {
			if at := p.upTo.Load(); at != nil && !p.single.Load() {
				return fmt.Sprintf("%s %v", what(), time.Since(began).Round(time.Second))
			}
			return progressLine(what(), int(p.n.Load()), 0, took)
		},
	}
	return shown.Show(p.Progress, std.err)
}

// keys returns the number of keys that were deleted or counted. The result is nil if whole ranges of keys were deleted,
// whose keys are not counted.
func (p *purge) keys() *int64 {
	if !p.single.Load() && !p.DryRun {
		return nil
	}
	return new(p.n.Load())
}

// prefix deletes all keys that begin with prefix, or only counts the keys with --dry-run. Each request deletes a whole
// range of keys. If the server refuses to delete ranges, because the bucket has objects or the server is older, each
// request deletes one key.
func (p *purge) prefix(ctx context.Context, prefix keytext.Key) error {
	if p.DryRun {
		return p.count(ctx, prefix)
	}
	err := p.ranges(ctx, prefix)
	if code(err) == "NotImplemented" {
		p.single.Store(true)
		err = p.each(ctx, prefix)
	}
	return err
}

// ranges deletes the keys that begin with prefix. It repeats a request that deletes many keys at once, each time from
// the key at which the last request ended. If the server does not support the request, the error is NotImplemented, and
// nothing is deleted.
func (p *purge) ranges(ctx context.Context, prefix keytext.Key) error {
	q := url.Values{"evenkeel-delete-range": {""}, "encoding-type": {"url"}, "prefix": {string(prefix)}}
	for {
		answer, err := p.r.do(ctx, &call{method: http.MethodPost, bucket: p.bucket, query: q})
		if err != nil {
			return err
		}
		var done struct {
			XMLName xml.Name `xml:"EvenkeelDeleteRangeResult"`
			NextKey *urlText
		}
		if err := xml.Unmarshal(answer, &done); err != nil {
			return fmt.Errorf("the server's answer to a deletion: %w", err)
		}
		if done.NextKey == nil {
			return nil
		}
		at := string(*done.NextKey)
		p.upTo.Store(&at)
		q.Set("evenkeel-from", at)
	}
}

// each deletes the keys that begin with prefix one by one. It lists the keys page by page, and sends one request for
// each key.
func (p *purge) each(ctx context.Context, prefix keytext.Key) error {
	q := (&lsCmd{Prefix: prefix}).query()
	return p.pages(ctx, q, func(ctx context.Context, page *listedVersions) error {
		return p.atOnce(ctx, len(page.Contents), func(ctx context.Context, i int) error {
			return p.delete(ctx, []byte(page.Contents[i].Key), nil)
		})
	})
}

// versions deletes all versions of objects and all delete markers of the bucket, or only counts them with --dry-run.
func (p *purge) versions(ctx context.Context) error {
	q := url.Values{"versions": {""}, "encoding-type": {"url"}}
	return p.pages(ctx, q, func(ctx context.Context, page *listedVersions) error {
		all := append(page.Version, page.DeleteMarker...)
		if p.DryRun {
			p.n.Add(int64(len(all)))
			return nil
		}
		return p.atOnce(ctx, len(all), func(ctx context.Context, i int) error {
			return p.delete(ctx, []byte(all[i].Key), url.Values{"versionId": {all[i].VersionId}})
		})
	})
}

// count counts the keys that begin with prefix, for --dry-run. Several readers list parts of the bucket at the same
// time.
func (p *purge) count(ctx context.Context, prefix keytext.Key) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	const readers = 8
	l := &lsCmd{Prefix: prefix, Bucket: p.bucket, Parallel: min(readers, p.Concurrency)}
	pieces, err := l.pieces(ctx, p.r)
	if err != nil {
		return err
	}
	for _, piece := range l.read(ctx, p.r, pieces) {
		for page := range piece {
			if page.err != nil {
				return page.err
			}
			p.n.Add(int64(len(page.page.Contents)))
		}
	}
	return nil
}

// listedVersions is one page of a listing of keys, or of a listing of versions of objects, as the server's XML answer
// has it.
type listedVersions struct {
	listed
	Version, DeleteMarker []struct {
		Key       urlText
		VersionId string
	}
	NextKeyMarker       urlText
	NextVersionIdMarker string
}

// pages reads a listing page by page, and calls do for each page. q holds the URL parameters of the first page. If do
// fails, pages stops and returns the error.
func (p *purge) pages(ctx context.Context, q url.Values, do func(context.Context, *listedVersions) error) error {
	for {
		answer, err := p.r.do(ctx, &call{method: http.MethodGet, bucket: p.bucket, query: q})
		if err != nil {
			return err
		}
		var page listedVersions
		if err := xml.Unmarshal(answer, &page); err != nil {
			return fmt.Errorf("the server's page: %w", err)
		}
		if err := do(ctx, &page); err != nil || !page.IsTruncated {
			return err
		}
		switch {
		case page.NextContinuationToken != "":
			q.Set("continuation-token", page.NextContinuationToken)
		case page.NextKeyMarker != "":
			q.Set("key-marker", string(page.NextKeyMarker))
			q.Set("version-id-marker", page.NextVersionIdMarker)
			if page.NextVersionIdMarker == "" {
				q.Del("version-id-marker")
			}
		default:
			return errors.New("the server's page is truncated, without a continuation")
		}
	}
}

func (p *purge) atOnce(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(p.Concurrency)
	for i := range n {
		g.Go(func() error { return do(ctx, i) })
	}
	return g.Wait()
}

func (p *purge) delete(ctx context.Context, key []byte, q url.Values) error {
	_, err := p.r.do(ctx, &call{method: http.MethodDelete, bucket: p.bucket, key: key, query: q})
	if err == nil {
		p.n.Add(1)
	}
	return err
}

// mostRounds is the number of times that a command deletes all keys of a bucket before the command gives up. Further
// rounds are needed if other clients put keys into the bucket meanwhile.
const mostRounds = 5

// bucketWithKeys deletes the bucket with all its keys. If other clients put keys into the bucket meanwhile,
// bucketWithKeys deletes those keys, too, but gives up after 5 rounds.
func (p *purge) bucketWithKeys(ctx context.Context) error {
	for round := 1; ; round++ {
		err := p.ranges(ctx, nil)
		if code(err) == "NotImplemented" {
			p.single.Store(true)
			err = p.versions(ctx)
		}
		if err == nil {
			_, err = p.r.do(ctx, &call{method: http.MethodDelete, bucket: p.bucket})
		}
		switch {
		case code(err) != "BucketNotEmpty":
			return err
		case round == mostRounds:
			return fmt.Errorf("others put keys into the bucket while it is purged: stop them, and repeat the command: %w", err)
		}
	}
}
