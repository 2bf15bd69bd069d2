// Package settings reads the settings file, a YAML file with values of flags for the programs listd and rebalancer.
package settings

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

// File is the path of a settings file, which is a YAML file with values of flags. An environment variable overrides a
// value in the file. A setting that belongs to no flag is an error.
type File string

// maxBytes is the largest size of a settings file, in bytes.
const maxBytes = 1 << 20

// BeforeResolve reads the settings file. The command-line parser kong calls BeforeResolve before it sets the flags.
func (f File) BeforeResolve(ctx *kong.Context, trace *kong.Path) error {
	name := string(ctx.FlagValue(trace.Flag).(File))
	s, err := read(kong.ExpandPath(name))
	if err == nil {
		s.name = name
		err = s.checkNames()
	}
	if err != nil {
		return fmt.Errorf("--config (EVENKEEL_CONFIG) %s: %w", name, err)
	}
	ctx.AddResolver(s)
	return nil
}

// file is the content of a settings file. It is a kong.Resolver, by which the command-line parser kong gets the values
// of flags.
type file struct {
	name   string
	values map[string]any
}

func read(name string) (*file, error) {
	info, err := os.Stat(name)
	if err == nil && info.Size() > maxBytes {
		err = fmt.Errorf("it has more than %d bytes", maxBytes)
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(name)
	}
	if path, ok := errors.AsType[*os.PathError](err); ok {
		err = path.Err
	}
	if err != nil {
		return nil, err
	}
	f := &file{}
	if err := yaml.Unmarshal(data, &f.values); err != nil {
		return nil, fmt.Errorf("it is not YAML with settings, such as `log-level: warn`: %w", err)
	}
	return f, nil
}

// Resolve returns the value of a flag in the settings file. A value in the section of the flag's command comes before
// one outside of sections. The result is nil if
//   - the file has no value for the flag,
//   - an environment variable sets the flag, or
//   - no environment variable can set the flag, e.g. --yes: such a flag can only be given on the command line.
func (f *file) Resolve(_ *kong.Context, parent *kong.Path, flag *kong.Flag) (any, error) {
	if len(flag.Envs) == 0 {
		return nil, nil
	}
	for _, env := range flag.Envs {
		if _, set := os.LookupEnv(env); set {
			return nil, nil
		}
	}
	var path []string
	for n := parent.Node(); n != nil && n.Type != kong.ApplicationNode; n = n.Parent {
		path = append(path, n.Name)
	}
	slices.Reverse(path)
	for ; ; path = path[:len(path)-1] {
		v := find(f.values, strings.Split(strings.Join(append(slices.Clone(path), flag.Name), "-"), "-"))
		_, section := v.(map[string]any)
		if v != nil && (!section || flag.IsMap()) {
			return v, f.check(flag, v)
		}
		if len(path) == 0 {
			return nil, nil
		}
	}
}

// find returns the value at a path of names in nested sections of a settings file, or nil if the path has no value. A
// name in the file may join several names of the path by hyphens. For example, the path a b c may be written as a: {b:
// {c: …}}, a-b: {c: …}, a: {b-c: …} or a-b-c: ….
func find(section map[string]any, path []string) any {
	for i := 1; i < len(path); i++ {
		if below, ok := section[strings.Join(path[:i], "-")].(map[string]any); ok {
			if v := find(below, path[i:]); v != nil {
				return v
			}
		}
	}
	return section[strings.Join(path, "-")]
}

// check returns an error if v, the value of a flag in the settings file, is not valid for the flag. The error names the
// settings file.
func (f *file) check(flag *kong.Flag, v any) error {
	target := reflect.New(flag.Target.Type()).Elem()
	err := flag.Parse(kong.Scan().PushTyped(v, kong.FlagValueToken), target)
	if inner := errors.Unwrap(err); inner != nil {
		err = inner // leaves out the flag, which the caller names
	}
	if err == nil && flag.Enum != "" && !slices.Contains(flag.EnumSlice(), fmt.Sprint(v)) {
		err = fmt.Errorf("it is one of %s, not %v", strings.Join(flag.EnumSlice(), ", "), v)
	}
	if err != nil {
		return fmt.Errorf("in the settings file %s: %w", f.name, err)
	}
	return nil
}

// listd and rebalancer are the names of all settings of the two programs, as the texts of embedded files. Each line has
// the name of a command and the name of one flag. Tests of the programs write these files.
var (
	//go:embed listd.txt
	listd string
	//go:embed rebalancer.txt
	rebalancer string
)

// known returns the sets of names that a settings file may have: the names of sections, and the names of settings. The
// name of a setting may begin with the names of its sections, joined by hyphens, as in a-b-c. All beginnings before a
// hyphen, here a and a-b, are names of sections.
func known() (sections, settings map[string]bool) {
	sections, settings = map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(listd + rebalancer) {
		path := strings.Fields(line)
		for n := range path {
			name := strings.Join(append(slices.Clone(path[:n]), path[len(path)-1]), "-")
			settings[name] = true
			for i := range len(name) {
				sections[name[:i]] = sections[name[:i]] || name[i] == '-'
			}
		}
	}
	return sections, settings
}

// Validate implements kong.Resolver, and does nothing, as BeforeResolve has already checked the names of all settings.
func (*file) Validate(*kong.Application) error { return nil }

// checkNames returns an error if the settings file has a setting that no flag of listd or rebalancer has.
func (f *file) checkNames() error {
	sections, settings := known()
	var unknown []string
	var check func(m map[string]any, path string)
	check = func(m map[string]any, path string) {
		for name, value := range m {
			joined := strings.TrimPrefix(path+"-"+name, "-")
			section, ok := value.(map[string]any)
			switch {
			case ok && sections[joined]:
				check(section, joined)
			case !settings[joined]:
				unknown = append(unknown, joined)
			}
		}
	}
	check(f.values, "")
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return fmt.Errorf("it has settings that don't exist: %s; commands are sections, and flags settings: "+
			"see `listd --help` and `rebalancer --help`", strings.Join(unknown, ", "))
	}
	return nil
}
