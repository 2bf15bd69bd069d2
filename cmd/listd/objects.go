package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/internal/sigv4"
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
		return nil, daemon.Exit(daemon.ExitUsage, err)
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
	Recursive   bool         `short:"r" env:"-" help:"${rm_recursive=}"`
	Prefix      *keytext.Key `help:"Short for --recursive with one KEY; empty: all keys of the bucket."`
	purgeFlags  `group:"With --recursive:"`
	Bucket      string        `arg:"" help:"Name of the bucket."`
	Keys        []keytext.Key `arg:"" optional:"" name:"key" help:"Keys to delete."`
}

func (*rmCmd) Help() string {
	return `Deletes keys, or with --recursive all keys that begin with them. A key that does not exist is no
error. What is put while a prefix is deleted may stay, or be deleted.

Keys of a plain bucket are deleted by ranges: that takes a time by the size of its map, some
milliseconds for each range, however many keys there are. They are not counted. In a bucket of objects each
key is deleted by itself; with versions enabled that makes delete markers. An
interrupted command may be repeated.

Examples:

  listd rm files docs/a.txt docs/b.txt
  listd rm files docs/ --recursive --dry-run
  listd rm files docs/2022/ docs/2023/ --recursive --yes
  listd rm files --recursive`
}

func (c *rmCmd) Run(ctx context.Context, std stdio) error {
	prefixes := c.Keys
	switch {
	case c.Prefix != nil && len(c.Keys) > 0:
		return daemon.UsageError("give --prefix, or keys and --recursive, not both")
	case c.Prefix != nil:
		prefixes, c.Recursive = []keytext.Key{*c.Prefix}, true
	case !c.Recursive && len(c.Keys) == 0:
		return daemon.UsageError("give keys, or --recursive (--prefix) to delete all keys that begin with one")
	case !c.Recursive && c.DryRun:
		return daemon.UsageError("--dry-run is for --recursive")
	case len(c.Keys) == 0:
		prefixes = []keytext.Key{nil}
	}
	if err := c.check(); err != nil {
		return err
	}
	p, err := c.purge(c.Bucket, &c.serverFlags)
	if err != nil {
		return err
	}
	if !c.Recursive {
		for _, key := range c.Keys {
			if err := p.delete(ctx, key, nil); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
		if c.Format == "text" {
			return nil
		}
		deleted := &purged{Bucket: keytext.Key(c.Bucket), Prefixes: []keytext.Key{}, Keys: new(p.n.Load()), Complete: true}
		return deleted.print(std, c.Format)
	}
	result := &purged{Bucket: keytext.Key(c.Bucket), Prefixes: prefixes, DryRun: c.DryRun}
	if err := c.ask(std, fmt.Sprintf("Delete all keys of %s%s?", c.Bucket, result.of())); err != nil {
		return err
	}
	end := p.show(std)
	for _, prefix := range prefixes {
		if err = p.prefix(ctx, prefix); err != nil {
			break
		}
	}
	end()
	result.Keys, result.Complete = p.keys(), err == nil
	return errors.Join(err, result.print(std, c.Format))
}
