package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/keytext"
	"github.com/evenkeel/evenkeel/internal/realkeys"
)

// TestRealKeysThroughThePrograms loads 200,000 real keys with the program, into
// a bucket with 24 cuts, and lists them with the program, over plain HTTP, with
// boto3 and with awscli, before and after a kill -9.
func TestRealKeysThroughThePrograms(t *testing.T) {
	dir := t.TempDir()
	listd := filepath.Join(dir, "listd")
	out, err := exec.Command("go", "build", "-trimpath", "-o", listd, "github.com/evenkeel/evenkeel/cmd/listd").CombinedOutput()
	require.NoError(t, err, "%s", out)

	keys := realkeys.Collect(realKeys, 2)
	sorted := sortedBySort(t, keys)
	file, cutsFile := filepath.Join(dir, "keys"), filepath.Join(dir, "cuts")
	require.NoError(t, os.WriteFile(file, append(bytes.Join(keys, []byte{0}), 0), 0o600))
	var cuts strings.Builder
	for _, cut := range realkeys.Cuts(keys, realCuts) {
		cuts.WriteString(keytext.Format(cut) + "\n")
	}
	require.NoError(t, os.WriteFile(cutsFile, []byte(cuts.String()), 0o600))

	server, kill := serve(t, listd, filepath.Join(dir, "data"))
	run := func(args ...string) []byte {
		t.Helper()
		var stderr bytes.Buffer
		cmd := exec.Command(listd, append(args, "--server", server)...)
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		require.NoError(t, err, "listd %q: %s", args, stderr.String())
		return out
	}
	ls := func(args ...string) [][]byte {
		t.Helper()
		out := run(append([]string{"ls", "real", "--format", "null"}, args...)...)
		return bytes.Split(bytes.TrimSuffix(out, []byte{0}), []byte{0})
	}
	run("load", "real", file, "-0", "--create", "--cuts-file", cutsFile, "--progress", "none")
	kill()
	server, kill = serve(t, listd, filepath.Join(dir, "data"))
	defer kill()

	backwards := slices.Clone(sorted)
	slices.Reverse(backwards)
	require.Equal(t, lines(sorted), lines(ls()), "nothing acknowledged was lost by kill -9")
	require.Equal(t, lines(backwards), lines(ls("--reverse")))
	require.Equal(t, lines(sorted), lines(ls("--parallel", "4")))
	require.Equal(t, lines(sorted), lines(overHTTP(t, server, "real", 1000)))

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
		want := lines(sorted)
		out, err := foreign(python(t), "-c", script, server)
		require.NoError(t, err, "%s", out)
		require.Equal(t, fmt.Sprintf("%d %x\n", want.Keys, want.Sum), string(out))
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
		require.Equal(t, lines(want), lines(got))
	})
	t.Run("awkward keys", func(t *testing.T) {
		awkward := realkeys.Awkward(5000, 3, false)
		require.NoError(t, os.WriteFile(file, append(bytes.Join(awkward, []byte{0}), 0), 0o600))
		run("load", "awkward", file, "-0", "--create", "--progress", "none")
		for _, limit := range []int{1, 7, 1000} {
			require.Equal(t, lines(awkward), lines(overHTTP(t, server, "awkward", limit)), "pages of %d", limit)
		}
	})
}

// serve starts the server on free ports and returns its address, and a kill -9.
func serve(t *testing.T, listd, data string) (address string, kill func()) {
	t.Helper()
	cmd := exec.Command(listd, "serve", "--data", data, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	ended := false
	kill = func() {
		if !ended {
			ended = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(kill)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "S3 on ")
	require.True(t, ok, "the first line is %q", line)
	return address, kill
}

// overHTTP lists a bucket page by page, as any stranger's client would.
func overHTTP(t *testing.T, server, bucket string, limit int) (found [][]byte) {
	t.Helper()
	for token := ""; ; {
		page, err := getPage(t.Context(), server, bucket, token, limit)
		require.NoError(t, err)
		found = append(found, page.keys...)
		if token = page.next; token == "" {
			return found
		}
	}
}

// aPage is one page of a listing.
type aPage struct {
	keys [][]byte
	next string // empty after the last one
}

// getPage asks for one page.
func getPage(ctx context.Context, server, bucket, token string, limit int) (p aPage, err error) {
	client := http.Client{Timeout: time.Minute}
	query := url.Values{"list-type": {"2"}, "encoding-type": {"url"}, "max-keys": {fmt.Sprint(limit)}}
	if token != "" {
		query.Set("continuation-token", token)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/"+bucket+"?"+query.Encode(), nil)
	if err != nil {
		return p, err
	}
	answer, err := client.Do(req)
	if err != nil {
		return p, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return p, err
	}
	if answer.StatusCode != http.StatusOK {
		return p, fmt.Errorf("%s: %s", answer.Status, body)
	}
	var page struct {
		Contents              []struct{ Key string }
		KeyCount              int
		IsTruncated           bool
		NextContinuationToken string
	}
	if err := xml.Unmarshal(body, &page); err != nil {
		return p, err
	}
	if len(page.Contents) != page.KeyCount || page.KeyCount > limit || page.IsTruncated != (page.NextContinuationToken != "") {
		return p, fmt.Errorf("the page does not hold together: %s", body)
	}
	for _, entry := range page.Contents {
		key, err := url.PathUnescape(entry.Key)
		if err != nil {
			return p, err
		}
		p.keys = append(p.keys, []byte(key))
	}
	p.next = page.NextContinuationToken
	return p, nil
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
	cmd.Env = append(os.Environ(), "AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null", "AWS_PAGER=", "NO_PROXY=127.0.0.1")
	return cmd.CombinedOutput()
}
