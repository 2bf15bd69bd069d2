package cassandrastore

import (
	"encoding/binary"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/store"
)

// batchEntries returns rows as statements of a batch. A mover writes hundreds of thousands of rows
// per second, so each value is passed in its wire format, by pointer: the driver converts and
// allocates nothing.
func batchEntries(p store.Partition, rows []store.Row) []gocql.BatchEntry {
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

// wireBlob is a blob that is never null.
type wireBlob []byte

// MarshalCQL implements gocql.Marshaler.
func (b *wireBlob) MarshalCQL(gocql.TypeInfo) ([]byte, error) { return *b, nil }

// wireBigint is a bigint as it is sent.
type wireBigint [8]byte

// MarshalCQL implements gocql.Marshaler.
func (b *wireBigint) MarshalCQL(gocql.TypeInfo) ([]byte, error) { return b[:], nil }
