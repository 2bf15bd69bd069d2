package daemon

import (
	"log/slog"
	"net"
	"os"
)

// What Notify tells.
const (
	Ready    = "READY=1"
	Stopping = "STOPPING=1"
)

// Notify tells the service manager how far the process is, if it asks for that: systemd does with Type=notify, by the
// name of a socket in NOTIFY_SOCKET. So what starts after the service finds it ready. A failure is logged: the process
// serves all the same.
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
