// Package archtest holds the code to the architecture: which package may import
// which, and which packages are pure.
package archtest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	module = "github.com/evenkeel/evenkeel/"
	root   = "evenkeel" // the package at the root of the module

	examples = "examples"
)

// layers lists every package of the product, top to bottom. A package imports only
// packages of lower lines.
var layers = [][]string{
	{"cmd/listd", "cmd/rebalancer"},
	{
		"cmd/internal/daemon/adminserver", "cmd/internal/daemon/bodies", "cmd/internal/daemon/cassandraflags",
		"cmd/internal/daemon/rebalanceflags",
	},
	{"cmd/internal/daemon", "cmd/internal/daemon/logging", "cmd/internal/daemon/secrecy", "cmd/internal/daemon/tracing"},
	{"cmd/internal/daemon/settings", "cmd/internal/daemon/shell", "cmd/internal/daemon/version"},
	{"evenkeel", "s3api"},
	{"internal/adminapi", "internal/assembly", "internal/sigv4"},
	{"internal/rebalance/engine"},
	{"internal/adopt", "internal/rebalance/repair", "internal/cleaning"},
	{"objects/fileblobs", "objects/s3blobs"},
	{"objects"},
	{"internal/care", "objects/internal/tidy"},
	{"internal/rebalance/sizing"},
	{"listing"},
	{"internal/door"},
	{"internal/rebalance/policysim"},
	{"internal/rebalance/balancer"},
	{"internal/rebalance/policy"},
	{"rebalance/planner"},
	{"internal/rebalance/planner/genetic"},
	{"internal/rebalance/planner/exact", "internal/rebalance/planner/greedy"},
	{"internal/rebalance/scheduler"},
	{"internal/rebalance/grid"},
	{"internal/rebalance/executor", "internal/rebalance/forecast"},
	{"internal/rebalance/heat", "internal/rebalance/move", "internal/rebalance/pause"},
	{"counter/localcounter", "counter/rediscounter"},
	{"internal/countbook"},
	{"counter"},
	{"internal/keysample"},
	{"internal/mapclient"},
	{"partmap"},
	{"internal/mapcodec"},
	{"internal/hints", "internal/processes", "internal/rebalance/leader"},
	{"internal/rebalance/shard"},
	{"internal/timestamps"},
	{"internal/keyspread", "retention", "internal/record"},
	{"store/cassandrastore", "store/memstore", "store/pebblestore"},
	{"internal/commontime", "internal/cqltable", "internal/storekit"},
	{"rebalance", "store"},
	{
		"keys", "internal/cells", "internal/keytext", "internal/wait", "internal/console", "internal/reload", "internal/tracing",
		"internal/webguard", "internal/wire",
	},
}

// testOnly names the trees that nothing of the product imports: tests, measurements, releases, examples.
var testOnly = []string{
	"bench", "deploy/packages", examples, "internal/test", "store/storetest",
}

// testLibraries are what the product's go.mod may list for tests alone: tests of most
// packages use them. A test that needs more belongs into a module of its own.
var testLibraries = []string{"github.com/anishathalye/porcupine", "github.com/stretchr/testify", "pgregory.net/rapid"}

// openers are what makes a client of a store, with the packages of the product that may use it. All others open stores
// by internal/assembly, which takes the terms of a store that is shared: a process with a lease or a clock skew of its
// own loses acknowledged rows.
var openers = map[string]map[string][]string{
	"internal/mapclient": {
		"Join": {"internal/assembly"}, "JoinDamaged": {"internal/assembly"}, "AgreeOnCounting": {"internal/assembly"},
		"AgreeOnLease": nil, "AgreeOnClockSkew": nil, "InitClocks": nil, "NewNetwork": nil,
		"NewEmbedded": {"listing", "internal/rebalance/policysim"}, "With": {"internal/assembly"},
	},
	"listing": {"New": {"internal/assembly"}},
}

// drivers may be imported by few packages each, and by tests.
var drivers = map[string][]string{
	"github.com/gocql/gocql":       {"store/cassandrastore"},
	"github.com/minio/minio-go/v7": {"objects/s3blobs", "internal/adopt"}, // bodies; what is adopted
	"github.com/redis/go-redis/v9": {"counter/rediscounter"},
}

// pure names the packages that do no I/O and never ask for the time or for
// chance: both are passed in.
var pure = []string{
	"partmap", "internal/mapcodec", "internal/keyspread", "retention",
	"rebalance", "rebalance/planner", "internal/rebalance/grid", "internal/rebalance/planner/exact",
	"internal/rebalance/planner/genetic", "internal/rebalance/planner/greedy",
	"internal/rebalance/forecast", "internal/rebalance/heat", "internal/rebalance/move",
	"internal/rebalance/policy", "internal/rebalance/policysim", "internal/rebalance/sizing",
	"objects/internal/tidy",
	"internal/test/history",
}

