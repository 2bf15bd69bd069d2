//go:build !fuzz

package s3api_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/pebblestore"
)

// All that a package's tests import is instrumented when one of its targets is
// fuzzed, and gone through after every input: scripts/fuzz leaves out what is large.
func init() {
	stores["pebblestore"] = func(t *testing.T) store.Store {
		s, err := pebblestore.Open(t.TempDir(), pebblestore.Options{NoSync: true})
		require.NoError(t, err)
		return s
	}
}
