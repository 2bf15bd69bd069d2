package rebalance

import "github.com/evenkeel/evenkeel/internal/keytext"

// A Key is a key of a bucket, or a bound between two ranges of keys. It is any bytes, perhaps not UTF-8, and ordered
// bytewise. As the start of a range, the empty key is the lowest key; as an end, it is plus infinity.
type Key string

// maxKeyBytes is the length of the longest key, in bytes, that Cassandra takes.
const maxKeyBytes = 65535

// MaxCount is the largest number of rows of a bucket in a layout, and the largest limit: 2^53. Larger numbers would
// silently be rounded by other readers of JSON.
const MaxCount = int64(1) << 53

// MarshalJSON returns the key as a JSON string, or as {"b64":"..."} if its bytes are not UTF-8.
func (k Key) MarshalJSON() ([]byte, error) { return keytext.Key(k).MarshalJSON() }

// UnmarshalJSON sets the key from either of the two forms that MarshalJSON writes: a JSON string, or {"b64":"..."}.
func (k *Key) UnmarshalJSON(data []byte) error {
	var key keytext.Key
	err := key.UnmarshalJSON(data)
	*k = Key(key)
	return err
}

// A Layout describes how a bucket is divided at one moment: its partitions in the order of their keys, with the number
// of rows at points within them. The partitions cover all keys. A Layout is the input of a planner.
type Layout struct {
	Bucket     string
	Partitions []Partition
}

// A Partition is one range of keys in a layout, from Start up to the next partition's start, with the rows and rates
// measured in it.
type Partition struct {
	ID    string `json:"id" layout:"required"`
	Start Key    `json:"start" layout:"required"`
	// End is optional. If it is given, it must be the next partition's start, and empty for the last partition.
	End *Key `json:"end,omitempty"`
	// Quanta are the measured intervals of keys with their rows, in the order of their keys, all of them within the
	// range. Without quanta the partition has no rows.
	Quanta []Quantum `json:"quanta"`
	// Pinned is true if every plan must have a range that begins at Start. The end of the partition, and its id, may
	// change.
	Pinned bool `json:"pinned"`
	// WritesPerS is the number of puts and deletes per second. They are taken to be spread over the keys like the rows.
	WritesPerS float64 `json:"writes_per_s"`
	// GrowthRowsPerS is the number of rows gained per second, or lost if it is negative. The growth is taken to be
	// spread over the keys like the rows.
	GrowthRowsPerS float64 `json:"growth_rows_per_s"`
}

// A Quantum is a measured interval of keys, with the number of its rows. It reaches from Key up to the next quantum's
// key, or to the end of the partition. Where within the interval the rows lie is unknown, so no plan cuts a quantum.
type Quantum struct {
	Key  Key   `json:"key" layout:"required"`
	Rows int64 `json:"rows" layout:"required"`
}

// Limits are the demands that the ranges of a plan have to meet, such as the largest number of rows.
type Limits struct {
	// MaxRows is the largest number of rows of a range. Only a range whose rows all lie in one quantum (a measured
	// interval of keys) may have more, since no plan can divide it.
	MaxRows int64 `json:"max_rows" layout:"required"`
	// MinRows is the smallest number of rows of a range; 0 means no minimum. A range that keeps the id of a pinned
	// partition is exempt. A bucket with fewer rows altogether is exempt, too.
	MinRows int64 `json:"min_rows"`
	// TargetRows is the number of rows that ranges should come near to.
	TargetRows int64 `json:"target_rows"`
	// MaxWritesPerS is the largest number of writes per second to a range, under the full objective; 0 means no limit.
	MaxWritesPerS float64 `json:"max_writes_per_s,omitempty"`
	// HorizonS is the number of seconds for which the full objective forecasts the growth of ranges.
	HorizonS float64 `json:"horizon_s"`
}

// These are the values of limits that a layout file does not give.
const (
	defaultHorizonS = 86400.0
	// defaultTargetTenths is the default of TargetRows, in tenths of MaxRows. It leaves room for growth on one side,
	// and for a merge of two small ranges on the other.
	defaultTargetTenths = 6
)

// DefaultTarget returns the number of rows that ranges should have if no target is given. It is six tenths of maxRows,
// or minRows if that is larger.
func DefaultTarget(maxRows, minRows int64) int64 {
	return max(maxRows/10*defaultTargetTenths+maxRows%10*defaultTargetTenths/10, minRows)
}

// Rows returns the number of rows of a partition. The partition must be valid, so that the sum cannot overflow.
func (p *Partition) Rows() (rows int64) {
	for _, q := range p.Quanta {
		rows += q.Rows
	}
	return rows
}

// Rows returns the number of rows of all partitions of a layout. The layout must be valid, so that the sum cannot
// overflow.
func (l *Layout) Rows() (rows int64) {
	for i := range l.Partitions {
		rows += l.Partitions[i].Rows()
	}
	return rows
}
