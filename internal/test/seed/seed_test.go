package seed

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// noted keeps what a test logs.
type noted struct {
	testing.TB
	lines []string
}

func (n *noted) Log(args ...any) {
	n.lines = append(n.lines, strings.TrimSpace(fmt.Sprintln(args...)))
	n.TB.Log(args...)
}

func (n *noted) seed(t *testing.T) (seed uint64) {
	require.NotEmpty(t, n.lines)
	_, err := fmt.Sscanf(n.lines[len(n.lines)-1], "repeat with: EVENKEEL_SEED=%d", &seed)
	require.NoError(t, err)
	return seed
}

func TestTheLoggedCommandRepeatsTheTest(t *testing.T) {
	t.Run("that's (a) test/of a subtest", func(t *testing.T) {
		const again = "EVENKEEL_SEED_AGAIN" // set in the process that the logged command starts
		if want := os.Getenv(again); want != "" {
			require.Equal(t, want, fmt.Sprint(Number(t)))
			return
		}
		t.Setenv(variable, "")
		n := &noted{TB: t}
		seed := Number(n)
		require.NotEqual(t, seed, Number(n), "two calls return the same seed")
		require.Len(t, n.lines, 1)
		_, command, found := strings.Cut(n.lines[0], "repeat with: ")
		require.True(t, found)
		cmd := exec.Command("sh", "-c", command+" -v")
		cmd.Dir, cmd.Env = "../../..", append(os.Environ(), fmt.Sprintf("%s=%d", again, seed))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", command, out)
		require.Contains(t, string(out), "--- PASS: "+t.Name(), "%s", command)
	})
}

func TestTheVariableSetsTheSeed(t *testing.T) {
	t.Setenv(variable, "42")
	require.Equal(t, uint64(42), Number(t))
	require.Equal(t, uint64(43), Number(t))
	var seeds []uint64
	Each(t, 10, func(seed uint64) bool { seeds = append(seeds, seed); return true })
	require.Equal(t, []uint64{42}, seeds)
}

func TestEachTriesUntilOneFails(t *testing.T) {
	t.Setenv(variable, "")
	t.Setenv(duration, "")
	var seeds []uint64
	Each(t, 10, func(seed uint64) bool { seeds = append(seeds, seed); return true })
	require.Len(t, seeds, 10)
	tried := 0
	Each(t, 10, func(uint64) bool { tried++; return tried < 3 })
	require.Equal(t, 3, tried)

	failing := &failed{noted: noted{TB: t}}
	tried = 0
	var last uint64
	Each(failing, 10, func(seed uint64) bool { tried++; last = seed; failing.is = tried == 4; return true })
	require.Equal(t, 4, tried)
	require.Equal(t, last, failing.seed(t))
}

// failed is a test that can fail without this one.
type failed struct {
	noted
	is bool
}

func (f *failed) Failed() bool { return f.is }
