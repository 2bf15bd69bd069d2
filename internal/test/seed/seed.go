// Package seed gives seeds to randomised tests. Each test draws a seed, and logs the command that repeats the test with
// the same seed.
package seed

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The names of environment variables: the seed of every test of a run, and the shortest time for which tests with Each
// try seeds.
const (
	variable = "EVENKEEL_SEED"
	duration = "EVENKEEL_SIM_TIME"
)

// New returns a source of random numbers whose seed is the result of Number.
func New(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Number(t), 1))
}

var (
	mu   sync.Mutex
	next = map[string]uint64{} // by the name of a running test
)

// Number returns a seed for the test t: EVENKEEL_SEED, or a random number. It logs how to repeat the test. Further
// calls of the same test return the successive numbers.
func Number(t testing.TB) uint64 {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	n, again := next[t.Name()]
	if !again {
		var given bool
		if n, given = fromEnvironment(t); !given {
			n = rand.Uint64()
		}
		t.Log(repeat(t.Name(), n))
		t.Cleanup(func() {
			mu.Lock()
			defer mu.Unlock()
			delete(next, t.Name())
		})
	}
	next[t.Name()] = n + 1
	return n
}

// Each calls f with at least n different seeds, one after the other, for at least EVENKEEL_SIM_TIME. If EVENKEEL_SEED
// is set, Each calls f with that seed only. Each ends early if f returns false or the test has failed, and logs how to
// repeat the seed that failed. tried is the number of seeds.
func Each(t testing.TB, n int, f func(seed uint64) (more bool)) (tried int) {
	t.Helper()
	try := func(seed uint64) bool {
		defer func() {
			if t.Failed() {
				t.Log(repeat(t.Name(), seed))
			}
		}()
		return f(seed) && !t.Failed()
	}
	if seed, given := fromEnvironment(t); given {
		try(seed)
		return 1
	}
	var long time.Duration
	if s := os.Getenv(duration); s != "" {
		var err error
		if long, err = time.ParseDuration(s); err != nil {
			t.Fatalf("%s: %v", duration, err)
		}
	}
	first := rand.Uint64()
	for end := time.Now().Add(long); tried < n || time.Now().Before(end); {
		tried++
		if !try(first + uint64(tried-1)) {
			break
		}
	}
	t.Logf("%d seeds from %d on", tried, first)
	return tried
}

func fromEnvironment(t testing.TB) (n uint64, given bool) {
	t.Helper()
	s := os.Getenv(variable)
	if s == "" {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n, true
}

// repeat returns the command that runs the test again with the same seed, in the root of the repository.
func repeat(test string, seed uint64) string {
	info, _ := debug.ReadBuildInfo()
	command := "go test"
	if slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		command += " -race"
	}
	var names []string
	for name := range strings.SplitSeq(test, "/") {
		names = append(names, "^"+regexp.QuoteMeta(name)+"$")
	}
	run := strings.ReplaceAll(strings.Join(names, "/"), "'", ".") // in quotes of the shell
	pkg := strings.TrimPrefix(strings.TrimSuffix(info.Path, ".test"), "github.com/evenkeel/evenkeel")
	return fmt.Sprintf("repeat with: %s=%d %s -run '%s' .%s", variable, seed, command, run, pkg)
}
