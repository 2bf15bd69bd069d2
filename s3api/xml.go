package s3api

import (
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	xmlProlog    = `<?xml version="1.0" encoding="UTF-8"?>` + "\n"
	xmlNamespace = "http://s3.amazonaws.com/doc/2006-03-01/"
)

// xmlBuffer builds a document by appending. A page of a listing has thousands
// of small elements; reflection would cost more than reading them.
type xmlBuffer struct{ b []byte }

var xmlBuffers = sync.Pool{New: func() any { return &xmlBuffer{b: make([]byte, 0, 64<<10)} }}

// keepBuffer bounds what the pool holds on to.
const keepBuffer = 4 << 20

func newXML() *xmlBuffer {
	x := xmlBuffers.Get().(*xmlBuffer)
	x.b = append(x.b[:0], xmlProlog...)
	return x
}

// free gives the buffer back; x and its bytes are not used after.
func (x *xmlBuffer) free() {
	if cap(x.b) <= keepBuffer {
		xmlBuffers.Put(x)
	}
}

// raw appends text that is XML already.
func (x *xmlBuffer) raw(s string) { x.b = append(x.b, s...) }

// open and close append tags; an empty name (of a root) is not checked.
func (x *xmlBuffer) open(name string) {
	x.b = append(append(append(x.b, '<'), name...), '>')
}

func (x *xmlBuffer) close(name string) {
	x.b = append(append(append(x.b, '<', '/'), name...), '>')
}

// root opens a root element in S3's namespace.
func (x *xmlBuffer) root(name string) {
	x.b = append(append(append(x.b, '<'), name...), ` xmlns="`+xmlNamespace+`">`...)
}

// text appends an element that holds text.
func (x *xmlBuffer) text(name, text string) {
	x.open(name)
	x.b = appendXMLText(x.b, text)
	x.close(name)
}

// appendXMLText appends text with XML's escapes. Characters that XML 1.0 can't
// hold become character references, as S3 writes them (lenient parsers read
// them; encoding-type=url is the way around); bytes that are not UTF-8 become
// U+FFFD, so callers look for those before (representable).
func appendXMLText[T string | []byte](dst []byte, text T) []byte {
	const hex = "0123456789ABCDEF"
	plain := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c < utf8.RuneSelf {
			esc := ""
			switch {
			case c == '&':
				esc = "&amp;"
			case c == '<':
				esc = "&lt;"
			case c == '>':
				esc = "&gt;"
			case c == '"':
				esc = "&quot;"
			case c == '\'':
				esc = "&apos;"
			case c >= ' ':
				i++
				continue
			}
			dst = append(dst, text[plain:i]...)
			if esc == "" {
				dst = append(dst, '&', '#', 'x')
				if c > 15 {
					dst = append(dst, hex[c>>4])
				}
				dst = append(dst, hex[c&15], ';')
			}
			dst = append(dst, esc...)
			i++
			plain = i
			continue
		}
		r, n := utf8.DecodeRuneInString(string(text[i:min(len(text), i+utf8.UTFMax)]))
		if (r == utf8.RuneError && n == 1) || r == 0xFFFE || r == 0xFFFF {
			dst = append(dst, text[plain:i]...)
			switch r {
			case 0xFFFE:
				dst = append(dst, "&#xFFFE;"...)
			case 0xFFFF:
				dst = append(dst, "&#xFFFF;"...)
			default:
				dst = utf8.AppendRune(dst, utf8.RuneError)
			}
			plain = i + n
		}
		i += n
	}
	return append(dst, text[plain:]...)
}

// appendURLText appends text as encoding-type=url wants it: everything but
// letters, digits, - _ . / and * is percent-encoded, byte by byte; so a space is
// %20 and + is %2B. The result needs no escapes in XML.
func appendURLText[T string | []byte](dst []byte, text T) []byte {
	const hex = "0123456789ABCDEF"
	for i := 0; i < len(text); i++ {
		c := text[i]
		if urlPlain[c] {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', hex[c>>4], hex[c&15])
		}
	}
	return dst
}

var urlPlain = func() (plain [256]bool) {
	for c := range plain {
		plain[c] = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			strings.IndexByte("-_./*", byte(c)) >= 0
	}
	return plain
}()

// appendXMLTime appends S3's form of a time in documents. Like S3 it shows
// whole seconds, so that a listing agrees with Last-Modified.
func appendXMLTime(dst []byte, t time.Time) []byte {
	return t.UTC().Truncate(time.Second).AppendFormat(dst, "2006-01-02T15:04:05.000Z")
}
