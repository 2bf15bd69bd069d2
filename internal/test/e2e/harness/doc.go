// Package harness has the helpers of end-to-end tests: programs, built once and run;
// keyspaces on a Cassandra node; HTTP requests, and waiting. Only tests import it.
package harness

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// KeysVariable is the name of the environment variable that sets how many real keys a test loads.
const KeysVariable = "EVENKEEL_REAL_KEYS"

// Setting returns the number in the environment variable with the given name, or preset if the variable is not set.
func Setting(t testing.TB, name string, preset int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return preset
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, name)
	return n
}

// Eventually waits until the function reached returns true. After two minutes it fails the test, and names in the
// message what the test waited for.
func Eventually(t testing.TB, what string, reached func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !reached(); time.Sleep(50 * time.Millisecond) {
		require.True(t, time.Now().Before(deadline), "not reached: %s", what)
	}
}
