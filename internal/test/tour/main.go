// Command tour follows the console blocks of a document word for word, as a new user would, and compares what is
// printed with what the document says.
//
// A console block is fenced as console. A line that begins with "$ " is a command, and a line that begins with "> "
// continues the command. The other lines are the output of the command, on both streams. An ellipsis (…) stands for any
// text within a line, or for any lines if the ellipsis is alone on a line. A command that ends in " &" runs in the
// background until the tour ends, and its output in the document is what it prints first.
//
// A command without output in the document must succeed.
//
// The commands run in a copy of the checkout, so that they find the checkout as a new user does, and leave nothing
// behind. They must not change files of the checkout, as a user's git status would show the changes.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// commandTime is the time limit of one command, so that a tour that hangs says where. The first command builds
// everything, with an empty cache.
const commandTime = 4 * time.Minute

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: tour DOCUMENT...   (from the root of a checkout)")
		os.Exit(2)
	}
	failed := false
	for _, document := range os.Args[1:] {
		if err := follow(document); err != nil {
			fmt.Fprintf(os.Stderr, "tour: %s: %v\n", document, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

func follow(document string) error {
	text, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	steps, err := parse(string(text))
	if err != nil {
		return err
	}
	if len(steps) == 0 {
		return errors.New("no console block: nothing was tried")
	}
	dir, err := os.MkdirTemp("", "tour-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	copied, err := copyCheckout(dir)
	if err != nil {
		return fmt.Errorf("copying the checkout: %w", err)
	}
	w := walk{dir: dir}
	defer w.end()
	for _, s := range steps {
		begun := time.Now()
		if err := w.do(s); err != nil {
			return fmt.Errorf("line %d: $ %s\n%w", s.line, s.command, err)
		}
		fmt.Printf("ok %6.2fs  $ %s\n", time.Since(begun).Seconds(), strings.ReplaceAll(s.command, "\n", "\n> "))
	}
	if changed := copied.changed(); len(changed) > 0 {
		return fmt.Errorf("the tour has changed or removed files of the checkout:\n%s", strings.Join(changed, "\n"))
	}
	fmt.Printf("%s: %d passed, 0 failed\n", document, len(steps))
	return nil
}

// files has the hashes of files, by path.
type files map[string][sha256.Size]byte

// changed returns the paths of the files that no longer exist or have another content.
func (f files) changed() (out []string) {
	for path, was := range f {
		if body, err := os.ReadFile(path); err != nil || sha256.Sum256(body) != was {
			out = append(out, path)
		}
	}
	slices.Sort(out)
	return out
}

// copyCheckout copies the files that git tracks, and new files that git does not ignore, from the current directory to
// dir. The result has the hashes of the copies.
func copyCheckout(dir string) (files, error) {
	list, err := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return nil, err
	}
	copied := files{}
	for _, name := range strings.Split(strings.TrimRight(string(list), "\x00"), "\x00") {
		info, err := os.Stat(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // removed, but not committed so
		}
		if err != nil {
			return nil, err
		}
		body, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(to, body, info.Mode().Perm()); err != nil {
			return nil, err
		}
		copied[to] = sha256.Sum256(body)
	}
	return copied, nil
}

// step is one command of the document, with the output that the document promises.
type step struct {
	line    int
	command string
	want    []string
}

func parse(text string) (steps []step, err error) {
	inside := false
	for i, line := range strings.Split(text, "\n") {
		switch {
		case !inside:
			inside = strings.TrimSpace(line) == "```console"
		case strings.HasPrefix(line, "```"):
			inside = false
		case strings.HasPrefix(line, "$ "):
			steps = append(steps, step{line: i + 1, command: line[2:]})
		case len(steps) == 0:
			return nil, fmt.Errorf("line %d: output before the first command", i+1)
		case strings.HasPrefix(line, "> ") && len(steps[len(steps)-1].want) == 0:
			steps[len(steps)-1].command += "\n" + line[2:]
		default:
			steps[len(steps)-1].want = append(steps[len(steps)-1].want, line)
		}
	}
	if inside {
		return nil, errors.New("a console block does not end")
	}
	return steps, nil
}

// walk is a tour under way: the directory of the copy, and the commands that run in the background.
type walk struct {
	dir        string
	background []*exec.Cmd
}

func (w *walk) do(s step) error {
	if command, ok := strings.CutSuffix(s.command, " &"); ok {
		return w.start(command, s.want)
	}
	ctx, cancel := context.WithTimeout(context.Background(), commandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", s.command)
	cmd.Dir, cmd.Env = w.dir, environment()
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return fmt.Errorf("%w, after printing:\n%s", err, out)
	}
	// A command may fail on purpose; then the document shows its error.
	if err != nil && len(s.want) == 0 {
		return fmt.Errorf("%w, after printing:\n%s", err, out)
	}
	if problem := compare(s.want, strings.Split(strings.TrimRight(string(out), "\n"), "\n")); problem != nil {
		return fmt.Errorf("%w\nit printed:\n%s", problem, out)
	}
	return nil
}

// start runs a command in the background, and compares the first lines of its output with want.
func (w *walk) start(command string, want []string) error {
	cmd := exec.Command("bash", "-c", command)
	cmd.Dir, cmd.Env = w.dir, environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	w.background = append(w.background, cmd)
	lines := make(chan string)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(out)
		for n := 0; n < len(want) && scanner.Scan(); n++ {
			lines <- scanner.Text()
		}
		_, _ = io.Copy(io.Discard, out)
	}()
	var got []string
	deadline := time.After(commandTime)
	for len(got) < len(want) {
		select {
		case line, ok := <-lines:
			if !ok {
				_ = cmd.Wait()
				return fmt.Errorf("it ended after printing:\n%s\n%s", strings.Join(got, "\n"), stderr.String())
			}
			got = append(got, line)
		case <-deadline:
			return fmt.Errorf("after %v it had printed only:\n%s", commandTime, strings.Join(got, "\n"))
		}
	}
	if problem := compare(want, got); problem != nil {
		return fmt.Errorf("%w\nit printed:\n%s", problem, strings.Join(got, "\n"))
	}
	return nil
}

// environment returns the environment variables of this process, without those that a make around the tour has set. A
// new user's make has no make around it.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == "MAKEFLAGS" || name == "MFLAGS" || name == "MAKELEVEL" || name == "MAKEOVERRIDES"
	})
}

// end stops the commands in the background, the last first, and waits until they have ended.
func (w *walk) end() {
	for i := len(w.background) - 1; i >= 0; i-- {
		cmd := w.background[i]
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		killer := time.AfterFunc(10*time.Second, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		_ = cmd.Wait()
		killer.Stop()
	}
}

// compare returns an error if the lines got do not match the lines want, in which … stands for any text. If want is
// empty, any output matches.
func compare(want, got []string) error {
	for len(want) > 0 && want[len(want)-1] == "" {
		want = want[:len(want)-1]
	}
	if len(want) == 0 {
		return nil
	}
	var pattern strings.Builder
	pattern.WriteString(`\A`)
	for _, line := range want {
		if line == "…" {
			pattern.WriteString(`(?:.*\n)*`)
			continue
		}
		parts := strings.Split(line, "…")
		for i, part := range parts {
			if i > 0 {
				pattern.WriteString(`.*`)
			}
			pattern.WriteString(regexp.QuoteMeta(part))
		}
		pattern.WriteString(`[ \t\r]*\n`)
	}
	pattern.WriteString(`\z`)
	ok, err := regexp.MatchString(pattern.String(), strings.Join(got, "\n")+"\n")
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("the document promises:\n%s", strings.Join(want, "\n"))
	}
	return nil
}
