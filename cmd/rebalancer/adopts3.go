package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon/secrecy"
	"github.com/evenkeel/evenkeel/internal/adopt"
)

type adoptS3Cmd struct {
	adoptFlags
	Endpoint      string `env:"-" required:"" placeholder:"URL" help:"The other store, like https://s3.example.com."`
	From          string `env:"-" required:"" placeholder:"NAME" help:"Its bucket."`
	Prefix        string `env:"-" placeholder:"TEXT" help:"${adopt_prefix=}"`
	Metadata      bool   `env:"-" help:"${adopt_metadata=}"`
	AccessKey     string `env:"-" placeholder:"ID" help:"${adopt_access_key=}"`
	SecretKeyFile string `env:"-" placeholder:"FILE" help:"File with the secret of --access-key."`
	Region        string `env:"-" placeholder:"NAME" help:"${adopt_region=}"`
}

// Help returns the detailed help text of the command adopt s3, which --help prints.
func (adoptS3Cmd) Help() string {
	return `It lists a bucket of another S3 store (ListObjectsV2), and puts an entry for each object into a plain bucket:
the key is that of the object, the write time is its LastModified, and the value is an object of JSON:

    {"size":7,"etag":"…","modified":"2026-11-01T10:00:00.123Z","storage_class":"STANDARD"}

With --metadata there are "content_type" and "metadata", too. Bytes of objects are not copied. A bucket that is not
there is made, and cut by a first listing, so that no range has to be split while entries come. Several parts of the
listing are read at the same time, by start-after.

With --prefix nothing but keys with that prefix is listed, compared, put or deleted. Keys above the 1,024 bytes of S3
are listed and counted, and the exit code is 1. A server that lists keys twice, or in another than bytewise order, is
refused.

Examples:

    rebalancer adopt s3 photos --cassandra 10.0.0.1 --local-dc dc1 --endpoint https://s3.example.com --from old-photos
    rebalancer adopt s3 photos … --access-key ID --secret-key-file secret --checkpoint photos.json
    rebalancer adopt s3 photos … --prefix 2026/ --metadata --rate 500
    rebalancer adopt s3 photos … --catch-up              # afterwards: makes the bucket like the listing
    rebalancer adopt s3 photos … --verify                # reports what differs, and changes nothing

Never run --catch-up after the cut-over, when the bucket has what the other store has not.

Exit codes: 0 done, or both sides are equal; 1 rows were refused, or differ; 2 bad flags; 3 the keyspace can't be used;
4 the other store can't be listed, or does not fit the bucket, and nothing changed.`
}

// Validate returns an error if a flag of adopt s3 has an invalid value. The command-line parser kong calls Validate
// before Run.
func (c *adoptS3Cmd) Validate() error {
	if (c.AccessKey == "") != (c.SecretKeyFile == "") {
		return errors.New("--access-key and --secret-key-file need each other; without them those of the environment and " +
			"the files of AWS are used")
	}
	return c.adoptFlags.Validate()
}

// Run copies the names and metadata of the objects of another S3 store into a bucket, or compares the store with the
// bucket.
func (c *adoptS3Cmd) Run(ctx context.Context, std stdio) error {
	at := adopt.S3{
		Endpoint: strings.TrimSuffix(c.Endpoint, "/"), Bucket: c.From, Prefix: c.Prefix, Region: c.Region,
		AccessKey: c.AccessKey, Metadata: c.Metadata,
	}
	if c.SecretKeyFile != "" {
		secrecy.WarnOfFile(slog.New(slog.NewTextHandler(std.err, nil)), "--secret-key-file", c.SecretKeyFile)
		secret, err := os.ReadFile(c.SecretKeyFile)
		if at.SecretKey = strings.TrimSpace(string(secret)); err == nil && at.SecretKey == "" {
			err = fmt.Errorf("%s is empty", c.SecretKeyFile)
		}
		if err != nil {
			return usageError("--secret-key-file: %w", err)
		}
	}
	source, err := adopt.FromS3(at)
	if err != nil {
		return usageError("--endpoint: %w", err)
	}
	c.within = []byte(c.Prefix)
	task := fmt.Sprintf("s3 %s/%s prefix=%q metadata=%v", at.Endpoint, c.From, c.Prefix, c.Metadata)
	return c.adopt(ctx, std, source, task)
}
