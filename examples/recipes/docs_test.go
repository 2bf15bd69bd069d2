package recipes

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// docs/recipes.md shows the functions of this package, all of them, and is short.
func TestThePageShowsThisCode(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		return string(text)
	}
	page, code := read("../../docs/recipes.md"), read("recipes_test.go")
	const most = 1500
	require.LessOrEqual(t, len(strings.Fields(page)), most, "words")

	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(page, -1)
	shown := ""
	for _, block := range blocks {
		require.Contains(t, code, block[1])
		shown += block[1]
	}
	for _, f := range regexp.MustCompile(`(?m)^func ([a-z]\w*)\(`).FindAllStringSubmatch(code, -1) {
		if name := f[1]; name != "newBucket" && name != "must" {
			require.Contains(t, shown, "func "+name+"(")
		}
	}
	require.Len(t, blocks, len(regexp.MustCompile(`(?m)^func Example_`).FindAllString(code, -1)), "one for each recipe")
	require.NotContains(t, code, "/internal/", "readers have the public API only")
}
