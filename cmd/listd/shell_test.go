package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// completions are the words that the program proposes for the last of some.
func completions(t *testing.T, words ...string) (out []string) {
	t.Helper()
	for line := range strings.Lines(ok(t, "", append([]string{"complete", "--"}, words...)...)) {
		word, _, found := strings.Cut(line, "\t")
		require.True(t, found, line)
		out = append(out, word)
	}
	return out
}

func TestCompletions(t *testing.T) {
	require.Equal(t, []string{"ls"}, completions(t, "ls"))
	require.Contains(t, completions(t, ""), "bucket")
	require.NotContains(t, completions(t, ""), "complete", "it is for shells")
	require.Equal(t, []string{"create", "delete", "list"}, completions(t, "bucket", ""))
	require.Equal(t, []string{"--patience", "--prefix", "--parallel"}, completions(t, "ls", "--p"))
	require.Contains(t, completions(t, "ls", "files", "--"), "--log-level", "flags of all commands")
	require.Equal(t, []string{"json"}, completions(t, "ls", "--format", "j"))
	require.Equal(t, []string{"--format=json"}, completions(t, "ls", "--format=j"))
	require.Equal(t, []string{"json"}, completions(t, "ls", "--format", "=", "j"), "as bash cuts it")
	require.Equal(t, []string{"text", "json", "null"}, completions(t, "ls", "--format", "="))
	require.Equal(t, []string{"bash", "zsh", "fish"}, completions(t, "completion", ""))
	for _, words := range [][]string{
		{"serve", "--data", ""}, {"load", "files", ""}, {"--", "l"}, {"nonsense", "x"}, {"ls", "--nonsense=x"}, {"ls", "--prefix", "--f"}, {},
	} {
		require.Empty(t, completions(t, words...), "%q: files, or anything", words)
	}
}

// TestShells runs each shell that there is.
func TestShells(t *testing.T) {
	dir := t.TempDir()
	run := func(t *testing.T, shell string, args ...string) string {
		t.Helper()
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Skip("there is no " + shell)
		}
		cmd := exec.Command(path, args...)
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "HOME="+dir)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	script := filepath.Join(dir, "script")
	for shell, args := range map[string][]string{
		"bash": {"-c", "source " + script + `; COMP_WORDS=(listd bucket cr) COMP_CWORD=2; _listd; echo "${COMPREPLY[@]}"`},
		"fish": {"-c", "source " + script + `; complete -C 'listd bucket cr'`},
		"zsh": {"-f", "-c", "autoload -U compinit; compinit -u -D; source " + script +
			"; _describe() { print -l -- ${(P)2} }; words=(listd bucket cr) CURRENT=3; _listd"},
	} {
		t.Run(shell, func(t *testing.T) {
			require.NoError(t, os.WriteFile(script, []byte(ok(t, "", "completion", shell)), 0o600))
			require.Contains(t, run(t, shell, args...), "create")
		})
	}
	t.Run("man", func(t *testing.T) {
		require.NoError(t, os.WriteFile(script, []byte(ok(t, "", "man")), 0o600))
		page := run(t, "man", "--warnings", "-l", script)
		require.Contains(t, page, "LISTD BUCKET CREATE")
		require.Contains(t, page, "--cuts-file=FILE")
		require.Contains(t, page, `UTF-8 with \xNN escapes`)
		require.NotContains(t, page, "warning")
	})
}
