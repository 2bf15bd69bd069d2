// Package secrecy protects the files that a process writes and the secrets that it reads.
package secrecy

import (
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v3"
)

// Umask makes all new files and directories of this process, also those of libraries,
// accessible for its user only.
func Umask() { syscall.Umask(0o077) }

// WarnOfFile warns if a file with a secret can be read by everybody. It ignores missing files.
func WarnOfFile(log *slog.Logger, flag, name string) {
	if name == "" || log == nil {
		return
	}
	if info, err := os.Stat(name); err == nil && info.Mode().Perm()&0o004 != 0 {
		log.Warn("a file with a secret can be read by everybody on this host: chmod o-rwx",
			"flag", flag, "file", name, "mode", mode(info))
	}
}

// WarnOfDirectory warns if an existing data directory can be entered by others.
func WarnOfDirectory(log *slog.Logger, flag, name string) {
	if info, err := os.Stat(name); err == nil && info.IsDir() && info.Mode().Perm()&0o077 != 0 {
		log.Warn("the data directory is open to others on this host: chmod 700",
			"flag", flag, "directory", name, "mode", mode(info))
	}
}

func mode(info fs.FileInfo) string { return fmt.Sprintf("%04o", info.Mode().Perm()) }

// Hidden replaces a secret.
const Hidden = "(set)"

// URL returns a URL without its user and password, for printing. One that can't be parsed is
// hidden.
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
		switch name {
		case "prefix", "cluster", "sentinel": // of the counters
		default:
			return Hidden
		}
	}
	return u.String()
}

// Flags are those whose values are not printed, and what is printed instead.
var Flags = map[string]func(string) string{
	"admin-token": func(string) string { return Hidden },
	"secret-key":  func(string) string { return Hidden },
	"counter":     URL,
}

// WarnOfSettings warns if a settings file with secrets can be read by everybody. It ignores files
// without any, and an empty name.
func WarnOfSettings(log *slog.Logger, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		return
	}
	var secrets func(section map[string]any) bool
	secrets = func(section map[string]any) bool {
		for name, value := range section {
			if below, ok := value.(map[string]any); ok && secrets(below) {
				return true
			}
			for flag, hide := range Flags {
				if text, ok := value.(string); ok && strings.HasSuffix(name, flag) && hide(text) != text {
					return true
				}
			}
		}
		return false
	}
	var all map[string]any
	if yaml.Unmarshal(text, &all) == nil && secrets(all) {
		WarnOfFile(log, "--config", file)
	}
}
