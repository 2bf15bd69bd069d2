package cassandrastore

import (
	"encoding/binary"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/store"
)

// batchEntries returns the statements of a batch that puts rows into the partition p. Each value is passed by pointer
// in its wire format, so that the driver neither converts nor allocates.
func batchEntries(p store.Partition, rows []store.Row) []gocql.BatchEntry {
	// A move of rows between partitions writes hundreds of thousands of rows per second.
	const columns = 5
	entries := make([]gocql.BatchEntry, len(rows))
	args := make([]any, columns*len(rows))
	times := make([]wireBigint, len(rows))
	var bucket, partition any = p.Bucket[:], p.ID[:]
	for i := range rows {
		row := &rows[i]
		binary.BigEndian.PutUint64(times[i][:], uint64(row.Timestamp))
		a := args[columns*i : columns*(i+1) : columns*(i+1)]
		a[0], a[1], a[2], a[3], a[4] = bucket, partition, (*wireBlob)(&row.Key), (*wireBlob)(&row.Value), &times[i]
		entries[i] = gocql.BatchEntry{Stmt: putStatement, Args: a}
	}
	return entries
}

// wireBlob is the value of a blob column in the form in which it is sent to Cassandra. A nil wireBlob is sent as null.
type wireBlob []byte

// MarshalCQL returns the bytes of the blob as they are sent to Cassandra. It implements gocql.Marshaler.
func (b *wireBlob) MarshalCQL(gocql.TypeInfo) ([]byte, error) { return *b, nil }

// wireBigint is a number of the CQL type bigint in the form in which it is sent to Cassandra: 8 bytes, big-endian.
type wireBigint [8]byte

// MarshalCQL returns the 8 bytes of the number as they are sent to Cassandra. It implements gocql.Marshaler.
func (b *wireBigint) MarshalCQL(gocql.TypeInfo) ([]byte, error) { return b[:], nil }
