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

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
)

// verdict is the result of evaluating the conditions of a read, such as If-None-Match: the read goes ahead, or is
// answered 304 (not modified) or 412 (failed).
type verdict int

const (
	goAhead verdict = iota
	notModified
	failed
)

// evaluate decides how a read with conditions is answered. It compares the conditions, in the headers h, with the
// object o (RFC 9110, section 13.2.2). prefix is the text before the names of the headers, e.g. for the source of a
// copy. If-Match overrides If-Unmodified-Since, and If-None-Match overrides If-Modified-Since. A malformed date is
// ignored, and so is an If-Modified-Since after now, the server's time, which no client can have been told. The second
// result is the name of the header that decided.
func evaluate(h http.Header, prefix string, o *Object, now time.Time) (verdict, string) {
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
		// The time of the object itself counts even if the clock of this server is behind.
		if !t.After(now) || t.Equal(seconds(o.Modified)) {
			return notModified, "If-Modified-Since"
		}
	}
	return goAhead, ""
}

// seconds returns the time t in UTC without fractions of a second, which is the precision of the header Last-Modified.
func seconds(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// matchesETag reports whether list, the value of an If-Match or If-None-Match header, includes an object's etag. The
// value is *, or a list of ETags with or without quotes, weak or strong.
func matchesETag(list, etag string) bool {
	if same(list, etag) { // the ETag of an external object may have commas
		return true
	}
	return slices.ContainsFunc(elements(list), func(one string) bool { return one == "*" || same(one, etag) })
}

// same reports whether given, an ETag as a client sends it, is the ETag of an object. Quotes and the prefix W/ of given
// are ignored.
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

// parseRange returns the offset and the length in bytes that value, a Range header, asks for, of an object of size
// bytes. The result partial is false if the answer is the whole object. As in S3, a malformed header or several ranges
// are ignored. A range that begins at or beyond the object's end is an error.
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

// writeCondition is the condition in the headers of a write, such as If-Match. The write is refused if the object that
// is stored now does not meet the condition.
type writeCondition struct {
	match string // If-Match; empty: no such header
	none  string // If-None-Match
	// size and modified, if not nil, are the size in bytes and the time of modification that a version must have to be
	// deleted. The version is the one that the request names or, without a name, the newest.
	size     *int64
	modified *time.Time
	// deletes is true for the condition of a delete. Then a delete marker counts as a version that does not match. For
	// other writes a delete marker means that the object does not exist.
	deletes bool
	present bool // whether there is a condition
	// overtaken, if not nil, is called with the ID of the newest version right before the write. It returns true if
	// that version was written after the condition was first checked. Then the write is refused.
	overtaken func(objects.ID) bool
}

// readWriteCondition returns the condition of a write from its headers If-Match and If-None-Match.
func readWriteCondition(h http.Header) writeCondition {
	c := writeCondition{match: h.Get("If-Match"), none: h.Get("If-None-Match")}
	c.present = c.match != "" || c.none != ""
	return c
}

// setSize adds a requirement to the condition of a delete: the version to be deleted must have a certain size. text is
// the size in bytes, as the client sent it.
func (c *writeCondition) setSize(text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || c.size != nil {
		return fmt.Errorf("%.64q is not a size, or not the only one", text)
	}
	c.size, c.present = &n, true
	return nil
}

// setModified adds a requirement to the condition of a delete: the version to be deleted must have been last modified
// at a certain time. text is the time as the client sent it, in the form of HTTP or of RFC 3339.
func (c *writeCondition) setModified(text string) error {
	t, err := parseTime(text)
	if err != nil {
		return err
	}
	if c.modified != nil {
		return errors.New("there are two times")
	}
	c.modified, c.present = &t, true
	return nil
}

// parseTime parses a time in the form of HTTP or of RFC 3339.
func parseTime(text string) (time.Time, error) {
	t, err := http.ParseTime(text)
	if err != nil {
		if t, err = time.Parse(time.RFC3339, text); err != nil {
			return t, fmt.Errorf("%.64q is not a time", text)
		}
	}
	return t, nil
}

// readDeleteCondition returns the condition of a DeleteObject from the request's headers h, such as If-Match.
func readDeleteCondition(h http.Header) (writeCondition, *Error) {
	c := readWriteCondition(h) // refusedHeader has refused If-None-Match
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
	// headerIfInitiated has the condition for aborting an upload: when the upload began.
	headerIfInitiated = "X-Amz-If-Match-Initiated-Time"
)

// ofVersion returns an error if the version o, which is to be deleted, does not have the size or the time that the
// condition requires.
func (c writeCondition) ofVersion(o *Object) *Error {
	switch {
	case c.size != nil && *c.size != o.Size:
		return preconditionFailed(headerIfSize)
	case c.modified != nil && !seconds(*c.modified).Equal(seconds(o.Modified)):
		return preconditionFailed(headerIfModified)
	}
	return nil
}

// check returns an error if the object o, which is stored now, does not meet the condition on its ETag. A nil o means
// that the object does not exist.
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

// keyLocks has a lock for each key that this server is writing. A write with a condition, such as If-Match, takes the
// lock before it checks the condition, and gives it back after the write. So no other write comes in between.
type keyLocks struct {
	mu    sync.Mutex
	locks map[keyName]*keyLock
}

// keyName identifies a key of a bucket for locking. An empty key stands for ranges of keys (see ofRanges).
type keyName struct{ bucket, key string }

// keyLock is the lock of one key, and the number of writes that hold it or wait for it.
type keyLock struct {
	// Weighted is the lock itself. A write with a condition takes the whole semaphore, and any other write takes one
	// unit of it.
	*semaphore.Weighted
	users int // under keyLocks.mu
}

// lockShare and lockWhole say how much of a key's lock a write takes. With lockShare, many writes hold the lock at
// once. With lockWhole, one write holds it alone.
const (
	lockShare = int64(1)
	lockWhole = int64(math.MaxInt64)
)

// acquire waits for the lock of a key. part is lockShare, if the lock may be held together with other writes, or
// lockWhole, to hold it alone. Waiting calls get the lock in the order in which they came. acquire fails if ctx ends
// first.
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

// release gives back the lock of a key, or a part of the lock. part is the amount that acquire has taken. A lock that
// nobody holds or waits for is removed from the map.
func (l *keyLocks) release(name keyName, k *keyLock, part int64) {
	k.Release(part)
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.users--; k.users == 0 {
		delete(l.locks, name)
	}
}

// conditionsRefused returns the error answer for a conditional write to a store that several servers write to. The
// server refuses the write, because its locks can't stop writes of other servers.
func conditionsRefused(x *exchange) *Error {
	return notImplemented(x.op.name + " with If-Match, If-None-Match or an ETag on a store that other servers write to")
}

// change checks the condition c of a write to one key, and then calls write. The parameter `in` is the bucket of
// objects, or nil for a plain bucket. No other write of this server to the key comes between the check and the write.
// If other servers write to the store, too, a write with a condition is refused.
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

// stillPlain returns a handle of exactly the plain bucket that has the name of b now. The handle never leads to a later
// bucket of that name. If a bucket of objects has the name by now, the error is listing.ErrNoSuchBucket: a plain write
// would damage or delete rows there.
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

// lockIf locks a key for a write with a condition, and then checks the condition c. The parameter `in` is the bucket of
// objects, or nil for a plain bucket. If the condition does not hold, lockIf unlocks the key and returns an error.
// Otherwise the caller writes, and then calls unlock with the error of the write, or nil.
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

// judge returns an error if the object that is stored now does not meet the condition c. The parameter `in` is the
// bucket of objects, or nil for a plain bucket. judge also returns the ID of the newest version of the object.
func (h *Handler) judge(x *exchange, in *versioned, key string, c writeCondition) (objects.ID, error) {
	o, id, err := h.present(x, in, key)
	if err != nil {
		return id, err
	}
	asked := c.match != "" || c.size != nil || c.modified != nil
	if marker := o == nil && id != objects.Latest && in.status != objects.Never; marker && c.deletes && asked {
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
		return id, overtaken()
	}
	return id, nil
}

func overtaken() *Error {
	return refuse(http.StatusConflict, "ConditionalRequestConflict",
		"The conditional request cannot succeed: the key was written while the upload was under way. Nothing was written. "+
			"Please try again, as a new upload.")
}

// changeBy writes an object from a body, if the condition c holds. The parameters are:
//   - in: the bucket of objects, or nil for a plain bucket
//   - size: the length of the body in bytes, or negative if unknown
//   - write: a function that stores the body, and reads it to its end
//
// For a large body the condition is checked twice: first without locks, and again with locks once the body has arrived.
// So other writes of the key do not wait for a slow client.
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

// conditional is the body of a write with a condition, such as If-Match. Once the whole body has been read, it locks
// the key and checks the condition. The last Read returns io.EOF if the condition holds, and the error answer
// otherwise.
type conditional struct {
	io.Reader
	lock   func() (unlock func(error), err error)
	unlock func(error) // nil: the locks are not held
	end    error       // the result of the last Read; nil: not at the end
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

// ofRanges returns the name of a bucket's lock, which keeps deletions of a range of keys apart from writes with a
// condition. A deletion of a range takes the whole lock. A write with a condition takes one unit, so that many such
// writes can run at once.
func ofRanges(bucket string) keyName { return keyName{bucket, ""} } // keys are never empty

// lockPart says which lock a write takes, and how much of the lock. The write holds the amount part until its request
// ends. If the store still works on the write after that, the write keeps the amount late, which is at most part.
type lockPart struct {
	keyName
	part, late int64
}

// locked takes the lock l, calls write, and gives the lock back. It returns the error of write.
func (h *Handler) locked(x *exchange, l lockPart, c writeCondition, write func() error) error {
	unlock, err := h.lock(x, l, c)
	if err != nil {
		return err
	}
	defer func() { unlock(err) }()
	err = write()
	return err
}

// lock waits for the lock l, for a write with the condition c. After its write the caller calls unlock with the error
// of the write, or nil. The store may still be working on the write then. If so, unlock gives back all but the amount
// l.late, and the rest once the store is done.
func (h *Handler) lock(x *exchange, l lockPart, c writeCondition) (unlock func(error), err error) {
	if h.late.Load() >= int64(h.o.MaxRequests) {
		return nil, slowDown(nil, "Too many earlier writes, whose requests have ended, are still under way in the store. "+
			"Nothing was written. Please try again.")
	}
	waiting, cancel := context.WithTimeout(x.ctx(), h.o.RequestTimeout) // the context of a stream lasts longer
	lock, err := h.locks.acquire(waiting, l.keyName, l.part)
	cancel()
	if err != nil {
		return nil, lockedOut(c.present, err)
	}
	return func(err error) {
		underWay := door.UnderWay(err)
		if underWay == nil {
			h.locks.release(l.keyName, lock, l.part)
			return
		}
		// The write may still take effect. Its timestamp is drawn already, so every later write wins over it.
		// But no condition of the key can be checked until the write has ended.
		lock.Release(l.part - l.late)
		h.late.Add(1)
		go func() {
			defer h.late.Add(-1)
			defer h.locks.release(l.keyName, lock, l.late)
			<-underWay
		}()
	}, nil
}

// present returns the object that is stored under the key now, to be compared with the condition of a write. The
// parameter `in` is the bucket of objects, or nil for a plain bucket. o is nil if the object does not exist. id is the
// ID of the newest version, which may be a delete marker.
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

// lockedOut returns the error answer for a write that waited too long for the lock of its key. Nothing was written.
// conditional is true for a write with a condition, which gets another answer than other writes. cause is the error of
// waiting.
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