// impure are imports that give a package I/O; impureCalls are functions of
// otherwise harmless packages that ask for the time or for global chance.
var (
	impure = []string{"os", "os/exec", "os/signal", "net", "net/http", "io/ioutil", "syscall", "log", "log/slog",
		"crypto/rand", "database/sql"}
	impureCalls = map[string][]string{
		"time":         {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"},
		"math/rand":    {"*"},
		"math/rand/v2": {"Int", "IntN", "Int64", "Int64N", "Uint32", "Uint64", "Float64", "Perm", "Shuffle", "N"},
	}
)

type listed struct {
	ImportPath, Dir  string
	Imports, GoFiles []string
}

func list(t *testing.T) map[string]listed {
	t.Helper()
	// and the root
	out, err := exec.Command("go", "list", "-json=ImportPath,Dir,Imports,GoFiles", module+"...").Output()
	require.NoError(t, err)
	all := map[string]listed{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		if p.ImportPath+"/" == module {
			p.ImportPath = root
		}
		all[strings.TrimPrefix(p.ImportPath, module)] = p
	}
}

func TestDependenciesPointDownwards(t *testing.T) {
	level := map[string]int{}
	for i, line := range layers {
		for _, name := range line {
			level[name] = len(layers) - i
		}
	}
	all := list(t)
	for name, p := range all {
		if forTests(name) {
			continue
		}
		at, known := level[name]
		if !known {
			t.Errorf("%s has no place in the layers: add it where it belongs", name)
			continue
		}
		for _, imported := range p.Imports {
			below, ours := strings.CutPrefix(imported+"/", module)
			if below = cmp.Or(strings.TrimSuffix(below, "/"), root); !ours {
				continue
			}
			switch {
			case forTests(below):
				t.Errorf("%s imports %s, which is for tests", name, below)
			case level[below] >= at:
				t.Errorf("%s imports %s, which does not lie below it", name, below)
			}
		}
	}
	for name := range level {
		if _, there := all[name]; !there {
			t.Errorf("the layers have %s, which does not exist", name)
		}
	}
}

// forTests reports whether a package is there for tests and measurements only.
func forTests(name string) bool {
	return slices.ContainsFunc(testOnly, func(tree string) bool {
		return name == tree || strings.HasPrefix(name, tree+"/")
	})
}

// What examples show, others can do, who have no internal packages.
func TestExamplesUseThePublicAPI(t *testing.T) {
	n := 0
	for name, p := range list(t) {
		if !strings.HasPrefix(name, examples+"/") {
			continue
		}
		n++
		for _, imported := range p.Imports {
			if strings.HasPrefix(imported, module) && strings.Contains(imported, "/internal/") {
				t.Errorf("%s imports %s", name, imported)
			}
		}
	}
	require.NotZero(t, n)
}

func TestDriversAreUsedWhereTheyBelong(t *testing.T) {
	used := map[string]bool{}
	for name, p := range list(t) {
		for _, imported := range p.Imports {
			for driver, owners := range drivers {
				if imported != driver && !strings.HasPrefix(imported, driver+"/") {
					continue
				}
				if used[driver] = true; !slices.Contains(owners, name) && !forTests(name) {
					t.Errorf("%s imports %s, which only %s may", name, imported, owners)
				}
			}
		}
	}
	require.Len(t, used, len(drivers), "drivers that nothing imports")
}

// modFile is what a go.mod lists.
type modFile struct {
	Require []struct {
		Path, Version string
		Indirect      bool
	}
	Tool []struct{ Path string }
}

func readModFile(t *testing.T, dir string) (f modFile) {
	t.Helper()
	out, err := exec.Command("go", "mod", "edit", "-json", filepath.Join(dir, "go.mod")).Output()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, &f))
	return f
}

func TestProductRequiresWhatItImports(t *testing.T) {
	var imported []string
	for name, p := range list(t) {
		if !forTests(name) {
			imported = append(imported, p.Imports...)
		}
	}
	product := readModFile(t, checkout)
	require.Empty(t, product.Tool)
	for _, m := range product.Require {
		if m.Indirect || slices.Contains(testLibraries, m.Path) {
			continue
		}
		if !slices.ContainsFunc(imported, func(p string) bool { return strings.HasPrefix(p+"/", m.Path+"/") }) {
			t.Errorf("go.mod lists %s, which no package of the product imports: "+
				"tests that need it belong into a module of their own (go.work has them)", m.Path)
		}
	}
}

