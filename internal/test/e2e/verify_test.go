package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// TestVerifyThePrograms checks a server with the program: while keys are loaded
// and ranges split, after kill -9, and with damage in its data directory.
func TestVerifyThePrograms(t *testing.T) {
	t.Parallel()
	p := harness.Build(t)
	data := filepath.Join(p.Dir, "data")
	serve := func() *harness.Server {
		return p.Serve("--data", data, "--max-rows", "1000", "--rebalance-interval", "100ms", "--move-rate", "5000")
	}
	verify := func(args ...string) (code int, out string) {
		code, out, errs := p.Try("rebalancer", append([]string{"verify"}, args...)...)
		return code, out + errs
	}
	clean := func(args ...string) string {
		t.Helper()
		code, out := verify(args...)
		require.Zero(t, code, "%q: %s", args, out)
		return out
	}

	const keys = 10_000
	file := filepath.Join(p.Dir, "keys")
	var text bytes.Buffer
	for i := range keys {
		fmt.Fprintf(&text, "key-%06d\n", i*7919%keys)
	}
	require.NoError(t, os.WriteFile(file, text.Bytes(), 0o600))
	listd := serve()
	load := p.Command(t.Context(), "listd", "load", "photos", file, "--create", "--progress", "none", "--server",
		listd.S3)
	var complaints bytes.Buffer
	load.Stderr = &complaints
	require.NoError(t, load.Start())
	loaded := make(chan error, 1)
	go func() { loaded <- load.Wait() }()
	checks, moving := 0, 0
	for done := false; !done || checks < 3; checks++ {
		if strings.Contains(clean("--admin", listd.Admin), "moving") {
			moving++
		}
		select {
		case err := <-loaded:
			require.NoError(t, err, "%s", &complaints)
			done = true
		default:
		}
	}
	t.Logf("%d checks while keys were loaded, %d saw moves", checks, moving)
	listd.Kill()
	clean("--data", data) // whatever was under way when it was killed

	listd = serve()
	clean("--admin", listd.Admin)
	code, out := verify("--data", data)
	require.Equal(t, 3, code, "listd has it open: %s", out)
	code, out = verify("none", "--admin", listd.Admin)
	require.Equal(t, 4, code)
	require.Contains(t, out, "there is no such bucket")
	listd.Kill()
	code, out = verify("--admin", listd.Admin)
	require.Equal(t, 3, code)
	require.Contains(t, out, "can't be reached")

	s, err := pebblestore.Open(data, pebblestore.Options{})
	require.NoError(t, err)
	c, err := listing.New(s, listing.Options{})
	require.NoError(t, err)
	owner, err := door.Client(c).Owner(t.Context(), "photos")
	require.NoError(t, err)
	for i := range 3 {
		stray := store.Partition{Bucket: owner.ID, ID: store.PartitionID(uuid.New())}
		row := store.Row{Key: fmt.Appendf(nil, "stray-%d", i), Value: store.EntryCell(nil), Timestamp: 1}
		require.NoError(t, c.Bucket("photos").Put(t.Context(), row.Key, nil))
		require.NoError(t, s.Put(t.Context(), stray, row))
	}
	require.NoError(t, s.Close())
	listd = serve()
	code, out = verify("photos", "--admin", listd.Admin, "--format", "json")
	require.Equal(t, 1, code, out)
	require.Equal(t, 3, strings.Count(out, `"orphan partition"`), out)
	require.Contains(t, clean("photos", "--admin", listd.Admin, "--repair"), "mended: removed")
	require.NotContains(t, clean("--admin", listd.Admin), "orphan")
}
