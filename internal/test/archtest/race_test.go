package archtest

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWhatIsLeftOutWithTheRaceDetectorRunsWithoutIt: what the race detector gets less of is in the lists of packages that
// make test runs without it, in full.
func TestWhatIsLeftOutWithTheRaceDetectorRunsWithoutIt(t *testing.T) {
	makefile, err := os.ReadFile(path.Join(checkout, "Makefile"))
	require.NoError(t, err)
	text := strings.ReplaceAll(string(makefile), "\\\n", " ")
	full := map[string]bool{}
	for _, list := range []string{"AGAIN", "SIMULATIONS", "PURE"} {
		line := regexp.MustCompile(`(?m)^` + list + ` = (.*)$`).FindStringSubmatch(text)
		require.NotNil(t, line, "the Makefile has no list %s", list)
		for name := range strings.FieldsSeq(line[1]) {
			full[path.Clean(name)] = true
		}
		require.Regexp(t, `(?m)^\t[^#\n]*within.*\$\(TEST\).*\$\(`+list+`\)`, text, "make test does not run %s", list)
	}
	less := regexp.MustCompile(`\brace\.(Fewer|Skip)\(|\bfaulttest\.(Each|Sample)\b`)
	found := 0
	require.NoError(t, fs.WalkDir(os.DirFS(checkout), ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		source, err := fs.ReadFile(os.DirFS(checkout), name)
		if dir := path.Dir(name); err == nil && less.Match(source) && dir != "internal/test/archtest" {
			found++
			require.True(t, full[dir], "%s leaves out tests with the race detector: add ./%s to AGAIN in the Makefile", name, dir)
		}
		return err
	}))
	require.Greater(t, found, 20)
}
