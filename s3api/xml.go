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

// xmlBuffer is an XML document that is built by appending text. A page of a listing has thousands of small elements,
// for which encoding/xml would take longer than the store takes to read them.
type xmlBuffer struct {
	b   []byte
	err error // set at the first key that the document cannot hold
}

// xmlBuffers is a pool of documents, whose memory is used again for later documents.
var xmlBuffers = sync.Pool{New: func() any { return &xmlBuffer{b: make([]byte, 64<<10)} }}

// keepBuffer is the largest capacity, in bytes, of a buffer that is kept for later documents. Larger buffers are left
// to the garbage collector.
const keepBuffer = 2 << 20

func newXML() *xmlBuffer {
	x := xmlBuffers.Get().(*xmlBuffer)
	x.b, x.err = append(x.b[:0], xmlProlog...), nil
	return x
}

// free gives the memory of the document back for other documents. Neither x nor its bytes may be used afterwards.
func (x *xmlBuffer) free() {
	if cap(x.b) <= keepBuffer {
		xmlBuffers.Put(x)
	}
}

// raw appends s, which is XML already, without escaping.
func (x *xmlBuffer) raw(s string) { x.b = append(x.b, s...) }

// close appends the end tag of the element with the given name.
func (x *xmlBuffer) close(name string) {
	x.b = append(append(append(x.b, '<', '/'), name...), '>')
}

// root appends the start tag of the document's root element, with the given name and the XML namespace of S3.
func (x *xmlBuffer) root(name string) {
	x.b = append(append(append(x.b, '<'), name...), ` xmlns="`+xmlNamespace+`">`...)
}

// text appends an element with the given name that contains text, which is escaped as XML needs.
func (x *xmlBuffer) text(name, text string) {
	x.b = append(append(append(x.b, '<'), name...), '>')
	x.b = appendXMLText(x.b, text)
	x.close(name)
}

// time appends an element with the given name that contains the time t in S3's form.
func (x *xmlBuffer) time(name string, t time.Time) {
	x.b = append(append(append(x.b, '<'), name...), '>')
	x.b = appendXMLTime(x.b, t)
	x.close(name)
}

// appendXMLText appends text to dst, escaped for XML. Characters that XML 1.0 does not allow become character
// references, as in S3: lenient parsers read them, and clients can request encoding-type=url instead. Bytes that are
// not UTF-8 become U+FFFD, so a caller must check the text for them first.
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

// appendXMLEscape appends the XML escape of the character r to dst, e.g. &amp; for &.
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

// xmlPlain is a table over all bytes: true for an ASCII character that needs no escape in XML text.
var xmlPlain = func() (plain [math.MaxUint8 + 1]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		plain[c] = !strings.ContainsRune(`&<>"'`, c)
	}
	return plain
}()

// appendURLText appends text to dst in the form that clients request by encoding-type=url. All bytes except letters,
// digits, - _ . / and * are percent-encoded: a space becomes %20, and + becomes %2B. The result needs no escapes in
// XML.
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

// urlPlain is a table over all bytes: true for a byte that is not percent-encoded in keys that clients want
// URL-encoded.
var urlPlain = func() (plain [math.MaxUint8 + 1]bool) {
	for c := range plain {
		plain[c] = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			strings.IndexByte("-_./*", byte(c)) >= 0
	}
	return plain
}()

// appendXMLTime appends the time t to dst in the form of S3's XML documents, in whole seconds. A page has a thousand
// times, and time.AppendFormat would take a tenth of the time of a page.
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

// two writes the number n, from 0 to 99, as two decimal digits. The parameter `at` is the memory into whose first two
// bytes the digits are written.
func two(at []byte, n int) {
	at[0], at[1] = byte('0'+n/10), byte('0'+n%10)
}

const xmlTime = "2006-01-02T15:04:05.000Z"
