package objects

import (
	"crypto/md5"
	"strconv"
	"strings"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/store"
)

// blobOf is the decoded name of a blob, a stored body. It has the object's key, the version's ID and, for a blob of an
// upload in parts, the number and the ID of the part.
type blobOf struct {
	key    []byte // of the object; nil: the key is longer than the name tells,
	begin  []byte // and this is its beginning
	id     ID
	number int // of the part; negative: the blob is a whole body
	part   ID
}

// begun returns the time when the put of a blob began, as a timestamp in microseconds. The name of the blob contains
// this time, in the ID of the part or, for a whole body, in the ID of the version.
func (n *blobOf) begun() store.Timestamp {
	if n.number >= 0 {
		return n.part.Stamp
	}
	return n.id.Stamp
}

// parseName decodes the name of a blob into the object's key, the version's ID and the number of the part. The result
// ok is false if the name has a form that no blob of the bucket has.
func (b *Bucket) parseName(name string) (n blobOf, ok bool) {
	rest, ok := strings.CutPrefix(name, bucketPart(b.rows.Name())+"/")
	if !ok {
		return n, false
	}
	stem, rest, ok := strings.Cut(rest, "-/")
	if !ok {
		return n, false
	}
	version, part, inPart := strings.Cut(rest, "/")
	id, err := ParseID(version)
	if err != nil {
		return n, false
	}
	n.id, n.number = id, -1
	if inPart {
		number, partID, _ := strings.Cut(part, "-")
		n.number, err = strconv.Atoi(number)
		if err != nil || len(number) != 5 || n.number < 0 || n.number > care.MaxParts {
			return n, false
		}
		if n.part, err = ParseID(partID); err != nil {
			return n, false
		}
	}
	if begin, sum, long := strings.Cut(stem, "="); long {
		n.begin, err = ordered.DecodeString(strings.ReplaceAll(begin, "/", ""))
		return n, err == nil && len(n.begin) == nameBytes && len(sum) == 2*md5.Size
	}
	n.key, err = ordered.DecodeString(strings.ReplaceAll(stem, "/", ""))
	if err != nil || len(n.key) == 0 || len(n.key) > nameBytes {
		return n, false
	}
	// Only one text is the name of a blob.
	return n, b.stem(n.key)+"-/"+rest == name
}
