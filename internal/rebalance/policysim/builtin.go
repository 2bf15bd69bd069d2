package policysim

import (
	"bytes"
	"embed"
	"strings"
)

//go:embed scenarios/*.yaml
var files embed.FS

// Names returns the names of the built-in scenarios, which are descriptions of simulations. Builtin returns the
// scenario of a name.
func Names() (names []string) {
	entries, err := files.ReadDir("scenarios")
	if err != nil {
		panic(err) // it is embedded
	}
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

// Builtin returns the built-in scenario with the given name, which is one of those that Names returns. The boolean
// result is false if no scenario has the name.
func Builtin(name string) (*Scenario, bool, error) {
	data, err := files.ReadFile("scenarios/" + name + ".yaml")
	if err != nil {
		return nil, false, nil
	}
	s, err := Read(bytes.NewReader(data))
	return s, true, err
}
