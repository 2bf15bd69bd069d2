package s3api

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/evenkeel/evenkeel/objects"
)

const (
	headerTagging = "X-Amz-Tagging"
	// Limits of S3 for an object's tags: the number of tags, and the number of characters of a key and of a value.
	maxTags                      = 10
	maxTagKeyRunes, maxTagValues = 128, 256
)

func invalidTag(format string, args ...any) *Error {
	return refuse(http.StatusBadRequest, "InvalidTag", format, args...)
}

// checkTags returns the tags of an object sorted by their keys. It returns an error if there are more than 10 tags, or
// if S3 would refuse a tag.
func checkTags(tags []objects.Pair) ([]objects.Pair, *Error) {
	if len(tags) > maxTags {
		return nil, invalidTag("Object tags cannot be greater than %d.", maxTags)
	}
	slices.SortFunc(tags, func(a, b objects.Pair) int { return strings.Compare(a.Name, b.Name) })
	for i, t := range tags {
		switch {
		case t.Name == "" || utf8.RuneCountInString(t.Name) > maxTagKeyRunes || !isTagText(t.Name):
			return nil, invalidTag("The TagKey you have provided is invalid: it has 1 to %d letters, digits, spaces and "+
				"+ - = . _ : / @.", maxTagKeyRunes)
		case utf8.RuneCountInString(t.Value) > maxTagValues || !isTagText(t.Value):
			return nil, invalidTag("The TagValue you have provided is invalid: it has at most %d letters, digits, spaces and "+
				"+ - = . _ : / @.", maxTagValues)
		case len(t.Name) >= 4 && strings.EqualFold(t.Name[:4], "aws:"):
			return nil, invalidTag("System tags cannot be added or updated by a requester: keys must not begin with aws:.")
		case i > 0 && t.Name == tags[i-1].Name:
			return nil, invalidTag("Cannot provide multiple Tags with the same key.")
		}
	}
	return tags, nil
}

// isTagText reports whether s has only characters that S3 allows in the keys and values of tags.
func isTagText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return !unicode.In(r, unicode.L, unicode.N, unicode.Z) && !strings.ContainsRune("+-=._:/@", r)
	})
}

// tagsOf returns the tags for a new object, from the request's header x-amz-tagging. It returns nil if the header is
// missing.
func (x *exchange) tagsOf() ([]objects.Pair, *Error) {
	value := x.r.Header.Get(headerTagging)
	if value == "" {
		return nil, nil
	}
	bad := func() *Error {
		return invalidArgument("The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters " +
			"without tag name duplicates.")
	}
	if strings.Count(value, "&") >= maxTags {
		return nil, invalidTag("Object tags cannot be greater than %d.", maxTags)
	}
	q, err := url.ParseQuery(value)
	if err != nil {
		return nil, bad()
	}
	var tags []objects.Pair
	for name, values := range q {
		if len(values) > 1 || name == "" {
			return nil, bad()
		}
		tags = append(tags, objects.Pair{Name: name, Value: values[0]})
	}
	return checkTags(tags)
}

// refuseTags returns an error if a request has tags for an object. It is called for plain buckets, which store no tags.
func (x *exchange) refuseTags() *Error {
	if x.r.Header.Get(headerTagging) == "" {
		return nil
	}
	return notImplemented(x.op.name + " with the header " + headerTagging + " in a bucket for plain entries")
}

// tellTags sets the header of the answer that has the number of the object's tags. It sets no header if the object has
// no tags.
func (x *exchange) tellTags(i *objects.Info) {
	if n := len(i.Meta().Tags); n > 0 {
		x.w.Header().Set("X-Amz-Tagging-Count", strconv.Itoa(n))
	}
}

// version returns the bucket of objects that a request names, and the metadata of the version that the request names.
func (h *Handler) version(x *exchange) (*versioned, objects.Info, error) {
	in, err := h.objectsIn(x)
	if err != nil {
		return nil, objects.Info{}, err
	}
	id, err := in.named(x.ctx(), x.key, x.query)
	if err != nil {
		return nil, objects.Info{}, x.noVersion(err)
	}
	i, err := in.head(x, x.key, id, x.query.Get("versionId"))
	return in, i, err
}

func (h *Handler) getObjectTagging(x *exchange) error {
	in, i, err := h.version(x)
	if err != nil {
		return err
	}
	in.tell(x, &i)
	return x.writeDocument("Tagging", func(b *xmlBuffer) {
		b.raw("<TagSet>")
		writeTags(b, i.Meta().Tags)
		b.raw("</TagSet>")
	})
}

func writeTags(b *xmlBuffer, tags []objects.Pair) {
	for _, t := range tags {
		b.raw("<Tag>")
		b.text("Key", t.Name)
		b.text("Value", t.Value)
		b.raw("</Tag>")
	}
}

func (h *Handler) putObjectTagging(x *exchange) error {
	if _, err := h.objectsIn(x); err != nil {
		return err
	}
	doc, refusal := h.receive(x, maxConfigurationBytes, asDocument)
	if refusal != nil {
		return refusal
	}
	tags, refusal := parseTags(doc)
	if refusal != nil {
		return refusal
	}
	return h.setTags(x, http.StatusOK, tags)
}

func (h *Handler) deleteObjectTagging(x *exchange) error {
	return h.setTags(x, http.StatusNoContent, nil)
}

// setTags replaces the tags of the version that the request names, and answers with the given HTTP status. If two
// requests set tags at the same time, the later request wins.
func (h *Handler) setTags(x *exchange, status int, tags []objects.Pair) error {
	in, i, err := h.version(x)
	if err == nil {
		i, err = in.SetTags(x.ctx(), []byte(x.key), i.ID, tags)
	}
	if err == nil {
		in.tell(x, &i)
	}
	return x.done(status, err)
}

// parseTag reads an XML element Tag of a request, and returns the tag's key and value as a pair.
func parseTag(d *xmlReader) (t objects.Pair, err error) {
	seen := map[string]bool{}
	err = d.children(func(name string) (err error) {
		if seen[name] {
			return errors.New("a Tag has two of " + name)
		}
		switch seen[name] = true; name {
		case "Key":
			t.Name, err = d.text()
		case "Value":
			t.Value, err = d.text()
		default:
			err = errors.New(name + " has no place in a Tag")
		}
		return err
	})
	if err == nil && (!seen["Key"] || !seen["Value"]) {
		err = errors.New("a Tag has a Key and a Value")
	}
	return t, err
}

// parseTags parses the XML document of a PutObjectTagging request, and returns the tags in it.
func parseTags(doc []byte) ([]objects.Pair, *Error) {
	d := newXMLReader(doc)
	name, err := d.root()
	if err != nil || name != "Tagging" {
		return nil, malformed(cmp.Or(err, errors.New("it is no Tagging")))
	}
	var tags []objects.Pair
	sets := 0
	err = d.children(func(name string) error {
		if sets++; name != "TagSet" || sets > 1 {
			return errors.New("it has one TagSet, and nothing else")
		}
		return d.children(func(name string) error {
			if name != "Tag" {
				return errors.New(name + " has no place in a TagSet")
			}
			t, err := parseTag(d)
			tags = append(tags, t)
			return err
		})
	})
	if err == nil && sets == 0 {
		err = errors.New("it has no TagSet")
	}
	if err != nil {
		return nil, malformed(err)
	}
	return checkTags(tags)
}
