package s3tour

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Place is a running S3 server, with an access key that clients use there.
type Place struct {
	URL, KeyID, Secret string
	// Region is the region of the server. The default is us-east-1.
	Region string
	// Patient is true if clients repeat a request after the answer 503, as they do by default. If it is false, each
	// answer 503 is a failure.
	Patient bool
}

func (p Place) region() string { return cmp.Or(p.Region, "us-east-1") }

// Client is an S3 client, such as a program or an SDK, with what its users do with directories and buckets. Prefixes
// end with a slash. Names of keys and folders are returned without the prefix, and sorted.
type Client interface {
	Create(ctx context.Context, bucket string) error
	// Up makes the keys below a prefix equal to a directory: new and changed files are put, and keys without a file are
	// deleted.
	Up(ctx context.Context, dir, bucket, prefix string) error
	// Keys returns the keys below a prefix, which are listed in pages.
	Keys(ctx context.Context, bucket, prefix string) ([]string, error)
	// Folders returns the common prefixes by the delimiter "/".
	Folders(ctx context.Context, bucket, prefix string) ([]string, error)
	Down(ctx context.Context, bucket, prefix, dir string) error
	// Empty deletes everything in a bucket. Remove deletes the bucket.
	Empty(ctx context.Context, bucket string) error
	Remove(ctx context.Context, bucket string) error
}

// page is the number of keys of a listing page that clients request, if a client has a setting for that number.
const page = 50

const prefix = "tree/"

// Tour is a test with one client: it syncs a directory with a bucket, in both directions, and checks the results.
type Tour struct {
	Client Client
	Bucket string
	// Files is the number of files of the tour.
	Files int
	// LargeBytes, if positive, is the size of one more file, which clients put in parts. Some of the other files are
	// then larger than what is kept in rows.
	LargeBytes int64
	// Short leaves out the second sync, and some of the waits for moves.
	Short bool
	// Moves, if not nil, starts moves of the bucket's ranges, which are cut at some of the keys. The moves go on until
	// the end of the tour.
	Moves func(bucket string, keys []string) *Mover
}

// Do runs the tour. It fails the test if the client gets a wrong answer.
func (o Tour) Do(t *testing.T) {
	t.Helper()
	ctx, dir := t.Context(), t.TempDir()
	largest := int64(smallFile)
	if o.LargeBytes > 0 {
		largest = mediumFile
	}
	files := tree(t, dir, o.Files, largest, o.LargeBytes)
	require.NoError(t, o.Client.Create(ctx, o.Bucket))
	if o.Moves == nil {
		o.through(t, dir, files, func() {})
	} else {
		var keys []string
		for name := range files {
			keys = append(keys, prefix+name)
		}
		slices.Sort(keys)
		m := o.Moves(o.Bucket, keys)
		t.Cleanup(func() { m.Stop() })
		o.through(t, dir, files, func() { m.Progress(t) })
		t.Logf("%s: %d moves", o.Bucket, m.Stop())
	}
	require.NoError(t, o.Client.Remove(ctx, o.Bucket))
	require.Error(t, o.Client.Empty(ctx, o.Bucket), "it is gone")
}

// through syncs a directory to the bucket and back, and then deletes everything. files has the files of the directory
// by their paths. The function pause is called between two steps.
func (o Tour) through(t *testing.T, dir string, files map[string]string, pause func()) {
	t.Helper()
	c, ctx := o.Client, t.Context()
	if !o.Short {
		pause()
	}
	require.NoError(t, c.Up(ctx, dir, o.Bucket, prefix))
	o.same(t, files)
	pause()
	if !o.Short {
		gone := ""
		for name := range files {
			if name != awkward && name > gone {
				gone = name
			}
		}
		remove(t, dir, gone)
		delete(files, gone)
		files[awkward] = "changed, and longer than before"
		write(t, dir, awkward, files[awkward])
		require.NoError(t, c.Up(ctx, dir, o.Bucket, prefix))
		o.same(t, files)
		pause()
	}
	down := t.TempDir()
	require.NoError(t, c.Down(ctx, o.Bucket, prefix, down))
	sameFiles(t, files, read(t, down))
	pause()
	require.NoError(t, c.Empty(ctx, o.Bucket))
	left, err := c.Keys(ctx, o.Bucket, "")
	require.NoError(t, err)
	require.Empty(t, left)
	if !o.Short {
		pause()
	}
}

// sameFiles fails the test if two sets of files differ. The message does not contain large files.
func sameFiles(t *testing.T, want, got map[string]string) {
	t.Helper()
	require.ElementsMatch(t, slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(got)))
	for name := range want {
		require.True(t, want[name] == got[name], "%s: %d bytes, which were %d", name, len(got[name]), len(want[name]))
	}
}

// same fails the test if the bucket does not have exactly the given files.
func (o Tour) same(t *testing.T, files map[string]string) {
	t.Helper()
	var names, folders []string
	for name := range files {
		names = append(names, name)
		if folder, _, found := strings.Cut(name, "/"); found {
			folders = append(folders, folder+"/")
		}
	}
	slices.Sort(names)
	slices.Sort(folders)
	got, err := o.Client.Keys(t.Context(), o.Bucket, prefix)
	require.NoError(t, err)
	require.Equal(t, names, got)
	got, err = o.Client.Folders(t.Context(), o.Bucket, prefix)
	require.NoError(t, err)
	require.Equal(t, slices.Compact(folders), got)
}
