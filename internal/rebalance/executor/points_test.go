package executor_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/rebalance/move"
	"github.com/evenkeel/evenkeel/internal/test/crashtest"
	"github.com/evenkeel/evenkeel/partmap"
)

// The crash matrices kill at each of crashtest.Failpoints. So these have to be all that there
// are: this test finds them in the code of the whole module.
func TestFailpointsAreThoseInTheCode(t *testing.T) {
	var found []string
	calls := 0
	root := filepath.Join("..", "..", "..")
	require.FileExists(t, filepath.Join(root, "go.mod"))
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), "ailpoint(") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			f, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || f.Sel.Name != "failpoint" && f.Sel.Name != "Failpoint" {
				return true
			}
			switch at := call.Args[1].(type) {
			case *ast.BasicLit: // "copy batch"
				name, err := strconv.Unquote(at.Value)
				require.NoError(t, err)
				found = append(found, name)
			case *ast.BinaryExpr: // "before " + name, where an effect is done
				before, err := strconv.Unquote(at.X.(*ast.BasicLit).Value)
				require.NoError(t, err)
				require.Equal(t, "name", at.Y.(*ast.Ident).Name, path)
				for _, effect := range effectsNamed(t) {
					found = append(found, before+effect)
				}
			default: // Options.Failpoint with what failpoint was given
				require.Equal(t, "Failpoint", f.Sel.Name, "%s: a failpoint whose name is not in the code", path)
				return true
			}
			calls++
			return true
		})
		return nil
	}))
	require.GreaterOrEqual(t, calls, 8, "this test finds calls")
	want := crashtest.Failpoints()
	slices.Sort(want)
	slices.Sort(found)
	require.Equal(t, want, slices.Compact(found))
	require.Equal(t, want, slices.Compact(slices.Clone(want)), "none is listed twice")
}

// effectsNamed are the names that pointOf gives to effects.
func effectsNamed(t *testing.T) (names []string) {
	file, err := parser.ParseFile(token.NewFileSet(), "effects.go", nil, 0)
	require.NoError(t, err)
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Name.Name != "pointOf" {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			r, ok := n.(*ast.ReturnStmt)
			if !ok {
				return true
			}
			switch e := r.Results[0].(type) {
			case *ast.BasicLit:
				name, err := strconv.Unquote(e.Value)
				require.NoError(t, err)
				if name != "unknown" { // no effect has it
					names = append(names, name)
				}
			case *ast.BinaryExpr: // "swap " + the phase that a batch goes on to
				for p := partmap.Marking; p < partmap.Draining; p++ {
					names = append(names, "swap "+(p+1).String())
				}
			case *ast.CallExpr: // the name of a task
				for _, p := range []partmap.Phase{partmap.Copying, partmap.Verifying, partmap.Draining,
					partmap.Settled} {
					names = append(names, move.Task{Phase: p}.Name())
				}
			default:
				t.Errorf("pointOf returns something that this test does not know: %T", e)
			}
			return true
		})
	}
	require.NotEmpty(t, names)
	return names
}
