// Package keytext formats keys, which are bytes, as text for flags, files, logs and reports, and parses that text.
//
// The text form is UTF-8 with escapes. Every byte that is not part of a printable character is written as \xNN (two
// hexadecimal digits), and a backslash as \\. Every key can be parsed back from its text form, which has no line break,
// tab or terminal control. The JSON form is a string if the key is valid UTF-8, else {"b64":"…"}.
package keytext

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const hexDigits = "0123456789abcdef"

// Append appends the text form of key to dst and returns the extended slice. The text form is UTF-8. Bytes that are not
// part of a printable character are written as \xNN, and a backslash as \\.
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

// Format returns the text form of key, e.g. `a\x00b` for the bytes 'a', 0 and 'b'. The text form is UTF-8. Bytes that
// are not part of a printable character are written as \xNN, and a backslash as \\.
func Format(key []byte) string { return string(Append(make([]byte, 0, len(key)+8), key)) }

// Parse returns the key that the text form stands for (see Format). In the text, \xNN stands for one byte and \\ for a
// backslash. Any other backslash is an error. All other characters stand for themselves, including characters that
// Format would write as \xNN.
func Parse(text string) ([]byte, error) {
	key := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		switch rest := text[i:]; {
		case rest[0] != '\\':
			key = append(key, rest[0])
			i++
			continue
		case strings.HasPrefix(rest, `\\`):
			key = append(key, '\\')
			i += 2
			continue
		case strings.HasPrefix(rest, `\x`) && len(rest) >= 4:
			if b, err := strconv.ParseUint(rest[2:4], 16, 8); err == nil {
				key = append(key, byte(b))
				i += 4
				continue
			}
		}
		return nil, fmt.Errorf(`%q has a backslash at byte %d that is neither \\ nor \xNN`, text, i)
	}
	return key, nil
}

// Key is the key of a row as it appears in flags, configuration and JSON. The text form of a Key is UTF-8 with escapes
// (\xNN) for bytes that are not printable.
type Key []byte

// String returns the text form of the key: UTF-8 with escapes (\xNN) for bytes that are not printable.
func (k Key) String() string { return Format(k) }

// MarshalText returns the text form of the key: UTF-8 with escapes (\xNN) for bytes that are not printable. The error
// is always nil.
func (k Key) MarshalText() ([]byte, error) { return Append(nil, k), nil }

// UnmarshalText sets the key from its text form, which is UTF-8 with escapes (see Parse). UnmarshalText fails if a
// backslash is not part of \\ or \xNN.
func (k *Key) UnmarshalText(text []byte) error {
	key, err := Parse(string(text))
	*k = key
	return err
}

// Span is an interval of keys as it appears in JSON: from Start, inclusive, to End, exclusive. An empty End is plus
// infinity.
type Span struct {
	Start Key `json:"start"`
	End   Key `json:"end"`
}

// Keys is a list of keys of rows for use in JSON. Each key is encoded like a Key: as a string, or as an object with
// base64 if the key is not valid UTF-8. A nil list is encoded as [], never as null.
type Keys [][]byte

// MarshalJSON returns the keys as a JSON array. Each key is a string, or {"b64":"…"} if the key is not valid UTF-8. A
// nil list becomes [].
func (k Keys) MarshalJSON() ([]byte, error) {
	list := make([]Key, len(k))
	for i := range k {
		list[i] = k[i]
	}
	return encode(list)
}

// UnmarshalJSON sets the list from a JSON array of keys. Each key is a string or {"b64":"…"} with the key in base64.
func (k *Keys) UnmarshalJSON(data []byte) error {
	var list []Key
	err := json.Unmarshal(data, &list)
	*k = make(Keys, len(list))
	for i := range list {
		(*k)[i] = list[i]
	}
	return err
}

// MarshalJSON returns the key as a JSON string or, if the key is not valid UTF-8, as {"b64":"…"} with the key in
// base64.
func (k Key) MarshalJSON() ([]byte, error) {
	if !utf8.Valid(k) {
		return fmt.Appendf(nil, `{"b64":%q}`, base64.StdEncoding.EncodeToString(k)), nil
	}
	return encode(string(k))
}

// encode returns v as JSON, like json.Marshal, but leaves the characters <, > and & unescaped, since people read the
// text.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// UnmarshalJSON sets the key from JSON, which is a string or, for a key that is not valid UTF-8, {"b64":"…"} with the
// key in base64. UnmarshalJSON fails on any other JSON.
func (k *Key) UnmarshalJSON(data []byte) error {
	var s string
	if json.Unmarshal(data, &s) == nil {
		*k = Key(s)
		return nil
	}
	var e struct {
		B64 *[]byte `json:"b64"`
	}
	if err := json.Unmarshal(data, &e); err != nil || e.B64 == nil {
		return fmt.Errorf(`a key is a string or {"b64":"…"}, not %.80s`, data)
	}
	*k = *e.B64
	return nil
}
