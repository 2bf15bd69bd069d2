package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
	"github.com/evenkeel/evenkeel/cmd/internal/daemon/cassandraflags"
	"github.com/evenkeel/evenkeel/internal/rebalance/pause"
	"github.com/evenkeel/evenkeel/store/cassandrastore"
)

// schemaReplicateCmd changes how many copies each data centre keeps.
type schemaReplicateCmd struct {
	cassandraflags.Flags `group:"Cassandra:"`
	replicationFlag
	Lost string `placeholder:"DC" help:"Data centre that the change removes, and whose nodes are all gone for good."`
}

// Help is shown by schema replicate --help.
func (schemaReplicateCmd) Help() string {
	return `Changes the copies of a keyspace: adds a data centre, removes one, or changes the copies in one of them by
one. A plain ALTER KEYSPACE may take maps and names back to older ones: a quorum of the new replicas need not know
what a quorum of the old ones has decided. This command first brings every replica to know all of them.

Moves have to be paused, and nobody may create or delete buckets meanwhile. Servers of a data centre that is removed
have to be ended before. All nodes have to be up, except those of a --lost data centre.

A data centre that is added is marked as filling, and no server starts there before
` + "`rebalancer schema filled`" + `. If the command is interrupted, repeat it. docs/nodes.md has all the steps.

Examples:

    rebalancer pause --wait --why 'dc2 is added'
    rebalancer schema replicate --cassandra 10.0.0.1 --local-dc dc1 --replication dc1=3,dc2=3
    rebalancer schema replicate --cassandra 10.0.0.1 --local-dc dc1 --replication dc1=3 --lost dc2`
}

// quietWait is the time limit of the check that nothing moves. An earlier pause with --wait has already made sure that
// nothing moves.
const quietWait = 30 * time.Second

// Run changes the copies, and says what is to be done next.
func (c *schemaReplicateCmd) Run(ctx context.Context, std stdio) error {
	db, err := openKeyspace(ctx, &c.Flags, terms{}, nil, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	s, err := cassandraOf(db.Store)
	if err != nil {
		return err
	}
	// Without a quorum of all data centres nothing can be paused, and nothing moves.
	if c.Lost == "" {
		limited, stop := context.WithTimeout(ctx, quietWait)
		err := pause.Quiet(limited, db.Store, db.Maps(), nil, std.now, nil)
		stop()
		if err != nil {
			return fmt.Errorf("%w: run `rebalancer pause --wait` before", err)
		}
	}
	now, err := s.Replication(ctx)
	if err != nil {
		return err
	}
	registers, err := s.Replicate(ctx, c.Replication, c.Lost)
	if err != nil {
		return err
	}
	w := &failing{w: std.out}
	w.printf("%s has %s copies; every one of them knows all %s names and maps\n", c.Keyspace, c.copies(),
		commas(int64(registers)))
	for name, copies := range c.Replication {
		switch was := now[name]; {
		case was == copies || copies == 0:
		case was == 0:
			w.printf("now run on each node of %s: nodetool rebuild -ks %s -- %s\nthen: rebalancer schema filled %s\n",
				name, c.Keyspace, c.LocalDC, name)
		default:
			w.printf("now run on each node of %s, before any other change: nodetool repair --full %s\n", name, c.Keyspace)
		}
	}
	return w.err
}

// copies is the replication for people.
func (c *schemaReplicateCmd) copies() string {
	var all []string
	for name, n := range c.Replication {
		if n != 0 {
			all = append(all, fmt.Sprintf("%s=%d", name, n))
		}
	}
	return strings.Join(all, ",")
}

// schemaFilledCmd lets servers work in a data centre.
type schemaFilledCmd struct {
	cassandraflags.Flags `group:"Cassandra:"`
	Filled               string `arg:"" name:"dc" help:"Data centre that has been added, and whose nodes have been rebuilt."`
}

// Help is shown by schema filled --help.
func (schemaFilledCmd) Help() string {
	return `Says that a data centre has its copies: that nodetool rebuild has succeeded on each of its nodes. Only
you can know: a node can't be asked for rows that it lacks. Servers may start there from then on.

Example:

    rebalancer schema filled dc2 --cassandra 10.0.0.1 --local-dc dc1`
}

// Run takes the mark away.
func (c *schemaFilledCmd) Run(ctx context.Context, std stdio) error {
	db, err := openKeyspace(ctx, &c.Flags, terms{}, nil, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	s, err := cassandraOf(db.Store)
	if err != nil {
		return err
	}
	marked, err := s.Filled(ctx, c.Filled)
	if err == nil && !marked {
		err = daemon.Exit(daemon.ExitFailed, fmt.Errorf("the data centre %s is not marked as filling", c.Filled))
	}
	if err == nil {
		_, err = fmt.Fprintf(std.out, "%s has its copies: servers may start there\n", c.Filled)
	}
	return err
}

// cassandraOf returns the Cassandra store of a command.
func cassandraOf(s any) (*cassandrastore.Store, error) {
	if of, ok := s.(*cassandrastore.Store); ok {
		return of, nil
	}
	return nil, errors.New("the store is no Cassandra keyspace")
}
