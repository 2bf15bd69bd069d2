package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/cassandraflags"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// schemaCmd creates and checks evenkeel's tables in a Cassandra cluster.
type schemaCmd struct {
	Print  schemaPrintCmd  `cmd:"" help:"Print the schema as CQL, each option with its reason."`
	Apply  schemaApplyCmd  `cmd:"" help:"Create the keyspace and its tables where they are missing."`
	Grants schemaGrantsCmd `cmd:"" help:"Print the CQL that grants a role what servers and rebalancers need."`
	Check  schemaCheckCmd  `cmd:"" help:"Compare a live schema with the required one, and explain each difference."`
}

// Help is shown by schema --help.
func (schemaCmd) Help() string {
	return `Replication is given per data centre: --replication dc1=3,dc2=3. Data centres are named as ` + "`nodetool status`" + ` names them.

Examples:

    rebalancer schema print --replication dc1=3 > evenkeel.cql
    rebalancer schema apply --cassandra 10.0.0.1,10.0.0.2 --replication dc1=3
    rebalancer schema grants --role listd > grants.cql
    rebalancer schema check --cassandra 10.0.0.1 --format json`
}

type replicationFlag struct {
	Replication map[string]int `required:"" placeholder:"DC=COPIES" mapsep:"," help:"Copies in each data centre that keeps any."`
}

func openAdmin(ctx context.Context, f *cassandraflags.Flags) (*cassandrastore.Admin, error) {
	o, err := f.Options(nil)
	if err != nil {
		return nil, usageError("%w", err)
	}
	admin, err := cassandrastore.OpenAdmin(ctx, o)
	if err != nil {
		return nil, daemon.Exit(daemon.ExitUnusable, err)
	}
	return admin, nil
}

type schemaPrintCmd struct {
	cassandraflags.KeyspaceFlag
	replicationFlag
}

// Run prints the schema.
func (c *schemaPrintCmd) Run(std stdio) error {
	text, err := cassandrastore.PrintSchema(c.Keyspace, c.Replication)
	if err != nil {
		return usageError("%w", err)
	}
	_, err = fmt.Fprint(std.out, text)
	return err
}

type schemaGrantsCmd struct {
	cassandraflags.KeyspaceFlag
	Role string `default:"listd" help:"Role that servers and rebalancers log in as (their --user)."`
}

// Run prints the statements.
func (c *schemaGrantsCmd) Run(std stdio) error {
	text, err := cassandrastore.PrintGrants(c.Keyspace, c.Role)
	if err != nil {
		return usageError("%w", err)
	}
	_, err = fmt.Fprint(std.out, text)
	return err
}

type schemaApplyCmd struct {
	cassandraflags.Flags `group:"Cassandra:"`
	replicationFlag
}

// Run creates what is missing, then checks the whole.
func (c *schemaApplyCmd) Run(ctx context.Context, std stdio) error {
	admin, err := openAdmin(ctx, &c.Flags)
	if err != nil {
		return err
	}
	defer admin.Close()
	known, err := admin.DataCentres(ctx)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.Replication)) {
		if !slices.Contains(known, name) {
			return usageError("--replication: there is no data centre %q in this cluster: it has %s", name, strings.Join(known, ", "))
		}
	}
	if err := admin.Apply(ctx, c.Replication); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(std.out, "keyspace %s is there, with its tables\n", c.Keyspace); err != nil {
		return err
	}
	return report(ctx, admin, std, "table")
}

type schemaCheckCmd struct {
	cassandraflags.Flags `group:"Cassandra:"`
	Format               string      `default:"table" enum:"table,json" help:"Output format: table or json."`
	JSON                 daemon.JSON `name:"json" env:"-" help:"Short for --format json."`
}

// Run compares and explains.
func (c *schemaCheckCmd) Run(ctx context.Context, std stdio) error {
	admin, err := openAdmin(ctx, &c.Flags)
	if err != nil {
		return err
	}
	defer admin.Close()
	return report(ctx, admin, std, c.Format)
}

// report prints the differences; those that keep a server from starting are a failure.
func report(ctx context.Context, admin *cassandrastore.Admin, std stdio, format string) error {
	problems, err := admin.Check(ctx)
	if err != nil {
		return err
	}
	fatal := 0
	w := &failing{w: std.out}
	for _, p := range problems {
		severity := "warning"
		if p.Fatal {
			severity = "problem"
			fatal++
		}
		if format == "table" {
			w.printf("%s  %s: %s\n", severity, p.Where, p.What)
		}
	}
	switch {
	case format == "json":
		// A list in JSON, not null.
		err = json.NewEncoder(w).Encode(map[string]any{
			"version": daemon.JSONVersion, "problems": append([]cassandrastore.Problem{}, problems...),
		})
	case len(problems) == 0:
		w.printf("the schema is as it should be\n")
	}
	err = cmp.Or(err, w.err)
	if err == nil && fatal > 0 {
		err = fmt.Errorf("the schema has %d of the differences that keep evenkeel from starting", fatal)
	}
	return err
}
