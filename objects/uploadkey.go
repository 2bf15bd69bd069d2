package objects

import (
	"bytes"
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"

	"github.com/evenkeel/evenkeel/store"
)

// UploadID identifies an upload in parts of a key. Its text is 28 hexadecimal digits, in the order of
// creation. The version that completes the upload has the same stamp and salt: it began with the upload.
type UploadID ID

// Version returns the ID of the version that completes the upload.
func (id UploadID) Version() ID { return ID(id) }

// IsZero reports whether the ID is zero: no upload.
func (id UploadID) IsZero() bool { return id == UploadID{} }

// append appends the ID in the order of uploads: oldest first.
func (id UploadID) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(id.Stamp))
	return append(dst, id.Salt[:]...)
}

// String is 28 hexadecimal digits, in the order of uploads.
func (id UploadID) String() string { return hex.EncodeToString(id.append(nil)) }

func uploadIDOf(b []byte) (id UploadID, ok bool) {
	if len(b) != idBytes {
		return UploadID{}, false
	}
	id.Stamp = store.Timestamp(binary.BigEndian.Uint64(b))
	copy(id.Salt[:], b[8:])
	return id, id.Stamp > 0
}

// ParseUploadID is the inverse of UploadID.String. It fails with InvalidArgument.
func ParseUploadID(text string) (UploadID, error) {
	if b, err := hex.DecodeString(text); err == nil {
		if id, ok := uploadIDOf(b); ok && id.String() == text {
			return id, nil
		}
	}
	return UploadID{}, store.Errorf(store.InvalidArgument,
		"%.64q is not the id of an upload: %d hexadecimal digits", text, 2*idBytes)
}

// The rows of uploads lie before all objects, whose rows do not begin with 00 01: 00 01, then the key
// escaped and ended as in rowKey, then the ID. Behind an upload's own row are those of its parts and
// of claims. So listings of objects never meet them.
var (
	uploadsBegin = []byte{zero, endsKey}
	objectsBegin = []byte{zero, endsKey + 1}
)

const (
	partSuffix  = 0x01 // then the number, two bytes
	claimSuffix = 0x02 // then what is claimed, 16 bytes, and whose claim it is, an ID (older programs left that out)
)

// uploadGroup returns what all uploads of a key begin with.
func uploadGroup(key []byte) []byte {
	return append(escape(append(make([]byte, 0, len(key)+idBytes+24), uploadsBegin...), key), zero, endsKey)
}

func uploadKey(key []byte, id UploadID) []byte { return id.append(uploadGroup(key)) }

func partKey(key []byte, id UploadID, number int) []byte {
	return binary.BigEndian.AppendUint16(append(uploadKey(key, id), partSuffix), uint16(number)) //nolint:gosec // checked
}

// proofKey returns the key of the row that says when the end of an upload was acknowledged, and what the upload's
// version was then. The row has the form of a claim. As a claim it can oppose nobody, because nobody begins to complete
// the upload any more.
func proofKey(key []byte, id UploadID, version claim) []byte {
	return id.Version().append(append(append(uploadKey(key, id), claimSuffix), version[:]...))
}

// claim is what somebody wants an upload to become: the parts of a version, hashed, or nothing.
type claim [md5.Size]byte

// aborts claims that there shall be no version.
var aborts claim

// uploadRow is what the key of a row of uploads says.
type uploadRow struct {
	key    []byte
	group  []byte // what all rows of the upload begin with; shares the row key's memory
	id     UploadID
	part   int    // 0: it is no part
	claims *claim // nil: it is no claim
}

// own reports whether it is the upload's own row.
func (u *uploadRow) own() bool { return u.part == 0 && u.claims == nil }

// parseUploadRow takes the key of a row apart. The error is Corrupt.
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
		if u.part >= 1 && u.part <= MaxParts {
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
