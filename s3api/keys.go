package s3api

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Keys finds access keys, once per request. It must be safe for concurrent use.
type Keys interface {
	// Key returns nil if there is no such key.
	Key(id string) *Key
}

// Key is an access key: the secret that signs requests, and what these may do. It is
// immutable.
type Key struct {
	ID, Secret string
	// Write allows changes; else the key is read-only.
	Write bool
	// AnyBytes allows storing object keys that are not UTF-8. Listings that have one fail
	// for clients that don't request encoded keys.
	AnyBytes bool
	// Everything allows access to all buckets; else Only has the parts that the key may
	// access.
	Everything bool
	Only       []Area
}

// Scope describes what the key may access.
func (k *Key) Scope() string {
	if k.Everything {
		return "everything"
	}
	parts := make([]string, len(k.Only))
	for i, a := range k.Only {
		if parts[i] = a.Bucket; a.Prefix != "" {
			parts[i] += "/" + a.Prefix
		}
	}
	return "only " + strings.Join(parts, ", ")
}

// Area is a bucket, or the keys of a bucket that begin with Prefix.
type Area struct{ Bucket, Prefix string }

// allKeys is the key of all requests where there is no authentication.
var allKeys = &Key{Write: true, AnyBytes: true, Everything: true}

// mayEnter reports whether the key may access any part of a bucket.
func (k *Key) mayEnter(bucket string) bool {
	return k.may(bucket, func(Area) bool { return true })
}

// mayBucket reports whether the key may access all of a bucket.
func (k *Key) mayBucket(bucket string) bool {
	return k.may(bucket, func(a Area) bool { return a.Prefix == "" })
}

// mayKeys reports whether the key may access all keys of a bucket that begin with prefix.
func (k *Key) mayKeys(bucket, prefix string) bool {
	return k.may(bucket, func(a Area) bool { return strings.HasPrefix(prefix, a.Prefix) })
}

func (k *Key) may(bucket string, fits func(Area) bool) bool {
	return k.Everything || slices.ContainsFunc(k.Only, func(a Area) bool { return a.Bucket == bucket && fits(a) })
}

// KeySet has the keys of a file by their id.
type KeySet map[string]*Key

// Key implements Keys.
func (s KeySet) Key(id string) *Key { return s[id] }

const (
	// minSecret and maxSecret bound a secret's length in bytes; AWS's have 40.
	minSecret, maxSecret = 16, 256
	maxKeyID             = 128
)

type keysDocument struct {
	Keys     []keyEntry
	Complete bool
	// completeLast: complete is the last name, so nothing was cut off.
	completeLast bool
}

type keyEntry struct {
	ID     string
	Secret string
	Access string
	// KeyBytes is any or empty.
	KeyBytes string `yaml:"key-bytes"`
	// Nodes tell empty from absent.
	Only, Everything yaml.Node

	only       []string
	everything bool
}

// badScope says what is wrong with a key's scope, or "". An empty or absent one does not mean
// everything: it may have been cut off.
func (k *keyEntry) badScope() string {
	only, everything := !k.Only.IsZero(), !k.Everything.IsZero()
	switch {
	case only && everything:
		return "it has only: and everything: where one of them says what the key is good for"
	case everything && !k.everything:
		return "everything: is true, or left out for a key with only:"
	case only && len(k.only) == 0:
		return "only: is empty: name a BUCKET or BUCKET/PREFIX, or write everything: true in its place"
	case !only && !everything:
		return "it does not say what the key is good for: add everything: true, or only: [BUCKET, BUCKET/PREFIX]"
	}
	return ""
}

