package main

import (
	"fmt"
	"os"
	"reflect"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/secrecy"
)

type configCmd struct {
	Args []string `arg:"" optional:"" passthrough:"" name:"flags" help:"Flags of serve."`
}

func (*configCmd) Help() string {
	return `Prints the settings that serve would use, and the origin of each, as a file for
--config.

Examples:

  listd config
  listd config --listen 127.0.0.1:9100
  EVENKEEL_DATA=/srv/evenkeel listd --config /etc/listd.yaml config > effective.yaml`
}

func (c *configCmd) Run(outer *cli, std stdio) error {
	args := append([]string{"serve"}, c.Args...)
	if outer.Config != "" {
		args = append([]string{"--config", string(outer.Config)}, args...)
	}
	parser, err := program(std).Parser(&cli{})
	if err != nil {
		return daemon.Exit(daemon.ExitUsage, err)
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		return daemon.Exit(daemon.ExitUsage, err)
	}
	return printSettings(std, parsed)
}

func printSettings(std stdio, parsed *kong.Context) error {
	var doc yaml.Node
	doc.Kind = yaml.MappingNode
	at := &doc
	for _, p := range parsed.Path {
		node := p.Node()
		if p.Flag != nil || node == nil {
			continue
		}
		if node.Type == kong.CommandNode {
			section := &yaml.Node{Kind: yaml.MappingNode}
			at.Content = append(at.Content, scalar(node.Name), section)
			at = section
		}
		for _, f := range node.Flags {
			// A flag that no environment variable can set, such as --bodies-new, cannot be set by a file either.
			if f.Name == "config" || len(f.Envs) == 0 {
				continue
			}
			value, err := settingValue(f)
			if err != nil {
				return err
			}
			value.LineComment = origin(parsed, f)
			at.Content = append(at.Content, scalar(f.Name), value)
		}
	}
	out := yaml.NewEncoder(std.out)
	out.SetIndent(2)
	if err := out.Encode(&doc); err != nil {
		return fmt.Errorf("print the configuration: %w", err)
	}
	return out.Close()
}

func scalar(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	return n
}

// settingValue returns the value of a flag in the format of the settings file. A placeholder replaces a secret value.
func settingValue(f *kong.Flag) (*yaml.Node, error) {
	if hide := secrecy.Flags[f.Name]; hide != nil && f.Target.String() != "" {
		return scalar(hide(f.Target.String())), nil
	}
	n := &yaml.Node{}
	if f.Target.Kind() == reflect.Pointer && f.Target.IsNil() {
		return n, n.Encode(nil)
	}
	v := f.Target.Interface()
	if s, ok := v.(fmt.Stringer); ok {
		n.SetString(s.String())
		return n, nil
	}
	return n, n.Encode(v)
}

func origin(parsed *kong.Context, f *kong.Flag) string {
	from := "default"
	for _, p := range parsed.Path {
		if p.Flag == f && !p.Resolved {
			return "flag"
		}
		if p.Flag == f {
			from = "file"
		}
	}
	for _, env := range f.Envs {
		if _, set := os.LookupEnv(env); set {
			return env
		}
	}
	return from
}
