package daemon

import (
	"reflect"

	"github.com/alecthomas/kong"
)

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
