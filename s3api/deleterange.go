package s3api

import (
	"bytes"
	"time"

	"github.com/evenkeel/evenkeel/store"
)

const (
	// deleteRangeTime is the longest time that one request spends on deleting a range of keys. The client continues
	// with another request.
	deleteRangeTime = 5 * time.Second
	// deleteRangeMemory is the memory in bytes for one page of entries that are deleted key by key.
	deleteRangeMemory = 4 << 20
)

// notOfDeletes are those parameters of listings that the server refuses in a deletion of a range of keys. A client that
// sends one of them may mean fewer keys than would be deleted.
var notOfDeletes = []string{"delimiter", "start-after", "continuation-token", "max-keys", paramReverse}

// deleteRange deletes those keys of a plain bucket that have the request's prefix and lie between its two bounds. The
// prefix and each bound may be missing. If the time of one request (5 s) is not enough, the answer names a key. The
// client then continues at this key by another request, which may go to another server.
func (h *Handler) deleteRange(x *exchange) error {
	if refusal := h.beginWith(x, deleteRangeMemory); refusal != nil {
		return refusal
	}
	l, refusal := parseListQuery(x.query, formV2)
	if refusal != nil {
		return refusal
	}
	for _, name := range notOfDeletes {
		if x.query.Has(name) { // else more keys could be deleted than the client meant
			return invalidArgument("%s takes prefix, %s and %s, not %s.", paramDeleteRange, paramFrom, paramTo, name)
		}
	}
	for name, key := range map[string][]byte{"prefix": l.Prefix, paramFrom: l.From, paramTo: l.To} {
		if len(key) > store.MaxKeyBytes {
			return invalidArgument("%s has %d bytes: at most %d.", name, len(key), store.MaxKeyBytes)
		}
	}
	in, err := h.objectsOf(x.ctx(), x.bucket)
	if err != nil {
		return err
	}
	if in != nil {
		return notImplemented("deletion of ranges in a bucket of objects: delete them one by one, or by a lifecycle rule")
	}
	from, to := l.From, l.To
	if bytes.Compare(from, l.Prefix) < 0 {
		from = l.Prefix
	}
	if end := store.PrefixEnd(l.Prefix); len(end) > 0 && (len(to) == 0 || bytes.Compare(end, to) < 0) {
		to = end
	}
	if len(to) > 0 && bytes.Compare(from, to) >= 0 { // no key is in the range and has the prefix
		return h.answerDeleteRange(x, &l, nil, h.exists(x))
	}
	bucket, err := stillPlain(x.ctx(), h.buckets.Bucket(x.bucket))
	if err != nil {
		return err
	}
	until := time.Now().Add(min(deleteRangeTime, h.o.RequestTimeout/4))
	var next []byte
	remove := func() (err error) {
		next, err = bucket.DeleteRangeUntil(x.ctx(), from, to, until)
		return err
	}
	if h.o.SoleWriter {
		err = h.locked(x, lockPart{ofRanges(x.bucket), lockWhole, lockWhole}, writeCondition{}, remove)
	} else {
		err = remove()
	}
	return h.answerDeleteRange(x, &l, next, err)
}

func (h *Handler) answerDeleteRange(x *exchange, l *listQuery, next []byte, err error) error {
	if err != nil {
		return err
	}
	return x.writeDocument("EvenkeelDeleteRangeResult", func(b *xmlBuffer) {
		if l.urlEncoded {
			b.text("EncodingType", "url")
		}
		if next != nil {
			b.key("NextKey", next, l)
		}
	})
}
