package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Mutant is one small change of one file. The text of the mutant replaces src[from:to].
type Mutant struct {
	File string `json:"file"` // relative to the root of the module
	Line int    `json:"line"`
	Func string `json:"func"`
	Kind string `json:"kind"`
	From string `json:"from"`
	To   string `json:"to"`

	path     string // absolute
	src      []byte
	at       *source
	node     ast.Node // that it changes
	from, to int
	text     string
	reached  token.Position // what has to run for the mutant to matter
}

// Name returns a name that identifies the mutant in its file, whatever the line number is. equivalent.txt has these
// names.
func (m *Mutant) Name() string {
	return strings.Join(strings.Fields(fmt.Sprintf("%s %s [%s] %s => %s", m.File, m.Func, m.Kind, m.From, m.To)), " ")
}

// Mutated returns the content of the whole file with the change.
func (m *Mutant) Mutated() []byte {
	return slices.Concat(m.src[:m.from], []byte(m.text), m.src[m.to:])
}

// Diff returns the changed lines, before and after the change.
func (m *Mutant) Diff() string {
	begin := bytes.LastIndexByte(m.src[:m.from], '\n') + 1
	end := len(m.src)
	if i := bytes.IndexByte(m.src[m.to:], '\n'); i >= 0 {
		end = m.to + i
	}
	var out strings.Builder
	for _, l := range strings.Split(string(m.src[begin:end]), "\n") {
		fmt.Fprintf(&out, "-%s\n", l)
	}
	for _, l := range strings.Split(string(m.src[begin:m.from])+m.text+string(m.src[m.to:end]), "\n") {
		fmt.Fprintf(&out, "+%s\n", l)
	}
	return out.String()
}

// source is a file that is mutated, with its syntax tree.
type source struct {
	fset *token.FileSet
	file *ast.File
	src  []byte
}

func (s *source) text(n ast.Node) string {
	return string(s.src[s.offset(n.Pos()):s.offset(n.End())])
}

func (s *source) offset(p token.Pos) int { return s.fset.Position(p).Offset }

