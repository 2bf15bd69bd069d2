package s3api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
)

// verdict is the outcome of the conditions of a read.
type verdict int

const (
	goAhead verdict = iota
	notModified
	failed
)

// evaluate evaluates If-Match, If-None-Match, If-Modified-Since and If-Unmodified-Since (RFC
// 9110, section 13.2.2), whose names begin with prefix. A header with ETags overrides the one
// with a date; a malformed date is ignored. The name is that of the header that decided.
func evaluate(h http.Header, prefix string, o *Object) (verdict, string) {
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

// seconds truncates a time like Last-Modified.
func seconds(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// matchesETag looks for an ETag in a list as clients send it: * or ETags, with or without
// quotes, weak or not.
func matchesETag(list, etag string) bool {
	if same(list, etag) { // the ETag of an external object may have commas
		return true
	}
	return slices.ContainsFunc(elements(list), func(one string) bool { return one == "*" || same(one, etag) })
}

func same(given, etag string) bool {
	given = strings.TrimPrefix(strings.TrimSpace(given), "W/")
	if unquoted, ok := strings.CutPrefix(given, `"`); ok {
		given = strings.TrimSuffix(unquoted, `"`)
	}
	return given == etag
}

func preconditionFailed(condition string) *Error {
	e := refuse(http.StatusPreconditionFailed, "PreconditionFailed",
		"At least one of the pre-conditions you specified did not hold.")
	e.Details = []Header{{"Condition", condition}}
	return e
}

// parseRange reads a Range header for an object of a size. As in S3, a malformed header or
// several ranges are ignored: partial is false.
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
	case first == "" && okTo && to > 0 && size == 0: // the last bytes of nothing, as readers of tails ask for them
		return 0, size, false, nil
	case first == "" && okTo: // the last to bytes
		from, to = max(size-to, 0), size-1
	case okFrom && last == "":
		to = size - 1
	case okFrom && okTo && from <= to:
		to = min(to, size-1)
	default:
		return 0, size, false, nil
	}
	if from >= size {
		return start, length, partial, refuse(http.StatusRequestedRangeNotSatisfiable, "InvalidRange",
			"The requested range is not satisfiable: the object has %d bytes.", size)
	}
	return from, to - from + 1, true, nil
}

// writeCondition is the condition of a write on the present object.
type writeCondition struct {
	match string // If-Match; empty: nothing
	none  string // If-None-Match
	// size and modified, unless nil, are those that a version must have to be deleted: the one that is named, or the
	// present one.
	size     *int64
	modified *time.Time
	// deletes: it is of a delete, for which a delete marker is a version that does not match. For other writes there is
	// no object then.
	deletes bool
	present bool // there is a condition
	// overtaken, if not nil, reports whether the write would be older than the present version, which has this ID:
	// the stamp of a body of any size is drawn before the body comes, and that of an upload when it is created.
	overtaken func(objects.ID) bool
}

func readWriteCondition(h http.Header) writeCondition {
	c := writeCondition{match: h.Get("If-Match"), none: h.Get("If-None-Match")}
	c.present = c.match != "" || c.none != ""
	return c
}

// setSize sets what the condition of a delete asks of the size.
func (c *writeCondition) setSize(text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || c.size != nil {
		return fmt.Errorf("%.64q is not a size, or not the only one", text)
	}
	c.size, c.present = &n, true
	return nil
}

// setModified sets what the condition of a delete asks of the time of the last modification.
func (c *writeCondition) setModified(text string) error {
	t, err := http.ParseTime(text)
	if err != nil {
		if t, err = time.Parse(time.RFC3339, text); err != nil {
			return fmt.Errorf("%.64q is not a time", text)
		}
	}
	if c.modified != nil {
		return errors.New("there are two times")
	}
	c.modified, c.present = &t, true
	return nil
}

// readDeleteCondition reads the condition of DeleteObject.
func readDeleteCondition(h http.Header) (writeCondition, *Error) {
	c := readWriteCondition(h) // If-None-Match was refused before
	c.deletes = true
	for name, set := range map[string]func(string) error{
		headerIfSize: c.setSize, headerIfModified: c.setModified,
	} {
		if text := h.Get(name); text != "" {
			if err := set(text); err != nil {
				return c, invalidArgument("%s: %s.", name, err)
			}
		}
	}
	return c, nil
}

const (
	headerIfSize     = "X-Amz-If-Match-Size"
	headerIfModified = "X-Amz-If-Match-Last-Modified-Time"
)

// ofVersion evaluates what the condition asks of the version that shall be deleted.
func (c writeCondition) ofVersion(o *Object) *Error {
	switch {
	case c.size != nil && *c.size != o.Size:
		return preconditionFailed(headerIfSize)
	case c.modified != nil && !seconds(*c.modified).Equal(seconds(o.Modified)):
		return preconditionFailed(headerIfModified)
	}
	return nil
}

