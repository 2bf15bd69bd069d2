package harness

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Halt stops a process without ending it (SIGSTOP), and returns once all its threads stand still. The signal alone is
// not enough: until the thread that gets the signal has a processor, which takes long on a busy machine, the other
// threads of the process go on answering requests. Without /proc, Halt returns at once.
func Halt(t testing.TB, p *os.Process) {
	t.Helper()
	require.NoError(t, p.Signal(syscall.SIGSTOP))
	require.Eventually(t, func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Pid))
		require.NoError(t, err)
		for _, file := range threads {
			stat, err := os.ReadFile(file)
			// The state is the letter behind the name of the program, which is in parentheses.
			if name := bytes.LastIndexByte(stat, ')'); err == nil && !bytes.HasPrefix(stat[name+1:], []byte(" T")) {
				return false
			}
		}
		return true
	}, 10*time.Second, time.Millisecond, "process %d does not stand still", p.Pid)
}
