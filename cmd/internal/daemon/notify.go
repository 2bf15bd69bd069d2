package daemon

import (
	"log/slog"
	"net"
	"os"
)

// Ready and Stopping are the states of a process that Notify can report, in the format that systemd expects.
const (
	Ready    = "READY=1"
	Stopping = "STOPPING=1"
)

// Notify tells systemd, the service manager, that the process is Ready or Stopping. systemd then starts the services
// that wait for this process. The socket for the message is in the environment variable NOTIFY_SOCKET, which systemd
// sets for a service with Type=notify. Without the variable Notify does nothing. Notify only logs a failure, as the
// process can still serve.
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
