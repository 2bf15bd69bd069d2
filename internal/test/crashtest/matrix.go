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

// Points returns the points at which movers are killed, e.g. "copy batch#1": each failpoint, when it is passed for the
// first time. The failpoint "swap unknown" occurs twice: the first such swap was applied, and the second was not.
func Points() (all []string) {
	for _, p := range Failpoints() {
		all = append(all, p+"#1")
	}
	return append(all, "swap unknown#2")
}

// Again returns the points at which movers are killed when a failpoint is passed for the second time, in another range
// or a later round. The result leaves out failpoints before an effect, as they directly follow the failpoint after the
// effect before.
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

// LeftBehind reports whether a mover meets the point only in a bucket that was left behind by a dead process.
func LeftBehind(point string) bool {
	return strings.Contains(point, "reopen") || strings.Contains(point, "collect")
}

// Missed returns the failpoints at which no mover died. died has the points at which movers died.
func Missed(died []string) (missed []string) {
	for _, p := range Failpoints() {
		if !slices.ContainsFunc(died, func(d string) bool { name, _, _ := strings.Cut(d, "#"); return name == p }) {
			missed = append(missed, p)
		}
	}
	return missed
}

// Run starts this program again, with additional environment variables, and waits until the new process has ended. The
// result killed is true if the process has killed itself.
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

// Notes is a directory of files in which processes write down what they have done, for those that come after a crash.
type Notes string

// Add appends lines to the file with the name kind.
func (n Notes) Add(kind string, lines ...string) error {
	f, err := os.OpenFile(filepath.Join(string(n), kind), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.Join(lines, "\n") + "\n")
	return errors.Join(err, f.Close())
}

// Of returns the lines of the file with the name kind, or no lines if the file does not exist.
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

// Expect applies the puts and deletes in the file with the name kind ("put key", "delete key") to want, which says
// which keys must exist.
func (n Notes) Expect(kind string, want map[string]bool) {
	for _, line := range n.Of(kind) {
		what, k, _ := strings.Cut(line, " ")
		want[k] = what == "put"
	}
}

// Failpoints returns the names of all points at which executor.Options.Failpoint is called.
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
