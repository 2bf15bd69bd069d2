package s3api

import (
	"errors"
	"hash/maphash"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/evenkeel/evenkeel/listing"
)

// The verdict on the conditions of a read.
type verdict int

const (
	goAhead verdict = iota
	notModified
	failed
)

// judge evaluates If-Match, If-None-Match, If-Modified-Since and
// If-Unmodified-Since (RFC 9110, section 13.2.2), whose names begin with prefix.
// Where a header with ETags is there, the one with the date beside it doesn't
// count; a date that can't be read counts as absent. The name is that of the
// header that decided.
func judge(h http.Header, prefix string, o *Object) (verdict, string) {
	if v := h.Get(prefix + "If-Match"); v != "" {
		if !matchesETag(v, o.ETag) {
			return failed, "If-Match"
		}
	} else if t, err := http.ParseTime(h.Get(prefix + "If-Unmodified-Since")); err == nil && seconds(o.Modified).After(t) {
		return failed, "If-Unmodified-Since"
	}
	if v := h.Get(prefix + "If-None-Match"); v != "" {
		if matchesETag(v, o.ETag) {
			return notModified, "If-None-Match"
		}
	} else if t, err := http.ParseTime(h.Get(prefix + "If-Modified-Since")); err == nil && !seconds(o.Modified).After(t) {
		return notModified, "If-Modified-Since"
	}
	return goAhead, ""
}

// seconds is a time as Last-Modified shows it.
func seconds(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// matchesETag looks for an ETag in a list as clients send it: with quotes or
// without, weak or not, or *.
func matchesETag(list, etag string) bool {
	if same(list, etag) { // an ETag of evenkeel's own may have commas
		return true
	}
	for part := range strings.SplitSeq(list, ",") {
		if same(part, etag) || strings.TrimSpace(part) == "*" {
			return true
		}
	}
	return false
}

func same(given, etag string) bool {
	given = strings.TrimPrefix(strings.TrimSpace(given), "W/")
	if unquoted, ok := strings.CutPrefix(given, `"`); ok {
		given = strings.TrimSuffix(unquoted, `"`)
	}
	return given == etag
}

func preconditionFailed(condition string) *Error {
	e := refuse(http.StatusPreconditionFailed, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold.")
	e.Detail = Header{"Condition", condition}
	return e
}

// parseRange reads a Range header against a size. S3 knows one range; what is
// malformed, or several of them, is not there (partial is false).
func parseRange(value string, size int64) (start, length int64, partial bool, refusal *Error) {
	unit, spec, found := strings.Cut(value, "=")
	first, last, dash := strings.Cut(strings.TrimSpace(spec), "-")
	if !found || !dash || !strings.EqualFold(strings.TrimSpace(unit), "bytes") {
		return 0, size, false, nil
	}
	number := func(s string) (int64, bool) {
		n, err := strconv.ParseUint(s, 10, 63)
		return int64(n), err == nil
	}
	from, okFrom := number(first)
	to, okTo := number(last)
	switch {
	case first == "" && okTo: // the last so many
		from, to = max(size-to, 0), size-1
	case okFrom && last == "":
		to = size - 1
	case okFrom && okTo && from <= to:
		to = min(to, size-1)
	default:
		return 0, size, false, nil
	}
	if from >= size {
		return 0, 0, false, refuse(http.StatusRequestedRangeNotSatisfiable, "InvalidRange", "The requested range is not satisfiable: the object has %d bytes.", size)
	}
	return from, to - from + 1, true, nil
}

// writeCondition is what a write asks of the present object.
type writeCondition struct {
	match   string // If-Match; empty: nothing
	absent  bool   // If-None-Match: *
	present bool   // there is a condition at all
}

// readWriteCondition reads the conditions of a write.
func readWriteCondition(h http.Header) (c writeCondition, refusal *Error) {
	c.match = h.Get("If-Match")
	switch none := h.Get("If-None-Match"); none {
	case "":
	case "*":
		c.absent = true
	default:
		return c, notImplemented("If-None-Match other than * on writes")
	}
	c.present = c.match != "" || c.absent
	return c, nil
}

// check judges by the object that is there; nil: none is.
func (c writeCondition) check(o *Object) *Error {
	switch {
	case o == nil && c.match != "":
		return noSuchKey()
	case o != nil && c.match != "" && !matchesETag(c.match, o.ETag):
		return preconditionFailed("If-Match")
	case o != nil && c.absent:
		return preconditionFailed("If-None-Match")
	}
	return nil
}

// keyLocks order writes with conditions against all other writes of a key. A
// lock is shared by the keys of one hash.
type keyLocks struct {
	seed  maphash.Seed
	locks [512]sync.RWMutex
}

func (l *keyLocks) of(bucket, key string) *sync.RWMutex {
	var h maphash.Hash
	h.SetSeed(l.seed)
	_, _ = h.WriteString(bucket)
	_ = h.WriteByte(0)
	_, _ = h.WriteString(key)
	return &l.locks[h.Sum64()%uint64(len(l.locks))]
}

// change does a write of one key. A condition is judged by what is there right
// before it, and no other write of this server comes between; where others write
// too, conditions are refused.
func (h *Handler) change(x *exchange, key string, c writeCondition, write func(Bucket) error) error {
	bucket := h.buckets.Bucket(x.bucket)
	if !h.o.SoleWriter {
		if c.present {
			return notImplemented(x.op.name + " with If-Match or If-None-Match on a store that other servers write to")
		}
		return write(bucket)
	}
	lock := h.locks.of(x.bucket, key)
	if !c.present {
		lock.RLock()
		defer lock.RUnlock()
		return write(bucket)
	}
	lock.Lock()
	defer lock.Unlock()
	o, err := h.load(x, x.bucket, key)
	if err != nil && !errors.Is(err, listing.ErrNotFound) {
		return err
	}
	if refusal := c.check(o); refusal != nil {
		return refusal
	}
	return write(bucket)
}
