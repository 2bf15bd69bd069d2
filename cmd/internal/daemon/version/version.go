// Package version says which build of the programs runs.
package version

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Builds outside of a checkout set these, as go build can't know them there:
//
//	-ldflags "-X github.com/evenkeel/evenkeel/cmd/internal/daemon/version.number=v1.2.3
//	          -X github.com/evenkeel/evenkeel/cmd/internal/daemon/version.commit=0123abcd…"
var number, commit string

// Build is what a program was built from.
type Build struct {
	Version string // of the module, or "(devel)"
	Commit  string // "" if it is not known
	Go      string
}

// Current returns the build of this program.
var Current = sync.OnceValue(func() Build {
	info, _ := debug.ReadBuildInfo()
	return of(info, number, commit)
})

// of prefers what was set for a package over the information of go build, which may be nil.
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

// Attrs are the attributes of the log line with which a program starts.
func (b Build) Attrs() []any {
	return []any{"version", b.Version, "commit", b.Commit, "go", b.Go}
}

// Metric is always 1; its labels have the build.
func (b Build) Metric() prometheus.Collector {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "evenkeel_build_info", Help: "Always 1; the labels say what the program was built from.",
	}, []string{"version", "revision", "goversion"})
	g.WithLabelValues(b.Version, b.Commit, b.Go).Set(1)
	return g
}
