package main

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/internal/keytext"
)

type bucketCmd struct {
	Create bucketCreateCmd `cmd:"" help:"Create a bucket."`
	Delete bucketDeleteCmd `cmd:"" help:"Delete a bucket, empty or with its keys."`
	List   bucketListCmd   `cmd:"" help:"List the buckets."`
}

type bucketCreateCmd struct {
	serverFlags `group:"Server:"`
	CutsFile    string `placeholder:"FILE" help:"Begin with these cuts: one key per line, ascending, UTF-8 with \\xNN escapes."`
	Plain       bool   `help:"${create_plain=}"`
	Name        string `arg:"" help:"Name of the bucket, by S3's rules."`
}

func (*bucketCreateCmd) Help() string {
	return `Creates a bucket of objects, with versions if they are enabled, and bodies of any size; with --plain
one of keys with metadata, for programs that list many, and for the library. Cuts are the keys
at which its ranges begin; without cuts it has one range. If the bucket exists, the command
succeeds in the region us-east-1, as on S3; with --plain or --cuts-file it fails.

Examples:

  listd bucket create photos
  printf '%s\n' 2022/ 2023/ 2024/ | listd bucket create photos --cuts-file /dev/stdin`
}

func (b *bucketCreateCmd) Run(ctx context.Context) error {
	cuts, err := readCuts(b.CutsFile)
	if err != nil {
		return err
	}
	r, err := b.connect(1)
	if err != nil {
		return err
	}
	return r.createBucket(ctx, b.Name, b.Plain, cuts)
}

// readCuts returns the content of a file of cuts, after checking the content. Cuts are the keys at which the ranges of
// a new bucket begin. If the name file is empty, the result is nil.
func readCuts(file string) ([]byte, error) {
	if file == "" {
		return nil, nil
	}
	cuts, err := os.ReadFile(file)
	if err != nil {
		return nil, daemon.UsageError("--cuts-file: %w", err)
	}
	if _, err := keytext.ParseLines(cuts, math.MaxInt); err != nil {
		return nil, daemon.UsageError("--cuts-file %s: %w", file, err)
	}
	return cuts, nil
}

type bucketDeleteCmd struct {
	serverFlags `group:"Server:"`
	Purge       bool `env:"-" help:"Delete all keys of the bucket first, with all their versions."`
	purgeFlags  `group:"With --purge:"`
	Name        keytext.Key `arg:"" help:"Name of the bucket, as bucket list prints it."`
}

func (*bucketDeleteCmd) Help() string {
	return `Deletes a bucket, which must be empty, but for --purge. It may also be one that the library has
made with a name that S3 does not allow; --purge does not take such a name.

--purge deletes a plain bucket by ranges: that takes a time by the size of its map, some milliseconds
for each range, however many keys there are. In a bucket of objects it deletes each version by itself;
their bodies, and uploads, go with the bucket. It goes on while others put keys, for a few rounds.
An interrupted command may be repeated.

Examples:

  listd bucket delete photos
  listd bucket delete photos --purge --dry-run
  listd bucket delete photos --purge --yes`
}

func (b *bucketDeleteCmd) Run(ctx context.Context, std stdio) error {
	if !b.Purge && b.DryRun {
		return daemon.UsageError("--dry-run is for --purge")
	}
	if err := b.check(); err != nil {
		return err
	}
	p, err := b.purge(string(b.Name), &b.serverFlags)
	if err != nil {
		return err
	}
	if !b.Purge {
		_, err = p.r.do(ctx, &call{method: http.MethodDelete, bucket: p.bucket})
		if err != nil || b.Format == "text" {
			return err
		}
		return (&purged{Bucket: b.Name, Prefixes: []keytext.Key{}, Complete: true, BucketDeleted: true}).print(std, b.Format)
	}
	if err := b.ask(std, fmt.Sprintf("Delete the bucket %s with all that is in it?", b.Name)); err != nil {
		return err
	}
	end := p.show(std)
	if b.DryRun {
		err = p.versions(ctx)
	} else {
		err = p.bucketWithKeys(ctx)
	}
	end()
	done := err == nil
	result := &purged{Bucket: b.Name, Prefixes: []keytext.Key{}, Keys: p.keys(), DryRun: b.DryRun, Complete: done,
		BucketDeleted: done && !b.DryRun}
	return errors.Join(err, result.print(std, b.Format))
}

type bucketListCmd struct {
	serverFlags `group:"Server:"`
}

func (*bucketListCmd) Help() string {
	return `Prints the names of all buckets, one per line, in order, with \xNN for what is not UTF-8 and
\\ for a backslash.

Example:

  listd bucket list`
}

func (b *bucketListCmd) Run(ctx context.Context, std stdio) error {
	r, err := b.connect(1)
	if err != nil {
		return err
	}
	answer, err := r.body(ctx, &call{method: http.MethodGet})
	if err != nil {
		return err
	}
	defer answer.Close()
	// There may be a million buckets, so their names are printed as they arrive.
	d := xml.NewDecoder(answer)
	for {
		t, err := d.Token()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("the list of buckets is not complete: %w", err)
		}
		if start, ok := t.(xml.StartElement); ok && start.Name.Local == "Bucket" {
			var info struct{ Name string }
			if err := d.DecodeElement(&info, &start); err != nil {
				return fmt.Errorf("the list of buckets is not complete: %w", err)
			}
			fmt.Fprintln(std.out, keytext.Format([]byte(info.Name)))
		}
	}
}
