// Package keytext formats keys, which are bytes, as text for flags, files, logs and reports,
// and parses them.
//
// The text form is UTF-8 with escapes: every byte that is not part of a
// printable character is \xNN (two hexadecimal digits), and a backslash is \\.
// It is reversible, and holds no line break, tab or terminal control. The JSON
// form is a string where the key is valid UTF-8, else {"b64":"…"}.
package keytext

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// Append appends the text form of key to dst.
func Append(dst, key []byte) []byte {
	for len(key) > 0 {
		r, n := utf8.DecodeRune(key)
		switch {
		case r == '\\':
			dst = append(dst, '\\', '\\')
		case (r == utf8.RuneError && n == 1) || !unicode.IsPrint(r):
			for _, b := range key[:n] {
				dst = append(dst, '\\', 'x', hexDigits[b>>4], hexDigits[b&15])
			}
		default:
			dst = append(dst, key[:n]...)
		}
		key = key[n:]
	}
	return dst
}

// Format returns the text form of key.
func Format(key []byte) string { return string(Append(make([]byte, 0, len(key)+8), key)) }

// Parse parses the text form. Only the backslash is special, and one that begins no escape
// is an error; other text need not be printable.
func Parse(text string) ([]byte, error) {
	key := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		switch rest := text[i:]; {
		case rest[0] != '\\':
			key = append(key, rest[0])
			i++
		case strings.HasPrefix(rest, `\\`):
			key = append(key, '\\')
			i += 2
		case len(rest) >= 4 && rest[1] == 'x' && isHex(rest[2]) && isHex(rest[3]):
			key = append(key, unhex(rest[2])<<4|unhex(rest[3]))
			i += 4
		default:
			return nil, fmt.Errorf(`%q has a backslash at byte %d that is neither \\ nor \xNN`, text, i)
		}
	}
	return key, nil
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func unhex(c byte) byte {
	switch {
	case c <= '9':
		return c - '0'
	case c <= 'F':
		return c - 'A' + 10
	}
	return c - 'a' + 10
}

// Key is a key in flags, configuration and JSON.
type Key []byte

// String is the text form.
func (k Key) String() string { return Format(k) }

// MarshalText writes the text form.
func (k Key) MarshalText() ([]byte, error) { return Append(nil, k), nil }

// UnmarshalText reads the text form.
func (k *Key) UnmarshalText(text []byte) error {
	key, err := Parse(string(text))
	*k = key
	return err
}

// Keys is a list of keys that JSON writes like Key, and never as null.
type Keys [][]byte

// MarshalJSON writes a list.
func (k Keys) MarshalJSON() ([]byte, error) {
	b := []byte{'['}
	for i, key := range k {
		if i > 0 {
			b = append(b, ',')
		}
		text, err := Key(key).MarshalJSON()
		if err != nil {
			return nil, err
		}
		b = append(b, text...)
	}
	return append(b, ']'), nil
}

// UnmarshalJSON reads a list.
func (k *Keys) UnmarshalJSON(data []byte) error {
	var list []Key
	err := json.Unmarshal(data, &list)
	*k = make(Keys, len(list))
	for i := range list {
		(*k)[i] = list[i]
	}
	return err
}

type encoded struct {
	B64 *[]byte `json:"b64"`
}

// MarshalJSON writes a string, or {"b64":"…"} for a key that is not UTF-8.
func (k Key) MarshalJSON() ([]byte, error) {
	if !utf8.Valid(k) {
		return fmt.Appendf(nil, `{"b64":%q}`, base64.StdEncoding.EncodeToString(k)), nil
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // no page is made of it, and people read it
	if err := e.Encode(string(k)); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// UnmarshalJSON reads both forms.
func (k *Key) UnmarshalJSON(data []byte) error {
	var s string
	if json.Unmarshal(data, &s) == nil {
		*k = Key(s)
		return nil
	}
	var e encoded
	if err := json.Unmarshal(data, &e); err != nil || e.B64 == nil {
		return fmt.Errorf(`a key is a string or {"b64":"…"}, not %.80s`, data)
	}
	*k = *e.B64
	return nil
}
