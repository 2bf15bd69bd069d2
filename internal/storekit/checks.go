package storekit

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/store"
)

// CheckRows checks rows that a store is to put as one batch. CheckRows returns an InvalidArgument error in these cases,
// else nil:
//   - A key, value or timestamp is invalid.
//   - The rows are more than MaxBatchRows.
//   - Their keys and values together have more than MaxBatchBytes bytes.
func CheckRows(rows []store.Row) error {
	if len(rows) > store.MaxBatchRows {
		return store.Errorf(store.InvalidArgument, "a batch of %d rows: at most %d", len(rows), store.MaxBatchRows)
	}
	total := 0
	for i := range rows {
		r := &rows[i]
		if err := CheckKey(r.Key); err != nil {
			return err
		}
		if r.Value == nil {
			return store.Errorf(store.InvalidArgument, "row %q has a nil value", clip(r.Key))
		}
		if len(r.Value) > store.MaxValueBytes {
			return store.Errorf(store.InvalidArgument,
				"the value of %q has %d bytes: at most %d", clip(r.Key), len(r.Value), store.MaxValueBytes)
		}
		if err := CheckTimestamp(r.Timestamp); err != nil {
			return err
		}
		total += len(r.Key) + len(r.Value)
	}
	if total > store.MaxBatchBytes {
		return store.Errorf(store.InvalidArgument, "a batch of %d bytes: at most %d", total, store.MaxBatchBytes)
	}
	return nil
}

// CheckKey returns an InvalidArgument error if the key of a row is empty or longer than MaxKeyBytes; else nil. The
// empty key is invalid since it stands for the unbounded end of an interval of keys.
func CheckKey(key []byte) error {
	if len(key) == 0 {
		return store.Errorf(store.InvalidArgument, "the key is empty")
	}
	if len(key) > store.MaxKeyBytes {
		return store.Errorf(store.InvalidArgument,
			"the key %q has %d bytes: at most %d", clip(key), len(key), store.MaxKeyBytes)
	}
	return nil
}

// CheckTimestamp returns an InvalidArgument error if the timestamp ts of a write is not positive; else nil.
func CheckTimestamp(ts store.Timestamp) error {
	if ts <= 0 {
		return store.Errorf(store.InvalidArgument, "timestamp %d is not positive", ts)
	}
	return nil
}

// CheckSlice checks the arguments of a call of Slice, which reads the rows of a partition within the interval of keys
// b. CheckSlice returns an InvalidArgument error if b or the row limit in the options o is invalid; else nil.
func CheckSlice(b store.Bounds, o store.SliceOptions) error {
	if err := CheckLimit(o.Limit); err != nil {
		return err
	}
	return CheckBounds(b)
}

// CheckLimit checks limit, the largest number of items (rows, keys or partitions) that a call asks for. CheckLimit
// returns an InvalidArgument error if limit is below 1 or above MaxPageRows; else nil.
func CheckLimit(limit int) error {
	if limit < 1 || limit > store.MaxPageRows {
		return store.Errorf(store.InvalidArgument, "a limit of %d: 1 to %d", limit, store.MaxPageRows)
	}
	return nil
}

// CheckBounds checks the interval of keys b. CheckBounds returns an InvalidArgument error if the start of b is above
// its end, or if either is longer than MaxKeyBytes; else nil.
func CheckBounds(b store.Bounds) error {
	if len(b.Start) > store.MaxKeyBytes || len(b.End) > store.MaxKeyBytes {
		return store.Errorf(store.InvalidArgument, "a bound has more than %d bytes", store.MaxKeyBytes)
	}
	if len(b.End) > 0 && string(b.Start) > string(b.End) {
		return store.Errorf(store.InvalidArgument, "the start %q is above the end %q", clip(b.Start), clip(b.End))
	}
	return nil
}

// clip returns a key as text for an error message, shortened to its first 64 bytes.
func clip(key []byte) string {
	const most = 64
	if len(key) <= most {
		return string(key)
	}
	return fmt.Sprintf("%s…", key[:most])
}

// CheckRecord checks the arguments of a compare-and-swap that replaces the version old of the record with the given key
// in table t by next. CheckRecord returns an InvalidArgument error in these cases, else nil:
//   - The table, the key or the old version is invalid.
//   - The epoch of next does not follow that of old, or next has no fresh token.
//   - The blob of next is longer than MaxRecordBytes.
func CheckRecord(t store.Table, key []byte, old store.Version, next store.Record) error {
	if err := CheckRegister(t, key); err != nil {
		return err
	}
	if (old.Epoch == 0) != (old.Token == store.Token{}) {
		return store.Errorf(store.InvalidArgument,
			"a swap from epoch %d with token %s: absent has neither", old.Epoch, uuid.UUID(old.Token))
	}
	if next.Epoch != old.Epoch+1 {
		return store.Errorf(store.InvalidArgument, "a swap from epoch %d to %d", old.Epoch, next.Epoch)
	}
	if (next.Token == store.Token{}) || next.Token == old.Token {
		return store.Errorf(store.InvalidArgument, "a swap without a fresh token")
	}
	if len(next.Blob) > store.MaxRecordBytes {
		return store.Errorf(store.InvalidArgument,
			"a record of %d bytes: at most %d", len(next.Blob), store.MaxRecordBytes)
	}
	return nil
}

// CheckRegister checks the address of a register (a record that changes only by compare-and-swap). CheckRegister
// returns an InvalidArgument error if the table t does not exist or the key is invalid for the table; else nil. A key
// of the table Roots, for example, must have the 16 bytes of a bucket id.
func CheckRegister(t store.Table, key []byte) error {
	if err := CheckTable(t); err != nil {
		return err
	}
	if t == store.Roots && len(key) != len(store.BucketID{}) {
		return store.Errorf(store.InvalidArgument, "a root's key of %d bytes: it is a bucket id", len(key))
	}
	return CheckKey(key)
}

// CheckTable returns an InvalidArgument error if t is not one of the tables of registers, which are records that change
// only by compare-and-swap. Else CheckTable returns nil.
func CheckTable(t store.Table) error {
	if t < store.Roots || t > store.Process {
		return store.Errorf(store.InvalidArgument, "there is no register table %d", t)
	}
	return nil
}

// CheckNode returns an InvalidArgument error if blob, the encoded node of a bucket's map, is empty or longer than
// MaxNodeBytes. Else CheckNode returns nil.
func CheckNode(blob []byte) error {
	if len(blob) == 0 || len(blob) > store.MaxNodeBytes {
		return store.Errorf(store.InvalidArgument, "a node of %d bytes: 1 to %d", len(blob), store.MaxNodeBytes)
	}
	return nil
}
