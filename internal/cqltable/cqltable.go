// Package cqltable declares access to Cassandra tables of other applications. An adoption copies the rows of such a
// table into a bucket, and may write changes back. Package store/cassandrastore implements the access, as only that
// package imports the driver. Package cassandrastore lies above this package, and sets Open at its start. The
// declarations are here, and not in package cassandrastore, because no program outside of this module needs them.
package cqltable

import (
	"context"

	"github.com/evenkeel/evenkeel/store"
)

// Open connects to a Cassandra cluster and returns the named tables of other applications. The parameter options is a
// cassandrastore.Options, of which the keyspace does not matter; anything else panics. Each name has the form
// "keyspace.table". The tables share a connection, and Close of any table closes the connection. Open fails with
// NotFound if a table does not exist, and otherwise like cassandrastore.OpenAdmin.
var Open func(ctx context.Context, options any, names ...string) ([]Table, error)

// Table is a Cassandra table of another application. A Table is safe for concurrent use.
type Table interface {
	Columns() Columns
	Rows
	// Close closes the connection that the table uses. All tables that one call of Open has returned share this
	// connection.
	Close()
}

// Rows has the methods of a Table that read and write rows.
type Rows interface {
	// Read returns the rows for which the query q asks, at most q.Limit. If it returns fewer rows, no more rows follow.
	// Read uses a quorum of each data centre. If replicas refuse a read because they meet too many tombstones, Read
	// reads smaller intervals of rows.
	Read(ctx context.Context, q Query) ([]Row, error)
	// Write writes changes of rows in one partition, through a quorum of each data centre. Repeating a Write is
	// harmless, since each change has its own timestamp. The parameters are:
	//   - partition: the values of the partition columns
	//   - values: the names of the columns to which Change.Values belong
	//   - asJSON: true if these values are CQL JSON, and false if they are in their wire format
	Write(ctx context.Context, partition [][]byte, values []string, asJSON bool, changes []Change) error
}

// Columns are the columns of a table: those of the partition key, the clustering columns, and all others. The first two
// lists have the order of the primary key.
type Columns struct {
	Partition, Clustering, Others []Column
}

// Column is a column of a table: its name, its CQL type and its role in the primary key.
type Column struct {
	Name, Type string
	Kind       Kind
	// Desc is true if the clustering order of the column is descending.
	Desc bool
}

// Kind is the role of a column in its table, e.g. PartitionKey. Its text is the word for the role in Cassandra's schema
// tables.
type Kind string

// These constants are the roles of a column in the primary key of its table, as Cassandra's schema tables name them.
const (
	PartitionKey Kind = "partition_key"
	Clustering   Kind = "clustering"
	Regular      Kind = "regular"
	Static       Kind = "static"
)

// Query asks for rows of one partition of a Cassandra table of another application. All values are in the wire format
// of their columns.
type Query struct {
	// Partition has one value for each partition column.
	Partition [][]byte
	// From and To bound the clustering columns, with one value for each; nil means no bound. FromExclusive excludes the
	// row at From. ToInclusive includes the row at To, which is otherwise excluded. With Desc the rows come in
	// descending order, and From is the higher bound.
	From, To                   [][]byte
	FromExclusive, ToInclusive bool
	// Desc asks for rows in descending order of their clustering columns. TableDesc is true if the table keeps its rows
	// in descending order.
	Desc, TableDesc bool
	// Values are the names of the columns to read. If AsJSON is true, each value is read as CQL JSON, else in its wire
	// format.
	Values []string
	AsJSON bool
	Limit  int
}

// Row is one row that was read from a Cassandra table of another application. It may share memory with other rows of
// the same read.
type Row struct {
	// Clustering has the values of the clustering columns, Values those of Query.Values; nil is a null.
	Clustering, Values [][]byte
	// WriteTime is the newest write time of the values, or 0 if all values are null. Expires is true if any of the
	// values has a TTL.
	WriteTime store.Timestamp
	Expires   bool
}

// Change is a change of one row of a table of another application. The change writes the row or, if Delete is set,
// deletes the row. At is its timestamp.
type Change struct {
	// Clustering has one value for each clustering column, Values one for each column that Write names; nil is a null.
	Clustering, Values [][]byte
	At                 store.Timestamp
	Delete             bool
}
