package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/cassandraflags"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/processes"
	"github.com/evenkeel/evenkeel/store"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// schemaCmd is the group of commands that create, check and change evenkeel's tables in a Cassandra cluster.
type schemaCmd struct {
	Print  schemaPrintCmd  `cmd:"" help:"Print the schema as CQL, each option with its reason."`
	Apply  schemaApplyCmd  `cmd:"" help:"Create the keyspace and its tables where they are missing."`
	Grants schemaGrantsCmd `cmd:"" help:"Print the CQL that grants a role what servers and rebalancers need."`
	Check  schemaCheckCmd  `cmd:"" help:"Explain how a live schema differs from the required one; warn of late repairs."`

	Upgrade schemaUpgradeCmd `cmd:"" help:"Bring a keyspace to the newest version of the schema that this program knows."`

	Replicate schemaReplicateCmd `cmd:"" help:"Change how many copies each data centre keeps, without losing maps."`
	Filled    schemaFilledCmd    `cmd:"" help:"Let servers work in a data centre that was added, once it has its copies."`
}

// Help returns the detailed help text of the command group schema, which --help prints.
func (schemaCmd) Help() string {
	return `Replication is given per data centre: --replication dc1=3,dc2=3. Data centres are named as ` + "`nodetool status`" + ` names them.

Examples:

    rebalancer schema print --replication dc1=3 > evenkeel.cql
    rebalancer schema apply --cassandra 10.0.0.1,10.0.0.2 --replication dc1=3
    rebalancer schema grants --role listd > grants.cql
    rebalancer schema check --cassandra 10.0.0.1 --format json
    rebalancer schema upgrade --cassandra 10.0.0.1 --local-dc dc1`
}

type replicationFlag struct {
	Replication map[string]int `required:"" placeholder:"DC=COPIES" mapsep:"," help:"Copies in each data centre that keeps any."`
}

func openAdmin(ctx context.Context, f *cassandraflags.Flags) (cassandrastore.Admin, error) {
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

// Run prints the CQL statements that create the keyspace and its tables.
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

// Run prints the CQL statements that give a Cassandra role the rights that servers and rebalancers need.
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

// Run creates the keyspace and its tables where they are missing, and then prints how the whole schema differs from the
// required schema.
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
	if err := report(ctx, admin, std, "table"); err != nil {
		return err
	}
	// The first program that uses the keyspace does the same. So a failure is only mentioned.
	if err := c.version(ctx); err != nil {
		_, err = fmt.Fprintf(std.err, "rebalancer: the version of the schema is left to the first program: %v\n", err)
		return err
	}
	return nil
}

// version writes the version of the schema into a new keyspace. It connects through the data centre of --local-dc, or
// through the first data centre that has copies.
func (c *schemaApplyCmd) version(ctx context.Context) error {
	const patience = 10 * time.Second // such as while too few nodes are up
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	o, err := c.Options(nil)
	if err != nil {
		return err
	}
	o.DataCentre = cmp.Or(o.DataCentre, slices.Sorted(maps.Keys(c.Replication))[0])
	s, err := cassandrastore.Open(ctx, o)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	_, err = mapclient.AgreeOnSchema(ctx, s)
	return err
}

type schemaUpgradeCmd struct {
	cassandraflags.Flags `group:"Cassandra:"`
	DryRun               bool `help:"Only say what would be done."`
	Yes                  bool `short:"y" env:"-" help:"Do not ask."`
}

func (schemaUpgradeCmd) Help() string {
	return `Brings a keyspace to the newest version of the schema that this program knows, once all other
programs know that version, too: end or upgrade those that it names. Clients are not affected.
After an interruption repeat it; where nothing is left to do it does nothing.

Version 1 gives the keyspace a version, which programs compare with those that they know when they
start; and moves leave notes for restores, from the next start of each program on. End all programs
from before there were versions first: they are not listed, and one that takes over a move from a
newer program copies a note over an entry.

Exit codes: 0 the keyspace has the newest version; 4 a program is too old for it, or the answer
was no; 3 the keyspace can't be used, as by a program that is too old; else as always.`
}

// Run upgrades the keyspace to the newest version of the schema that this program knows. Without --yes, Run asks the
// user first.
func (c *schemaUpgradeCmd) Run(ctx context.Context, std stdio) error {
	if !c.Yes && !c.DryRun && !terminal(std.in) {
		return usageError("nobody can be asked here: --yes upgrades the keyspace all the same, " +
			"--dry-run only says what would be done")
	}
	if c.LocalDC == "" {
		return usageError("--local-dc is missing: the data centre of this process, as nodetool status shows it")
	}
	o, err := c.Options(nil)
	if err != nil {
		return usageError("%w", err)
	}
	s, err := cassandrastore.Open(ctx, o)
	if err != nil {
		return daemon.Exit(daemon.ExitUnusable, err)
	}
	defer func() { _ = s.Close() }()
	return upgradeSchema(ctx, std, s, c.Keyspace, c.DryRun, c.Yes)
}

