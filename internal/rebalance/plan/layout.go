package plan

import "github.com/evenkeel/evenkeel/internal/base/keytext"

// A Key is a key of a bucket or a cut between two keys: bytes, ordered
// bytewise, which need not be UTF-8. The empty key as a start is the lowest
// key, as an end it is plus infinity.
type Key string

// MaxKeyBytes is the longest key that Cassandra takes.
const MaxKeyBytes = 65535

// MaxCount is the most rows that a bucket may have in a layout, and the largest
// limit: 2^53. Beyond it other readers of JSON would silently round.
const MaxCount = int64(1) << 53

// MarshalJSON writes a string, or {"b64":"..."} for bytes that are not UTF-8.
func (k Key) MarshalJSON() ([]byte, error) { return keytext.Key(k).MarshalJSON() }

// A Layout is a bucket at one moment, as planners see it: its partitions in the
// order of their keys, which tile all keys, and the sizes within them.
type Layout struct {
	Bucket     string
	Partitions []Partition
	// Nodes is optional. With nodes, the full objective also judges how evenly
	// writes fall on them.
	Nodes []Node
}

// A Partition is one range of a layout, from its start up to the next
// partition's start.
type Partition struct {
	ID    string
	Start Key
	// End is optional; when given it must be the next partition's start, and
	// empty for the last.
	End *Key
	// Quanta are in the order of their keys, all of them within the range. No
	// quanta means no rows.
	Quanta []Quantum
	// Pinned promises that Start stays a cut. It promises nothing about the end,
	// which is the next partition's start, nor about the id.
	Pinned bool
	// WritesPerS are puts and deletes per second, taken to be spread like rows.
	WritesPerS float64
	// GrowthRowsPerS are rows gained per second (negative: lost), spread alike.
	GrowthRowsPerS float64
	// Node is the name of the node that carries the partition's writes, or empty
	// where that is not known.
	Node string
}

// A Quantum is a sampled run of keys: Rows rows from Key up to the next
// quantum's key, or to the end of the partition.
type Quantum struct {
	Key  Key
	Rows int64
}

// A Node is a machine that carries partitions: WritesPerS is what it carries
// apart from this bucket, in the unit of Partition.WritesPerS. A partition's
// token belongs to one node; that node stands for all its replicas.
type Node struct {
	Name       string
	WritesPerS float64
}

// Limits say what a partition should be like.
type Limits struct {
	// MaxRows is the most rows of a range. Only a range whose rows all lie in one
	// quantum may have more, since nothing can divide it.
	MaxRows int64
	// MinRows is the fewest rows of a range; 0 is no minimum. The range that keeps
	// a pinned id is exempt, and so is a bucket with fewer rows altogether.
	MinRows int64
	// TargetRows is what ranges should be near to.
	TargetRows int64
	// MaxWritesPerS is the most load of a range in the full objective; 0 is any.
	MaxWritesPerS float64
	// HorizonS is how many seconds ahead the full objective looks.
	HorizonS float64
}

// Defaults of the limits that a layout file leaves out.
const (
	DefaultHorizonS = 86400.0
	// defaultTargetTenths of MaxRows leave room for growth on one side, and for a
	// merge of two small ranges on the other.
	defaultTargetTenths = 6
)

// DefaultTarget returns the target of limits that name none: six tenths of the
// maximum, or the minimum where that is more. Rows.
func DefaultTarget(maxRows, minRows int64) int64 {
	return max(maxRows/10*defaultTargetTenths+maxRows%10*defaultTargetTenths/10, minRows)
}

// Rows returns how many rows the partition holds. The layout must be valid.
func (p *Partition) Rows() (rows int64) {
	for _, q := range p.Quanta {
		rows += q.Rows
	}
	return rows
}

// Rows returns how many rows the bucket holds. The layout must be valid.
func (l *Layout) Rows() (rows int64) {
	for i := range l.Partitions {
		rows += l.Partitions[i].Rows()
	}
	return rows
}