// check evaluates the condition for the present object; nil: there is none.
func (c writeCondition) check(o *Object) *Error {
	switch {
	case o == nil && c.match != "":
		return noSuchKey()
	case o != nil && c.match != "" && !matchesETag(c.match, o.ETag):
		return preconditionFailed("If-Match")
	case o != nil && c.none != "" && matchesETag(c.none, o.ETag):
		return preconditionFailed("If-None-Match")
	}
	return nil
}

// keyLocks order writes with conditions and all other writes of a key. A key has a lock while
// a write holds it or waits for it.
type keyLocks struct {
	mu    sync.Mutex
	locks map[keyName]*keyLock
}

type keyName struct{ bucket, key string }

type keyLock struct {
	// A write with a condition holds all of it, another one a share.
	*semaphore.Weighted
	users int // under keyLocks.mu
}

// Parts of a keyLock.
const (
	lockShare = int64(1)
	lockWhole = int64(math.MaxInt64)
)

// acquire waits for a part of a key's lock until ctx ends, first come, first served.
func (l *keyLocks) acquire(ctx context.Context, name keyName, part int64) (*keyLock, error) {
	l.mu.Lock()
	k := l.locks[name]
	if k == nil {
		k = &keyLock{Weighted: semaphore.NewWeighted(lockWhole)}
		l.locks[name] = k
	}
	k.users++
	l.mu.Unlock()
	if err := k.Acquire(ctx, part); err != nil {
		l.release(name, k, 0)
		return nil, err
	}
	return k, nil
}

// release ends the use of a lock by a write that holds a part of it.
func (l *keyLocks) release(name keyName, k *keyLock, part int64) {
	k.Release(part)
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.users--; k.users == 0 {
		delete(l.locks, name)
	}
}

// conditionsRefused is the answer to writes with conditions where other servers write.
func conditionsRefused(x *exchange) *Error {
	return notImplemented(x.op.name + " with If-Match, If-None-Match or an ETag on a store that other servers write to")
}

// change writes one key of a bucket of objects, or where in is nil of one with plain entries. A condition is checked
// against the object right before the write, and no other write of this server comes between; where other servers
// write, conditions are refused.
func (h *Handler) change(
	x *exchange, in *versioned, key string, c writeCondition, write func(Bucket) error,
) (err error) {
	bucket := h.buckets.Bucket(x.bucket)
	if in == nil {
		if bucket, err = stillPlain(x.ctx(), bucket); err != nil {
			return err
		}
	}
	if !h.o.SoleWriter {
		if c.present {
			return conditionsRefused(x)
		}
		return write(bucket)
	}
	if !c.present {
		return h.locked(x, lockPart{keyName{x.bucket, key}, lockShare, lockShare}, c, func() error { return write(bucket) })
	}
	unlock, err := h.lockIf(x, in, key, c)
	if err != nil {
		return err
	}
	defer func() { unlock(err) }()
	err = write(bucket)
	return err
}

// stillPlain returns a handle of the bucket that has the name now, which stays with that bucket if the name changes hands.
// The bucket must have plain entries. A bucket of objects was created since the request began: in it an entry would be a
// damaged row, and the deletion of a range would take rows of objects. Then stillPlain fails with
// listing.ErrNoSuchBucket.
func stillPlain(ctx context.Context, b Bucket) (Bucket, error) {
	if named, ok := b.(*listing.Bucket); ok {
		very, err := named.Pinned(ctx)
		if err != nil {
			return nil, err
		}
		b = very
	}
	settings, err := b.Settings(ctx)
	if err == nil && len(settings) > 0 {
		err = listing.ErrNoSuchBucket
	}
	return b, err
}

// lockIf locks a key for a write with a condition, if that holds. unlock gets the outcome of the write.
func (h *Handler) lockIf(x *exchange, in *versioned, key string, c writeCondition) (unlock func(error), err error) {
	ranges, err := h.lock(x, lockPart{ofRanges(x.bucket), lockShare, lockShare}, c)
	if err != nil {
		return nil, err
	}
	own, err := h.lock(x, lockPart{keyName{x.bucket, key}, lockWhole, lockShare}, c)
	if err != nil {
		ranges(nil)
		return nil, err
	}
	unlock = func(err error) {
		own(err)
		ranges(err)
	}
	if _, err := h.judge(x, in, key, c); err != nil {
		unlock(nil)
		return nil, err
	}
	return unlock, nil
}

// judge fails unless a condition holds for the present object. It returns the ID of the present version.
func (h *Handler) judge(x *exchange, in *versioned, key string, c writeCondition) (objects.ID, error) {
	o, id, err := h.present(x, in, key)
	if err != nil {
		return id, err
	}
	asked := c.match != "" || c.size != nil || c.modified != nil
	if marker := o == nil && !id.IsZero() && in.status != objects.Never; marker && c.deletes && asked {
		return id, preconditionFailed("If-Match")
	}
	if refusal := c.check(o); refusal != nil {
		return id, refusal
	}
	if o != nil {
		if refusal := c.ofVersion(o); refusal != nil {
			return id, refusal
		}
	}
	if c.overtaken != nil && c.overtaken(id) {
		return id, refuse(http.StatusConflict, "ConditionalRequestConflict",
			"The conditional request cannot succeed: the key was written while the upload was under way. Nothing was written. "+
				"Please try again, as a new upload.")
	}
	return id, nil
}

