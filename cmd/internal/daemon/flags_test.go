package daemon_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
)

func TestChangedFlags(t *testing.T) {
	type nested struct {
		Level string `default:"low"`
	}
	type flags struct {
		Names  []string
		Wait   time.Duration `default:"3s"`
		CASize int           `name:"ca-size"`
		On     bool          `negatable:""`
		Nested nested        `embed:"" prefix:"nested-"`
	}
	f := flags{Wait: 3 * time.Second, Nested: nested{"low"}}
	require.Empty(t, daemon.Changed(&f))
	f.Names = []string{} // as a file may have it
	require.Empty(t, daemon.Changed(&f))
	f = flags{Names: []string{"a"}, Wait: time.Second, CASize: 1, On: true, Nested: nested{"high"}}
	require.Equal(t, []string{"--names", "--wait", "--ca-size", "--on", "--nested-level"}, daemon.Changed(&f))
}
