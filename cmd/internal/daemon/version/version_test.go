package version

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func TestBuilds(t *testing.T) {
	checkout := &debug.BuildInfo{
		Main:     debug.Module{Version: "v0.0.0-20260102030405-0123456789ab"},
		Settings: []debug.BuildSetting{{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "0123456789abcdef"}},
	}
	for name, c := range map[string]struct {
		info           *debug.BuildInfo
		number, commit string
		want           string
	}{
		"a checkout": {checkout, "", "",
			"v0.0.0-20260102030405-0123456789ab (commit 0123456789abcdef, GO)"},
		"a package of a checkout": {checkout, "v1.2.3", "fedc", "v1.2.3 (commit fedc, GO)"},
		"a published module":      {&debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, "", "", "v1.2.3 (GO)"},
		"no information":          {nil, "", "", "(devel) (GO)"},
	} {
		t.Run(name, func(t *testing.T) {
			b := of(c.info, c.number, c.commit)
			require.Equal(t, strings.Replace(c.want, "GO", runtime.Version(), 1), b.String())
		})
	}
}

func TestMetric(t *testing.T) {
	require.NoError(t, testutil.CollectAndCompare(Build{"v1.2.3", "fedc", "go1"}.Metric(), strings.NewReader(`
# HELP evenkeel_build_info Always 1; the labels say what the program was built from.
# TYPE evenkeel_build_info gauge
evenkeel_build_info{goversion="go1",revision="fedc",version="v1.2.3"} 1
`)))
}
