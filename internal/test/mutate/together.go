package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// suite is the tests of a mutated package. Each test runs in a process of its own, so that the fastest can run first,
// and a test that hangs costs little.
type suite struct {
	root, temp string
	pkg        pkg
	shared     string // the program of the tests in which the environment switches on a mutant
	numbers    map[*Mutant]int
	tests      []single // the fastest first
}

// single is one test, with its time and the numbers of the mutants that the test reached.
type single struct {
	name    string
	took    time.Duration
	reaches map[int]bool
}

// switches is the file that a package gets for it.
//
//go:embed switches.go.txt
var switches string

// join builds the tests of a package together with all mutants that can share a build, so that these mutants need no
// build of their own. Other mutants, e.g. of constants, are not in the shared build. The tests must pass without a
// mutant.
func join(ctx context.Context, root string, p pkg, mutants []*Mutant, temp string, log io.Writer) (*suite, error) {
	t := &suite{root: root, temp: temp, pkg: p, shared: filepath.Join(temp, "shared")}
	files, numbers, err := weave(ctx, root, p, mutants)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		fmt.Fprintf(log, "each mutant has a build of its own: %v\n", err)
	}
	t.numbers = numbers
	if out, err := t.build(ctx, t.shared, files); err != nil {
		return nil, fmt.Errorf("the mutants of %s together: %w\n%s", p.ImportPath, err, out)
	}
	begin := time.Now()
	if err := t.explore(ctx, filepath.Join(temp, "reached")); err != nil {
		return nil, err
	}
	fmt.Fprintf(log, "%s passes without a mutant (%.1f s); %d mutants share a build\n", p.ImportPath,
		time.Since(begin).Seconds(), len(numbers))
	return t, nil
}

// build builds the test program with other texts of some files. The source tree does not change, as the flag -overlay
// makes the compiler read the other texts.
func (t *suite) build(ctx context.Context, program string, files map[string][]byte) ([]byte, error) {
	with, err := overlay(t.temp, files)
	if err != nil {
		return nil, err
	}
	return run(ctx, t.root, compiling, "go", "test", "-c", "-vet=off", "-ldflags=-w", "-overlay", with, "-o", program,
		t.pkg.ImportPath)
}

// explore runs each test without a mutant, and records its time and the mutants that it reaches.
func (t *suite) explore(ctx context.Context, record string) error {
	out, err := t.run(ctx, t.shared, nil, time.Minute, "-test.list", ".")
	if err != nil {
		return fmt.Errorf("the list of tests: %w\n%s", err, out)
	}
	for name := range strings.FieldsSeq(string(out)) {
		if !strings.HasPrefix(name, "Test") && !strings.HasPrefix(name, "Fuzz") && !strings.HasPrefix(name, "Example") {
			continue
		}
		s := single{name: name}
		begin := time.Now()
		if out, err := t.run(ctx, t.shared, []string{"MUTANTS_REACHED=" + record}, 10*time.Minute, s.args()...); err != nil {
			return fmt.Errorf("the tests of %s fail without a mutant, each alone: %w\n%s", t.pkg.ImportPath, err, out)
		}
		s.took = time.Since(begin)
		if s.reaches, err = readNumbers(record); err != nil {
			return err
		}
		t.tests = append(t.tests, s)
	}
	slices.SortFunc(t.tests, func(a, b single) int { return cmp.Compare(a.took, b.took) })
	return nil
}

func readNumbers(path string) (map[int]bool, error) {
	numbers := map[int]bool{}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for line := range strings.FieldsSeq(string(text)) {
		n, err := strconv.Atoi(line)
		if err != nil {
			return nil, err
		}
		numbers[n] = true
	}
	return numbers, os.RemoveAll(path)
}

func (s *single) args() []string { return []string{"-test.run", "^" + s.name + "$"} }

// run runs the test program with limited memory (6 GiB).
func (t *suite) run(
	ctx context.Context, program string, env []string, most time.Duration, args ...string,
) ([]byte, error) {
	return runWith(ctx, t.pkg.Dir, env, most, "sh",
		append([]string{"-c", `ulimit -v 6291456; exec "$@"`, "limited", program}, args...)...)
}

