package objects

import (
	"bytes"
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/store"
)

// UploadID identifies a multipart upload. Its text form is 28 hexadecimal digits. The texts for the uploads of one key
// sort by the time of creation.
type UploadID ID

// version returns the upload's ID in the form of a version's ID. The names of the upload's blobs contain this ID. In
// older programs it is also the ID of the version that the upload becomes.
func (id UploadID) version() ID { return ID(id) }

// isZero reports whether the ID is the zero ID, which no upload has.
func (id UploadID) isZero() bool { return id == UploadID{} }

// append appends the ID to dst, encoded in 14 bytes. In the bytewise order of the encoded IDs the oldest upload comes
// first.
func (id UploadID) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(id.Stamp))
	return append(dst, id.Salt[:]...)
}

// String returns the ID as 28 hexadecimal digits. When these texts are sorted, the oldest upload comes first.
func (id UploadID) String() string { return hex.EncodeToString(id.append(nil)) }

// uploadIDOf decodes the 14 bytes that UploadID.append has appended. The result ok is false if b is no valid ID.
func uploadIDOf(b []byte) (id UploadID, ok bool) {
	if len(b) != idBytes {
		return UploadID{}, false
	}
	id.Stamp = store.Timestamp(binary.BigEndian.Uint64(b))
	copy(id.Salt[:], b[8:])
	return id, id.Stamp > 0
}

// ParseUploadID returns the ID that the text stands for; it is the inverse of UploadID.String. It fails with
// InvalidArgument if text is not 28 hexadecimal digits of a valid ID.
func ParseUploadID(text string) (UploadID, error) {
	if b, err := hex.DecodeString(text); err == nil {
		if id, ok := uploadIDOf(b); ok && id.String() == text {
			return id, nil
		}
	}
	return UploadID{}, store.Errorf(store.InvalidArgument,
		"%.64q is not the id of an upload: %d hexadecimal digits", text, 2*idBytes)
}

// The keys of the rows of uploads sort before those of all objects, so listings of objects never meet them. They are:
//
//	00 01 | key, escaped | 00 01 | ID                                          the upload's own row
//	00 01 | key, escaped | 00 01 | ID | 01 | number, 2 bytes                   a part
//	00 01 | key, escaped | 00 01 | ID | 02 | what is claimed, 16 bytes | ID    a claim, or a proof of the upload's end
//
// The key of the object is escaped: 00 FF stands for a zero byte, and 00 01 ends it. No row of an object begins with
// 00 01. By a claim a client announces how it wants to end the upload; by a proof a cleaner records that it has ended.
var (
	uploadsBegin = []byte{zero, endsKey}
	objectsBegin = []byte{zero, endsKey + 1}
)

const (
	partSuffix  = 0x01 // then the number, two bytes
	claimSuffix = 0x02 // then what is claimed, 16 bytes, and an ID of this claim (older programs left the ID out)
)

// uploadGroup returns the first bytes of the keys of all rows that belong to uploads for the object key.
func uploadGroup(key []byte) []byte {
	return append(escape(append(make([]byte, 0, len(key)+idBytes+24), uploadsBegin...), key), zero, endsKey)
}

// uploadKey returns the key of the upload's own row, which says whether the upload is open. The keys of all other rows
// of the upload begin with this key.
func uploadKey(key []byte, id UploadID) []byte { return id.append(uploadGroup(key)) }

// partKey returns the key of the row with the metadata of one part of an upload. number is the part's number.
func partKey(key []byte, id UploadID, number int) []byte {
	return binary.BigEndian.AppendUint16(append(uploadKey(key, id), partSuffix), uint16(number)) //nolint:gosec // checked
}

// proofKey returns the key of the row by which a cleaner records that an upload has ended. The value of the row is the
// time when the end was known to be acknowledged. version is a hash of the versions that the upload had become by then
// (hashOf). The key has the form of the key of a claim, which is a row by which a client announces how it will end the
// upload. After the end, no client writes a claim any more.
func proofKey(key []byte, id UploadID, version claim) []byte {
	return id.version().append(append(append(uploadKey(key, id), claimSuffix), version[:]...))
}

// claim is a hash that says how a client is going to end an upload. It is a hash of the parts of the version that the
// client makes, or zero to abort the upload. The client first writes the claim into a row. So no two clients end the
// upload in different ways.
type claim [md5.Size]byte

// at returns the claim of a client that is going to complete an upload as the version with the given ID. (A claim is a
// hash that says how a client ends an upload.) c is the hash of the parts. If the version has the upload's own ID, the
// claim is c itself, and at is not called.
func (c claim) at(version ID) claim { return md5.Sum(version.append(bytes.Clone(c[:]))) }

// aborts is the claim by which a client announces that it aborts an upload. Its hash is zero.
var aborts claim

// uploadRow is the decoded key of one of an upload's rows: the object's key, the upload's ID, and the kind of the row.
type uploadRow struct {
	key    []byte
	group  []byte // the beginning of the keys of all rows of the upload; shares the row key's memory
	id     UploadID
	part   int    // the number of the part; 0: the row is not a part
	claims *claim // nil: the row is neither a claim nor a proof
}

// own reports whether the row is the upload's own row, which says whether the upload is open. Other rows of an upload
// are for its parts, or for claims: by these clients announce how they end the upload.
func (u *uploadRow) own() bool { return u.part == 0 && u.claims == nil }

// parseUploadRow decodes b, the key of one of an upload's rows. It fails with Corrupt if b does not have the form of
// such a key.
func parseUploadRow(b []byte) (u uploadRow, err error) {
	rest, ok := bytes.CutPrefix(b, uploadsBegin)
	if !ok {
		return u, damagedKey(b)
	}
	key, n, ok := cutKey(rest)
	at := len(uploadsBegin) + n
	if !ok || len(key) == 0 || len(b) < at+idBytes {
		return u, damagedKey(b)
	}
	u.key, u.group = key, b[:at+idBytes:at+idBytes]
	if u.id, ok = uploadIDOf(b[at : at+idBytes]); !ok {
		return u, damagedKey(b)
	}
	switch rest = b[at+idBytes:]; {
	case len(rest) == 0:
		return u, nil
	case len(rest) == 3 && rest[0] == partSuffix:
		u.part = int(binary.BigEndian.Uint16(rest[1:]))
		if u.part >= 1 && u.part <= care.MaxParts {
			return u, nil
		}
	case len(rest) > len(claim{}) && rest[0] == claimSuffix:
		c := claim(rest[1:])
		u.claims = &c
		_, whose := parseID(rest[1+len(c):])
		if whose || len(rest) == 1+len(c) {
			return u, nil
		}
	}
	return u, damagedKey(b)
}
