package s3api

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/care"
	"github.com/evenkeel/evenkeel/objects"
)

// These are the XML forms of a lifecycle rule. In each form another element contains the prefix of the rule's keys. A
// rule is returned to clients in the form in which it was sent.
const (
	formPrefix byte = iota // directly in the rule, the oldest form of S3
	formFilter
	formAnd
)

// getLifecycle answers with the lifecycle rules of a bucket. Each rule has the XML form in which the client has sent
// it.
func (h *Handler) getLifecycle(x *exchange) error {
	in, err := h.existing(x)
	if err != nil {
		return err
	}
	if in == nil || len(in.rules) == 0 {
		return refuse(http.StatusNotFound, "NoSuchLifecycleConfiguration", "The lifecycle configuration does not exist.")
	}
	return x.writeDocument("LifecycleConfiguration", func(b *xmlBuffer) {
		for i := range in.rules {
			writeRule(b, &in.rules[i])
		}
	})
}

func writeRule(b *xmlBuffer, r *objects.Rule) {
	number := func(name string, n int64) {
		if n > 0 {
			b.text(name, strconv.FormatInt(n, 10))
		}
	}
	within := func(name string, inside bool, f func()) {
		if inside {
			b.raw("<" + name + ">")
			f()
			b.close(name)
		} else {
			f()
		}
	}
	b.raw("<Rule>")
	b.text("ID", r.ID)
	within("Filter", r.Form != formPrefix, func() {
		within("And", r.Form == formAnd, func() {
			if r.Prefix != "" || r.Form == formPrefix {
				b.text("Prefix", r.Prefix)
			}
			if r.MinSize > 0 {
				b.text("ObjectSizeGreaterThan", strconv.FormatInt(r.MinSize-1, 10))
			}
			number("ObjectSizeLessThan", r.Below)
			writeTags(b, r.Tags)
		})
	})
	status := "Enabled"
	if r.Disabled {
		status = "Disabled"
	}
	b.text("Status", status)
	if r.Days > 0 || !r.Date.IsZero() || r.Unmark {
		b.raw("<Expiration>")
		number("Days", int64(r.Days))
		if !r.Date.IsZero() {
			b.time("Date", r.Date)
		}
		if r.Unmark {
			b.text("ExpiredObjectDeleteMarker", "true")
		}
		b.close("Expiration")
	}
	if r.NoncurrentDays > 0 {
		b.raw("<NoncurrentVersionExpiration>")
		number("NoncurrentDays", int64(r.NoncurrentDays))
		number("NewerNoncurrentVersions", int64(r.Newer))
		b.close("NoncurrentVersionExpiration")
	}
	if r.AbandonDays > 0 {
		b.raw("<AbortIncompleteMultipartUpload>")
		number("DaysAfterInitiation", int64(r.AbandonDays))
		b.close("AbortIncompleteMultipartUpload")
	}
	b.close("Rule")
}

// putLifecycle stores the lifecycle rules of a bucket. It answers only when all servers act on the new rules.
func (h *Handler) putLifecycle(x *exchange) error {
	doc, err := h.configuration(x)
	if err != nil {
		return err
	}
	rules, err := parseLifecycle(doc)
	if err != nil {
		return err
	}
	return h.o.Objects.SetLifecycle(x.ctx(), x.bucket, rules)
}

func (h *Handler) deleteLifecycle(x *exchange) error {
	in, err := h.objectsOf(x.ctx(), x.bucket)
	if err == nil && in == nil {
		err = h.exists(x)
	} else if err == nil {
		err = h.o.Objects.SetLifecycle(x.ctx(), x.bucket, nil)
	}
	return x.done(http.StatusNoContent, err)
}

// parseLifecycle parses an XML document with lifecycle rules. Its errors have the error codes of S3.
func parseLifecycle(doc []byte) (objects.Lifecycle, error) {
	d := newXMLReader(doc)
	if name, err := d.root(); err != nil || name != "LifecycleConfiguration" && name != "BucketLifecycleConfiguration" {
		return nil, malformed(cmp.Or(err, errors.New("it is no LifecycleConfiguration")))
	}
	var rules objects.Lifecycle
	err := d.children(func(name string) error {
		if name != "Rule" {
			return unexpected(name)
		}
		if len(rules) == care.MaxRules {
			return invalidRequest("The lifecycle has more than %d rules.", care.MaxRules)
		}
		p := ruleParser{d: d}
		if err := d.children(p.element); err != nil {
			return err
		}
		if err := p.check(); err != nil {
			return err
		}
		rules = append(rules, p.r)
		return nil
	})
	if err == nil && len(rules) == 0 {
		err = errors.New("it has no Rule")
	}
	if err == nil {
		err = nameRules(rules)
	}
	if err != nil {
		return nil, malformed(err)
	}
	return rules, nil
}

