package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/realkeys"
)

// TestRealKeysThroughThePrograms loads real keys with the program, into a bucket
// with 24 cuts, and lists them with the program, over plain HTTP, with boto3 and with
// awscli, before and after a kill -9.
func TestRealKeysThroughThePrograms(t *testing.T) {
	t.Parallel()
	p := harness.Build(t)
	// 60,000 are some pages of a listing for each range; each one more is a request.
	keys := realkeys.Collect(harness.Setting(t, harness.KeysVariable, 60_000), 2)
	sorted := harness.SortedBySort(t, keys)
	file, cutsFile := filepath.Join(p.Dir, "keys"), filepath.Join(p.Dir, "cuts")
	require.NoError(t, os.WriteFile(file, append(bytes.Join(keys, []byte{0}), 0), 0o600))
	var cuts strings.Builder
	for _, cut := range realkeys.Cuts(keys, realCuts) {
		cuts.WriteString(keytext.Format(cut) + "\n")
	}
	require.NoError(t, os.WriteFile(cutsFile, []byte(cuts.String()), 0o600))

	data := filepath.Join(p.Dir, "data")
	listd := p.Serve("--data", data)
	run := func(args ...string) []byte {
		t.Helper()
		return []byte(p.Run("listd", append(args, "--server", listd.S3)...))
	}
	ls := func(args ...string) [][]byte {
		t.Helper()
		out := run(append([]string{"ls", "real", "--format", "null"}, args...)...)
		return bytes.Split(bytes.TrimSuffix(out, []byte{0}), []byte{0})
	}
	run("load", "real", file, "-0", "--create", "--cuts-file", cutsFile, "--progress", "none")
	listd.Kill()
	listd = p.Serve("--data", data)
	server := listd.S3

	backwards := slices.Clone(sorted)
	slices.Reverse(backwards)
	require.Equal(t, harness.Sum(sorted), harness.Sum(ls()), "nothing acknowledged was lost by kill -9")
	require.Equal(t, harness.Sum(backwards), harness.Sum(ls("--reverse")))
	require.Equal(t, harness.Sum(sorted), harness.Sum(ls("--parallel", "4")))
	require.Equal(t, harness.Sum(sorted), harness.Sum(harness.OverHTTP(t, server, "real", 1000, false)))

	t.Run("boto3", func(t *testing.T) {
		script := `
import boto3, hashlib, sys
from botocore import UNSIGNED
from botocore.config import Config
s3 = boto3.client("s3", endpoint_url=sys.argv[1], region_name="us-east-1", config=Config(signature_version=UNSIGNED))
n, sum = 0, hashlib.md5()
for page in s3.get_paginator("list_objects_v2").paginate(Bucket="real"):
    for entry in page["Contents"]:
        sum.update((b"\0" if n else b"") + entry["Key"].encode())
        n += 1
print(n, sum.hexdigest())
`
		want := harness.Sum(sorted)
		out, err := foreign(python(t), "-c", script, server)
		require.NoError(t, err, "%s", out)
		require.Equal(t, fmt.Sprintf("%d %s\n", want.Keys, want.MD5), string(out))
	})
	t.Run("aws", func(t *testing.T) {
		out, err := foreign("aws", "s3api", "list-objects-v2", "--no-sign-request", "--endpoint-url", server,
			"--region", "us-east-1", "--bucket", "real", "--prefix", "usr/lib", "--max-items", "5000", "--output", "json")
		require.NoError(t, err, "%s", out)
		var listed struct{ Contents []struct{ Key string } }
		require.NoError(t, json.Unmarshal(out, &listed))
		var got, want [][]byte
		for _, c := range listed.Contents {
			got = append(got, []byte(c.Key))
		}
		for _, k := range sorted {
			if bytes.HasPrefix(k, []byte("usr/lib")) && len(want) < 5000 {
				want = append(want, k)
			}
		}
		require.Equal(t, harness.Sum(want), harness.Sum(got))
	})
	t.Run("awkward keys", func(t *testing.T) {
		awkward := realkeys.Awkward(5000, 3, false)
		require.NoError(t, os.WriteFile(file, append(bytes.Join(awkward, []byte{0}), 0), 0o600))
		run("load", "awkward", file, "-0", "--create", "--progress", "none")
		for _, limit := range []int{1, 7, 1000} {
			require.Equal(t, harness.Sum(awkward), harness.Sum(harness.OverHTTP(t, server, "awkward", limit, false)),
				"pages of %d", limit)
		}
	})
}

// python finds an interpreter that has boto3.
func python(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(name, "-c", "import boto3").Run() == nil {
			return name
		}
	}
	t.Fatal("there is no Python with boto3: scripts/install-tools installs it")
	return ""
}

// foreign runs a client that is not ours, away from anyone's configuration.
func foreign(name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/dev/null",
		"AWS_SHARED_CREDENTIALS_FILE=/dev/null", "AWS_PAGER=", "NO_PROXY=127.0.0.1")
	return cmd.CombinedOutput()
}
