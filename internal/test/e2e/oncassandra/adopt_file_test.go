package oncassandra

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/internal/test/child"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/seed"
	"github.com/evenkeel/evenkeel/listing"
)

// TestAdoptFiles: lines in any order, of a file or of standard input, become a bucket that is cut for them; lines that
// can't be read change nothing, and those that do not fit are named.
func TestAdoptFiles(t *testing.T) {
	t.Parallel()
	p, random, ctx := build(t), seed.New(t), t.Context()
	site := p.LaidOut(cassandra.Address(t))
	p.ServeSite(site, "--lease", "1s")
	store := harness.Open(t, harness.Patient(site.Options()))
	client := harness.Client(t, store, harness.Maps(t, store, time.Second), listing.Options{})
	const rows = 3000
	want := map[string]string{}
	for i := range rows {
		value := fmt.Sprintf("value %d\twith a tab\r", random.Uint64())
		want[fmt.Sprintf("k\\%c%05d\xff", 'a'+i%2, random.IntN(rows*10))] = value
	}
	lines := map[string][]string{}
	for key, value := range want { // in any order
		text := keytext.Key(key).String()
		lines["plain"] = append(lines["plain"], text)
		lines["tsv"] = append(lines["tsv"], text+"\t"+value)
		object, err := json.Marshal(map[string]string{"key": text, "value": value})
		require.NoError(t, err)
		lines["jsonl"] = append(lines["jsonl"], string(object))
	}
	for form, lines := range lines {
		bucket, file := "from-"+form, filepath.Join(t.TempDir(), form)
		text := strings.Join(lines, "\n") // the last line without an end
		write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
		try := func(more ...string) (code int, out, errs string) {
			command := []string{"adopt", "file", bucket, file, "--form", form, "--local-dc", "dc1", "--lease", "1s"}
			return p.Try("rebalancer", site.Flags(append(command, more...)...)...)
		}
		write(text + "\nbad\\x\n")
		code, _, errs := try()
		require.Equal(t, 4, code)
		require.Contains(t, errs, fmt.Sprintf("line %d: ", len(lines)+1))
		_, err := client.BucketID(ctx, bucket)
		require.ErrorIs(t, err, listing.ErrNoSuchBucket)

		write(text)
		code, out, errs := try("--dry-run", "--max-rows", "1500")
		require.Zero(t, code, errs)
		require.Contains(t, out, "would be made with 3 ranges")
		if form == "jsonl" { // from standard input
			cmd := p.Command(ctx, "rebalancer", site.Flags("adopt", "file", bucket, "-", "--form", form, "--local-dc", "dc1",
				"--lease", "1s", "--max-rows", "1500")...)
			cmd.Stdin = strings.NewReader(text)
			exited, err := child.Start(cmd)
			require.NoError(t, err)
			<-exited
			require.Zero(t, cmd.ProcessState.ExitCode())
		} else {
			code, _, errs := try("--max-rows", "1500", "--checkpoint", file+".done")
			require.Zero(t, code, errs)
		}
		same := func() {
			t.Helper()
			got, wanted := map[string]string{}, map[string]string{}
			for item, err := range client.Bucket(bucket).All(ctx, listing.Query{}) {
				require.NoError(t, err)
				got[string(item.Key)] = string(item.Value)
			}
			for key, value := range want {
				if form == "plain" {
					value = ""
				}
				wanted[key] = value
			}
			requireEqual(t, wanted, got)
		}
		same()
		require.Equal(t, 3, harness.Partitions(t, client, bucket))
		code, _, errs = try("--verify")
		require.Zero(t, code, errs)
		require.NoError(t, client.Bucket(bucket).Put(ctx, []byte("later"), nil))
		code, out, _ = try("--verify")
		require.Equal(t, 1, code)
		require.Contains(t, out, "later: it is not in the source")
		code, _, errs = try("--catch-up")
		require.Zero(t, code, errs)
		same()

		// The last of several lines of a key counts; what is too large is named.
		long := strings.Repeat("k", 65_536)
		write(map[string]string{
			"plain": "x\nx\n" + long, "tsv": "x\told\nx\tnew\n" + long + "\tv",
			"jsonl": `{"key":"x","value":"old"}` + "\n" + `{"value":"new","key":"x"}` + "\n" + `{"key":"` + long + `"}`,
		}[form])
		bucket += "-twice"
		code, out, _ = try()
		require.Equal(t, 1, code)
		require.True(t, strings.Contains(out, "line 2: several rows")) // without the long key in the message
		require.True(t, strings.Contains(out, "line 3: its key is empty or too long"))
		entry, err := client.Bucket(bucket).Get(ctx, []byte("x"))
		require.NoError(t, err)
		require.Equal(t, map[bool]string{true: "", false: "new"}[form == "plain"], string(entry.Value))
	}
}