// judge runs the tests with a mutant, one after the other, until one fails. The tests that reached the mutant come
// first. The other tests follow, as some reach the mutant only from time to time.
func (t *suite) judge(ctx context.Context, m *Mutant, grace time.Duration) (Outcome, error) {
	program, tests, env := t.shared, t.tests, []string(nil)
	number, ok := t.numbers[m]
	if ok {
		env = []string{"MUTANT=" + strconv.Itoa(number)}
		var reached, others []single
		for _, s := range t.tests {
			if s.reaches[number] {
				reached = append(reached, s)
			} else {
				others = append(others, s)
			}
		}
		if len(reached) == 0 {
			return Unreached, nil
		}
		tests = append(reached, others...)
	} else {
		program = filepath.Join(t.temp, "alone")
		out, err := t.build(ctx, program, map[string][]byte{m.path: m.Mutated()})
		if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
			return NotCompiling, nil
		}
		if err != nil {
			return "", fmt.Errorf("go test -c: %w\n%s", err, out)
		}
	}
	for i := range tests {
		if outcome, err := t.try(ctx, program, env, &tests[i], grace); err != nil || outcome != Survived {
			return outcome, err
		}
	}
	return Survived, nil
}

func (t *suite) try(
	ctx context.Context, program string, env []string, s *single, grace time.Duration,
) (Outcome, error) {
	for {
		patience := 3*s.took + grace
		_, err := t.run(ctx, program, env, patience, s.args()...)
		switch {
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case err == nil:
			return Survived, nil
		case !errors.Is(err, errTooLong):
			return Killed, nil
		}
		begin := time.Now()
		if out, err := t.run(ctx, t.shared, nil, 10*patience, s.args()...); err != nil {
			return "", fmt.Errorf("%s fails without a mutant: %w\n%s", s.name, err, out)
		}
		now := time.Since(begin)
		if !busy(now, s.took) {
			return Hung, nil
		}
		s.took = now
	}
}

// weave returns the texts of files with the mutants in them, so that a number switches each mutant on. The second
// result has the numbers. Mutants that do not compile in this way, or that must be constant, are left out.
func weave(ctx context.Context, root string, p pkg, mutants []*Mutant) (map[string][]byte, map[*Mutant]int, error) {
	if len(mutants) == 0 {
		return nil, nil, errors.New("there is nothing to mutate")
	}
	imports, err := exports(ctx, root, p.ImportPath)
	if err != nil {
		return nil, nil, err
	}
	fset := mutants[0].at.fset
	var files []*ast.File
	w := &weaver{info: &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}}
	sources := map[string]*source{}
	for _, m := range mutants {
		sources[m.path] = m.at
	}
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		if s := sources[path]; s != nil {
			files = append(files, s.file)
			continue
		}
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, nil, err
		}
		files = append(files, f)
	}
	check := types.Config{Importer: imports}
	if w.own, err = check.Check(p.ImportPath, fset, files, w.info); err != nil {
		return nil, nil, err
	}
	numbers := map[*Mutant]int{}
	for i, m := range mutants {
		numbers[m] = i + 1
	}
	for {
		texts := map[string][]byte{
			filepath.Join(p.Dir, "switches_of_mutants.go"): []byte(strings.Replace(switches, "package switches",
				"package "+w.own.Name(), 1)),
		}
		w.woven = map[*Mutant]int{}
		for path, s := range sources {
			w.source, w.mutants = s, map[ast.Node][]numbered{}
			for m, number := range numbers {
				if m.path == path {
					w.mutants[m.node] = append(w.mutants[m.node], numbered{m, number})
				}
			}
			for _, all := range w.mutants {
				slices.SortFunc(all, func(a, b numbered) int { return a.number - b.number })
			}
			texts[path] = []byte(w.fileText())
		}
		bad, err := compiles(p, texts, imports)
		if err != nil {
			return nil, nil, err
		}
		if len(bad) == 0 {
			return texts, w.woven, nil
		}
		maps.DeleteFunc(numbers, func(_ *Mutant, number int) bool { return bad[number] })
	}
}

// exports returns an importer of the packages that the package path needs, from the build cache.
func exports(ctx context.Context, root, path string) (types.Importer, error) {
	out, err := run(ctx, root, 10*time.Minute, "go", "list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}",
		path, "cmp", "fmt", "os", "strconv", "sync/atomic") // the others are those of the switches
	if err != nil {
		return nil, fmt.Errorf("go list -export: %w\n%s", err, out)
	}
	where := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		name, file, _ := strings.Cut(lines.Text(), "\t")
		where[name] = file
	}
	return importer.ForCompiler(token.NewFileSet(), "gc", func(name string) (io.ReadCloser, error) {
		if where[name] == "" {
			return nil, fmt.Errorf("no export data of %s", name)
		}
		return os.Open(where[name])
	}), nil
}

