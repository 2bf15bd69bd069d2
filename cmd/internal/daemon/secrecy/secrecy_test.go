package secrecy_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon/secrecy"
)

func TestURLsHaveNoSecrets(t *testing.T) {
	for text, shown := range map[string]string{
		"": "", "redis://h:6379/0": "redis://h:6379/0", "rediss://h/0?prefix=a": "rediss://h/0?prefix=a",
		"redis://user:secret@h:6379/0": "redis://%28set%29@h:6379/0", "redis://:secret@h": "redis://%28set%29@h",
		"redis://secret@h/1": "redis://%28set%29@h/1", "redis://h/0?password=secret": secrecy.Hidden,
		"redis://u:se/cret@h": secrecy.Hidden, "secret": secrecy.Hidden,
		"redis:u:secret@h": secrecy.Hidden, "%zz": secrecy.Hidden,
	} {
		require.Equal(t, shown, secrecy.URL(text))
		require.NotContains(t, secrecy.URL(text), "cret")
	}
}

func TestWhatOthersCanReadBringsAWarning(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "keys")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for mode, warned := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: true, 0o604: true} {
		var b bytes.Buffer
		require.NoError(t, os.Chmod(file, mode))
		secrecy.WarnOfFile(slog.New(slog.NewTextHandler(&b, nil)), "--keys-file", file)
		require.Equal(t, warned, b.Len() > 0, "%o", mode)
	}
	for mode, warned := range map[os.FileMode]bool{0o700: false, 0o750: true, 0o711: true, 0o755: true} {
		var b bytes.Buffer
		require.NoError(t, os.Chmod(dir, mode))
		secrecy.WarnOfDirectory(slog.New(slog.NewTextHandler(&b, nil)), "--data", dir)
		require.Equal(t, warned, b.Len() > 0, "%o", mode)
	}
	secrecy.WarnOfFile(slog.Default(), "--keys-file", filepath.Join(dir, "none"))
	secrecy.WarnOfDirectory(slog.Default(), "--data", filepath.Join(dir, "none"))
}