// nameRules gives a random ID to each lifecycle rule that has none. It returns an error if two rules have the same ID.
func nameRules(rules objects.Lifecycle) error {
	for i := range rules {
		id := &rules[i].ID
		if *id == "" {
			*id = rand.Text()
		}
		if slices.ContainsFunc(rules[:i], func(other objects.Rule) bool { return other.ID == *id }) {
			return invalidArgument("Rule ID must be unique. Found same ID for more than one rule: %q.", *id)
		}
	}
	return nil
}

func unexpected(name string) error { return fmt.Errorf("%.64q has no place in it", name) }

// ruleParser parses one lifecycle rule of an XML document, element by element.
type ruleParser struct {
	d *xmlReader
	r objects.Rule
	// seen has the names of the elements that were read so far, to find duplicates and missing elements.
	seen []string
}

// once records that the element with the given name was read. It returns an error if the lifecycle rule has another
// element with this name.
func (p *ruleParser) once(name string) error {
	if slices.Contains(p.seen, name) {
		return fmt.Errorf("%s is there twice", name)
	}
	p.seen = append(p.seen, name)
	return nil
}

func (p *ruleParser) has(name string) bool { return slices.Contains(p.seen, name) }

// element reads one child of the XML element Rule, which is a lifecycle rule. name is the name of the child.
func (p *ruleParser) element(name string) (err error) {
	if err := p.once(name); err != nil {
		return err
	}
	switch name {
	case "ID":
		if p.r.ID, err = p.d.text(); len(p.r.ID) > care.MaxRuleIDBytes {
			return invalidArgument("ID length should not exceed allowed limit of %d.", care.MaxRuleIDBytes)
		}
	case "Status":
		var status string
		if status, err = p.d.text(); err == nil && status != "Enabled" && status != "Disabled" {
			err = fmt.Errorf("a Status is Enabled or Disabled, not %.64q", status)
		}
		p.r.Disabled = status == "Disabled"
	case "Prefix":
		err = p.prefix()
	case "Filter":
		p.r.Form = formFilter
		err = p.one(0, p.filter, errors.New("a Filter has one element, or And with several"))
	case "Expiration":
		err = p.one(1, p.expiration, errors.New("an Expiration has either Days, a Date or ExpiredObjectDeleteMarker"))
	case "NoncurrentVersionExpiration":
		err = p.d.children(p.noncurrent)
	case "AbortIncompleteMultipartUpload":
		err = p.d.children(p.abort)
	case "Transition", "NoncurrentVersionTransition":
		// Faults in the element get S3's errors; a correct element is not implemented.
		if err = p.d.children(p.transition); err == nil {
			err = notImplemented("a lifecycle rule with a " + name + ": there is one storage class")
		}
	default:
		err = unexpected(name)
	}
	return err
}

// one reads an XML element that has at most one child. For the child it calls read with the child's name. The parameter
// least is the smallest number of children, 0 or 1. If the number of children is wrong, one returns the error wrong.
func (p *ruleParser) one(least int, read func(name string) error, wrong error) error {
	n := 0
	err := p.d.children(func(name string) error {
		if n++; n > 1 {
			return wrong
		}
		return read(name)
	})
	if n < least {
		err = cmp.Or(err, wrong)
	}
	return err
}

func (p *ruleParser) prefix() (err error) {
	if p.r.Prefix, err = p.d.text(); len(p.r.Prefix) > maxKeyBytes {
		return invalidArgument("The maximum size of a prefix is %d.", maxKeyBytes)
	}
	return err
}

// filter reads one condition in the Filter of a lifecycle rule. name is the name of the condition, which is a child of
// the element Filter or of the element And in Filter.
func (p *ruleParser) filter(name string) (err error) {
	if name != "Tag" {
		err = p.once("Filter's " + name)
	}
	if err != nil {
		return err
	}
	switch name {
	case "And":
		if p.r.Form == formAnd {
			return unexpected(name)
		}
		p.r.Form = formAnd
		err = p.d.children(p.filter)
	case "Prefix":
		err = p.prefix()
	case "ObjectSizeGreaterThan":
		p.r.MinSize, err = p.number(0, math.MaxInt64-1, name)
		p.r.MinSize++
	case "ObjectSizeLessThan":
		p.r.Below, err = p.number(1, math.MaxInt64, name)
	case "Tag":
		if len(p.r.Tags) == care.MaxRuleTags {
			return invalidRequest("The rule has more than %d tags.", care.MaxRuleTags)
		}
		var t objects.Pair
		t, err = parseTag(p.d)
		p.r.Tags = append(p.r.Tags, t)
	default:
		err = unexpected(name)
	}
	return err
}

func (p *ruleParser) expiration(name string) (err error) {
	switch name {
	case "Days":
		p.r.Days, err = p.days("'Days' for Expiration action")
	case "Date":
		p.r.Date, err = p.date()
	case "ExpiredObjectDeleteMarker":
		p.r.Unmark, err = p.d.bool()
	default:
		err = unexpected(name)
	}
	return err
}

