package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/cassandraflags"
	"github.com/evenkeel/evenkeel/internal/assembly"
	"github.com/evenkeel/evenkeel/internal/mapclient"
	"github.com/evenkeel/evenkeel/internal/processes"
	"github.com/evenkeel/evenkeel/internal/rebalance/pause"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// schemaReplicateCmd is the command that changes how many copies of the rows each data centre has.
type schemaReplicateCmd struct {
	cassandraflags.Flags `group:"Cassandra:"`
	replicationFlag
	Lost string `placeholder:"DC" help:"Data centre that the change removes, and whose nodes are all gone for good."`
	Yes  bool   `short:"y" env:"-" help:"Do not ask."`
}

// Help returns the detailed help text of the command schema replicate, which --help prints.
func (schemaReplicateCmd) Help() string {
	return `Changes the copies of a keyspace: adds a data centre, removes one, or changes the copies in one of them by
one. A plain ALTER KEYSPACE may take maps and names back to older ones: a quorum of the new replicas need not know
what a quorum of the old ones has decided. This command first brings every replica to know all of them.

Moves have to be paused, and nobody may create or delete buckets meanwhile. Processes in a data centre that is removed
have to be ended before; it names those that are listed. All nodes have to be up, except those of a --lost data centre.

A data centre that is added is marked as filling, and no server starts there before
` + "`rebalancer schema filled`" + `. If the command is interrupted, repeat it. docs/nodes.md has all the steps.

Examples:

    rebalancer pause --wait --why 'dc2 is added'
    rebalancer schema replicate --cassandra 10.0.0.1 --local-dc dc1 --replication dc1=3,dc2=3
    rebalancer schema replicate --cassandra 10.0.0.1 --local-dc dc1 --replication dc1=3 --lost dc2`
}

// quietWait is the time limit of the check that no range moves, before the number of copies changes. The limit can be
// short, as the operator has run pause --wait before.
const quietWait = 30 * time.Second

// Run changes how many copies of the rows each data centre has, and prints the next steps for the operator.
func (c *schemaReplicateCmd) Run(ctx context.Context, std stdio) error {
	if !c.Yes && !terminal(std.in) {
		return usageError("nobody can be asked here: --yes changes the copies all the same")
	}
	return onCassandra(ctx, &c.Flags, func(db *assembly.DB, s replicated) error {
		now, err := s.Replication(ctx)
		if err != nil {
			return err
		}
		// While a data centre is lost nothing moves, as changes of maps have to be acknowledged in all data centres.
		if c.Lost == "" {
			if err := c.quiet(ctx, std, db, now); err != nil {
				return err
			}
		}
		if !c.Yes {
			fmt.Fprintf(std.out, "keyspace %s: %s copies become %s\n", c.Keyspace, copies(now), copies(c.Replication))
			if err := confirm(std, "Change?"); err != nil {
				return err
			}
		}
		registers, err := s.Replicate(ctx, c.Replication, c.Lost)
		if err != nil {
			return err
		}
		return c.tell(std, now, registers)
	})
}

// quiet returns nil if the numbers of copies may change: moves are paused, no range moves, and no process runs in a
// data centre that is removed. The parameter `now` is the current number of copies in each data centre.
func (c *schemaReplicateCmd) quiet(
	ctx context.Context, std stdio, db *assembly.DB, now cassandrastore.Replication,
) error {
	limited, stop := context.WithTimeout(ctx, quietWait)
	defer stop()
	if err := pause.Quiet(limited, db.Store, mapclient.Of(db.Client), nil, std.now, nil); err != nil {
		return fmt.Errorf("%w: run `rebalancer pause --wait` before", err)
	}
	all, err := processes.List(ctx, db.Store)
	if err != nil {
		return err
	}
	var left []string
	for i := range all {
		p := &all[i]
		if now[p.DataCentre] != 0 && c.Replication[p.DataCentre] == 0 && std.now().Sub(p.Seen) < processes.Silent {
			left = append(left, text(p.Name)+" in "+text(p.DataCentre))
		}
	}
	if len(left) > 0 {
		return refused("these processes would have no copies in their data centre: %s. End them, and repeat this; one "+
			"that was killed is left out %v after it was last seen", strings.Join(left, ", "), processes.Silent)
	}
	return nil
}

