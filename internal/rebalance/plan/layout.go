package plan

import "github.com/evenkeel/evenkeel/store/keytext"

// A Key is a key of a bucket or a cut between two keys: bytes, ordered bytewise, which
// need not be UTF-8. As a start the empty key is the lowest key, as an end it is plus
// infinity.
type Key string

// MaxKeyBytes is the longest key that Cassandra takes.
const MaxKeyBytes = 65535

// MaxCount is the most rows that a bucket may have in a layout, and the largest
// limit: 2^53. Beyond it other readers of JSON would silently round.
const MaxCount = int64(1) << 53

// MarshalJSON writes a string, or {"b64":"..."} for bytes that are not UTF-8.
func (k Key) MarshalJSON() ([]byte, error) { return keytext.Key(k).MarshalJSON() }

// UnmarshalJSON reads both forms.
func (k *Key) UnmarshalJSON(data []byte) error {
	var key keytext.Key
	err := key.UnmarshalJSON(data)
	*k = Key(key)
	return err
}

// A Layout is a bucket at one moment: its partitions in the order of their keys, which
// tile all keys, and the sizes within them.
type Layout struct {
	Bucket     string
	Partitions []Partition
}

// A Partition is one range of a layout, from its start up to the next partition's start.
type Partition struct {
	ID    string `json:"id" layout:"required"`
	Start Key    `json:"start" layout:"required"`
	// End is optional; if given, it must be the next partition's start, and empty for
	// the last.
	End *Key `json:"end,omitempty"`
	// Quanta are in the order of their keys, all of them within the range. No quanta
	// means no rows.
	Quanta []Quantum `json:"quanta"`
	// Pinned promises that Start stays a cut. It promises nothing about the end, which
	// is the next partition's start, nor about the id.
	Pinned bool `json:"pinned"`
	// WritesPerS are puts and deletes per second, taken to be spread like rows.
	WritesPerS float64 `json:"writes_per_s"`
	// GrowthRowsPerS are rows gained per second (negative: lost), spread alike.
	GrowthRowsPerS float64 `json:"growth_rows_per_s"`
}

// A Quantum is a sampled run of keys: Rows rows from Key up to the next quantum's key, or
// to the end of the partition.
type Quantum struct {
	Key  Key   `json:"key" layout:"required"`
	Rows int64 `json:"rows" layout:"required"`
}

// Limits of a partition.
type Limits struct {
	// MaxRows is the most rows of a range. Only a range whose rows all lie in one
	// quantum may have more, since nothing can divide it.
	MaxRows int64 `json:"max_rows" layout:"required"`
	// MinRows is the fewest rows of a range; 0 is no minimum. The range that keeps a
	// pinned id is exempt, and so is a bucket with fewer rows altogether.
	MinRows int64 `json:"min_rows"`
	// TargetRows is what ranges should be near to.
	TargetRows int64 `json:"target_rows"`
	// MaxWritesPerS is the most load of a range in the full objective; 0 is any.
	MaxWritesPerS float64 `json:"max_writes_per_s,omitempty"`
	// HorizonS is how many seconds ahead the full objective looks.
	HorizonS float64 `json:"horizon_s"`
}

// Defaults of the limits that a layout file leaves out.
const (
	DefaultHorizonS = 86400.0
	// defaultTargetTenths of MaxRows leave room for growth on one side, and for a merge
	// of two small ranges on the other.
	defaultTargetTenths = 6
)

// DefaultTarget returns the default of Limits.TargetRows: six tenths of the maximum, or
// the minimum if that is more.
func DefaultTarget(maxRows, minRows int64) int64 {
	return max(maxRows/10*defaultTargetTenths+maxRows%10*defaultTargetTenths/10, minRows)
}

// Rows returns how many rows a valid partition holds.
func (p *Partition) Rows() (rows int64) {
	for _, q := range p.Quanta {
		rows += q.Rows
	}
	return rows
}

// Rows returns how many rows a valid layout holds.
func (l *Layout) Rows() (rows int64) {
	for i := range l.Partitions {
		rows += l.Partitions[i].Rows()
	}
	return rows
}
