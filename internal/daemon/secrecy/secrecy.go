// Package secrecy keeps what a process writes, reads and prints from those whom it is not
// meant for.
package secrecy

import (
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"syscall"
)

// Umask has all files and directories that this process makes from now on be its user's
// alone, those that libraries make, too.
func Umask() { syscall.Umask(0o077) }

// WarnOfFile warns where a file that holds a secret can be read by everybody; flag says what
// it is for. A file that is not there is somebody else's to complain about.
func WarnOfFile(log *slog.Logger, flag, name string) {
	if name == "" || log == nil {
		return
	}
	if info, err := os.Stat(name); err == nil && info.Mode().Perm()&0o004 != 0 {
		log.Warn("a file with a secret can be read by everybody on this host: chmod o-rwx",
			"flag", flag, "file", name, "mode", mode(info))
	}
}

// WarnOfDirectory warns where a data directory, which is there already, can be entered by
// others.
func WarnOfDirectory(log *slog.Logger, flag, name string) {
	if info, err := os.Stat(name); err == nil && info.IsDir() && info.Mode().Perm()&0o077 != 0 {
		log.Warn("the data directory is open to others on this host: chmod 700",
			"flag", flag, "directory", name, "mode", mode(info))
	}
}

func mode(info fs.FileInfo) string { return fmt.Sprintf("%04o", info.Mode().Perm()) }

// Hidden stands for a secret that is set.
const Hidden = "(set)"

// URL is a URL as it may be printed: without whom it logs in as. What is not understood is
// not printed at all.
func URL(text string) string {
	if text == "" {
		return ""
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return Hidden
	}
	if u.User != nil {
		u.User = url.User(Hidden)
	}
	for name := range u.Query() {
		if name != "prefix" { // of the counters' keys
			return Hidden
		}
	}
	return u.String()
}
