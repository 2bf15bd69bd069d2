package daemon

import (
	"log/slog"
	"net"
	"os"
)

// The states of a process, in the form in which systemd expects them.
const (
	Ready    = "READY=1"
	Stopping = "STOPPING=1"
)

// Notify tells systemd, the service manager, that the process is Ready or Stopping. So services that need this one
// start when it is ready. systemd asks for the message by Type=notify, and gives the socket in NOTIFY_SOCKET. A failure
// is only logged, as the process can still serve.
func Notify(log *slog.Logger, state string) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return
	}
	conn, err := net.Dial("unixgram", name)
	if err == nil {
		_, err = conn.Write([]byte(state))
		_ = conn.Close()
	}
	if err != nil {
		log.Warn("the service manager can't be told: check NOTIFY_SOCKET", "state", state, "err", err)
	}
}
