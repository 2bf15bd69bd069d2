package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/seed"
)

// The clients that others use. They are not installed from here.
const howToInstall = "scripts/install-tools installs it"

// python finds an interpreter that has boto3.
func python(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if exec.Command(name, "-c", "import boto3").Run() == nil {
			return name
		}
	}
	t.Fatal("there is no Python with boto3: " + howToInstall)
	return ""
}

// client runs another program, which must succeed, and returns its output.
func client(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "AWS_DEFAULT_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true",
		"AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null", "AWS_PAGER=", "NO_PROXY=127.0.0.1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %q: %s", name, args, out)
	return string(out)
}

// clientKeys are what other clients' keys look like, and worse; they can be told
// in XML, UTF-8 and one line.
func clientKeys(rnd *rand.Rand) []string {
	keys := map[string]bool{}
	dirs := []string{"", "/", "/usr/", "/usr/share/", "dir one/", "a+b/", "ü/", "//", "%2F/", "a&b=<c>/"}
	for i := range 2500 {
		keys[fmt.Sprintf("%s%s%04d", dirs[rnd.IntN(len(dirs))], []string{"k", "ü", "+", " ", "%"}[rnd.IntN(5)],
			i)] = true
	}
	for _, k := range awkwardKeys(rnd, 300, "\n\x00\r\x01") {
		if utf8.ValidString(k) {
			keys[k] = true
		}
	}
	return slices.Collect(func(yield func(string) bool) {
		for k := range keys {
			if !yield(k) {
				return
			}
		}
	})
}

func TestOtherClients(t *testing.T) {
	t.Parallel()
	p := start(t, t.TempDir())
	keys := clientKeys(seed.New(t))
	file := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(keys, "\n")+"\n"), 0o600))
	ok(t, "", "load", "abc", file, "--create", "--server", p.s3)
	slices.Sort(keys)

	t.Run("boto3", func(t *testing.T) {
		interpreter := python(t)
		for _, how := range []string{"unsigned", "signed"} {
			t.Run(how, func(t *testing.T) {
				t.Parallel()
				t.Log(client(t, interpreter, "testdata/boto.py", p.s3, "abc", file, how))
			})
		}
	})
	t.Run("aws", func(t *testing.T) {
		aws, err := exec.LookPath("aws")
		require.NoError(t, err, "there is no awscli: "+howToInstall)
		s3api := func(args ...string) string {
			t.Helper()
			return client(t, aws, append([]string{"s3api", "--no-sign-request", "--endpoint-url", p.s3, "--output",
				"json"},
				args...)...)
		}
		var all struct{ Contents []struct{ Key string } }
		require.NoError(t, json.Unmarshal([]byte(s3api("list-objects-v2", "--bucket", "abc")), &all))
		var got []string
		for _, c := range all.Contents {
			got = append(got, c.Key)
		}
		require.Equal(t, keys, got)
		var some struct{ CommonPrefixes []struct{ Prefix string } }
		require.NoError(t, json.Unmarshal([]byte(s3api("list-objects-v2", "--bucket", "abc", "--prefix", "/usr/",
			"--delimiter", "/")), &some))
		require.Equal(t, "/usr/share/", some.CommonPrefixes[0].Prefix)
		s3api("create-bucket", "--bucket", "aws-cli")
		s3api("put-object", "--bucket", "aws-cli", "--key", "a b//../+ü", "--body", "testdata/small.txt")
		back := filepath.Join(t.TempDir(), "back")
		s3api("get-object", "--bucket", "aws-cli", "--key", "a b//../+ü", back)
		want, err := os.ReadFile("testdata/small.txt")
		require.NoError(t, err)
		data, err := os.ReadFile(back)
		require.NoError(t, err)
		require.Equal(t, string(want), string(data))
		s3api("delete-object", "--bucket", "aws-cli", "--key", "a b//../+ü")
		s3api("delete-bucket", "--bucket", "aws-cli")
	})
	t.Run("curl", func(t *testing.T) {
		curl, err := exec.LookPath("curl")
		require.NoError(t, err, "there is no curl: "+howToInstall)
		page := client(t, curl, "-sS", "--fail", p.s3+"/abc?list-type=2&max-keys=1000&encoding-type=url")
		require.Equal(t, 1000, strings.Count(page, "<Key>"))
		require.Equal(t, "", client(t, curl, "-sS", "--fail", "--path-as-is", "-X", "PUT", "--data-binary", "hello",
			p.s3+"/abc//a/../b"))
		require.Equal(t, "hello", client(t, curl, "-sS", "--fail", "--path-as-is", p.s3+"/abc//a/../b"))
		require.Equal(t, "", client(t, curl, "-sS", "--fail", "--path-as-is", "-X", "DELETE", p.s3+"/abc//a/../b"))
	})
}