func (p *ruleParser) transition(name string) (err error) {
	if name == "Date" {
		_, err = p.date()
	} else {
		_, err = p.d.text()
	}
	return err
}

func (p *ruleParser) noncurrent(name string) (err error) {
	if err := p.once(name); err != nil {
		return err
	}
	switch name {
	case "NoncurrentDays":
		p.r.NoncurrentDays, err = p.days("'NoncurrentDays' for NoncurrentVersionExpiration action")
	case "NewerNoncurrentVersions":
		var n int64
		n, err = p.number(1, care.MaxNewer, name)
		p.r.Newer = int(n)
	default:
		err = unexpected(name)
	}
	return err
}

func (p *ruleParser) abort(name string) (err error) {
	if err := p.once(name); err != nil {
		return err
	}
	if name != "DaysAfterInitiation" {
		return unexpected(name)
	}
	p.r.AbandonDays, err = p.days("'DaysAfterInitiation' for AbortIncompleteMultipartUpload action")
	return err
}

func (p *ruleParser) days(what string) (int, error) {
	n, err := p.number(1, math.MaxInt32, what)
	return int(n), err
}

func (p *ruleParser) number(least, most int64, what string) (int64, error) {
	text, err := p.d.text()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%s is no integer: %.64q", what, text)
	case least == 1 && n < 1:
		return 0, invalidArgument("%s must be a positive integer", what)
	case n < least || n > most:
		return 0, invalidArgument("%s is %d: it must be from %d to %d.", what, n, least, most)
	}
	return n, nil
}

func (p *ruleParser) date() (time.Time, error) {
	text, err := p.d.text()
	if err != nil {
		return time.Time{}, err
	}
	text = strings.TrimSpace(text)
	date, err := time.Parse(time.RFC3339, text)
	if err != nil {
		if date, err = time.Parse(time.DateOnly, text); err != nil {
			return time.Time{}, fmt.Errorf("the Date %.64q is not as ISO 8601 has it", text)
		}
	}
	if date = date.UTC(); !date.Equal(date.Truncate(24*time.Hour)) || date.Unix() < 0 || date.Year() > 9999 {
		return time.Time{}, invalidArgument("'Date' must be at midnight GMT, from 1970 to 9999.")
	}
	return date, nil
}

// check returns an error if the lifecycle rule that was read lacks an element, or has elements that exclude each other.
func (p *ruleParser) check() error {
	r := &p.r
	sizes := r.MinSize > 0 || r.Below > 0
	switch {
	case !p.has("Status"):
		return errors.New("a Rule has no Status")
	case p.has("Filter") == p.has("Prefix"):
		return errors.New("a Rule has either a Filter or a Prefix")
	case r.Form == formAnd && !sizes && len(r.Tags) == 0 && !p.has("Filter's Prefix"):
		return errors.New("an And has elements")
	case p.has("NoncurrentVersionExpiration") && r.NoncurrentDays == 0:
		return errors.New("a NoncurrentVersionExpiration has NoncurrentDays")
	case p.has("AbortIncompleteMultipartUpload") && r.AbandonDays == 0:
		return errors.New("an AbortIncompleteMultipartUpload has DaysAfterInitiation")
	case r.Days == 0 && r.Date.IsZero() && !r.Unmark && r.NoncurrentDays == 0 && r.AbandonDays == 0:
		return invalidRequest("At least one action needs to be specified in a rule.")
	case sizes && (r.Unmark || r.AbandonDays > 0):
		return invalidRequest(
			"ExpiredObjectDeleteMarker and AbortIncompleteMultipartUpload cannot be specified with a filter by size.")
	case r.Below > 0 && r.MinSize >= r.Below:
		return invalidRequest("No object is within the sizes of the filter.")
	case len(r.Tags) > 0 && (r.Unmark || r.AbandonDays > 0):
		return invalidRequest(
			"ExpiredObjectDeleteMarker and AbortIncompleteMultipartUpload cannot be specified with a filter by tags.")
	case len(r.Tags) > 0 && r.NoncurrentDays > 0:
		return notImplemented("NoncurrentVersionExpiration with a filter by tags")
	}
	tags, refusal := checkTags(r.Tags)
	if refusal != nil {
		return refusal
	}
	r.Tags = tags
	return nil
}

// tellExpiry sets the header x-amz-expiration of the answer: the time at which a lifecycle rule will hide the object,
// and the rule's ID. If no rule hides the object, the header is not set.
func (v *versioned) tellExpiry(x *exchange, i *objects.Info) {
	if at, id := v.rules.Expires(i); !at.IsZero() {
		x.w.Header().Set(headerExpiration,
			fmt.Sprintf(`expiry-date="%s", rule-id="%s"`, at.Format(http.TimeFormat), url.QueryEscape(id)))
	}
}

const headerExpiration = "X-Amz-Expiration"
