package s3api

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"
)

// Keys finds access keys. It is asked once per request, by many goroutines.
type Keys interface {
	// Key returns nil if there is no such key.
	Key(id string) *Key
}

// Key is an access key: what signs requests, and what they may do then. It is
// never changed.
type Key struct {
	ID, Secret string
	// Write allows changes too, not only reads.
	Write bool
	// AnyBytes allows new keys of objects that are not UTF-8. They make listings
	// fail for clients that don't ask for encoded keys.
	AnyBytes bool
	// Everything: the key is good for all buckets. Else Only are the parts that it
	// is good for; without either it is good for nothing.
	Everything bool
	Only       []Area
}

// Scope says in words what the key is good for.
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

// allKeys is who asks while nobody is authenticated.
var allKeys = &Key{Write: true, AnyBytes: true, Everything: true}

// mayEnter says whether the key is good for anything in a bucket.
func (k *Key) mayEnter(bucket string) bool {
	return k.may(bucket, func(Area) bool { return true })
}

// mayBucket says whether it is good for all of a bucket.
func (k *Key) mayBucket(bucket string) bool {
	return k.may(bucket, func(a Area) bool { return a.Prefix == "" })
}

// mayKeys says whether it is good for all keys of a bucket with a prefix, and so
// for the key that the prefix is.
func (k *Key) mayKeys(bucket, prefix string) bool {
	return k.may(bucket, func(a Area) bool { return strings.HasPrefix(prefix, a.Prefix) })
}

func (k *Key) may(bucket string, fits func(Area) bool) bool {
	if k.Everything {
		return true
	}
	for _, a := range k.Only {
		if a.Bucket == bucket && fits(a) {
			return true
		}
	}
	return false
}

// KeySet is a file of keys, read.
type KeySet map[string]*Key

// Key implements Keys.
func (s KeySet) Key(id string) *Key { return s[id] }

const (
	// minSecret and maxSecret bound a secret's bytes; those of AWS have 40.
	minSecret, maxSecret = 16, 256
	maxKeyID             = 128
)

// keysDocument is the form of a file of keys.
type keysDocument struct {
	Keys     []keyEntry
	Complete bool
	// completeLast: nothing comes behind complete, so that nothing is missing.
	completeLast bool
}

type keyEntry struct {
	ID     string
	Secret string
	Access string
	// KeyBytes is any, or left out.
	KeyBytes string `yaml:"key-bytes"`
	// Nodes tell what is empty from what isn't there.
	Only, Everything yaml.Node

	only       []string
	everything bool
}

// decodeScope reads the nodes.
func (k *keyEntry) decodeScope() error {
	if !k.Only.IsZero() {
		if err := k.Only.Decode(&k.only); err != nil {
			return err
		}
	}
	if k.Everything.IsZero() {
		return nil
	}
	return k.Everything.Decode(&k.everything)
}

// badScope says why it is not clear what a key is good for, or "". What is empty or
// left out never means everything: it may have been cut off.
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
// The error says everything that is wrong, and no secret. A file without any key
// is wrong: it would be taken for one that lets everybody in. So is one that does
// not end with complete: cut off, it could give more than the whole of it.
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
		if k.ID == "" || len(k.ID) > maxKeyID || strings.ContainsFunc(k.ID, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`,/="`, r) }) {
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

// decodeKeys reads the one YAML document. The parser panics at some malformed ones,
// and a file that is read again must not end a server.
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
		if err := doc.Keys[i].decodeScope(); err != nil {
			return doc, hideValues(err)
		}
	}
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		return doc, hideValues(err)
	}
	if len(root.Content) > 0 {
		names := root.Content[0].Content // and their values
		doc.completeLast = len(names) > 1 && names[len(names)-2].Value == "complete"
	}
	return doc, nil
}

var yamlLine = regexp.MustCompile(`line [0-9]+`)

// hideValues keeps of a YAML error what tells the place: the text may quote a
// secret.
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
