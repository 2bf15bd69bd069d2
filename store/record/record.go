// Package record encodes the blobs of registers: the version of the payload's form, the
// epoch and token of the register, the payload, and a checksum. Opening a blob detects
// damage and torn reads.
package record

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/cespare/xxhash/v2"

	"github.com/evenkeel/evenkeel/store"
)

// The blob: form (1 byte), epoch (8, big-endian), token (16), payload,
// xxhash64 of all before it (8).
const (
	head = 1 + 8 + 16
	tail = 8
)

// Seal returns the record of a register at version v. form (1 to 255) is the version of the
// payload's encoding.
func Seal(form byte, v store.Version, payload []byte) store.Record {
	b := make([]byte, 0, head+len(payload)+tail)
	b = append(b, form)
	b = binary.BigEndian.AppendUint64(b, v.Epoch)
	b = append(b, v.Token[:]...)
	b = append(b, payload...)
	b = binary.BigEndian.AppendUint64(b, xxhash.Sum64(b))
	return store.Record{Version: v, Blob: b}
}

// Next returns the version after old, with a fresh token.
func Next(old store.Version) store.Version {
	return store.Version{Epoch: old.Epoch + 1, Token: store.NewToken()}
}

// Open returns the payload of a record, sharing its memory. It fails with Corrupt where the
// record is damaged or of another form, and with Unavailable where blob and version do not
// match: the read was torn, and may be repeated.
func Open(form byte, r store.Record) ([]byte, error) {
	b := r.Blob
	if len(b) < head+tail {
		return nil, store.Errorf(store.Corrupt, "a record of %d bytes is too short", len(b))
	}
	body, sum := b[:len(b)-tail], binary.BigEndian.Uint64(b[len(b)-tail:])
	if xxhash.Sum64(body) != sum {
		return nil, store.Errorf(store.Corrupt, "the checksum of a record does not match")
	}
	if body[0] != form {
		return nil, store.Errorf(store.Corrupt, "a record of form %d: this program knows form %d only", body[0], form)
	}
	epoch, token := binary.BigEndian.Uint64(body[1:]), store.Token(body[9:head])
	if epoch != r.Epoch || token != r.Token {
		return nil, store.Errorf(
			store.Unavailable, "a torn record: its content is of epoch %d, its version of epoch %d; read it again", epoch,
			r.Epoch,
		)
	}
	return body[head:], nil
}

// Read reads a register, again if the read was torn, and returns its payload; nil at the zero
// version if there is no record.
func Read(
	ctx context.Context, regs store.Registers, t store.Table, key string, l store.Level, form byte,
) (payload []byte, v store.Version, err error) {
	const tries = 3
	for range tries {
		rec, rerr := regs.Read(ctx, t, []byte(key), l)
		if errors.Is(rerr, store.NotFound) {
			return nil, store.Version{}, nil
		}
		if err = rerr; err == nil {
			if payload, err = Open(form, rec); err == nil {
				return payload, rec.Version, nil
			}
		}
		if store.KindOf(err) != store.Unavailable {
			break
		}
	}
	return nil, store.Version{}, err
}
