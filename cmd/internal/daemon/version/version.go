// Package version says from what the running program was built: its version, its commit and the version of Go.
package version

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// number and commit are the version and the commit of the program, for builds outside of a git checkout, where go build
// does not know them. The command that builds the program sets the two variables:
//
//	-ldflags "-X github.com/evenkeel/evenkeel/cmd/internal/daemon/version.number=v1.2.3
//	          -X github.com/evenkeel/evenkeel/cmd/internal/daemon/version.commit=0123abcd…"
var number, commit string

// Build describes what a program was built from: its version, its commit and the version of Go.
type Build struct {
	Version string // of the main module, or "(devel)"
	Commit  string // "" if unknown
	Go      string
}

// Current returns the description of what this program was built from. The result is computed once.
var Current = sync.OnceValue(func() Build {
	info, _ := debug.ReadBuildInfo()
	return of(info, number, commit)
})

// of returns the description of a build. The parameters number and commit are the version and the commit that a build
// can set. If they are empty, the description takes both from info, which go build has recorded. The parameter info may
// be nil.
func of(info *debug.BuildInfo, number, commit string) Build {
	b := Build{Version: number, Commit: commit, Go: runtime.Version()}
	if info != nil {
		b.Version = cmp.Or(b.Version, info.Main.Version)
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				b.Commit = cmp.Or(b.Commit, s.Value)
			}
		}
	}
	b.Version = cmp.Or(b.Version, "(devel)")
	return b
}

func (b Build) String() string {
	if b.Commit == "" {
		return b.Version + " (" + b.Go + ")"
	}
	return b.Version + " (commit " + b.Commit + ", " + b.Go + ")"
}

// Attrs returns the version, the commit and the Go version as attributes of the log line that a program writes at its
// start.
func (b Build) Attrs() []any {
	return []any{"version", b.Version, "commit", b.Commit, "go", b.Go}
}

// Metric returns a Prometheus metric that is always 1. Its labels are the version, the commit and the Go version of the
// program.
func (b Build) Metric() prometheus.Collector {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "evenkeel_build_info", Help: "Always 1; the labels say what the program was built from.",
	}, []string{"version", "revision", "goversion"})
	g.WithLabelValues(b.Version, b.Commit, b.Go).Set(1)
	return g
}
