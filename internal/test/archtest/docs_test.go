package archtest

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const checkout = "../../.." // the root of the source tree

var (
	// quoted is one thing in backquotes, or one with names behind it: `objects/list.go` `List`, `sift`.
	quoted = regexp.MustCompile("`([^`\n]+)`((?:\\s`[A-Za-z]+`(?:,\\s`[A-Za-z]+`)*)?)")
	aName  = regexp.MustCompile("[A-Za-z]+")
	aPath  = regexp.MustCompile(`^[a-z0-9][\w.-]*(/[\w.-]+)+(:\d+)?$`)
	// commands are calls of go with the packages that they name.
	commands = regexp.MustCompile("go (?:test|run|vet|build) [^`\n]*")
	packages = regexp.MustCompile(`(?:^|\s)\./([\w./-]*)`)
	links    = regexp.MustCompile(`\]\(([^)\s]*)\)`)
	headings = regexp.MustCompile(`(?m)^#+ (.*)$`)
	fences   = regexp.MustCompile("(?ms)^ *```.*?^ *```")
)

// documents are all Markdown files of the repository, by their paths below its root.
func documents(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "bench/results/*.md"} {
		files, err := filepath.Glob(filepath.Join(checkout, pattern))
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			name, err := filepath.Rel(checkout, file)
			require.NoError(t, err)
			out[filepath.ToSlash(name)] = string(text)
		}
	}
	require.Greater(t, len(out), 10)
	return out
}

func exists(name string) bool {
	_, err := os.Stat(filepath.Join(checkout, name))
	return err == nil
}

// TestDocumentsNamePathsThatExist covers packages and files in backquotes, identifiers in backquotes right behind a Go
// file, which must occur in that file, and the packages of go commands.
func TestDocumentsNamePathsThatExist(t *testing.T) {
	entries, err := os.ReadDir(checkout)
	require.NoError(t, err)
	var top []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			top = append(top, e.Name())
		}
	}
	found := 0
	for document, text := range documents(t) {
		for _, m := range quoted.FindAllStringSubmatch(text, -1) {
			name := strings.TrimPrefix(strings.TrimSuffix(m[1], "/..."), "./")
			first, _, _ := strings.Cut(name, "/")
			if !aPath.MatchString(name) || !slices.Contains(top, first) || first == "bin" {
				continue
			}
			found++
			name, _, _ = strings.Cut(name, ":")
			if !exists(name) {
				t.Errorf("%s names `%s`, which does not exist", document, name)
			} else if m[2] != "" && path.Ext(name) == ".go" {
				code, err := os.ReadFile(filepath.Join(checkout, name))
				require.NoError(t, err)
				for _, identifier := range aName.FindAllString(m[2], -1) {
					if !regexp.MustCompile(`\b` + identifier + `\b`).Match(code) {
						t.Errorf("%s says that `%s` has `%s`: it does not", document, name, identifier)
					}
				}
			}
		}
		for _, m := range commands.FindAllStringSubmatch(text, -1) {
			for _, p := range packages.FindAllStringSubmatch(m[0], -1) {
				found++
				name := strings.TrimSuffix(p[1], "...")
				if !exists(name) {
					t.Errorf("%s has the command %q: %s does not exist", document, m[0], name)
				}
			}
		}
	}
	require.Greater(t, found, 50, "paths that documents name")
}

// TestPagesSayForWhomTheyAre: the first line below a page's title names its readers.
func TestPagesSayForWhomTheyAre(t *testing.T) {
	for document, text := range documents(t) {
		if !strings.HasPrefix(document, "docs/") || document == "docs/flags.md" { // which is generated
			continue
		}
		require.Regexp(t, `\A# [^\n]+\n\nFor (operators|users|those)\b`, text, document)
	}
}

// TestDocumentsNameTargetsOfTheMakefile covers `make x` in backquotes, and in lines of commands.
func TestDocumentsNameTargetsOfTheMakefile(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(checkout, "Makefile"))
	require.NoError(t, err)
	found := 0
	for document, page := range documents(t) {
		for _, m := range regexp.MustCompile("(?m)(?:`|^    |^\\$ |^)make ([a-z-]+)(?: |`|$)").FindAllStringSubmatch(page, -1) {
			found++
			if !regexp.MustCompile(`(?m)^` + m[1] + `:`).Match(text) {
				t.Errorf("%s names `make %s`, which is no target", document, m[1])
			}
		}
	}
	require.Greater(t, found, 20)
}

// TestArchitectureNamesThePackages: docs/architecture.md has every package of the product,
// alone or below a path that ends in "...", and no others below internal/rebalance.
func TestArchitectureNamesThePackages(t *testing.T) {
	text := documents(t)["docs/architecture.md"]
	names := map[string]bool{}
	for _, m := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(text, -1) {
		names[m[1]] = true
	}
	parts := map[string]bool{}
	for _, line := range layers {
		for _, name := range line {
			rest, part := strings.CutPrefix(name, "internal/rebalance/")
			if part {
				parts[path.Base(rest)] = true
			}
			covered := names[name] || part && names[path.Base(rest)]
			for at := name; !covered && at != "."; at = path.Dir(at) {
				covered = names[at+"/..."]
			}
			if !covered {
				t.Errorf("docs/architecture.md lacks the package %s", name)
			}
		}
	}
	for _, line := range regexp.MustCompile("(?m)^  - `.*").FindAllString(text, -1) {
		for _, m := range regexp.MustCompile("`([a-z]+)`").FindAllStringSubmatch(line, -1) {
			if !parts[m[1]] {
				t.Errorf("docs/architecture.md has %s, which is not in internal/rebalance", m[1])
			}
		}
	}
}

