package daemon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"

	"github.com/alecthomas/kong"
)

// JSON is the flag --json of commands with a flag --format.
type JSON bool

// AfterApply sets --format; see kong.AfterApply.
func (JSON) AfterApply(ctx *kong.Context) error {
	for _, f := range ctx.Flags() {
		if f.Name == "format" {
			f.Target.SetString("json")
		}
	}
	return nil
}

// JSONVersion is that of what commands print as JSON. It grows when a field goes or changes its
// meaning; new fields may come without.
const JSONVersion = 1

// PrintJSON prints an object with the version, or a list without.
func PrintJSON(w io.Writer, v any) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err
	}
	out := text.Bytes()
	if fields, object := bytes.CutPrefix(out, []byte("{\n")); object {
		out = append(fmt.Appendf(nil, "{\n  \"version\": %d,\n", JSONVersion), fields...)
	}
	_, err := w.Write(out)
	return err
}

// Changed returns the names of the flags in a struct, given by its pointer, that do not have
// their default.
func Changed(flags any) (names []string) {
	defaults := reflect.New(reflect.TypeOf(flags).Elem()).Interface()
	if err := kong.ApplyDefaults(defaults); err != nil {
		panic(err) // tags are wrong
	}
	was, is := kong.Must(defaults, kong.NoDefaultHelp()), kong.Must(flags, kong.NoDefaultHelp())
	for i, flag := range is.Model.Flags {
		value, preset := flag.Target, was.Model.Flags[i].Target
		empty := value.Kind() == reflect.Slice && value.Len()+preset.Len() == 0 // nil or not
		if !empty && !reflect.DeepEqual(value.Interface(), preset.Interface()) {
			names = append(names, "--"+flag.Name)
		}
	}
	return names
}

// Input opens a file, or for - standard input, and returns its name for people.
func Input(path string, stdin io.Reader) (in io.ReadCloser, name string, err error) {
	if path == "-" {
		return io.NopCloser(stdin), "standard input", nil
	}
	f, err := os.Open(path)
	return f, path, err
}