// ParseKeys reads a file of keys:
//
//	keys:
//	  - id: LISTINGS-ADMIN
//	    secret: at least sixteen characters
//	    access: read-write
//	    everything: true
//	    key-bytes: any
//	  - id: REPORTS
//	    secret: another long secret
//	    access: read-only
//	    only: [photos, logs/2024/]
//	complete: true
//
// The error lists all problems, without secrets. A file without keys is an error, as it would
// look like one that lets everybody in. So is one that does not end with complete: cut off, it
// could allow more than the whole file.
func ParseKeys(data []byte) (KeySet, error) {
	doc, err := decodeKeys(data)
	if err != nil {
		return nil, err
	}
	var problems []error
	complain := func(i int, format string, args ...any) {
		problems = append(problems, fmt.Errorf("key %d: "+format, append([]any{i + 1}, args...)...))
	}
	set := KeySet{}
	for i, k := range doc.Keys {
		key := &Key{ID: k.ID, Secret: k.Secret, Write: k.Access == "read-write", Everything: k.everything}
		bad := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`,/="`, r) }
		if k.ID == "" || len(k.ID) > maxKeyID || strings.ContainsFunc(k.ID, bad) {
			complain(i, "id is 1 to %d printable characters, none of them a blank, comma, slash, equals sign or quote", maxKeyID)
		}
		if set[k.ID] != nil {
			complain(i, "there is another key of the same id")
		}
		if len(k.Secret) < minSecret || len(k.Secret) > maxSecret {
			complain(i, "secret has %d to %d bytes", minSecret, maxSecret)
		}
		if k.Access != "read-only" && k.Access != "read-write" {
			complain(i, "access is read-only or read-write")
		}
		if k.KeyBytes != "" && k.KeyBytes != "any" {
			complain(i, "key-bytes is any, for a key that may store keys of objects that are not UTF-8, or left out")
		}
		key.AnyBytes = k.KeyBytes == "any"
		if reason := k.badScope(); reason != "" {
			complain(i, "%s", reason)
		}
		for _, only := range k.only {
			bucket, prefix, _ := strings.Cut(only, "/")
			if reason := badBucketName(bucket); reason != "" {
				complain(i, "only has BUCKET or BUCKET/PREFIX, not %q: %s", only, reason)
			}
			key.Only = append(key.Only, Area{bucket, prefix})
		}
		set[k.ID] = key
	}
	if len(doc.Keys) == 0 {
		problems = append(problems, errors.New("there is no key in it"))
	}
	if !doc.Complete || !doc.completeLast {
		problems = append(problems, errors.New("its last line is not complete: true: it was cut off, "+
			"or was made for an older version. If nothing is missing, add that line at the end, not indented"))
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return set, nil
}

// decodeKeys decodes the YAML document. The parser panics at some malformed ones, which must
// not end the server.
func decodeKeys(data []byte) (doc keysDocument, err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("it is not YAML: a map stands where a name has to")
		}
	}()
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return doc, hideValues(err)
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return doc, errors.New("there is more than one YAML document")
	}
	for i := range doc.Keys {
		k := &doc.Keys[i]
		if err := cmp.Or(k.Only.Decode(&k.only), k.Everything.Decode(&k.everything)); err != nil {
			return doc, hideValues(err)
		}
	}
	var root yaml.Node
	_ = yaml.Unmarshal(data, &root) // it was decoded before
	if len(root.Content) > 0 {
		names := root.Content[0].Content // and their values
		n := len(names)
		doc.completeLast = n >= 2 && names[n-2].Value == "complete"
	}
	return doc, nil
}

var yamlLine = regexp.MustCompile(`line [0-9]+`)

// hideValues keeps only the place of a YAML error: the text may quote a secret.
func hideValues(err error) error {
	var typed *yaml.TypeError
	if !errors.As(err, &typed) {
		return fmt.Errorf("it is not YAML: %s", cmp.Or(yamlLine.FindString(err.Error()), "some line"))
	}
	var lines []string
	for _, e := range typed.Errors {
		line, what, _ := strings.Cut(e, ":")
		if strings.Contains(what, "not found in type") {
			if what, _, _ = strings.Cut(strings.TrimSpace(what), " not found"); what != "" {
				line += ": unknown " + what
			}
		} else {
			line += ": not the form that is expected"
		}
		lines = append(lines, line)
	}
	return fmt.Errorf("%s; keys: is a list of id, secret, access, and everything: true or only", strings.Join(lines, "; "))
}