// changeBy is change of an object by a body, which write reads to its end; size is negative where it is not known. So that
// nobody waits for the client of a large one, a condition is checked before it comes, without the locks, and again when it
// has come: the locks are held from then on.
func (h *Handler) changeBy(
	x *exchange, in *versioned, c writeCondition, body io.Reader, size int64, write func(io.Reader) error,
) (err error) {
	if !c.present || !h.o.SoleWriter || size >= 0 && size <= streamBytes {
		return h.change(x, in, x.key, c, func(Bucket) error { return write(body) })
	}
	before, err := h.judge(x, in, x.key, c)
	if err != nil {
		return err
	}
	c.overtaken = func(now objects.ID) bool { return now != before }
	b := &conditional{Reader: body, lock: func() (func(error), error) { return h.lockIf(x, in, x.key, c) }}
	defer func() {
		if b.unlock != nil {
			b.unlock(err)
		}
	}()
	return write(b)
}

// conditional is a body that ends once its key is locked and the condition holds, else with the error of that.
type conditional struct {
	io.Reader
	lock   func() (unlock func(error), err error)
	unlock func(error) // nil: not yet
	end    error       // nil: not yet
}

func (b *conditional) Read(p []byte) (n int, err error) {
	if b.end != nil {
		return 0, b.end
	}
	n, err = b.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		if b.unlock, b.end = b.lock(); b.end == nil {
			b.end = err
		}
	}
	return n, cmp.Or(b.end, err)
}

// ofRanges names the lock of a bucket that a deletion of a range of keys holds whole, and a write with a condition
// shares.
func ofRanges(bucket string) keyName { return keyName{bucket, ""} } // no key is empty

// lockPart is a part of a lock. Of that so much is kept after a request by a write that is still under way.
type lockPart struct {
	keyName
	part, late int64
}

// locked does a write while it holds a lock.
func (h *Handler) locked(x *exchange, l lockPart, c writeCondition, write func() error) error {
	unlock, err := h.lock(x, l, c)
	if err != nil {
		return err
	}
	defer func() { unlock(err) }()
	err = write()
	return err
}

// lock waits for a lock. unlock gets the outcome of the write.
func (h *Handler) lock(x *exchange, l lockPart, c writeCondition) (unlock func(error), err error) {
	if h.late.Load() >= int64(h.o.MaxRequests) {
		return nil, slowDown(nil, "Too many earlier writes, whose requests have ended, are still under way in the store. "+
			"Nothing was written. Please try again.")
	}
	waiting, cancel := context.WithTimeout(x.ctx(), h.o.RequestTimeout) // a stream has longer
	lock, err := h.locks.acquire(waiting, l.keyName, l.part)
	cancel()
	if err != nil {
		return nil, lockedOut(c.present, err)
	}
	return func(err error) {
		underWay := listing.UnderWay(err)
		if underWay == nil {
			h.locks.release(l.keyName, lock, l.part)
			return
		}
		// The write may still take effect. As its timestamp is drawn, every later write wins
		// over it; but until it has ended no condition can be checked.
		lock.Release(l.part - l.late)
		h.late.Add(1)
		go func() {
			defer h.late.Add(-1)
			defer h.locks.release(l.keyName, lock, l.late)
			<-underWay
		}()
	}, nil
}

// present reads the object that a condition of a write is about; nil: there is none. The ID is that of the newest
// version, also of a delete marker.
func (h *Handler) present(x *exchange, in *versioned, key string) (o *Object, id objects.ID, err error) {
	if in == nil {
		o, err = h.load(x, x.bucket, key)
	} else {
		var i objects.Info
		i, err = in.Head(x.ctx(), []byte(key), objects.Latest)
		o, id = asObject(&i), i.ID
	}
	if errors.Is(err, listing.ErrNotFound) || errors.Is(err, objects.ErrDeleted) {
		return nil, id, nil
	}
	return o, id, err
}

// lockedOut is the answer to a write that did not get its key's lock in time.
func lockedOut(conditional bool, cause error) *Error {
	if conditional {
		e := refuse(http.StatusConflict, "ConditionalRequestConflict",
			"The conditional request cannot succeed: an earlier write of the key is still under way. Nothing was written. "+
				"Please try again.")
		e.Cause = cause
		return e
	}
	return &Error{
		Code: "ServiceUnavailable", Status: http.StatusServiceUnavailable, RetryAfter: retryAfter, Cause: cause,
		Message: "Earlier writes of the key took too long. Nothing was written. Please try again.",
	}
}
