// Package record encodes the records of registers. A record's blob has the version of its form, the epoch and token of
// the register, the payload, and a checksum. So opening a blob detects damage and torn reads.
package record

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/internal/wait"
	"github.com/evenkeel/evenkeel/store"
)

// The stored form of a record has these parts: form (1 byte), epoch (8 bytes, big-endian), token (16 bytes), payload,
// and the xxhash64 of all bytes before it (8 bytes). head and tail are the lengths, in bytes, of the parts before and
// behind the payload.
const (
	head = 1 + 8 + 16
	tail = 8
)

// Seal returns the record that a compare-and-swap writes into a register, a small record in a store. The blob of the
// record has the payload, the version v that the register gets, and a checksum. Open detects damage by the checksum.
// form (1 to 255) is the version of the encoding of the payload.
func Seal(form byte, v store.Version, payload []byte) store.Record {
	b := make([]byte, 0, head+len(payload)+tail)
	b = append(b, form)
	b = binary.BigEndian.AppendUint64(b, v.Epoch)
	b = append(b, v.Token[:]...)
	b = append(b, payload...)
	b = binary.BigEndian.AppendUint64(b, xxhash.Sum64(b))
	return store.Record{Version: v, Blob: b}
}

// Next returns the version that the next change of a register has to give to its record. It has the next epoch and a
// fresh random token. old is the present version of the register.
func Next(old store.Version) store.Version {
	return store.Version{Epoch: old.Epoch + 1, Token: storekit.NewToken()}
}

// Open returns the payload of a record that was read from a register, as Seal has encoded the record. The payload
// shares the memory of the record. form is the version that the encoding of the payload must have. Open fails with
//   - Corrupt, if the record is damaged or of another form;
//   - Unavailable, if the read was torn: content and version are of different writes. Such a read may be repeated.
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

// Read returns the payload and the version v of the record with the given key in the table t. If there is no record,
// the payload is nil and v is zero. l is the consistency level of the read, and form is the version that the encoding
// of the payload must have. If a read fails with Unavailable, or has mixed two writes, Read tries again, up to three
// times in all.
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

// Change replaces the payload of the record with the given key in the table t. The function f gets the present payload
// (nil if there is no record) and returns the next one. If f returns nil, the record stays as it is. form is the
// version that the encoding of the payload must have. An error of f or of a read ends Change.
//
// If the record was changed meanwhile, or the outcome of the swap is unknown, Change reads the record anew and calls f
// again. So a change may be applied twice. Change ends with the last error after 20 swaps in all, or 5 that failed for
// another reason than a conflict, and at once if the store refuses the record (InvalidArgument).
//
// The pauses between the attempts are random and grow to seconds. Otherwise processes in data centres far from each
// other, which change a record at the same time, would meet again and again. Of 16 processes that make four changes
// each, 80 ms away, none fails so in 2,000 simulations; with pauses of at most a second, one in 70 did.
func Change(
	ctx context.Context, regs store.Registers, t store.Table, key string, form byte,
	f func(payload []byte) (next []byte, err error),
) error {
	const tries, failures = 20, 5
	pauses := wait.Backoff{First: 100 * time.Millisecond, Most: 4 * time.Second, Jitter: 1}
	var err error
	failed := 0
	for try := range tries {
		if try > 0 {
			if cause := pauses.Sleep(ctx, try); cause != nil {
				return store.Errorf(store.Timeout, "%w, after: %w", cause, err)
			}
		}
		payload, v, rerr := Read(ctx, regs, t, key, store.Serial, form)
		if rerr != nil {
			return rerr
		}
		payload, ferr := f(payload)
		if ferr != nil || payload == nil {
			return ferr
		}
		err = regs.Swap(ctx, t, []byte(key), v, Seal(form, Next(v), payload))
		if !errors.Is(err, store.Conflict) {
			failed++
		}
		if err == nil || ctx.Err() != nil || store.KindOf(err) == store.InvalidArgument || failed == failures {
			return err
		}
	}
	return err
}

// ReadAs reads a register by the function read, and returns its content, decoded by the function decode. A read may be
// torn: it mixes two writes, and decode fails with Unavailable. ReadAs then reads again, up to three times in all. An
// error of read is returned at once.
func ReadAs[T any](read func() (store.Record, error), decode func(store.Record) (T, error)) (value T, err error) {
	for range 3 {
		var r store.Record
		if r, err = read(); err != nil {
			return value, err
		}
		if value, err = decode(r); store.KindOf(err) != store.Unavailable {
			break
		}
	}
	return value, err
}