// TestArchitectureHasTheOrderOfTheLayers: the section on packages of docs/architecture.md names them line by line as
// the layers have them, with a star at the pure ones.
func TestArchitectureHasTheOrderOfTheLayers(t *testing.T) {
	_, section, _ := strings.Cut(documents(t)["docs/architecture.md"], "## Packages")
	_, section, found := strings.Cut(section, "\n\n- ")
	require.True(t, found, "the list of packages")
	section, _, _ = strings.Cut(section, "\n\n")
	level := map[string]int{}
	for i, line := range layers {
		for _, name := range line {
			level[name] = i
			if rest, part := strings.CutPrefix(name, "internal/rebalance/"); part {
				level[path.Base(rest)] = i
			}
		}
	}
	above := -1 // the lowest layer of the lines before
	for line := range strings.SplitSeq(section, "\n- ") {
		lowest := above
		for _, m := range regexp.MustCompile("`([^`\n]+)`(\\\\\\*)?").FindAllStringSubmatch(line, -1) {
			at, known := level[m[1]]
			if !known {
				continue
			}
			if at <= above {
				t.Errorf("docs/architecture.md has %s too low: it imports packages of lines above", m[1])
			}
			lowest = max(lowest, at)
			marked := m[2] != ""
			isPure := slices.ContainsFunc(pure, func(p string) bool { return p == m[1] || path.Base(p) == m[1] })
			if marked != isPure {
				t.Errorf("docs/architecture.md marks %s as pure: %v, but it is: %v", m[1], marked, isPure)
			}
		}
		above = lowest
	}
	require.Equal(t, len(layers)-1, above, "the last line")
}

// messages are texts of the programs that documents quote.
var messages = map[string][]string{
	"docs/running.md": {"neither an entry nor a marker", "and has not ended"},
	"docs/moves.md": {
		"the map is broken", "written by a newer evenkeel", "the bucket is being deleted", "more than max_rows",
		"fewer than min_rows", "learned from", "zero-padded number",
	},
	"docs/damage.md":  {"too much dead data", "acknowledge the root", "went back"},
	"docs/backup.md":  {"nothing moves", "orphan partition", "went back"},
	"docs/install.md": {"the admin token is missing or wrong"},
}

func TestMessagesInDocumentsAreThoseOfThePrograms(t *testing.T) {
	var code strings.Builder
	require.NoError(t, filepath.WalkDir(checkout, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "bench", "test", "testdata"}, d.Name()):
			return filepath.SkipDir
		case filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(name)
		code.Write(text)
		return err
	}))
	all := documents(t)
	for document, texts := range messages {
		for _, text := range texts {
			if !strings.Contains(all[document], text) {
				t.Errorf("%s no longer quotes %q: strike it from this list", document, text)
			}
			if !strings.Contains(code.String(), text) {
				t.Errorf("%s quotes %q: no program prints it", document, text)
			}
		}
	}
}

// TestMetricsInDocumentsExist: flags.md, which is generated, has them all.
func TestMetricsInDocumentsExist(t *testing.T) {
	all, found := documents(t), 0
	for document, text := range all {
		for _, name := range regexp.MustCompile(`\bevenkeel_[a-z0-9_]+`).FindAllString(text, -1) {
			found++
			if !strings.Contains(all["docs/flags.md"], "`"+strings.TrimSuffix(name, "_bucket")+"`") {
				t.Errorf("%s names the metric %s: there is none", document, name)
			}
		}
	}
	require.Greater(t, found, 50)
}

// TestLinksOfDocumentsLead checks links within the repository, headings included.
func TestLinksOfDocumentsLead(t *testing.T) {
	all := documents(t)
	for document, text := range all {
		for _, m := range links.FindAllStringSubmatch(fences.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, heading, _ := strings.Cut(m[1], "#")
			to := document
			if file != "" {
				to = path.Join(path.Dir(document), file)
			}
			if !exists(to) {
				t.Errorf("%s links to %s, which does not exist", document, m[1])
			} else if heading != "" && !slices.Contains(anchors(all[to]), heading) {
				t.Errorf("%s links to %s: there is no such heading", document, m[1])
			}
		}
	}
}

// anchors are the headings of a document as links name them: in lower case, blanks as
// hyphens, without punctuation.
func anchors(text string) (out []string) {
	for _, m := range headings.FindAllStringSubmatch(fences.ReplaceAllString(text, ""), -1) {
		heading := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(m[1]), "")
		out = append(out, strings.ReplaceAll(heading, " ", "-"))
	}
	return out
}
