package cassandratest

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed clock/ahead.c
var clockAhead []byte

// movedClock returns the path of a library for LD_PRELOAD that moves the wall clock of a process by the nanoseconds in
// the environment variable AHEAD_NS. movedClock compiles the library in dir, from clock/ahead.c.
func movedClock(ctx context.Context, dir string) (string, error) {
	library := filepath.Join(dir, "ahead.so")
	if _, err := os.Stat(library); err == nil {
		return library, nil
	}
	source := filepath.Join(dir, "ahead.c")
	if err := os.WriteFile(source, clockAhead, 0o644); err != nil {
		return "", err
	}
	compile := exec.CommandContext(ctx, "cc", "-O2", "-Wall", "-shared", "-fPIC", "-o", library, source, "-ldl")
	out, err := compile.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("compiling the library that moves a node's clock: %w\n%s", err, out)
	}
	return library, nil
}
