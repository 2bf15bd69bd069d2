package main

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseFindsCommandsAndTheirOutput(t *testing.T) {
	steps, err := parse("text\n```sh\n$ not this\n```\n```console\n$ one\nout\n$ two \\\n> more\n…\n```\n")
	require.NoError(t, err)
	require.Equal(t, []step{
		{line: 6, command: "one", want: []string{"out"}},
		{line: 8, command: "two \\\nmore", want: []string{"…"}},
	}, steps)

	_, err = parse("```console\nout\n```")
	require.Error(t, err)
	_, err = parse("```console\n$ one")
	require.Error(t, err)
}

func TestCompareKnowsTheEllipsis(t *testing.T) {
	for _, ok := range [][2][]string{
		{nil, {"anything"}},
		{{"a", "b"}, {"a", "b"}},
		{{"a…c"}, {"abbbc"}},
		{{"a", "…", "z"}, {"a", "z"}},
		{{"a", "…", "z"}, {"a", "b", "c", "z"}},
		{{"a", "…"}, {"a"}},
	} {
		require.NoError(t, compare(ok[0], ok[1]), "%q", ok)
	}
	for _, bad := range [][2][]string{
		{{"a"}, {"b"}},
		{{"a"}, {"a", "b"}},
		{{"a", "b"}, {"a"}},
		{{"a…c"}, {"ab"}},
		{{"a.c"}, {"abc"}},
		{{"a", "…", "z"}, {"a", "b"}},
	} {
		require.Error(t, compare(bad[0], bad[1]), "%q", bad)
	}
}

func TestACommandWithoutOutputMustSucceed(t *testing.T) {
	w := walk{dir: t.TempDir()}
	require.NoError(t, w.do(step{command: "true"}))
	require.Error(t, w.do(step{command: "false"}))
	require.NoError(t, w.do(step{command: "echo why; false", want: []string{"why"}}), "on purpose")
}

func TestChangedFilesAreFound(t *testing.T) {
	dir, known := t.TempDir(), files{}
	path := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"same", "removed", "changed"} {
		require.NoError(t, os.WriteFile(path(name), []byte("a"), 0o600))
		known[path(name)] = sha256.Sum256([]byte("a"))
	}
	require.NoError(t, os.WriteFile(path("same"), []byte("a"), 0o600))
	require.NoError(t, os.WriteFile(path("added"), []byte("a"), 0o600))
	require.Empty(t, known.changed())

	require.NoError(t, os.WriteFile(path("changed"), []byte("b"), 0o600))
	require.NoError(t, os.Remove(path("removed")))
	require.Equal(t, []string{path("changed"), path("removed")}, known.changed())
}
