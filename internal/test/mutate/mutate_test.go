package main

import (
	"bytes"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// toy is a module of two packages. What double has of its tests is weak; those of
// user hold some of it up.
var toy = map[string]string{
	"go.mod": "module toy\n\ngo 1.26\n",
	"double/double.go": `package double

import "errors"

// Limit bounds what is doubled.
const Limit = 100

func Double(n int) (int, error) {
	if n > Limit {
		return 0, errors.New("too large")
	}
	sum := 0
	for range n {
		sum += 2
	}
	return sum, nil
}

func Wait(n int) int {
	for n > 0 {
		n--
	}
	return n
}

func Sign(n int) string {
	switch {
	case n < 0:
		return "negative"
	}
	return "not negative"
}

func Unused() error { return errors.New("never") }
`,
	"double/double_test.go": `package double

import "testing"

func TestDouble(t *testing.T) {
	if n, err := Double(4); n != 8 || err != nil {
		t.Fatal(n, err)
	}
	if n := Wait(3); n != 0 {
		t.Fatal(n)
	}
}
`,
	"user/user_test.go": `package user

import (
	"testing"

	"toy/double"
)

func TestUser(t *testing.T) {
	if _, err := double.Double(1000); err == nil {
		t.Fatal("no error")
	}
	double.Sign(-1)
}
`,
}

func writeToy(t *testing.T) (dir string) {
	dir = t.TempDir()
	for name, text := range toy {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return dir
}

// Each outcome, by the package's own tests and by another's; the tests passed, and were
// cached, before, and nothing in the tree changes.
func TestOutcomes(t *testing.T) {
	t.Setenv("GOFLAGS", "-trimpath")
	dir := writeToy(t)
	cached := exec.Command("go", "test", "./...")
	cached.Dir = dir
	out, err := cached.CombinedOutput()
	require.NoError(t, err, "%s", out)
	o := options{dir: dir, grace: 2 * time.Second, holders: map[string][]string{"double": {"user"}}, log: io.Discard}
	report, err := mutate(t.Context(), o, "./double")
	require.NoError(t, err)
	got := map[string]string{}
	for _, r := range report.Results {
		name := strings.TrimPrefix(r.Name(), "double/double.go ")
		got[name] = strings.TrimSpace(string(r.Outcome) + " " + r.By)
	}
	for name, want := range map[string]string{
		"Double [guard] n > Limit => false":                                  "killed user",
		"Double [bound] n > Limit => n >= Limit":                             "survived",
		`Double [retnil] return 0, errors.New("too large") => return 0, nil`: "killed user",
		"Double [assign] sum += 2 => (removed)":                              "killed double",
		"Wait [assign] n-- => (removed)":                                     "hung double",
		"Sign [bound] n < 0 => n <= 0":                                       "survived",
		"Sign [int] 0 (column 10) in: case n < 0: => 0+1":                    "survived",
		"- [int] 100 (column 15) in: const Limit = 100 => 100+1":             "survived",
		`Sign [case] case n < 0: return "negative" => (case removed)`:        "survived",
		`Unused [retnil] return errors.New("never") => return nil`:           "not reached",
	} {
		require.Equal(t, want, got[name], "%s\nof %v", name, got)
		delete(got, name)
	}
	require.Len(t, report.Scores, 1)
	s := report.Scores[0]
	require.Equal(t, "toy/double", s.Package)
	require.Equal(t, len(report.Results), s.Sites)
	require.Equal(t, s.Sample, s.Killed+s.Survived)
	for name, text := range toy {
		now, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, text, string(now))
	}

	// What is known as equivalent counts apart; a name of nothing is refused.
	o.at = "double/double.go:9"
	o.equivalent = []string{"double/double.go Double [bound] n > Limit => n >= Limit"}
	var log bytes.Buffer
	o.log = &log
	report, err = mutate(t.Context(), o, "./double")
	require.NoError(t, err)
	require.Equal(t, Score{Package: "toy/double", Sites: s.Sites, Sample: 2, Killed: 1, Equivalent: 1},
		report.Scores[0])
	require.Contains(t, log.String(), "-	if n > Limit {\n+	if ((n) >= (Limit)) {\n")
	o.equivalent = append(o.equivalent, "double/double.go Double [bound] gone => gone",
		"double/more/other.go is [another] package's")
	_, err = mutate(t.Context(), o, "./double")
	require.ErrorContains(t, err, "gone => gone")
}

// Tests that fail without a mutant prove nothing.
func TestTestsMustPassFirst(t *testing.T) {
	dir := writeToy(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "double/bad_test.go"),
		[]byte("package double\n\nimport \"testing\"\n\nfunc TestBad(t *testing.T) { t.Fatal(\"bad\") }\n"), 0o600))
	_, err := mutate(t.Context(), options{dir: dir, log: io.Discard}, "./double")
	require.ErrorContains(t, err, "the tests of toy/double fail without a mutant")
}

