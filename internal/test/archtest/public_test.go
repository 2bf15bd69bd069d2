package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mostNames bounds what a stranger has to read: the number of exported functions, types, methods, constants and
// variables of all public packages. It goes down only; the aim is 450.
const mostNames = 674

// public reports whether programs outside of this module can and should import the package name. Commands, measurements
// and examples are no libraries.
func public(name string) bool {
	for _, tree := range []string{"bench", "cmd", "deploy", examples} {
		if strings.HasPrefix(name, tree+"/") {
			return false
		}
	}
	return !strings.HasPrefix(name, "internal/") && !strings.Contains(name, "/internal/")
}

// face is what a package shows to others: its exported names, and what is wrong with them.
type face struct {
	names      []string
	complaints []string
}

// TestThePublicFaceIsSmall holds the public packages to a number of exported names that a person can read, and to
// signatures that a program outside of this module can write down: a type of an internal package has no documentation
// and no name there.
func TestThePublicFaceIsSmall(t *testing.T) {
	total := 0
	var lines []string
	for name, p := range list(t) {
		if !public(name) {
			continue
		}
		var f face
		fset := token.NewFileSet()
		for _, file := range p.GoFiles {
			parsed, err := parser.ParseFile(fset, filepath.Join(p.Dir, file), nil, 0)
			require.NoError(t, err)
			f.add(fset, parsed)
		}
		for _, complaint := range f.complaints {
			t.Error(complaint)
		}
		total += len(f.names)
		lines = append(lines, fmt.Sprintf("%4d %s", len(f.names), name))
	}
	slices.Sort(lines)
	t.Logf("exported names by package:\n%s", strings.Join(lines, "\n"))
	if total > mostNames {
		t.Errorf("the public packages export %d names, more than %d", total, mostNames)
	}
}

// add adds what the file f of a public package shows.
func (c *face) add(fset *token.FileSet, f *ast.File) {
	hidden := map[string]bool{} // names of imported internal packages in this file
	for _, spec := range f.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil || !strings.Contains(path, "/internal/") {
			continue
		}
		local := path[strings.LastIndex(path, "/")+1:]
		if spec.Name != nil {
			local = spec.Name.Name
		}
		hidden[local] = true
	}
	// check complains about types of internal packages below the node n, except in what is not exported.
	check := func(name string, n ast.Node) {
		if n == nil {
			return
		}
		ast.Inspect(n, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if pkg, ok := sel.X.(*ast.Ident); ok && hidden[pkg.Name] {
					c.complaints = append(c.complaints, fmt.Sprintf("%s: %s shows %s.%s, a type of an internal package",
						fset.Position(sel.Pos()), name, pkg.Name, sel.Sel.Name))
				}
			}
			return true
		})
	}
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if !d.Name.IsExported() {
				continue
			}
			if d.Recv != nil {
				on := receiver(d.Recv.List[0].Type)
				if !ast.IsExported(on) {
					continue
				}
				name = on + "." + name
			}
			c.names = append(c.names, name)
			check(name, d.Type)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					if !s.Name.IsExported() {
						continue
					}
					c.names = append(c.names, s.Name.Name)
					c.checkType(s, check)
				case *ast.ValueSpec:
					for _, name := range s.Names {
						if name.IsExported() {
							c.names = append(c.names, name.Name)
							if s.Type != nil {
								check(name.Name, s.Type)
							}
						}
					}
				}
			}
		}
	}
}

// checkType checks an exported type: of a struct only the exported and embedded fields.
func (c *face) checkType(s *ast.TypeSpec, check func(string, ast.Node)) {
	fields, ok := s.Type.(*ast.StructType)
	if !ok {
		check(s.Name.Name, s.Type)
		return
	}
	for _, field := range fields.Fields.List {
		if len(field.Names) == 0 || slices.ContainsFunc(field.Names, (*ast.Ident).IsExported) {
			check(s.Name.Name, field.Type)
		}
	}
}

// receiver returns the name of the type of a method.
func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.IndexListExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return ""
}
