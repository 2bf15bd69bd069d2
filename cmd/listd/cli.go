package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	kongyaml "github.com/alecthomas/kong-yaml"
	"gopkg.in/yaml.v3"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/logging"
)

// cli is the whole command line. Every flag is also a setting of the
// configuration file and an environment variable.
type cli struct {
	Config  kong.ConfigFlag  `placeholder:"FILE" env:"EVENKEEL_CONFIG" help:"Read settings from this YAML file (sections are named like commands, settings like flags)."`
	Log     logging.Flags    `embed:""`
	Version kong.VersionFlag `help:"Print the version." env:"-"`

	Serve      serveCmd   `cmd:"" help:"Serve buckets in the S3 dialect."`
	Load       loadCmd    `cmd:"" help:"Put keys into a bucket, one per line."`
	Ls         lsCmd      `cmd:"" help:"List the keys of a bucket, in order."`
	Bucket     bucketCmd  `cmd:"" help:"Create, delete and list buckets."`
	Backup     backupCmd  `cmd:"" help:"Copy the data directory of a running server."`
	Restore    restoreCmd `cmd:"" help:"Make a data directory of a backup."`
	ShowConfig configCmd  `cmd:"" name:"config" help:"Print the effective configuration of serve."`
}

const description = `listd keeps sorted listings of any size and serves them in the S3 dialect.

Begin like this:

  listd serve                           # in one terminal: S3 on http://127.0.0.1:9000
  find /usr | listd load files --create # in another: one key per line
  listd ls files --prefix /usr/share/ --delimiter /
  aws s3api list-objects-v2 --no-sign-request --endpoint-url http://127.0.0.1:9000 --bucket files

A setting is taken from the flags, else from the environment (EVENKEEL_ and the
flag's name), else from the file that --config names. Keys in flags and in files of
cuts are UTF-8 with \xNN for any other byte and \\ for a backslash.

Exit codes: 0 done; 1 failed; 2 bad flags or configuration; 3 the data directory
can't be used (held by another process, foreign, damaged, no access) or the Cassandra
keyspace can't (no node answers, login refused, schema missing or wrong); 4 done, but some lines were bad or refused.`

// program is listd's frame.
func program(std stdio) *daemon.Program {
	return &daemon.Program{
		Name: "listd", Description: description, Out: std.out, Err: std.err,
		Options: []kong.Option{
			kong.DefaultEnvars("EVENKEEL"),
			kong.Vars{"version": daemon.Version()},
			kong.Configuration(loadSettings),
		},
	}
}

// settings is a configuration file: kong-yaml's resolver, but the environment has priority,
// and unknown names are errors.
type settings struct {
	kong.Resolver
	names map[string]any
}

func loadSettings(r io.Reader) (kong.Resolver, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	resolver, err := kongyaml.Loader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	s := settings{Resolver: resolver, names: map[string]any{}}
	if err := yaml.Unmarshal(data, &s.names); err != nil {
		return nil, err
	}
	return s, nil
}

// Resolve leaves flags that the environment sets to kong.
func (s settings) Resolve(k *kong.Context, parent *kong.Path, flag *kong.Flag) (any, error) {
	for _, env := range flag.Envs {
		if _, set := os.LookupEnv(env); set {
			return nil, nil
		}
	}
	return s.Resolver.Resolve(k, parent, flag)
}

// Validate refuses unknown settings.
func (s settings) Validate(app *kong.Application) error {
	known := map[string]bool{}
	var visit func(n *kong.Node, path string)
	visit = func(n *kong.Node, path string) {
		for _, f := range n.Flags {
			known[strings.TrimPrefix(path+"-"+f.Name, "-")] = true
		}
		for _, child := range n.Children {
			visit(child, strings.TrimPrefix(path+"-"+child.Name, "-"))
		}
	}
	visit(app.Node, "")
	var unknown []string
	var check func(m map[string]any, path string)
	check = func(m map[string]any, path string) {
		for name, value := range m {
			name = strings.TrimPrefix(path+"-"+name, "-")
			if section, ok := value.(map[string]any); ok {
				check(section, name)
			} else if !known[name] {
				unknown = append(unknown, name)
			}
		}
	}
	check(s.names, "")
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return fmt.Errorf("the configuration file has settings that don't exist: %s", strings.Join(unknown, ", "))
	}
	return nil
}
