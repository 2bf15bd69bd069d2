package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// pkg is a package, as go list describes it.
type pkg struct {
	ImportPath, Dir string
	GoFiles         []string
	Module          struct{ Path, Dir string }
}

func list(ctx context.Context, dir string, patterns ...string) ([]pkg, error) {
	cmd := exec.CommandContext(ctx, "go",
		append([]string{"list", "-json=ImportPath,Dir,GoFiles,Module"}, patterns...)...)
	cmd.Dir = dir
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w\n%s", strings.Join(patterns, " "), err, complaint.Bytes())
	}
	var all []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			return nil, fmt.Errorf("go list %s: %w", strings.Join(patterns, " "), err)
		}
		all = append(all, p)
	}
	return all, nil
}

// judge is a further package whose tests judge mutants.
type judge struct {
	path    string
	took    time.Duration // without a mutant
	reaches coverage
}

// examine runs the tests of a package without a mutant. The tests must pass. The result says how long they take, and
// which statements of the package mutated they reach.
func examine(ctx context.Context, root, path, mutated, temp string) (judge, error) {
	profile := filepath.Join(temp, "cover")
	begin := time.Now()
	out, err := run(ctx, root, 20*time.Minute, "go", "test", "-vet=off", "-count=1", "-coverpkg="+mutated,
		"-coverprofile="+profile, path)
	if err != nil {
		return judge{}, fmt.Errorf("the tests of %s fail without a mutant: %w\n%s", path, err, out)
	}
	j := judge{path: path, took: time.Since(begin)}
	text, err := os.ReadFile(profile)
	if err != nil {
		return judge{}, fmt.Errorf("the coverage of %s: %w", path, err)
	}
	j.reaches, err = parseCoverage(text)
	return j, err
}

// coverage has, by the base name of a file, the blocks of statements, and whether each block has run.
type coverage map[string][]block

type block struct {
	fromLine, fromColumn, toLine, toColumn int
	ran                                    bool
}

func parseCoverage(text []byte) (coverage, error) {
	c := coverage{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "mode:") {
			continue
		}
		at := strings.LastIndexByte(lines.Text(), ':')
		if at < 0 {
			return nil, fmt.Errorf("coverage has the line %q", lines.Text())
		}
		var b block
		var statements, count int
		if _, err := fmt.Sscanf(lines.Text()[at+1:], "%d.%d,%d.%d %d %d", &b.fromLine, &b.fromColumn, &b.toLine,
			&b.toColumn, &statements, &count); err != nil {
			return nil, fmt.Errorf("coverage has the line %q: %w", lines.Text(), err)
		}
		b.ran = count > 0
		file := filepath.Base(lines.Text()[:at])
		c[file] = append(c[file], b)
	}
	return c, lines.Err()
}

// has reports whether the tests have reached the place of a mutant. A place in no block, e.g. a constant of a package,
// may matter to every test, so it counts as reached.
func (c coverage) has(m *Mutant) bool {
	line, column := m.reached.Line, m.reached.Column
	known := false
	for _, b := range c[filepath.Base(m.File)] {
		after := line > b.fromLine || line == b.fromLine && column >= b.fromColumn
		before := line < b.toLine || line == b.toLine && column < b.toColumn
		if after && before {
			if b.ran {
				return true
			}
			known = true
		}
	}
	return !known
}

// Outcome says how a mutant fared: killed if a test failed, and survived if no test failed.
type Outcome string

const (
	Killed       Outcome = "killed"
	Hung         Outcome = "hung" // killed: the tests did not end
	Survived     Outcome = "survived"
	Unreached    Outcome = "not reached" // survived: no test runs its statement
	NotCompiling Outcome = "not compiling"
)

func (o Outcome) alive() bool { return o == Survived || o == Unreached }

const compiling = 10 * time.Minute

// overlay writes the given texts of files into the directory temp. It returns the path of a file for the flag -overlay,
// by which the go command reads these texts instead of the files.
func overlay(temp string, files map[string][]byte) (path string, err error) {
	replace := map[string]string{}
	for path, text := range files {
		replace[path] = filepath.Join(temp, "mutated_"+filepath.Base(path))
		if err := os.WriteFile(replace[path], text, 0o600); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return "", err
	}
	path = filepath.Join(temp, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}

// askOthers runs the tests of other packages with one mutant, until the tests of a package fail. by is the path of that
// package.
func askOthers(ctx context.Context, o options, root string, m *Mutant, others []judge, temp string) (
	outcome Outcome, by string, err error,
) {
	with, err := overlay(temp, map[string][]byte{m.path: m.Mutated()})
	if err != nil {
		return "", "", err
	}
	fails := func(j judge) (Outcome, error) {
		test := func(patience time.Duration, flags ...string) ([]byte, error) {
			args := append([]string{"test", "-vet=off", "-count=1", "-failfast", "-exec", limited, "-timeout",
				patience.String()}, flags...)
			return run(ctx, root, compiling+2*patience, "go", append(args, j.path)...)
		}
		for {
			out, err := test(3*j.took+o.grace, "-overlay", with)
			switch {
			case ctx.Err() != nil:
				return "", context.Cause(ctx)
			case err == nil:
				return Survived, nil
			case !bytes.Contains(out, []byte("panic: test timed out")) && !errors.Is(err, errTooLong):
				return Killed, nil
			}
			begin := time.Now()
			if out, err := test(time.Hour); err != nil {
				return "", fmt.Errorf("the tests of %s fail without a mutant: %w\n%s", j.path, err, out)
			}
			now := time.Since(begin)
			if !busy(now, j.took) {
				return Hung, nil
			}
			j.took = now
		}
	}
	outcome = Unreached
	for _, j := range others {
		if !j.reaches.has(m) {
			continue
		}
		if outcome, err = fails(j); err != nil || outcome != Survived {
			return outcome, j.path, err
		}
	}
	return outcome, "", nil
}

// busy reports whether tests without a mutant now take so much longer than before that the machine may be the reason.
func busy(now, before time.Duration) bool { return now > 2*before+time.Second }

// limited is a command that limits the memory of a test's process to 6 GiB, as a mutant may use memory without end.
const limited = `sh -c 'ulimit -v 6291456; exec "$@"' limited`

var errTooLong = errors.New("it did not end in time")

// run runs a command in the directory dir, and returns its output. After the time `most`, run kills the command with
// all its child processes.
func run(ctx context.Context, dir string, most time.Duration, name string, args ...string) ([]byte, error) {
	return runWith(ctx, dir, nil, most, name, args...)
}

// runWith is run with additional environment variables.
func runWith(
	ctx context.Context, dir string, env []string, most time.Duration, name string, args ...string,
) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, most, errTooLong)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return out, err
}
