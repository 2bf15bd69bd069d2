package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/s3api/sigv4"
	"github.com/evenkeel/evenkeel/store/keytext"
)

type putCmd struct {
	serverFlags `group:"Server:"`
	Value       *string     `placeholder:"TEXT" help:"The value, instead of a file."`
	Bucket      string      `arg:"" help:"Name of the bucket."`
	Key         keytext.Key `arg:"" help:"The key."`
	File        string      `arg:"" optional:"" help:"File with the value, default stdin (-)."`
}

func (*putCmd) Help() string {
	return `Puts a key with a value, which is metadata of at most --max-body-bytes of the server. Many keys
are put faster by load.

Examples:

  listd put files docs/a.txt --value 'a note'
  listd put files docs/b.txt note.txt
  date | listd put files docs/c.txt`
}

func (p *putCmd) Run(ctx context.Context, std stdio) error {
	if p.Value != nil && p.File != "" {
		return daemon.UsageError("give a file or --value, not both")
	}
	value, err := p.value(std)
	if err != nil {
		return err
	}
	r, err := p.connect(1)
	if err != nil {
		return err
	}
	_, err = r.do(ctx, &call{method: http.MethodPut, bucket: p.Bucket, key: p.Key, body: value, header: anyKeyBytes})
	return err
}

func (p *putCmd) value(std stdio) ([]byte, error) {
	if p.Value != nil {
		return []byte(*p.Value), nil
	}
	in, name, err := daemon.Input(cmp.Or(p.File, "-"), std.in)
	if err != nil {
		return nil, daemon.Exit(exitUsage, err)
	}
	defer in.Close()
	value, err := io.ReadAll(io.LimitReader(in, maxValueBytes+1))
	if err == nil && len(value) > maxValueBytes {
		err = fmt.Errorf("it has more than %d bytes, the most that a server takes: values are metadata here, and the "+
			"objects' bytes are kept elsewhere", maxValueBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return value, nil
}

type getCmd struct {
	serverFlags `group:"Server:"`
	Output      string      `short:"o" placeholder:"FILE" help:"Write the value into this file, instead of standard output."`
	Bucket      string      `arg:"" help:"Name of the bucket."`
	Key         keytext.Key `arg:"" help:"The key."`
}

func (*getCmd) Help() string {
	return `Prints the value of a key, byte for byte.

Examples:

  listd get files docs/a.txt
  listd get files docs/a.txt -o note.txt`
}

func (g *getCmd) Run(ctx context.Context, std stdio) error {
	r, err := g.connect(1)
	if err != nil {
		return err
	}
	value, err := r.do(ctx, &call{method: http.MethodGet, bucket: g.Bucket, key: g.Key})
	if err != nil {
		return err
	}
	if g.Output != "" {
		return os.WriteFile(g.Output, value, 0o666)
	}
	_, err = std.out.Write(value)
	return err
}

type cpCmd struct {
	serverFlags `group:"Server:"`
	ToBucket    string      `placeholder:"NAME" help:"Copy into this bucket, by default the same."`
	Bucket      string      `arg:"" help:"Name of the bucket."`
	From        keytext.Key `arg:"" help:"The key to copy."`
	To          keytext.Key `arg:"" help:"The key of the copy."`
}

func (*cpCmd) Help() string {
	return `Copies a key with its value and metadata, in the server.

Examples:

  listd cp files docs/a.txt docs/b.txt
  listd cp files docs/a.txt docs/a.txt --to-bucket archive`
}

func (c *cpCmd) Run(ctx context.Context) error {
	r, err := c.connect(1)
	if err != nil {
		return err
	}
	header := anyKeyBytes.Clone()
	header.Set("X-Amz-Copy-Source", "/"+url.PathEscape(c.Bucket)+"/"+sigv4.EscapePath(string(c.From)))
	_, err = r.do(ctx, &call{method: http.MethodPut, bucket: cmp.Or(c.ToBucket, c.Bucket), key: c.To, header: header})
	return err
}

type rmCmd struct {
	serverFlags `group:"Server:"`
	Prefix      *keytext.Key  `help:"Delete all keys that begin with this; empty: all of the bucket."`
	Yes         bool          `short:"y" env:"-" help:"With --prefix: do not ask."`
	Concurrency int           `default:"128" help:"Concurrent requests."`
	Progress    string        `default:"auto" enum:"auto,bar,plain,none" help:"${rm_progress=}"`
	Bucket      string        `arg:"" help:"Name of the bucket."`
	Keys        []keytext.Key `arg:"" optional:"" name:"key" help:"Keys to delete."`
}

func (*rmCmd) Help() string {
	return `Deletes keys, or all keys with a prefix. A key that does not exist is no error. What is put
while a prefix is deleted may stay.

Examples:

  listd rm files docs/a.txt docs/b.txt
  listd rm files --prefix docs/ --yes`
}

func (c *rmCmd) Run(ctx context.Context, std stdio) error {
	switch {
	case (c.Prefix == nil) == (len(c.Keys) == 0):
		return daemon.UsageError("give keys, or --prefix for all keys that begin with it")
	case c.Concurrency < 1 || c.Concurrency > 4096:
		return daemon.UsageError("--concurrency is 1 to 4096, not %d", c.Concurrency)
	}
	r, err := c.connect(c.Concurrency)
	if err != nil {
		return err
	}
	if c.Prefix == nil {
		for _, key := range c.Keys {
			if err := c.remove(ctx, r, key); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
		return nil
	}
	if !c.Yes {
		if !terminal(std.in) {
			return daemon.UsageError("nobody can be asked here: --yes deletes all the same")
		}
		fmt.Fprintf(std.out, "Delete all keys of %s that begin with %q? [y/N] ", c.Bucket, c.Prefix.String())
		line, _ := bufio.NewReader(std.in).ReadString('\n') // without an answer: no
		if yes := strings.ToLower(strings.TrimSpace(line)); yes != "y" && yes != "yes" {
			return errors.New("nothing was deleted")
		}
	}
	var n atomic.Int64
	end := showCount(c.Progress, std.err, "deleted", &n, 0)
	err = c.removeAll(ctx, r, &n)
	end()
	fmt.Fprintf(std.out, "deleted %d keys\n", n.Load())
	return err
}

var terminal = daemon.Terminal // tests replace it

func (c *rmCmd) remove(ctx context.Context, r *remote, key keytext.Key) error {
	_, err := r.do(ctx, &call{method: http.MethodDelete, bucket: c.Bucket, key: key})
	return err
}

// removeAll deletes page by page.
func (c *rmCmd) removeAll(ctx context.Context, r *remote, n *atomic.Int64) error {
	q := (&lsCmd{Prefix: *c.Prefix}).query()
	for {
		answer, err := r.do(ctx, &call{method: http.MethodGet, bucket: c.Bucket, query: q})
		if err != nil {
			return err
		}
		var p listed
		if err := xml.Unmarshal(answer, &p); err != nil {
			return fmt.Errorf("the server's page: %w", err)
		}
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(c.Concurrency)
		for _, at := range p.Contents {
			g.Go(func() error {
				err := c.remove(ctx, r, keytext.Key(at.Key))
				if err == nil {
					n.Add(1)
				}
				return err
			})
		}
		if err := g.Wait(); err != nil || !p.IsTruncated {
			return err
		}
		q.Set("continuation-token", p.NextContinuationToken)
	}
}
