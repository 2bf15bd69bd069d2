package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
)

// writeKeys replaces a file of keys as editors do.
func writeKeys(t *testing.T, file, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(file+".new", []byte(text), 0o600))
	require.NoError(t, os.Rename(file+".new", file))
}

func TestKeysFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.yaml")
	first := "keys:\n- {id: FIRST, secret: the first secret, access: read-write, everything: true}\n"
	writeKeys(t, file, first+"complete: true\n")
	// With keys, others than loopback addresses are allowed.
	p := start(t, t.TempDir(), "--listen", "0.0.0.0:0", "--keys-file", file)
	server := strings.Replace(p.s3, "[::]", "127.0.0.1", 1)
	with := func(id, secret string, args ...string) outcome {
		return listd(t, "a\nb/ü +\n", append(args, "--server", server, "--access-key", id, "--secret-key", secret)...)
	}
	o := with("FIRST", "the first secret", "load", "abc", "--create")
	require.Equal(t, 0, o.code, o.err)
	o = with("FIRST", "the first secret", "ls", "abc", "--prefix", "b/")
	require.Equal(t, "b/ü +\n", o.out, o.err)
	t.Setenv("EVENKEEL_ACCESS_KEY", "FIRST")
	t.Setenv("EVENKEEL_SECRET_KEY", "the first secret")
	require.Equal(t, "abc\n", ok(t, "", "bucket", "list", "--server", server))
	os.Unsetenv("EVENKEEL_ACCESS_KEY")
	os.Unsetenv("EVENKEEL_SECRET_KEY")
	for _, c := range []struct{ id, secret, says string }{
		{"", "", "AccessDenied"}, {"FIRST", "the second secret", "SignatureDoesNotMatch"},
		{"SECOND", "the second secret", "InvalidAccessKeyId"}, {"FIRST", "", "need each other"},
	} {
		o := with(c.id, c.secret, "ls", "abc")
		require.NotEqual(t, 0, o.code)
		require.Contains(t, o.err, c.says)
		require.Empty(t, o.out)
	}
	_, body := get(t, server, "Host", "s3.example.test", "Origin", "http://s3.example.test")
	require.Contains(t, body, "signed requests only", "with keys it does not matter by which name")

	require.Contains(t, p.errs.String(), "key=FIRST access=read-write scope=everything")

	// A change is in force without a restart, a file that can't be used is not.
	second := "keys:\n- {id: SECOND, secret: the second secret, access: read-only, only: [abc, logs/2024/]}\n"
	writeKeys(t, file, second+"complete: true\n")
	waitFor(t, func() bool { return with("SECOND", "the second secret", "ls", "abc").code == 0 })
	require.Contains(t, with("FIRST", "the first secret", "ls", "abc").err, "InvalidAccessKeyId")
	require.Contains(t, with("SECOND", "the second secret", "bucket", "create", "abd").err, "AccessDenied")
	waitFor(t, func() bool {
		return strings.Contains(p.errs.String(), `key=SECOND access=read-only scope="only abc, logs/2024/"`)
	})
	for i, broken := range []string{"keys:\n- {id: THIRD, secret: short, access: read-only}\ncomplete: true\n",
		second} {
		writeKeys(t, file, broken)
		waitFor(t, func() bool { return strings.Count(p.errs.String(), "stay in force") == i+1 })
		require.Equal(t, 0, with("SECOND", "the second secret", "ls", "abc").code)
	}
	require.NoError(t, os.Remove(file))
	waitFor(t, func() bool { return strings.Count(p.errs.String(), "stay in force") == 3 })
	require.Equal(t, 0, with("SECOND", "the second secret", "ls", "abc").code)
	require.NotContains(t, p.errs.String(), "second secret")
}

func TestKeysFilesThatAreRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.yaml")
	dir := filepath.Join(t.TempDir(), "data")
	const key = "keys:\n- {id: A, secret: verysecretverysecret, access: read-only"
	for text, says := range map[string]string{
		"": "there is no key", "keys:\n- {id: A, secret: short, access: all}\n": "secret has 16", "\x00": "not YAML",
		key + "}\ncomplete: true": "add everything: true, or only:", key + ", everything: true}": "complete: true",
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		o := listd(t, "", "serve", "--data", dir, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--keys-file",
			file)
		require.Equal(t, daemon.ExitUsage, o.code, o.err)
		require.Contains(t, o.err, says)
		require.Contains(t, o.err, file)
	}
	o := listd(t, "", "serve", "--data", dir, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--keys-file",
		file+".none")
	require.Equal(t, daemon.ExitUsage, o.code, o.err)
	require.NoDirExists(t, dir)
}
