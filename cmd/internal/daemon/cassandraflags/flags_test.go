package cassandraflags_test

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon/cassandraflags"
)

// TestPasswordsInTheClear and files that everybody can read bring warnings.
func TestPasswordsInTheClear(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("hunter2"), 0o600))
	for _, c := range []struct {
		hosts  []string
		user   string
		tls    bool
		mode   os.FileMode
		clear  bool
		opened bool
	}{
		{[]string{"10.0.0.1"}, "listd", false, 0o600, true, false},
		{[]string{"127.0.0.1", "node.test:9042"}, "listd", false, 0o644, true, true},
		{[]string{"10.0.0.1"}, "listd", true, 0o600, false, false},
		{[]string{"127.0.0.5:9042", "localhost", "[::1]:9042"}, "listd", false, 0o600, false, false},
		{[]string{"10.0.0.1"}, "", false, 0o644, false, false},
	} {
		f := cassandraflags.Flags{Cassandra: c.hosts, User: c.user, TLS: c.tls}
		if c.user != "" {
			f.PasswordFile = file
		}
		require.NoError(t, os.Chmod(file, c.mode))
		var log bytes.Buffer
		_, err := f.Options(slog.New(slog.NewTextHandler(&log, nil)))
		require.NoError(t, err)
		require.Equal(t, c.clear, strings.Contains(log.String(), "in the clear"), c.hosts)
		require.Equal(t, c.opened, strings.Contains(log.String(), "--password-file"), c.hosts)
		require.NotContains(t, log.String(), "hunter2")
	}
}
