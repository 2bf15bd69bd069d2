package s3api

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strconv"
	"strings"
)

// maxXMLToken is the largest size in bytes of a token, which is a tag or a text, in an XML document that a client
// sends.
const maxXMLToken = 64 << 10

// xmlReader reads the XML document of a request token by token. The caller can stop at the first unexpected element,
// and parts of the document that it does not know take no memory.
type xmlReader struct {
	d *xml.Decoder
	// rest has the bytes that were not read yet. left is how many bytes the token being read may still have.
	rest *bytes.Reader
	left int
}

func newXMLReader(doc []byte) *xmlReader {
	x := &xmlReader{rest: bytes.NewReader(doc)}
	x.d = xml.NewDecoder(x)
	return x
}

// errLongToken says that a tag or a text in an XML document is longer than maxXMLToken.
var errLongToken = errors.New("a tag or a text in it is too long")

// ReadByte returns the next byte of the document to the XML decoder. It fails if the tag or text being read is longer
// than maxXMLToken (64 KiB).
func (x *xmlReader) ReadByte() (byte, error) {
	if x.left--; x.left < 0 {
		return 0, errLongToken
	}
	return x.rest.ReadByte()
}

// Read implements io.Reader. It is never called, as the decoder prefers ReadByte.
func (x *xmlReader) Read([]byte) (int, error) { return 0, io.ErrNoProgress }

func (x *xmlReader) token() (xml.Token, error) {
	x.left = maxXMLToken
	return x.d.Token()
}

// root reads up to the start tag of the document's root element, and returns the name of this element.
func (x *xmlReader) root() (string, error) {
	for {
		t, err := x.token()
		if start, ok := t.(xml.StartElement); ok {
			return start.Name.Local, nil
		}
		if err != nil {
			return "", err
		}
	}
}

// children calls f with the name of each child of the element whose start tag was read last. f must read the child up
// to its end tag.
func (x *xmlReader) children(f func(name string) error) error {
	for {
		t, err := x.token()
		if err != nil {
			return err
		}
		switch t := t.(type) {
		case xml.StartElement:
			if err := f(t.Name.Local); err != nil {
				return err
			}
		case xml.EndElement:
			return nil
		}
	}
}

// text reads the rest of an element that contains only text, and returns the text. It returns an error if the element
// has a child element.
func (x *xmlReader) text() (string, error) {
	var text []byte
	for {
		t, err := x.token()
		if err != nil {
			return "", err
		}
		switch t := t.(type) {
		case xml.CharData:
			if len(text)+len(t) > maxXMLToken {
				return "", errLongToken
			}
			text = append(text, t...)
		case xml.StartElement:
			return "", errors.New(t.Name.Local + " has no place in it")
		case xml.EndElement:
			return string(text), nil
		}
	}
}

// bool reads the rest of an element that contains the text true or false, and returns the value. An empty element is
// false.
func (x *xmlReader) bool() (bool, error) {
	text, err := x.text()
	if text = strings.TrimSpace(text); err != nil || text == "" {
		return false, err
	}
	return strconv.ParseBool(text)
}
