package s3api

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/store"
)

// Error is an error answer in the form of S3. Code is the word by which clients distinguish errors, such as NoSuchKey.
type Error struct {
	Code    string
	Message string
	Status  int
	// Details are further elements of the XML answer, e.g. Condition with the name of the header whose condition did
	// not hold.
	Details []Header
	// RetryAfter, if positive, is the value of the Retry-After header of the answer, in seconds.
	RetryAfter int
	// Cause is the underlying error. It is logged, and not sent to the client.
	Cause error
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s (%d): %s", e.Code, e.Status, e.Message)
	if e.Cause != nil {
		s += ": " + e.Cause.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Cause }

// refuse returns an error answer with the given HTTP status, the error code of S3, and a message.
func refuse(status int, code, format string, args ...any) *Error {
	return &Error{Code: code, Status: status, Message: fmt.Sprintf(format, args...)}
}

func invalidArgument(format string, args ...any) *Error {
	return refuse(http.StatusBadRequest, "InvalidArgument", format, args...)
}

func invalidRequest(format string, args ...any) *Error {
	return refuse(http.StatusBadRequest, "InvalidRequest", format, args...)
}

// malformed returns the error answer for an XML document that can't be parsed. err is the reason. If err is an *Error,
// malformed returns err itself.
func malformed(err error) *Error {
	if refusal, ok := errors.AsType[*Error](err); ok {
		return refusal
	}
	return refuse(http.StatusBadRequest, "MalformedXML",
		"The XML you provided was not well-formed or did not validate against our published schema: %v.", err)
}

func notImplemented(what string) *Error {
	return refuse(http.StatusNotImplemented, "NotImplemented", "This server does not implement %s.", what)
}

// notOperation returns the error answer for the named operation, which is not implemented. Clients send large bodies by
// multipart uploads. For these, the answer says what to send instead: headers that describe a body stored elsewhere.
func notOperation(name string) *Error {
	if strings.Contains(name, "Multipart") || strings.HasSuffix(name, "Part") || strings.HasSuffix(name, "Parts") {
		name += ", as values are metadata here: keep the object's bytes elsewhere, and send its size and ETag in " +
			headerSize + " and " + headerETag + " with an empty body"
	}
	return notImplemented(name)
}

func noSuchBucket(name string) *Error {
	return refuse(http.StatusNotFound, "NoSuchBucket", "The bucket %q does not exist.", name)
}

func noSuchKey() *Error {
	return refuse(http.StatusNotFound, "NoSuchKey", "The specified key does not exist.")
}

// retryAfter is the time in seconds after which a client should repeat a request. It is in answers that say that the
// store is unavailable, or that the outcome of a write is unknown. A lease of the store is renewed within this time.
const retryAfter = 1

// fromStore returns the error answer for err, an error of the store or of the packages above it. The answer depends on
// the store.Kind of err. write is true if the request may have changed something.
func fromStore(err error, write bool) *Error {
	e := &Error{Cause: err}
	switch kind := store.KindOf(err); kind {
	case store.InvalidArgument:
		e.Status, e.Code, e.Message = http.StatusBadRequest, "InvalidArgument", err.Error()
	case store.Unavailable, store.Timeout:
		e.Status, e.Code, e.RetryAfter = http.StatusServiceUnavailable, "ServiceUnavailable", retryAfter
		e.Message = "The store can't be reached in time. Please try again."
		unknown := errors.Is(err, listing.ErrOutcomeUnknown)
		switch {
		case errors.Is(err, store.ErrFull) && !unknown:
			// The status is not 503, because clients would send the request again at once.
			e.Status, e.Code, e.RetryAfter = http.StatusInsufficientStorage, "InsufficientStorage", 0
			e.Message = "The server's disk is full: the write was refused. Reads and deletes go on. Please have the disk " +
				"enlarged, or delete something: bodies of deleted objects give their space back a day later, or when " +
				"the operator calls rebalancer clean --now."
		case errors.Is(err, store.ErrUnwritable) && !unknown:
			e.Message = "The server's store can't be written at present: the write was refused. Please try again later."
		case errors.Is(err, listing.ErrTimeUnknown):
			e.Message = "This server does not know the time of its store well enough to write at present. Nothing was " +
				"written. Please try again, or another server."
		case write:
			e.Message = "It is unknown whether the write took effect. Please send it again, or look."
		}
	case store.TooMuchDeadData:
		e.Status, e.Code, e.RetryAfter = http.StatusServiceUnavailable, "SlowDown", 60
		e.Message = "Too much deleted data lies where this request has to read. Please try again later."
	case store.Conflict:
		e.Status, e.Code, e.Message = http.StatusConflict, "OperationAborted",
			"A conflicting operation is in progress. Please try again."
	default:
		e.Status, e.Code = http.StatusInternalServerError, "InternalError"
		e.Message = "An internal error happened; the server's log has it under this request's id."
		if kind == store.Corrupt {
			e.Message = "What is stored is damaged: " + err.Error()
			if errors.Is(err, objects.ErrBodyLost) {
				e.Message += ". Other objects and listings are as before; `rebalancer audit` says which bodies are lost."
			}
		}
	}
	return e
}
