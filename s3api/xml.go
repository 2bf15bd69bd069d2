package s3api

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	xmlProlog    = `<?xml version="1.0" encoding="UTF-8"?>` + "\n"
	xmlNamespace = "http://s3.amazonaws.com/doc/2006-03-01/"
)

// xmlBuffer builds a document by appending. A page of a listing has thousands of small
// elements; encoding/xml would cost more than reading them from the store.
type xmlBuffer struct {
	b   []byte
	err error // the first key that the document can't hold
}

var xmlBuffers = sync.Pool{New: func() any { return &xmlBuffer{b: make([]byte, 64<<10)} }}

// keepBuffer bounds the buffers in the pool.
const keepBuffer = 2 << 20

func newXML() *xmlBuffer {
	x := xmlBuffers.Get().(*xmlBuffer)
	x.b, x.err = append(x.b[:0], xmlProlog...), nil
	return x
}

// free returns the buffer to the pool; x and its bytes must not be used afterwards.
func (x *xmlBuffer) free() {
	if cap(x.b) <= keepBuffer {
		xmlBuffers.Put(x)
	}
}

// raw appends XML.
func (x *xmlBuffer) raw(s string) { x.b = append(x.b, s...) }

// close appends an end tag.
func (x *xmlBuffer) close(name string) {
	x.b = append(append(append(x.b, '<', '/'), name...), '>')
}

// root opens a root element in S3's namespace.
func (x *xmlBuffer) root(name string) {
	x.b = append(append(append(x.b, '<'), name...), ` xmlns="`+xmlNamespace+`">`...)
}

// text appends an element with text.
func (x *xmlBuffer) text(name, text string) {
	x.b = append(append(append(x.b, '<'), name...), '>')
	x.b = appendXMLText(x.b, text)
	x.close(name)
}

// time appends an element with a time.
func (x *xmlBuffer) time(name string, t time.Time) {
	x.b = append(append(append(x.b, '<'), name...), '>')
	x.b = appendXMLTime(x.b, t)
	x.close(name)
}

// appendXMLText appends text with XML's escapes. Characters that XML 1.0 does not allow become
// character references, as in S3: lenient parsers read them, and clients can request
// encoding-type=url. Bytes that are not UTF-8 become U+FFFD, so callers check for them.
func appendXMLText[T string | []byte](dst []byte, text T) []byte {
	plain, i := 0, 0 // text[plain:i] needs no escapes
	for i < len(text) && xmlPlain[text[i]] {
		i++
	}
	for i < len(text) {
		c := text[i]
		if xmlPlain[c] {
			i++
			continue
		}
		r, n := rune(c), 1
		if c >= utf8.RuneSelf {
			r, n = utf8.DecodeRuneInString(string(text[i:min(len(text), i+utf8.UTFMax)]))
			if r != utf8.RuneError && r != 0xFFFE && r != 0xFFFF {
				i += n
				continue
			}
		}
		dst = append(dst, text[plain:i]...)
		dst = appendXMLEscape(dst, r)
		i += n
		plain = i
	}
	return append(dst, text[plain:]...)
}

// appendXMLEscape appends a character's escape.
func appendXMLEscape(dst []byte, r rune) []byte {
	switch r {
	case '&':
		return append(dst, "&amp;"...)
	case '<':
		return append(dst, "&lt;"...)
	case '>':
		return append(dst, "&gt;"...)
	case '"':
		return append(dst, "&quot;"...)
	case '\'':
		return append(dst, "&apos;"...)
	case utf8.RuneError:
		return utf8.AppendRune(dst, utf8.RuneError)
	}
	return fmt.Appendf(dst, "&#x%X;", r)
}

// xmlPlain are the ASCII characters that need no escape in XML.
var xmlPlain = func() (plain [math.MaxUint8 + 1]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		plain[c] = !strings.ContainsRune(`&<>"'`, c)
	}
	return plain
}()

// appendURLText appends text as for encoding-type=url: all bytes but letters, digits,
// - _ . / and * are percent-encoded; so a space is %20 and + is %2B. The result needs no
// escapes in XML.
func appendURLText[T string | []byte](dst []byte, text T) []byte {
	const hex = "0123456789ABCDEF"
	plain := 0
	for i := 0; i < len(text); i++ {
		if c := text[i]; !urlPlain[c] {
			dst = append(append(dst, text[plain:i]...), '%', hex[c>>4], hex[c&15])
			plain = i + 1
		}
	}
	return append(dst, text[plain:]...)
}

var urlPlain = func() (plain [math.MaxUint8 + 1]bool) {
	for c := range plain {
		plain[c] = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			strings.IndexByte("-_./*", byte(c)) >= 0
	}
	return plain
}()

// appendXMLTime appends a time in the form of S3's documents, in whole seconds like
// Last-Modified. (A page has a thousand: time.AppendFormat would be a tenth of its cost.)
func appendXMLTime(dst []byte, t time.Time) []byte {
	t = t.UTC()
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	if uint(year) > 9999 {
		return t.Truncate(time.Second).AppendFormat(dst, xmlTime)
	}
	dst = append(dst, "0000-00-00T00:00:00.000Z"...)
	at := dst[len(dst)-len(xmlTime):]
	two(at[0:], year/100)
	two(at[2:], year%100)
	two(at[5:], int(month))
	two(at[8:], day)
	two(at[11:], hour)
	two(at[14:], minute)
	two(at[17:], second)
	return dst
}

// two writes a number of two digits.
func two(at []byte, n int) {
	at[0], at[1] = byte('0'+n/10), byte('0'+n%10)
}

const xmlTime = "2006-01-02T15:04:05.000Z"
