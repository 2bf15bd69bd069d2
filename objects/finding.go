package objects

import (
	"fmt"
	"strings"

	"github.com/evenkeel/evenkeel/store/keytext"
)

// Fault is a kind of damage or waste that an audit finds.
type Fault string

const (
	// LostBody means that a version is seen, but its blob, or one of its parts, is missing or has another size.
	LostBody Fault = "lost body"
	// DamagedBody means that a version is seen, but its blob has another checksum than when it was put.
	DamagedBody Fault = "damaged body"
	// Orphan means that a blob has no version and no upload, and is older than a put may take. Cleaner.Condemn deletes
	// it.
	Orphan Fault = "orphan"
	// Unlisted means that a part lies below a version that does not list the part, and there is no upload.
	// Cleaner.Condemn deletes the part, once the version is kept.
	Unlisted Fault = "unlisted part"
	// Stranger means that a blob has a name that no version gives to a blob.
	Stranger Fault = "stranger"
	// Damaged means that a row can't be read.
	Damaged Fault = "damaged row"
)

// Faults returns all kinds of faults.
func Faults() []Fault { return []Fault{LostBody, DamagedBody, Orphan, Unlisted, Stranger, Damaged} }

// Condemnable reports whether the fault is a blob that belongs to no version and only takes space. true:
// Cleaner.Condemn deletes such a blob.
func (f Fault) Condemnable() bool { return f == Orphan || f == Unlisted }

// Finding is one fault that an audit has found, such as a missing body. The audit has checked it a second time, since
// rows and blobs may change while an audit reads them.
type Finding struct {
	Fault Fault
	// Key and ID are those of the version. Key is nil if the name of the blob does not tell the key, like that of a key
	// above 400 bytes.
	Key []byte
	ID  ID
	// Blob is the name of the blob. Want is the size that the blob should have, or -1 if that is not known. Size is the
	// size that it has, or -1 if there is no blob. Both are in bytes.
	Blob       string
	Want, Size int64
}

// String returns a description of the finding for people: the key, the version, and what is wrong with the blob.
func (f *Finding) String() string {
	var parts []string
	if f.Key != nil {
		parts = append(parts, "key "+keytext.Format(f.Key))
	}
	if !f.ID.IsZero() {
		parts = append(parts, "version "+f.ID.String())
	}
	switch {
	case f.Blob == "":
	case f.Size < 0:
		parts = append(parts, fmt.Sprintf("body %s is not there", f.Blob))
	case f.Want >= 0:
		parts = append(parts, fmt.Sprintf("body %s has %d bytes, not %d", f.Blob, f.Size, f.Want))
	default:
		parts = append(parts, fmt.Sprintf("body %s of %d bytes", f.Blob, f.Size))
	}
	return strings.Join(parts, ", ")
}
