package s3api

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strconv"
	"strings"
)

// maxXMLToken bounds a tag, or a text, of a request's document.
const maxXMLToken = 64 << 10

// xmlReader reads a document token by token, so that the caller can stop at the first
// unexpected one, and unknown parts take no memory.
type xmlReader struct {
	d *xml.Decoder
	// rest is read byte by byte; left is how many the present token may still have.
	rest *bytes.Reader
	left int
}

func newXMLReader(doc []byte) *xmlReader {
	x := &xmlReader{rest: bytes.NewReader(doc)}
	x.d = xml.NewDecoder(x)
	return x
}

var errLongToken = errors.New("a tag or a text in it is too long")

// ReadByte implements io.ByteReader for the decoder.
func (x *xmlReader) ReadByte() (byte, error) {
	if x.left--; x.left < 0 {
		return 0, errLongToken
	}
	return x.rest.ReadByte()
}

// Read is not called: the decoder prefers ReadByte.
func (x *xmlReader) Read([]byte) (int, error) { return 0, io.ErrNoProgress }

func (x *xmlReader) token() (xml.Token, error) {
	x.left = maxXMLToken
	return x.d.Token()
}

// root reads up to the first tag and returns its name.
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

// children calls f, which reads the child to its end, for each child of an element whose tag
// has been read.
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

// text reads an element that has only text, to its end.
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

// bool reads an element that is true or false; an empty one is false.
func (x *xmlReader) bool() (bool, error) {
	text, err := x.text()
	if text = strings.TrimSpace(text); err != nil || text == "" {
		return false, err
	}
	return strconv.ParseBool(text)
}