// tell prints that the numbers of copies have changed, and the next steps for the operator. The parameter `now` has the
// numbers before the change. registers is the number of records, such as maps of buckets, that were brought to all
// copies.
func (c *schemaReplicateCmd) tell(std stdio, now cassandrastore.Replication, registers int) error {
	w := &failing{w: std.out}
	w.printf("%s has %s copies; every one of them knows all %s names and maps\n", c.Keyspace, copies(c.Replication),
		commas(int64(registers)))
	for name, n := range c.Replication {
		switch was := now[name]; {
		case was == n || n == 0:
		case was == 0:
			w.printf("now run on each node of %s: nodetool rebuild -ks %s -- %s\nthen: rebalancer schema filled %s\n",
				name, c.Keyspace, c.LocalDC, name)
		default:
			w.printf("now run on each node of %s, before any other change: nodetool repair --full %s\n", name, c.Keyspace)
		}
	}
	return w.err
}

// copies returns the number of copies in each data centre, as text in the form of the flag --replication: dc1=3,dc2=3.
func copies(r cassandrastore.Replication) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(r)) {
		if r[name] != 0 {
			all = append(all, fmt.Sprintf("%s=%d", name, r[name]))
		}
	}
	return strings.Join(all, ",")
}

// replicated has the methods of the Cassandra store that change how many copies of the rows each data centre has. Only
// these commands may call them, so that they are not among the methods of cassandrastore.Store.
type replicated interface {
	Replication(ctx context.Context) (cassandrastore.Replication, error)
	Replicate(ctx context.Context, wanted cassandrastore.Replication, lost string) (registers int, err error)
	Filled(ctx context.Context, dataCentre string) (marked bool, err error)
}

// onCassandra opens a keyspace, calls do with the open database and its Cassandra store, and closes the keyspace.
func onCassandra(
	ctx context.Context, f *cassandraflags.Flags, do func(*assembly.DB, replicated) error,
) (err error) {
	db, err := openKeyspace(ctx, f, terms{}, nil, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	s, ok := db.Store.(replicated)
	if !ok {
		return errors.New("the keyspace is opened by something else than the Cassandra store: this is a bug")
	}
	return do(db, s)
}

// schemaFilledCmd is the command by which an operator says that a new data centre has all its copies of the rows. From
// then on servers may start in the new data centre.
type schemaFilledCmd struct {
	cassandraflags.Flags `group:"Cassandra:"`
	Filled               string `arg:"" name:"dc" help:"Data centre that has been added, and whose nodes have been rebuilt."`
}

// Help returns the detailed help text of the command schema filled, which --help prints.
func (schemaFilledCmd) Help() string {
	return `Says that a data centre has its copies: that nodetool rebuild has succeeded on each of its nodes. Only
you can know: a node can't be asked for rows that it lacks. Servers may start there from then on.

Example:

    rebalancer schema filled dc2 --cassandra 10.0.0.1 --local-dc dc1`
}

// Run records that a new data centre has all its copies of the rows. It removes the mark "filling" of the data centre,
// which keeps servers from starting in the data centre.
func (c *schemaFilledCmd) Run(ctx context.Context, std stdio) error {
	return onCassandra(ctx, &c.Flags, func(_ *assembly.DB, s replicated) error {
		marked, err := s.Filled(ctx, c.Filled)
		if err == nil && !marked {
			err = daemon.Exit(daemon.ExitFailed, fmt.Errorf("the data centre %s is not marked as filling", c.Filled))
		}
		if err == nil {
			_, err = fmt.Fprintf(std.out, "%s has its copies: servers may start there\n", c.Filled)
		}
		return err
	})
}