const sample = `package x

import "errors"

type list[T any] struct{ err error }

func (l *list[T]) f(a, b int, ok bool) (n int, err error) {
	if err := l.check(); err != nil {
		return 0, err
	}
	if ok && a <= b || !ok {
		l.note()
	}
	if ok {
		defer l.note()
	}
	switch a {
	case 1, 2:
		a -= 7
	case 3:
	default:
	}
	for i := 0; i < b; i++ {
		if i == a*2 {
			continue
		}
		break
	}
	l.err = func() error { return errors.New("x") }()
	return a + b, nil
}

func (l *list[T]) check() error { return l.err }
func (l *list[T]) note()        {}

func (l *list[T]) has() (bool, error) {
	if l.err != nil {
		return false, l.err
	}
	return true, nil
}
`

// Every kind of change, where it belongs and nowhere else; each is Go again.
func TestSites(t *testing.T) {
	sites, err := sitesIn(token.NewFileSet(), "/x/x.go", "x.go", []byte(sample))
	require.NoError(t, err)
	var names []string
	for _, m := range sites {
		names = append(names, strings.TrimPrefix(m.Name(), "x.go list."))
		_, err := parser.ParseFile(token.NewFileSet(), "x.go", m.Mutated(), 0)
		require.NoError(t, err, m.Name())
	}
	require.ElementsMatch(t, []string{
		"f [errguard] err != nil => false", "f [eq] err != nil => err == nil",
		"f [retnil] return 0, err => return 0, nil",
		"f [guard] ok && a <= b || !ok => false", "f [logic] ok && a <= b || !ok => ok && a <= b && !ok",
		"f [logic] ok && a <= b => ok || a <= b",
		"f [bound] a <= b => a < b", "f [negif] !ok => ok", "f [call] l.note() => (removed)",
		"f [guard] ok => false", "f [negif] ok => !(ok)", "f [defer] defer l.note() => (removed)",
		"f [case] case 1, 2: a -= 7 => (case removed)", "f [case] case 3: => (case removed)",
		"f [int] 1 (column 6) in: case 1, 2: => 1-1", "f [int] 2 (column 9) in: case 1, 2: => 2+1",
		"f [int] 3 (column 6) in: case 3: => 3+1",
		"f [assign] a -= 7 => (removed)", "f [int] 7 (column 6) in: a -= 7 => 7+1",
		"f [int] 0 (column 10) in: for i := 0; i < b; i++ { => 0+1", "f [bound] i < b => i <= b",
		"f [guard] i == a*2 => false", "f [eq] i == a*2 => i != a*2", "f [arith] a*2 => a / 2",
		"f [int] 2 (column 11) in: if i == a*2 { => 2+1",
		"f [branch] continue => (removed)", "f [branch] break => (removed)",
		`f [assign] l.err = func() error { return errors.New("x") }() => (removed)`, `f [retnil] return errors.New("x") => return nil`,
		"f [arith] a + b => a - b", "check [retnil] return l.err => return nil",
		"has [guard] l.err != nil => false", "has [eq] l.err != nil => l.err == nil",
		"has [retnil] return false, l.err => return false, nil", "has [bool] true => false",
	}, names)
}

func TestDraw(t *testing.T) {
	sites, err := sitesIn(token.NewFileSet(), "/x/x.go", "x.go", []byte(sample))
	require.NoError(t, err)
	was := slices.Clone(sites)
	a := draw(sites, 7, "x")
	require.Equal(t, was, sites)
	require.Equal(t, a, draw(sites, 7, "x"))
	require.ElementsMatch(t, sites, a)
	require.NotEqual(t, a, draw(sites, 8, "x"))
	require.NotEqual(t, a, draw(sites, 7, "y"))
}

// The packages of the list exist, and none names itself.
func TestHolders(t *testing.T) {
	var patterns []string
	for name, also := range holders {
		require.NotContains(t, also, name)
		for _, x := range append(also, name) {
			patterns = append(patterns, "github.com/evenkeel/evenkeel/"+x)
		}
	}
	_, err := list(t.Context(), ".", patterns...)
	require.NoError(t, err)
}

// Each name in equivalent.txt is that of a mutant.
func TestEquivalentMutantsExist(t *testing.T) {
	pkgs, err := list(t.Context(), ".", "github.com/evenkeel/evenkeel/...")
	require.NoError(t, err)
	names := equivalents()
	require.NotEmpty(t, names)
	for _, p := range pkgs {
		rel := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, p.Module.Path), "/")
		if !slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, rel+"/") }) {
			continue
		}
		sites, err := sitesOf(p.Module.Dir, p.Dir, p.GoFiles)
		require.NoError(t, err)
		require.NoError(t, stale(names, rel, sites))
	}
}