var switchNumber = regexp.MustCompile(`\bmutant[A-Z]?[A-Za-z]*\(([0-9]+)`)

// compiles type-checks the files in texts, and returns the numbers of the mutants that are nearest to errors.
func compiles(p pkg, texts map[string][]byte, imports types.Importer) (map[int]bool, error) {
	fset := token.NewFileSet()
	var files []*ast.File
	names := slices.Sorted(maps.Keys(texts))
	for _, name := range p.GoFiles {
		if path := filepath.Join(p.Dir, name); texts[path] == nil {
			names = append(names, path)
		}
	}
	for _, path := range names {
		var src any
		if texts[path] != nil {
			src = texts[path]
		}
		f, err := parser.ParseFile(fset, path, src, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	bad := map[int]bool{}
	var strange error
	check := types.Config{Importer: imports, Error: func(err error) {
		var e types.Error
		if !errors.As(err, &e) {
			strange = err
			return
		}
		at := fset.Position(e.Pos)
		best, distance := 0, -1
		for _, found := range switchNumber.FindAllSubmatchIndex(texts[at.Filename], -1) {
			d := max(found[0]-at.Offset, at.Offset-found[0])
			if distance < 0 || d < distance {
				distance = d
				best, _ = strconv.Atoi(string(texts[at.Filename][found[2]:found[3]]))
			}
		}
		if best == 0 {
			strange = err
			return
		}
		bad[best] = true
	}}
	_, err := check.Check(p.ImportPath, fset, files, nil)
	if len(bad) == 0 && err != nil {
		return nil, errors.Join(err, strange)
	}
	return bad, nil
}

// weaver writes the text of a source file into which mutants are inserted, each behind a switch.
type weaver struct {
	*source
	info    *types.Info
	own     *types.Package
	mutants map[ast.Node][]numbered
	woven   map[*Mutant]int
	want    types.Type // of the constant expression around, if it has a type
}

type numbered struct {
	*Mutant
	number int
}

func (w *weaver) fileText() string {
	var out strings.Builder
	at := 0
	for _, d := range w.file.Decls {
		begin, end := w.offset(d.Pos()), w.offset(d.End())
		out.Write(w.src[at:begin])
		out.WriteString(w.node(d))
		at = end
	}
	out.Write(w.src[at:])
	return out.String()
}

// node returns the text of a node, with the mutants of the node and of its children.
func (w *weaver) node(n ast.Node) string {
	switch x := n.(type) {
	case *ast.GenDecl:
		if x.Tok == token.CONST {
			return w.text(n)
		}
	case *ast.ArrayType: // its length is constant
		return w.text(n)
	case *ast.FuncDecl:
		if x.Body == nil {
			return w.text(n)
		}
		return string(w.src[w.offset(x.Pos()):w.offset(x.Body.Pos())]) + w.node(x.Body)
	}
	was := w.want
	switch n.(type) {
	case *ast.BinaryExpr, *ast.ParenExpr, *ast.UnaryExpr, *ast.BasicLit:
	default:
		w.want = nil
	}
	if e, ok := n.(ast.Expr); ok {
		if t := w.typed(e); t != nil {
			w.want = t
		}
	}
	defer func() { w.want = was }()
	text, others := "", w.mutants[n]
	for i, m := range others {
		if text = w.operator(n, m); text != "" {
			others = slices.Concat(others[:i], others[i+1:])
			break
		}
	}
	if text == "" {
		text = w.children(n)
	}
	for _, m := range others {
		if changed := w.around(n, m, text); changed != "" {
			text = changed
			w.woven[m.Mutant] = m.number
		}
	}
	return text
}

// typed returns the type of an expression, or nil if the expression is an untyped constant.
func (w *weaver) typed(e ast.Expr) types.Type {
	b, ok := w.info.Types[e].Type.(*types.Basic)
	if t := w.info.Types[e].Type; t != nil && (!ok || b.Info()&types.IsUntyped == 0) {
		return t
	}
	return nil
}

func (w *weaver) children(n ast.Node) string {
	var kids []ast.Node
	ast.Inspect(n, func(c ast.Node) bool {
		if c == n {
			return true
		}
		if _, comment := c.(*ast.CommentGroup); c != nil && !comment {
			kids = append(kids, c)
		}
		return false
	})
	slices.SortStableFunc(kids, func(a, b ast.Node) int { return int(a.Pos() - b.Pos()) })
	var out strings.Builder
	at := w.offset(n.Pos())
	for _, k := range kids {
		out.Write(w.src[at:w.offset(k.Pos())])
		out.WriteString(w.node(k))
		at = w.offset(k.End())
	}
	out.Write(w.src[at:w.offset(n.End())])
	return out.String()
}

// operator returns the text of an operation whose operator the mutant m changes. The result is empty if the mutant
// changes something else, or if the operation must be constant.
func (w *weaver) operator(n ast.Node, m numbered) string {
	text := ""
	switch x := n.(type) {
	case *ast.UnaryExpr:
		if m.Kind == "negif" {
			text = fmt.Sprintf("(mutant(%d) == (%s))", m.number, w.node(x.X))
		}
	case *ast.BinaryExpr:
		switch m.Kind {
		case "logic":
			text = fmt.Sprintf("(((%s) != mutant(%d) %s (%s) != mutant(%d)) != mutant(%d))", w.node(x.X), m.number, x.Op,
				w.node(x.Y), m.number, m.number)
		case "eq":
			text = fmt.Sprintf("(mutant(%d) != ((%s) %s (%s)))", m.number, w.node(x.X), x.Op, w.node(x.Y))
		case "bound":
			text = fmt.Sprintf("mutant%s(%d, %s, %s)", operatorNames[x.Op], m.number, w.node(x.X), w.node(x.Y))
		case "arith":
			text = w.arithmetic(x, m)
		}
	}
	if text != "" {
		w.woven[m.Mutant] = m.number
	}
	return text
}

var operatorNames = map[token.Token]string{
	token.LSS: "Less", token.LEQ: "AtMost", token.GTR: "Greater", token.GEQ: "AtLeast",
	token.ADD: "Add", token.SUB: "Sub", token.MUL: "Mul", token.QUO: "Quo",
	token.AND: "And", token.OR: "Or", token.SHL: "Shl", token.SHR: "Shr",
}

func (w *weaver) arithmetic(x *ast.BinaryExpr, m numbered) string {
	shift := x.Op == token.SHL || x.Op == token.SHR
	name := "mutant" + operatorNames[x.Op]
	if w.info.Types[x].Value == nil && !shift {
		return fmt.Sprintf("%s(%d, %s, %s)", name, m.number, w.node(x.X), w.node(x.Y))
	}
	if w.want == nil {
		return ""
	}
	t := w.typeText(w.want)
	if shift {
		return fmt.Sprintf("%s(%s(%d, %s(%s), %s))", t, name, m.number, t, w.node(x.X), w.node(x.Y))
	}
	return fmt.Sprintf("%s(%s(%d, %s(%s), %s(%s)))", t, name, m.number, t, w.node(x.X), t, w.node(x.Y))
}

func (w *weaver) typeText(t types.Type) string {
	return types.TypeString(t, func(p *types.Package) string {
		if p == w.own {
			return ""
		}
		return p.Name()
	})
}

// around returns the text of a node with the mutant m around it. The result is empty if that is not possible.
func (w *weaver) around(n ast.Node, m numbered, text string) string {
	switch m.Kind {
	case "call", "assign", "defer", "branch":
		return fmt.Sprintf("if !mutant(%d) { %s }", m.number, text)
	case "guard", "errguard":
		return fmt.Sprintf("(!mutant(%d) && (%s))", m.number, text)
	case "case":
		if _, whole := n.(*ast.CaseClause); !whole {
			return fmt.Sprintf("!mutant(%d) && (%s)", m.number, text)
		}
	case "negif":
		return fmt.Sprintf("(mutant(%d) != (%s))", m.number, text)
	case "retnil":
		return fmt.Sprintf("{ if mutant(%d) { %s }; %s }", m.number, m.To, text)
	case "bool":
		if m.From == "true" {
			return fmt.Sprintf("(!mutant(%d))", m.number)
		}
		return fmt.Sprintf("mutant(%d)", m.number)
	case "int":
		if w.want != nil {
			t := w.typeText(w.want)
			return fmt.Sprintf("mutantPick(%d, %s(%s), %s(%s))", m.number, t, text, t, m.text)
		}
		return fmt.Sprintf("mutantPick(%d, %s, %s)", m.number, text, m.text)
	}
	return ""
}
