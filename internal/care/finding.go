package care

import (
	"fmt"
	"strings"

	"github.com/evenkeel/evenkeel/internal/keytext"
)

// Fault is a kind of damage or waste that an audit finds in a bucket, e.g. LostBody or Orphan.
type Fault string

const (
	// LostBody means that readers see a version, but its body, or a part of its body, is missing or has another size.
	LostBody Fault = "lost body"
	// DamagedBody means that readers see a version, but its body has another checksum than when it was put.
	DamagedBody Fault = "damaged body"
	// Orphan means that a stored body belongs to no version and no upload, and is older than a put may take.
	// Cleaner.Condemn deletes the body.
	Orphan Fault = "orphan"
	// Unlisted means that a stored part of an upload is not used by the version that the upload has become, and the
	// upload has ended. Cleaner.Condemn deletes the part if the version stays.
	Unlisted Fault = "unlisted part"
	// Stranger means that a stored body has a name of a form that no version gives to a body.
	Stranger Fault = "stranger"
	// Damaged means that the row of a version can't be read.
	Damaged Fault = "damaged row"
)

// Faults returns all kinds of damage and waste that an audit may find.
func Faults() []Fault { return []Fault{LostBody, DamagedBody, Orphan, Unlisted, Stranger, Damaged} }

// Condemnable reports whether the fault is a stored body that belongs to no version and only takes space.
// Cleaner.Condemn deletes such a body.
func (f Fault) Condemnable() bool { return f == Orphan || f == Unlisted }

// Audited is the result of one section of an audit. An audit compares the versions of a bucket's objects with the
// stored bodies (blobs). It finds bodies that are missing, damaged or useless.
type Audited struct {
	Findings []Finding
	// Rows and Blobs are the numbers of rows and blobs that were compared. InUse blobs belong to open uploads, Waiting
	// blobs belong to deleted versions, and Young blobs may belong to puts that are under way. Unjudged blobs belong to
	// versions whose row is damaged, or to keys of more than 400 bytes if too many of these keys begin alike.
	Rows, Blobs, InUse, Waiting, Young, Unjudged int64
	// Checked is the number of bodies that were compared with a checksum, and Unchecked the number of bodies without a
	// known checksum. Only audits that read bodies count them.
	Checked, Unchecked int64
	// Next is the position behind this section, from which another audit can continue (the argument from of
	// Bucket.Audit). Next is empty after the last section.
	Next string
}

// Finding is one fault that an audit has found, such as a missing body. The audit has checked the fault a second time,
// since rows and blobs may change while an audit reads them.
type Finding struct {
	Fault Fault
	// Key is the key of the object, and Version the ID of the version as text. Key is nil if the name of the blob does
	// not tell the key, e.g. for a key above 400 bytes. Version is empty if the name of the blob does not tell the ID.
	Key     []byte
	Version string
	// Blob is the name of the blob, which is a stored body. Want is the size in bytes that the blob should have, or -1
	// if that is not known. Size is the actual size in bytes, or -1 if there is no blob.
	Blob       string
	Want, Size int64
}

// String returns a description of the finding for people: the key, the version, and what is wrong with the blob.
func (f *Finding) String() string {
	var parts []string
	if f.Key != nil {
		parts = append(parts, "key "+keytext.Format(f.Key))
	}
	if f.Version != "" {
		parts = append(parts, "version "+f.Version)
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
