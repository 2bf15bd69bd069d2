package crashtest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Points are where movers are killed: at each failpoint once. The swap of unknown
// outcome is there twice: the first was applied, the second was not.
func Points() (all []string) {
	for _, p := range Failpoints() {
		all = append(all, p+"#1")
	}
	return append(all, "swap unknown#2")
}

// Again are points at which movers are killed in a second pass as well: in another
// range, or a later round. What is before an effect is after the one before it.
func Again() (all []string) {
	for _, p := range Failpoints() {
		switch {
		case strings.HasPrefix(p, "after ") &&
			p != "after collect", strings.HasSuffix(p, " batch"), p == "collect node":
			all = append(all, p+"#2")
		}
	}
	return all
}

// LeftBehind reports whether a point lies on the way of a bucket that was left
// behind.
func LeftBehind(point string) bool {
	return strings.Contains(point, "reopen") || strings.Contains(point, "collect")
}

// Missed returns the failpoints at which nobody died.
func Missed(died []string) (missed []string) {
	for _, p := range Failpoints() {
		if !slices.ContainsFunc(died, func(d string) bool { name, _, _ := strings.Cut(d, "#"); return name == p }) {
			missed = append(missed, p)
		}
	}
	return missed
}

// Run starts this program once more, with an addition to its environment, and
// returns when it has come to its end or has killed itself.
func Run(environment ...string) (killed bool, err error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), environment...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("%w: %s", err, out)
	}
	return false, nil
}

// Notes is a folder where what was done is noted, for those who come after a
// crash.
type Notes string

// Add adds lines to those of a kind.
func (n Notes) Add(kind string, lines ...string) error {
	f, err := os.OpenFile(filepath.Join(string(n), kind), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.Join(lines, "\n") + "\n")
	return errors.Join(err, f.Close())
}

// Of returns the lines of a kind, none where nothing was noted.
func (n Notes) Of(kind string) (lines []string) {
	f, err := os.Open(filepath.Join(string(n), kind))
	if err != nil {
		return nil
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		lines = append(lines, s.Text())
	}
	return lines
}

// Expect takes the noted puts and deletes of a kind ("put key", "delete key") into
// what has to be there.
func (n Notes) Expect(kind string, want map[string]bool) {
	for _, line := range n.Of(kind) {
		what, k, _ := strings.Cut(line, " ")
		want[k] = what == "put"
	}
}

// Failpoints are the names of all points at which executor.Options.Failpoint is called.
func Failpoints() []string {
	var all []string
	for _, e := range []string{
		"swap marking", "wait", "swap copying", "copy", "swap verifying", "compare", "swap draining", "remove",
		"swap settled", "sweep", "swap swept", "swap reopen", "collect",
	} {
		all = append(all, "before "+e, "after "+e)
	}
	return append(all, "swap unknown", "copy batch", "compare batch", "compare lost", "sweep markers read",
		"sweep checked", "collect node")
}
