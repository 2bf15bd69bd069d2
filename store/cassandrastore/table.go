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

// Table is a table of an application. It is safe for concurrent use.
type Table struct {
	// Name is "keyspace.table".
	Name string
	// Partition and Clustering are the columns of the primary key in their order, Others all other ones.
	Partition, Clustering, Others []TableColumn

	session *gocql.Session
	s       Store // for its retries
}

// TableColumn is a column of a Table.
type TableColumn struct {
	Name, Type string
	Kind       ColumnKind
	// Desc: the clustering order is descending.
	Desc bool
}

// OpenTables connects to the cluster of the options, whose keyspace does not matter, and returns tables, each by its
// "keyspace.table". They share a connection, which Close of any of them closes. It fails with NotFound where there is
// no such table, and like OpenAdmin.
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

// Close closes the connection.
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

// TableQuery selects rows of one partition of a Table. All values are in the wire format of their columns.
type TableQuery struct {
	// Partition has a value per partition column.
	Partition [][]byte
	// From and To bound the clustering columns: a value for each; nil is no bound. From is left out if FromExclusive is
	// set, To unless ToInclusive is. With Desc rows come in descending order of the values, and From is the higher bound.
	From, To                   [][]byte
	FromExclusive, ToInclusive bool
	// Desc and TableDesc are whether rows are wanted, and lie, in descending order of their clustering columns.
	Desc, TableDesc bool
	// Values are the columns to read, as they are, or AsJSON each as its CQL JSON.
	Values []string
	AsJSON bool
	Limit  int
}

// TableRow is a row of a Table. It shares memory with others of its page.
type TableRow struct {
	// Clustering and Values are as the query says; nil is a null.
	Clustering, Values [][]byte
	// WriteTime is the newest one of the values, or 0 if all are null. Expires: one of them has a TTL.
	WriteTime store.Timestamp
	Expires   bool
}

// places returns the bounds of a query, in ascending order of values.
func (q *TableQuery) places() (low, high place) {
	low, high = place{q.From, q.FromExclusive}, place{q.To, q.ToInclusive}
	if q.Desc {
		low, high = place{q.To, !q.ToInclusive}, place{q.From, !q.FromExclusive}
	}
	return low, high
}

// statement returns the CQL of a query, for the rows between two places, and its values.
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

// Read reads at most q.Limit rows; fewer are the last ones. It reads through a quorum of each data centre: what was
// acknowledged in another one may be at this keyspace's side already, and must not seem to be deleted here. What
// replicas refuse to read, for too many tombstones in a row, is read in smaller parts.
func (t *Table) Read(ctx context.Context, q TableQuery) ([]TableRow, error) {
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

// fail is for errors of reads and writes: InvalidArgument is what the server refuses by its rules, now and later.
func (t *Table) fail(ctx context.Context, err error, op string) error {
	switch c, _ := code(err); c {
	case gocql.ErrCodeInvalid, gocql.ErrCodeSyntax, gocql.ErrCodeConfig:
		err = store.Errorf(store.InvalidArgument, "%w", err)
	}
	return fail(ctx, err, op, t.Name)
}

// TableChange writes a row of one partition of a Table, or deletes it.
type TableChange struct {
	// Clustering has a value per clustering column, Values one for each that Write names; nil is a null.
	Clustering, Values [][]byte
	At                 store.Timestamp
	Delete             bool
}

// Write writes changes of one partition, through a quorum of each data centre, as Read reads. values are the columns
// of TableChange.Values, which are as they are, or AsJSON each as its CQL JSON. It may be repeated.
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

// quoted writes a name so that capitals count.
func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
