package policysim

import (
	"bytes"
	"embed"
	"strings"
)

//go:embed scenarios/*.yaml
var files embed.FS

// Names returns the names of the scenarios (descriptions of simulations) that come with evenkeel.
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

// Builtin returns the scenario with one of the names that Names returns, and true. The bool is false if no scenario has
// this name.
func Builtin(name string) (*Scenario, bool, error) {
	data, err := files.ReadFile("scenarios/" + name + ".yaml")
	if err != nil {
		return nil, false, nil
	}
	s, err := Read(bytes.NewReader(data))
	return s, true, err
}
