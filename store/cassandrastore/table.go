package cassandrastore

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/gocql/gocql"

	"github.com/evenkeel/evenkeel/store"
)

// Table is a Cassandra table of another application. evenkeel reads its rows to copy them into a listing, and may write
// changes back. A Table is safe for concurrent use.
type Table struct {
	// Name is "keyspace.table".
	Name string
	// Partition and Clustering are the columns of the primary key in their order. Others are all columns outside the
	// primary key.
	Partition, Clustering, Others []TableColumn

	session *gocql.Session
	s       Store // the owner of the retries
}

// TableColumn is a column of a table of another application: its name, its CQL type and its role in the primary key.
type TableColumn struct {
	Name, Type string
	Kind       ColumnKind
	// Desc is true if the clustering order of the column is descending.
	Desc bool
}

// OpenTables connects to a Cassandra cluster and returns the named tables of other applications. Each name has the form
// "keyspace.table"; the keyspace in the options does not matter. The tables share a connection, and Close of any table
// closes the connection. OpenTables fails with NotFound if a table does not exist, and otherwise like OpenAdmin.
func OpenTables(ctx context.Context, o Options, names ...string) ([]*Table, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	auth, err := o.authenticator()
	if err != nil {
		return nil, err
	}
	session, err := o.session(ctx, nil, auth, o.DataCentre, "", nearConnections)
	if err != nil {
		return nil, fail(ctx, err, "open", strings.Join(names, ", "))
	}
	var all []*Table
	for _, name := range names {
		keyspace, table, _ := strings.Cut(name, ".")
		t := &Table{Name: name, session: session, s: Store{o: o}}
		if err := t.describe(ctx, keyspace, table); err != nil {
			session.Close()
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

// Close closes the connection that the table uses. All tables that one call of OpenTables has returned share this
// connection.
func (t *Table) Close() { t.session.Close() }

func (t *Table) describe(ctx context.Context, keyspace, table string) error {
	iter := t.session.Query("SELECT column_name, type, kind, position, clustering_order FROM system_schema.columns "+
		"WHERE keyspace_name = ? AND table_name = ?", keyspace, table).WithContext(ctx).Consistency(gocql.LocalOne).Iter()
	type positioned struct {
		TableColumn
		at int
	}
	var all []positioned
	var c positioned
	var order string
	for iter.Scan(&c.Name, &c.Type, &c.Kind, &c.at, &order) {
		c.Desc = order == "desc"
		all = append(all, c)
	}
	if err := iter.Close(); err != nil {
		return fail(ctx, err, "read the schema of", t.Name)
	}
	if len(all) == 0 {
		return store.Errorf(store.NotFound, "there is no table %s (names in lower case, unless they were made with quotes)",
			t.Name)
	}
	slices.SortStableFunc(all, func(a, b positioned) int { return cmp.Compare(a.at, b.at) })
	for _, c := range all {
		switch c.Kind {
		case PartitionKey:
			t.Partition = append(t.Partition, c.TableColumn)
		case Clustering:
			t.Clustering = append(t.Clustering, c.TableColumn)
		default:
			t.Others = append(t.Others, c.TableColumn)
		}
	}
	t.Name = quoted(keyspace) + "." + quoted(table)
	return nil
}

// TableQuery asks for rows of one partition of a Cassandra table of another application. All values are in the wire
// format of their columns.
type TableQuery struct {
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

// TableRow is one row that was read from a Cassandra table of another application. It may share memory with other rows
// of the same read.
type TableRow struct {
	// Clustering has the values of the clustering columns, Values those of TableQuery.Values; nil is a null.
	Clustering, Values [][]byte
	// WriteTime is the newest write time of the values, or 0 if all values are null. Expires is true if any of the
	// values has a TTL.
	WriteTime store.Timestamp
	Expires   bool
}

// places returns the two ends of the interval of rows for which the query asks: low before the first row, and high
// behind the last row. The order is the ascending one, even if the query reads in descending order.
func (q *TableQuery) places() (low, high place) {
	low, high = place{q.From, q.FromExclusive}, place{q.To, q.ToInclusive}
	if q.Desc {
		low, high = place{q.To, !q.ToInclusive}, place{q.From, !q.FromExclusive}
	}
	return low, high
}

// statement returns the CQL statement that reads the rows of the query q between low and high, which are positions
// between rows. args are the values for the statement.
func (t *Table) statement(q *TableQuery, low, high place) (cql string, args []any) {
	var columns, where, order []string
	for _, c := range t.Clustering {
		columns = append(columns, quoted(c.Name))
		order = append(order, quoted(c.Name)+map[bool]string{false: " ASC", true: " DESC"}[q.Desc])
	}
	names := columns
	for _, v := range q.Values {
		v = quoted(v)
		if q.AsJSON {
			columns = append(columns, "toJson("+v+")")
		} else {
			columns = append(columns, v)
		}
		columns = append(columns, "WRITETIME("+v+")", "TTL("+v+")")
	}
	for i, c := range t.Partition {
		where, args = append(where, quoted(c.Name)+" = ?"), append(args, (*wireBlob)(&q.Partition[i]))
	}
	bound := func(comparison string, values [][]byte) {
		if len(values) == 0 {
			return
		}
		where = append(where, fmt.Sprintf("(%s) %s (?%s)", strings.Join(names[:len(values)], ", "), comparison,
			strings.Repeat(", ?", len(values)-1)))
		for i := range values {
			args = append(args, (*wireBlob)(&values[i]))
		}
	}
	bound(map[bool]string{false: ">=", true: ">"}[low.after], low.values)
	bound(map[bool]string{false: "<", true: "<="}[high.after], high.values)
	cql = "SELECT " + strings.Join(columns, ", ") + " FROM " + t.Name + " WHERE " + strings.Join(where, " AND ")
	if q.Desc != q.TableDesc {
		cql += " ORDER BY " + strings.Join(order, ", ")
	}
	return cql + " LIMIT ?", append(args, q.Limit)
}

// Read returns the rows for which the query q asks, at most q.Limit. If it returns fewer rows, no more rows follow.
// Read uses a quorum of each data centre. If replicas refuse a read because they meet too many tombstones, Read reads
// smaller intervals of rows.
func (t *Table) Read(ctx context.Context, q TableQuery) ([]TableRow, error) {
	// With less than a quorum of each data centre, a row could seem to be deleted that was acknowledged in another data
	// centre, and that may already have been copied to evenkeel's keyspace.
	low, high := q.places()
	rows, err := t.between(ctx, q, low, high)
	return rows, t.fail(ctx, err, "read")
}

func (t *Table) between(ctx context.Context, q TableQuery, low, high place) ([]TableRow, error) {
	cql, args := t.statement(&q, low, high)
	r := request{op: opTable, level: gocql.EachQuorum, limit: t.s.o.ReadTimeout}
	rows, err := retry(ctx, &t.s, r, func(ctx context.Context) ([]TableRow, error) {
		iter := t.session.Query(cql, args...).WithContext(ctx).Consistency(gocql.EachQuorum).Iter()
		rows := t.scan(iter, &q)
		return rows, iter.Close()
	})
	if !readFailed(err) {
		return rows, err
	}
	cut, ok := halveRows(t.Clustering, low, high)
	if !ok {
		return nil, err
	}
	parts := [][2]place{{low, cut}, {cut, high}}
	if q.Desc {
		slices.Reverse(parts)
	}
	rows = nil
	for _, part := range parts {
		more, err := t.between(ctx, q, part[0], part[1])
		if err != nil {
			return nil, err
		}
		if rows = append(rows, more...); len(more) >= q.Limit {
			break
		}
		q.Limit -= len(more)
	}
	return rows, nil
}

// fail returns err, the error of a read or write of the table, with the name op of the operation. The kind
// InvalidArgument means that the server refuses the request by its rules, now and later.
func (t *Table) fail(ctx context.Context, err error, op string) error {
	switch c, _ := code(err); c {
	case gocql.ErrCodeInvalid, gocql.ErrCodeSyntax, gocql.ErrCodeConfig:
		err = store.Errorf(store.InvalidArgument, "%w", err)
	}
	return fail(ctx, err, op, t.Name)
}

// TableChange is a change of one row of a table of another application. The change writes the row or, if Delete is set,
// deletes the row. At is its timestamp.
type TableChange struct {
	// Clustering has one value for each clustering column, Values one for each column that Write names; nil is a null.
	Clustering, Values [][]byte
	At                 store.Timestamp
	Delete             bool
}

// Write writes changes of rows in one partition, through a quorum of each data centre. Repeating a Write is harmless,
// since each change has its own timestamp. The parameters are:
//   - partition: the values of the partition columns
//   - values: the names of the columns to which TableChange.Values belong
//   - asJSON: true if these values are CQL JSON, and false if they are in their wire format
func (t *Table) Write(
	ctx context.Context, partition [][]byte, values []string, asJSON bool, changes []TableChange,
) error {
	var columns, marks, where []string
	for _, c := range slices.Concat(t.Partition, t.Clustering) {
		columns, marks = append(columns, quoted(c.Name)), append(marks, "?")
		where = append(where, quoted(c.Name)+" = ?")
	}
	for _, v := range values {
		columns = append(columns, quoted(v))
		if asJSON {
			marks = append(marks, "fromJson(?)")
		} else {
			marks = append(marks, "?")
		}
	}
	insert := "INSERT INTO " + t.Name + " (" + strings.Join(columns, ", ") + ") VALUES (" + strings.Join(marks, ", ") +
		") USING TIMESTAMP ?"
	remove := "DELETE FROM " + t.Name + " USING TIMESTAMP ? WHERE " + strings.Join(where, " AND ")
	entries := make([]gocql.BatchEntry, len(changes))
	for i := range changes {
		c := &changes[i]
		var args []any
		for _, wires := range [][][]byte{partition, c.Clustering, c.Values} {
			for j := range wires {
				args = append(args, (*wireBlob)(&wires[j]))
			}
		}
		if c.Delete {
			entries[i] = gocql.BatchEntry{Stmt: remove, Args: append([]any{int64(c.At)}, args...)}
		} else {
			entries[i] = gocql.BatchEntry{Stmt: insert, Args: append(args, int64(c.At))}
		}
	}
	r := request{op: opTable, level: gocql.EachQuorum, limit: t.s.o.WriteTimeout}
	_, err := retry(ctx, &t.s, r, func(ctx context.Context) (struct{}, error) {
		b := t.session.NewBatch(gocql.UnloggedBatch).WithContext(ctx)
		b.SetConsistency(gocql.EachQuorum)
		b.Entries = entries
		return struct{}{}, t.session.ExecuteBatch(b)
	})
	return t.fail(ctx, err, "write")
}

func (t *Table) scan(iter *gocql.Iter, q *TableQuery) []TableRow {
	const perValue = 3
	rows := make([]TableRow, 0, iter.NumRows())
	n := len(t.Clustering)
	got := make([]view, n+perValue*len(q.Values))
	dest := make([]any, len(got))
	for i := range got {
		dest[i] = &got[i]
	}
	for iter.Scan(dest...) {
		columns := make([][]byte, n+len(q.Values))
		row := TableRow{Clustering: columns[:n:n], Values: columns[n:]}
		for i := range n {
			columns[i] = got[i]
		}
		for i := range q.Values {
			v := got[n+perValue*i:]
			columns[n+i] = v[0]
			if len(v[1]) == 8 {
				row.WriteTime = max(row.WriteTime, store.Timestamp(binary.BigEndian.Uint64(v[1])))
			}
			row.Expires = row.Expires || v[2] != nil
		}
		rows = append(rows, row)
	}
	return rows
}

// quoted returns the name of a table or column in double quotes for CQL, so that Cassandra distinguishes capitals.
func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