// sitesOf returns all possible mutants of the given files, in the order of the files. dir is the directory of the
// files, and root that of the module.
func sitesOf(root, dir string, files []string) ([]*Mutant, error) {
	var all []*Mutant
	fset := token.NewFileSet()
	for _, name := range files {
		path := filepath.Join(dir, name)
		src, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return nil, err
		}
		found, err := sitesIn(fset, path, filepath.ToSlash(rel), src)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func sitesIn(fset *token.FileSet, path, rel string, src []byte) ([]*Mutant, error) {
	f, err := parser.ParseFile(fset, path, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(f) {
		return nil, nil
	}
	s := &seeker{source: &source{fset, f, src}, path: path, rel: rel}
	ast.Inspect(f, s.visit)
	return s.found, nil
}

// seeker walks through the syntax tree of a file, and collects the possible mutants.
type seeker struct {
	*source
	path, rel string
	stack     []ast.Node
	found     []*Mutant
}

func (s *seeker) visit(n ast.Node) bool {
	if n == nil {
		s.stack = s.stack[:len(s.stack)-1]
		return true
	}
	if stmt, ok := n.(ast.Stmt); ok && s.listed(stmt) {
		s.statement(stmt)
	}
	switch n := n.(type) {
	case *ast.IfStmt:
		s.guard(n.Cond)
	case *ast.ReturnStmt:
		s.result(n)
	case *ast.CaseClause:
		s.clause(n)
	case *ast.BinaryExpr:
		s.binary(n)
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			s.add("negif", n, "", s.text(n.X))
		}
	case *ast.BasicLit:
		s.number(n)
	case *ast.Ident:
		if other, ok := map[string]string{"true": "false", "false": "true"}[n.Name]; ok && !s.besideError() {
			s.add("bool", n, "", other)
		}
	}
	s.stack = append(s.stack, n)
	return true
}

// add adds a mutant in which text replaces the node n. told is how the report describes the change. An empty told
// stands for the text itself.
func (s *seeker) add(kind string, n ast.Node, told, text string) *Mutant {
	if told == "" {
		told = text
	}
	at := s.fset.Position(n.Pos())
	m := &Mutant{
		File: s.rel, Line: at.Line, Func: s.function(), Kind: kind, From: s.text(n), To: told,
		path: s.path, src: s.src, from: at.Offset, to: s.offset(n.End()), text: text, reached: at, at: s.source, node: n,
	}
	s.found = append(s.found, m)
	return m
}

// function returns the name of the function around the current node, as Type.Method for a method.
func (s *seeker) function() string {
	for _, n := range s.stack {
		if f, ok := n.(*ast.FuncDecl); ok {
			if f.Recv == nil || len(f.Recv.List) == 0 {
				return f.Name.Name
			}
			t := f.Recv.List[0].Type
			for {
				switch x := t.(type) {
				case *ast.StarExpr:
					t = x.X
					continue
				case *ast.IndexExpr:
					t = x.X
					continue
				case *ast.IndexListExpr:
					t = x.X
					continue
				}
				return s.text(t) + "." + f.Name.Name
			}
		}
	}
	return "-"
}

// listed reports whether a statement is in a list of statements, where another statement can replace it.
func (s *seeker) listed(stmt ast.Stmt) bool {
	if len(s.stack) == 0 {
		return false
	}
	switch parent := s.stack[len(s.stack)-1].(type) {
	case *ast.BlockStmt:
		return true
	case *ast.CaseClause:
		return true
	case *ast.CommClause:
		return parent.Comm != stmt
	}
	return false
}

// statement adds a mutant that drops a statement. The statement becomes the body of a function that is not called, so
// that all names in the statement are still used and the file compiles.
func (s *seeker) statement(stmt ast.Stmt) {
	drop := func(kind string) { s.add(kind, stmt, "(removed)", "_ = func() { "+s.text(stmt)+" }") }
	switch x := stmt.(type) {
	case *ast.ExprStmt:
		if _, ok := x.X.(*ast.CallExpr); ok {
			drop("call")
		}
	case *ast.AssignStmt:
		if x.Tok != token.DEFINE {
			drop("assign")
		}
	case *ast.IncDecStmt, *ast.SendStmt:
		drop("assign")
	case *ast.DeferStmt, *ast.GoStmt:
		drop("defer")
	case *ast.BranchStmt:
		if x.Tok == token.BREAK || x.Tok == token.CONTINUE {
			s.add("branch", stmt, "(removed)", "{ }")
		}
	}
}

func (s *seeker) guard(cond ast.Expr) {
	kind := "guard"
	if b, ok := cond.(*ast.BinaryExpr); ok && b.Op == token.NEQ {
		x, isName := b.X.(*ast.Ident)
		y, isNil := b.Y.(*ast.Ident)
		if isName && isNil && y.Name == "nil" && strings.HasSuffix(strings.ToLower(x.Name), "err") {
			kind = "errguard"
		}
	}
	s.add(kind, cond, "false", "false && ("+s.text(cond)+")")
	switch cond.(type) {
	case *ast.BinaryExpr, *ast.UnaryExpr: // their operators are changed
	default:
		s.add("negif", cond, "", "!("+s.text(cond)+")")
	}
}

// result adds a mutant that returns nil instead of an error.
func (s *seeker) result(r *ast.ReturnStmt) {
	if !s.fails(r) {
		return
	}
	value := r.Results[len(r.Results)-1]
	var kept []string
	for _, x := range r.Results[:len(r.Results)-1] {
		kept = append(kept, s.text(x))
	}
	told := "return " + strings.Join(append(kept, "nil"), ", ")
	s.add("retnil", r, told, "{ _ = func() error { return "+s.text(value)+" }; "+told+" }")
}

// fails reports whether a return statement returns an error, or a value that may be an error.
func (s *seeker) fails(r *ast.ReturnStmt) bool {
	results := s.results()
	if len(r.Results) == 0 || results == nil || results.NumFields() != len(r.Results) {
		return false
	}
	last, ok := results.List[len(results.List)-1].Type.(*ast.Ident)
	return ok && last.Name == "error" && s.text(r.Results[len(r.Results)-1]) != "nil"
}

// besideError reports whether the current node is returned together with an error that was just found. Then the value
// means nothing. In other places the error may be nil.
func (s *seeker) besideError() bool {
	if r, ok := s.stack[len(s.stack)-1].(*ast.ReturnStmt); !ok || !s.fails(r) {
		return false
	}
	for _, n := range slices.Backward(s.stack) {
		if f, ok := n.(*ast.IfStmt); ok {
			b, ok := f.Cond.(*ast.BinaryExpr)
			return ok && b.Op == token.NEQ && s.text(b.Y) == "nil" &&
				strings.HasSuffix(strings.ToLower(s.text(b.X)), "err")
		}
	}
	return false
}

// results returns the results of the innermost function around the current node.
func (s *seeker) results() *ast.FieldList {
	for _, n := range slices.Backward(s.stack) {
		switch f := n.(type) {
		case *ast.FuncLit:
			return f.Type.Results
		case *ast.FuncDecl:
			return f.Type.Results
		}
	}
	return nil
}

func (s *seeker) clause(c *ast.CaseClause) {
	if len(c.List) == 0 || len(s.stack) < 2 {
		return
	}
	var m *Mutant
	if sw, ok := s.stack[len(s.stack)-2].(*ast.SwitchStmt); ok && sw.Tag == nil && len(c.List) == 1 {
		m = s.add("case", c.List[0], "(case removed)", "false && ("+s.text(c.List[0])+")")
	} else {
		m = s.add("case", c, "(case removed)", "")
	}
	m.From = s.text(c)
	if len(c.Body) > 0 {
		m.reached = s.fset.Position(c.Body[0].Pos())
	}
}

var operators = map[token.Token]struct {
	kind string
	to   token.Token
}{
	token.LAND: {"logic", token.LOR},
	token.LOR:  {"logic", token.LAND},
	token.EQL:  {"eq", token.NEQ},
	token.NEQ:  {"eq", token.EQL},
	token.LSS:  {"bound", token.LEQ},
	token.LEQ:  {"bound", token.LSS},
	token.GTR:  {"bound", token.GEQ},
	token.GEQ:  {"bound", token.GTR},
	token.ADD:  {"arith", token.SUB},
	token.SUB:  {"arith", token.ADD},
	token.MUL:  {"arith", token.QUO},
	token.QUO:  {"arith", token.MUL},
	token.AND:  {"arith", token.OR},
	token.OR:   {"arith", token.AND},
	token.SHL:  {"arith", token.SHR},
	token.SHR:  {"arith", token.SHL},
}

func (s *seeker) binary(b *ast.BinaryExpr) {
	if o, ok := operators[b.Op]; ok {
		x, y := s.text(b.X), s.text(b.Y)
		s.add(o.kind, b, fmt.Sprintf("%s %s %s", x, o.to, y), fmt.Sprintf("((%s) %s (%s))", x, o.to, y))
	}
}

func (s *seeker) number(l *ast.BasicLit) {
	if l.Kind != token.INT {
		return
	}
	if r, ok := s.stack[len(s.stack)-1].(*ast.ReturnStmt); ok && s.fails(r) {
		return // what comes with an error means nothing
	}
	to := l.Value + "+1"
	if l.Value == "1" {
		to = "1-1"
	}
	m := s.add("int", l, to, "("+to+")")
	// The line tells which number it is. Its comment is not part of the name: rewording a comment changes no mutant.
	begin := bytes.LastIndexByte(s.src[:m.from], '\n') + 1
	end := m.to + bytes.IndexByte(append(s.src[m.to:len(s.src):len(s.src)], '\n'), '\n')
	line, _, _ := strings.Cut(string(s.src[begin:end]), " // ")
	m.From = fmt.Sprintf("%s (column %d) in: %s", l.Value, m.from-begin-indent(s.src[begin:])+1, strings.TrimSpace(line))
}

func indent(line []byte) int { return len(line) - len(bytes.TrimLeft(line, "\t ")) }