// upgradeSchema upgrades a keyspace to the newest version of the schema. If yes is false, upgradeSchema asks the user
// first. If dryRun is true, it only prints what it would do.
func upgradeSchema(ctx context.Context, std stdio, s store.Store, keyspace string, dryRun, yes bool) error {
	t, err := mapclient.Agreed(ctx, s)
	if err != nil {
		return daemon.Exit(daemon.ExitUnusable, err)
	}
	ready := func(ctx context.Context) error { return tooOld(ctx, s, mapclient.NewestSchema) }
	if t.Schema < mapclient.NewestSchema {
		if err := ready(ctx); err != nil {
			return err
		}
		fmt.Fprintf(std.out, "keyspace %s: the schema's version becomes %v; it is %v. Programs that do not know "+
			"version %v will not start on it any more\n", keyspace, mapclient.NewestSchema, t.Schema, mapclient.NewestSchema)
		if t.Schema == mapclient.Unversioned {
			fmt.Fprintf(std.out, "Programs from before versions are not listed, and do not notice: end them first, or "+
				"entries are lost where one takes over a move from a newer program\n")
		}
		if dryRun {
			fmt.Fprintf(std.out, "nothing was done: that was a dry run\n")
			return nil
		}
		if !yes {
			if err := confirm(std, "Upgrade?"); err != nil {
				return err
			}
		}
	}
	if dryRun {
		fmt.Fprintf(std.out, "keyspace %s: the schema is of version %v, and nothing is to be done\n", keyspace, t.Schema)
		return nil
	}
	before, err := mapclient.UpgradeSchema(ctx, s, ready)
	switch {
	case store.KindOf(err) == store.InvalidArgument:
		return daemon.Exit(daemon.ExitUnusable, err)
	case err != nil:
		return err
	case before == mapclient.NewestSchema:
		fmt.Fprintf(std.out, "keyspace %s: the schema is of version %v already\n", keyspace, before)
	default:
		fmt.Fprintf(std.out, "keyspace %s: the schema is of version %v now\n", keyspace, mapclient.NewestSchema)
	}
	return nil
}

// tooOld returns an error that names the processes which do not know the schema's version v. If all processes know v,
// the result is nil. A killed process counts until processes.Gone has passed since the process was last seen.
func tooOld(ctx context.Context, s store.Rows, v mapclient.Schema) error {
	all, err := processes.List(ctx, s)
	if err != nil {
		return fmt.Errorf("which programs use the keyspace has to be known in all data centres: %w", err)
	}
	var old []string
	for i := range all {
		if p := &all[i]; p.NewestSchema < int64(v) {
			seen := p.Seen.Format(time.RFC3339)
			old = append(old, fmt.Sprintf("%s (version %s, last seen %s)", text(p.Name), text(p.Version), seen))
		}
	}
	if len(old) == 0 {
		return nil
	}
	return refused("these programs do not know version %v of the schema: %s. Upgrade or end them, and repeat this; "+
		"one that was killed is left out %v after it was last seen", v, strings.Join(old, "; "), processes.Gone)
}

type schemaCheckCmd struct {
	cassandraflags.Flags `group:"Cassandra:"`
	Format               string      `default:"table" enum:"table,json" help:"Output format: table or json."`
	JSON                 daemon.JSON `name:"json" env:"-" help:"Short for --format json."`
}

// Run compares the schema of the keyspace with the required schema, and prints the differences. Run also warns if
// repairs of the cluster's tables are late or missing.
func (c *schemaCheckCmd) Run(ctx context.Context, std stdio) error {
	admin, err := openAdmin(ctx, &c.Flags)
	if err != nil {
		return err
	}
	defer admin.Close()
	repairs, err := admin.CheckRepairs(ctx, std.now())
	if err != nil {
		return err
	}
	return report(ctx, admin, std, c.Format, repairs...)
}

// report prints how the schema of a keyspace differs from the required schema, followed by the problems in more. The
// error says that some of the problems keep servers from starting. format is table or json.
func report(
	ctx context.Context, admin cassandrastore.Admin, std stdio, format string, more ...cassandrastore.Problem,
) error {
	problems, err := admin.Check(ctx)
	if err != nil {
		return err
	}
	problems = append(problems, more...)
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
