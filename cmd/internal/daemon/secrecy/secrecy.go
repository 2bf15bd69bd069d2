// Package secrecy protects secrets of a process: it restricts the access to new files, warns of files with secrets that
// other users can read, and hides secrets in printed settings.
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

// Umask sets the umask of the process, so that only the user of the process can access new files and directories, also
// those that libraries create.
func Umask() { syscall.Umask(0o077) }

// WarnOfFile logs a warning if every user of this host can read a file with a secret. name is the path of the file, and
// flag the command-line flag that names the file. A missing file causes no warning.
func WarnOfFile(log *slog.Logger, flag, name string) {
	if name == "" || log == nil {
		return
	}
	if info, err := os.Stat(name); err == nil && info.Mode().Perm()&0o004 != 0 {
		log.Warn("a file with a secret can be read by everybody on this host: chmod o-rwx",
			"flag", flag, "file", name, "mode", mode(info))
	}
}

// WarnOfDirectory logs a warning if users other than the owner can use a data directory. name is the path of the
// directory, and flag the command-line flag that names the directory. A missing directory causes no warning.
func WarnOfDirectory(log *slog.Logger, flag, name string) {
	if info, err := os.Stat(name); err == nil && info.IsDir() && info.Mode().Perm()&0o077 != 0 {
		log.Warn("the data directory is open to others on this host: chmod 700",
			"flag", flag, "directory", name, "mode", mode(info))
	}
}

func mode(info fs.FileInfo) string { return fmt.Sprintf("%04o", info.Mode().Perm()) }

// Hidden is the text that replaces a secret value when settings are printed.
const Hidden = "(set)"

// URL returns the URL in text in a form that is safe to print. It replaces the user and the password by the text
// Hidden. It replaces the whole URL if text cannot be parsed, or has parameters that are not known to be harmless.
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
		case "prefix", "cluster", "sentinel": // parameters of --counter
		default:
			return Hidden
		}
	}
	return u.String()
}

// Flags maps the flags whose values may be secret, by their names without dashes, to functions. The function of a flag
// takes the value, and returns the text to print in place of the value.
var Flags = map[string]func(string) string{
	"admin-token": func(string) string { return Hidden },
	"secret-key":  func(string) string { return Hidden },
	"counter":     URL,
}

// WarnOfSettings logs a warning if a settings file has secrets and every user of this host can read the file. A file
// without secrets causes no warning. file is the path, and may be empty.
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