// TestModulesAgreeOnVersions: below go.work the highest version that any module asks for, or one that it uses, counts.
// So the product is tested with what its own go.mod says, and released with, only if no other module asks for more.
func TestModulesAgreeOnVersions(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	require.NoError(t, err)
	dirs := strings.Fields(string(out))
	require.GreaterOrEqual(t, len(dirs), 3)
	const version = "{{with .Module}}{{.Path}} {{.Version}}{{end}}"
	out, err = exec.Command("go", "list", "-deps", "-test", "-f", version, module+"...").Output()
	require.NoError(t, err)
	used := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		used[path] = version
	}
	for _, dir := range dirs {
		for _, m := range readModFile(t, dir).Require {
			if with := cmp.Or(used[m.Path], m.Version); with != m.Version {
				t.Errorf("%s/go.mod lists %s %s, but tests use %s: another module asks for it", dir, m.Path, m.Version, with)
			}
		}
	}
}

func TestPurePackagesArePure(t *testing.T) {
	all := list(t)
	for _, name := range pure {
		p, ok := all[name]
		if !ok {
			t.Errorf("the pure package %s does not exist", name)
			continue
		}
		for _, file := range p.GoFiles {
			for _, complaint := range impurities(t, filepath.Join(p.Dir, file)) {
				t.Errorf("%s is pure, but %s", name, complaint)
			}
		}
	}
}

// TestStoresAreOpenedInOneWay, so that no program can forget the terms that the processes of a store have agreed on.
func TestStoresAreOpenedInOneWay(t *testing.T) {
	used := map[string]bool{}
	for name, p := range list(t) {
		if forTests(name) {
			continue
		}
		for _, file := range p.GoFiles {
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, file), nil, 0)
			require.NoError(t, err)
			watched := map[string]string{} // packages with openers, by their names in this file
			for _, spec := range f.Imports {
				imported, err := strconv.Unquote(spec.Path.Value)
				require.NoError(t, err)
				if imported = strings.TrimPrefix(imported, module); openers[imported] == nil {
					continue
				}
				local := imported[strings.LastIndex(imported, "/")+1:]
				if spec.Name != nil {
					local = spec.Name.Name
				}
				require.NotEqual(t, ".", local, "%s", fset.Position(spec.Pos()))
				watched[local] = imported
			}
			ast.Inspect(f, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				pkg, ok := sel.X.(*ast.Ident)
				if !ok || pkg.Obj != nil {
					return true
				}
				owners, opens := openers[watched[pkg.Name]][sel.Sel.Name]
				if used[watched[pkg.Name]+"."+sel.Sel.Name] = true; opens && !slices.Contains(owners, name) {
					t.Errorf("%s: %s uses %s.%s: open the store by internal/assembly", fset.Position(sel.Pos()), name, pkg.Name,
						sel.Sel.Name)
				}
				return true
			})
		}
	}
	for from, names := range openers {
		for opener, owners := range names {
			require.Equal(t, owners != nil, used[from+"."+opener], "%s.%s", from, opener)
		}
	}
}

// impurities lists what a file imports or calls that a pure package may not.
func impurities(t *testing.T, path string) (complaints []string) {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, nil, 0)
	require.NoError(t, err)
	calls := map[string][]string{}
	for _, spec := range f.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		require.NoError(t, err)
		for _, bad := range impure {
			if imported == bad {
				complaints = append(complaints, fmt.Sprintf("%s imports %s", fset.Position(spec.Pos()), bad))
			}
		}
		if bad, watched := impureCalls[imported]; watched {
			local := strings.TrimSuffix(imported, "/v2")
			local = local[strings.LastIndex(local, "/")+1:]
			if spec.Name != nil {
				local = spec.Name.Name
			}
			calls[local] = bad
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Obj == nil {
			for _, bad := range calls[pkg.Name] {
				if bad == sel.Sel.Name || (bad == "*" && sel.Sel.IsExported() && !allowedRand(sel.Sel.Name)) {
					complaints = append(complaints,
						fmt.Sprintf("%s uses %s.%s", fset.Position(sel.Pos()), pkg.Name, sel.Sel.Name))
				}
			}
		}
		return true
	})
	return complaints
}

// allowedRand: generators with a seed of their own (eaopt wants math/rand's).
func allowedRand(name string) bool {
	switch name {
	case "New", "NewSource", "Rand", "Source", "Source64":
		return true
	}
	return false
}
