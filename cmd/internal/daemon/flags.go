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

// JSON is the type of the flag --json. A command that has the flag --format also has --json, a short form of --format
// json.
type JSON bool

// AfterApply sets the flag --format to json. The command-line parser kong calls AfterApply if --json is given.
func (JSON) AfterApply(ctx *kong.Context) error {
	for _, f := range ctx.Flags() {
		if f.Name == "format" {
			f.Target.SetString("json")
		}
	}
	return nil
}

// JSONVersion is the version number in the JSON that commands print. The number grows when a field is removed or gets
// another meaning. A new field may appear without a new version.
const JSONVersion = 1

// PrintJSON prints v to w as indented JSON. If v is a JSON object, PrintJSON puts the field "version" with JSONVersion
// in front. A list gets no version.
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

// Changed returns the names of the flags whose values differ from their defaults, such as "--user". The parameter flags
// is a pointer to a struct of flags.
func Changed(flags any) (names []string) {
	defaults := reflect.New(reflect.TypeOf(flags).Elem()).Interface()
	if err := kong.ApplyDefaults(defaults); err != nil {
		panic(err) // the tags in the struct are wrong
	}
	was, is := kong.Must(defaults, kong.NoDefaultHelp()), kong.Must(flags, kong.NoDefaultHelp())
	for i, flag := range is.Model.Flags {
		value, preset := flag.Target, was.Model.Flags[i].Target
		empty := value.Kind() == reflect.Slice && value.Len()+preset.Len() == 0 // a nil slice equals an empty one
		if !empty && !reflect.DeepEqual(value.Interface(), preset.Interface()) {
			names = append(names, "--"+flag.Name)
		}
	}
	return names
}

// Input opens the file at path for reading. If path is "-", the result in reads stdin, and closing in does nothing.
// name is the name of the input for error messages: path or "standard input".
func Input(path string, stdin io.Reader) (in io.ReadCloser, name string, err error) {
	if path == "-" {
		return io.NopCloser(stdin), "standard input", nil
	}
	f, err := os.Open(path)
	return f, path, err
}
