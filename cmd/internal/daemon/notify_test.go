package daemon

import (
	"bytes"
	"log/slog"
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNotify(t *testing.T) {
	var lines bytes.Buffer
	log := slog.New(slog.NewTextHandler(&lines, nil))

	t.Run("nobody asks", func(t *testing.T) {
		t.Setenv("NOTIFY_SOCKET", "")
		Notify(log, Ready)
		require.Empty(t, lines.String())
	})
	for kind, name := range map[string]string{
		"a socket in a directory": filepath.Join(t.TempDir(), "notify"),
		"an abstract socket":      "@evenkeel-" + filepath.Base(t.TempDir()) + filepath.Base(t.Name()),
	} {
		t.Run(kind, func(t *testing.T) {
			manager, err := net.ListenPacket("unixgram", name)
			require.NoError(t, err)
			defer manager.Close()
			t.Setenv("NOTIFY_SOCKET", name)
			Notify(log, Ready)
			Notify(log, Stopping)
			for _, want := range []string{Ready, Stopping} {
				got := make([]byte, 100)
				n, _, err := manager.ReadFrom(got)
				require.NoError(t, err)
				require.Equal(t, want, string(got[:n]))
			}
			require.Empty(t, lines.String())
		})
	}
	t.Run("a socket that is gone is a line in the log", func(t *testing.T) {
		t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "gone"))
		Notify(log, Ready)
		require.Contains(t, lines.String(), "NOTIFY_SOCKET")
	})
}
