package main

import (
	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/adminserver"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/cassandraflags"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/logging"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/rebalanceflags"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/shell"
	"github.com/evenkeel/evenkeel/internal/adminapi"
)

// cli is the whole command line of listd: its commands and flags, for the command-line parser kong. Every flag can also
// be set in the settings file and by an environment variable.
type cli struct {
	daemon.Flags
	Log logging.Flags `embed:"" group:"Log:"`

	Serve      serveCmd   `cmd:"" help:"Serve buckets in the S3 dialect."`
	Load       loadCmd    `cmd:"" help:"Put keys into a bucket, one per line."`
	Ls         lsCmd      `cmd:"" help:"List the keys of a bucket, in order."`
	Put        putCmd     `cmd:"" help:"Put a key with its value."`
	Get        getCmd     `cmd:"" help:"Print the value of a key."`
	Rm         rmCmd      `cmd:"" help:"Delete keys, or all keys with a prefix."`
	Cp         cpCmd      `cmd:"" help:"Copy a key with its value."`
	Bucket     bucketCmd  `cmd:"" help:"Create, delete and list buckets."`
	Backup     backupCmd  `cmd:"" help:"Copy the data directory of a running server."`
	Restore    restoreCmd `cmd:"" help:"Make a data directory of a backup."`
	ShowConfig configCmd  `cmd:"" name:"config" help:"Print the effective configuration of serve."`

	shell.Commands
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

// helpTexts returns the help texts of all flags, by their keys. The tag of a flag refers to a text by the text's key.
func helpTexts() map[string]string {
	return daemon.HelpTexts(help, adminapi.Help, adminserver.Help, cassandraflags.Help, logging.Help, rebalanceflags.Help)
}

// program returns the description of the command line of listd: its name, its help texts, and where it prints.
func program(std stdio) *daemon.Program {
	return &daemon.Program{Name: "listd", Description: description, Texts: helpTexts(), Out: std.out, Err: std.err}
}
