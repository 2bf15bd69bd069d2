package evenkeel_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/retention"
	"github.com/evenkeel/evenkeel/store"
)

// TestReadmeShowsTheExamples: README's Go is that of the examples, which are compiled.
func TestReadmeShowsTheExamples(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	examples, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(readme, -1)
	require.Len(t, blocks, 2)
	for i, most := range []int{12, 15} {
		block := strings.ReplaceAll(string(blocks[i][1]), `"evenkeel-data"`, "dir")
		require.LessOrEqual(t, strings.Count(block, "\n"), most)
		indented := regexp.MustCompile(`(?m)^(.)`).ReplaceAllString(block, "\t$1")
		require.Contains(t, string(examples), indented)
	}
}

// TestOpenKeepsInShape: what grows is split without a word of the program, what was
// written is there after Close, and a second Open is refused meanwhile.
func TestOpenKeepsInShape(t *testing.T) {
	t.Parallel() // it mostly waits
	ctx, dir := t.Context(), t.TempDir()
	db, err := evenkeel.Open(dir, evenkeel.Options{MaxRows: 500})
	require.NoError(t, err)
	_, err = evenkeel.Open(dir, evenkeel.Options{})
	require.ErrorIs(t, err, store.Unavailable)
	require.NoError(t, db.CreateBucket(ctx, "photos"))
	b := db.Bucket("photos")
	const n = 3000
	for i := range n {
		require.NoError(t, b.Put(ctx, fmt.Appendf(nil, "%04d", i*7919%10_000), nil))
	}
	harness.Eventually(t, "partitions", func() bool { return harness.Partitions(t, db.Client(), "photos") >= 5 })
	require.NoError(t, db.Close())
	require.NoError(t, db.Close(), "once is enough")

	db, err = evenkeel.Open(dir, evenkeel.Options{Unbalanced: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	keys := 0
	for _, err := range db.Bucket("photos").All(ctx, listing.Query{}) {
		require.NoError(t, err)
		keys++
	}
	require.Equal(t, n, keys)
}

// TestCassandraNeedsACounter, or to be told that there is none.
func TestCassandraNeedsACounter(t *testing.T) {
	_, err := evenkeel.OpenCassandra(t.Context(), evenkeel.Cassandra{Hosts: []string{"127.0.0.1:1"}, DataCentre: "dc1"})
	require.ErrorIs(t, err, store.InvalidArgument)
	require.ErrorContains(t, err, "Unbalanced")
}

// TestErrorsSayWhoEndedIt: a write that its caller has cancelled is no timeout, and one after Close
// did not happen.
func TestErrorsSayWhoEndedIt(t *testing.T) {
	db, err := evenkeel.Open(t.TempDir(), evenkeel.Options{Unbalanced: true})
	require.NoError(t, err)
	require.NoError(t, db.CreateBucket(t.Context(), "photos"))
	photos := db.Bucket("photos")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = photos.Put(ctx, []byte("key"), nil)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, store.Timeout, "the kind stays")
	require.NotContains(t, err.Error(), "timeout")
	_, err = photos.Get(ctx, []byte("key"))
	require.NotContains(t, err.Error(), "timeout")
	require.NoError(t, db.Close())
	err = photos.Put(t.Context(), []byte("key"), nil)
	require.ErrorIs(t, err, store.Unavailable)
	require.NotErrorIs(t, err, listing.ErrOutcomeUnknown)
	require.ErrorContains(t, err, "closed")
}

// Rules that are wrong, or that nobody would apply, are refused, and the store can be opened again.
func TestRulesOfRetentionAreChecked(t *testing.T) {
	dir := t.TempDir()
	good := retention.Rule{Bucket: "b", Keep: time.Hour, Time: "2006-01-02"}
	_, err := evenkeel.Open(dir, evenkeel.Options{Retention: []retention.Rule{{Bucket: "b", Time: "2006-01-02"}}})
	require.ErrorIs(t, err, store.InvalidArgument)
	require.ErrorContains(t, err, "keep is 0s")
	_, err = evenkeel.Open(dir, evenkeel.Options{Retention: []retention.Rule{good}, Unbalanced: true})
	require.ErrorIs(t, err, store.InvalidArgument)
	db, err := evenkeel.Open(dir, evenkeel.Options{Retention: []retention.Rule{good}})
	require.NoError(t, err)
	require.NoError(t, db.Close())
}
