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

// Key is an access key: the secret with which a client signs requests, and what these requests may do. A Key is
// immutable.
type Key struct {
	ID, Secret string
	// Write allows requests that change something. Without Write the access key is read-only.
	Write bool
	// AnyBytes allows storing object keys that are not UTF-8. A listing that includes an object key of this kind fails,
	// except for clients that request encoded keys.
	AnyBytes bool
	// V4Only refuses signatures of version 2 by the access key. These cover less of a request than those of version 4.
	V4Only bool
	// Everything allows access to all buckets. Without Everything the access key may use only the buckets and prefixes
	// in Only. Each text in Only is the name of a bucket, or BUCKET/PREFIX for the keys that begin with PREFIX.
	Everything bool
	Only       []string
}

// allKeys is the access key that every request gets if the server has no access keys. It allows everything.
var allKeys = &Key{Write: true, AnyBytes: true, Everything: true}

// mayEnter reports whether the access key may use the bucket, or at least some keys in the bucket.
func (k *Key) mayEnter(bucket string) bool {
	return k.may(bucket, func(string) bool { return true })
}

// mayBucket reports whether the access key may use the whole bucket, with all of its keys.
func (k *Key) mayBucket(bucket string) bool {
	return k.may(bucket, func(allowed string) bool { return allowed == "" })
}

// mayKeys reports whether the access key may use all keys of the bucket that begin with prefix.
func (k *Key) mayKeys(bucket, prefix string) bool {
	return k.may(bucket, func(allowed string) bool { return strings.HasPrefix(prefix, allowed) })
}

// may reports whether the access key allows something in the bucket: everything, or something for which fits returns
// true. The func fits gets the beginning of the keys that one element of Key.Only allows. An empty beginning means all
// keys.
func (k *Key) may(bucket string, fits func(allowed string) bool) bool {
	return k.Everything || slices.ContainsFunc(k.Only, func(only string) bool {
		of, allowed, _ := strings.Cut(only, "/")
		return of == bucket && fits(allowed)
	})
}

// KeySet maps IDs to access keys. ParseKeys makes a KeySet from a file.
type KeySet map[string]*Key

// Key returns the access key with the given ID, or nil. Options.Keys calls it.
func (s KeySet) Key(id string) *Key { return s[id] }

const (
	// minSecret and maxSecret are the smallest and the largest length of a secret in bytes. Secrets of AWS have 40
	// bytes.
	minSecret, maxSecret = 16, 256
	maxKeyID             = 128
)

// keysDocument is the decoded YAML document of a file of access keys.
type keysDocument struct {
	Keys     []keyEntry
	Complete bool
	// completeLast is true if "complete" is the last name in the file, which proves that the end of the file is not
	// missing.
	completeLast bool
}

// keyEntry is one access key as a file of access keys describes it.
type keyEntry struct {
	ID     string
	Secret string
	Access string
	// KeyBytes is "any" if object keys that are not UTF-8 are allowed, and otherwise empty.
	KeyBytes string `yaml:"key-bytes"`
	// Signatures is "v4" if signatures of version 2 are refused, and otherwise empty.
	Signatures string
	// Only and Everything are YAML nodes, so that an empty value can be told from an absent value.
	Only, Everything yaml.Node

	only       []string
	everything bool
}

// badScope returns what is wrong with the buckets that an entry of the file of access keys allows, or "" for a good
// entry. An entry without a list of buckets, or with an empty list, is wrong. It must not mean all buckets, because the
// rest of the file may be missing.
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

// ParseKeys parses a YAML file of access keys, e.g.
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
//	    signatures: v4
//	complete: true
//
// The error lists all problems, without secrets. A file without keys is an error, because it looks as if it allowed
// access without a key. A file that does not end with "complete: true" is an error, because without its last lines a
// file could allow more than the whole file.
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
		if k.Signatures != "" && k.Signatures != "v4" {
			complain(i, "signatures is v4, for a key that makes no signatures of version 2, or left out")
		}
		key.V4Only = k.Signatures == "v4"
		if reason := k.badScope(); reason != "" {
			complain(i, "%s", reason)
		}
		for _, only := range k.only {
			bucket, prefix, _ := strings.Cut(only, "/")
			if reason := badBucketName(bucket); reason != "" {
				complain(i, "only has BUCKET or BUCKET/PREFIX, not %q: %s", only, reason)
			}
			if prefix == "" {
				only = bucket
			}
			key.Only = append(key.Only, only)
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

// decodeKeys decodes the YAML document of a file of access keys. The YAML parser panics at some malformed documents. In
// this case decodeKeys returns an error.
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

// hideValues returns an error that names only the lines of the faults in err, which is an error of the YAML parser. The
// text of err may quote a secret.
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
