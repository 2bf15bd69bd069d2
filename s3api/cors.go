package s3api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/evenkeel/evenkeel/internal/webguard"
	"github.com/evenkeel/evenkeel/listing"
)

// corsDocument is the name of the document in the settings of a bucket of objects that has the bucket's rules about
// cross-origin requests.
const corsDocument = "cors"

// getCORS answers with the rules of a bucket about cross-origin requests.
func (h *Handler) getCORS(x *exchange) error {
	in, err := h.existing(x)
	if err != nil {
		return err
	}
	var rules corsRules
	if in != nil {
		if rules, err = in.corsRules(); err != nil {
			return err
		}
	}
	if len(rules) == 0 {
		e := refuse(http.StatusNotFound, "NoSuchCORSConfiguration", "The CORS configuration does not exist")
		e.Details = []Header{{"BucketName", x.bucket}}
		return e
	}
	return x.writeDocument("CORSConfiguration", func(b *xmlBuffer) {
		for i := range rules {
			writeCORSRule(b, &rules[i])
		}
	})
}

func writeCORSRule(b *xmlBuffer, r *corsRule) {
	all := func(name string, texts []string) {
		for _, text := range texts {
			b.text(name, text)
		}
	}
	b.raw("<CORSRule>")
	if r.hasID {
		b.text("ID", r.id)
	}
	all("AllowedMethod", r.methods)
	all("AllowedOrigin", r.origins)
	all("AllowedHeader", r.headers)
	if r.hasAge {
		b.text("MaxAgeSeconds", strconv.Itoa(int(r.maxAge)))
	}
	all("ExposeHeader", r.exposed)
	b.close("CORSRule")
}

// putCORS stores the rules of a bucket about cross-origin requests. It answers only when all servers act on the new
// rules.
func (h *Handler) putCORS(x *exchange) error {
	doc, err := h.configuration(x)
	if err != nil {
		return err
	}
	rules, err := parseCORS(doc)
	if err != nil {
		return err
	}
	return h.o.Objects.SetDocument(x.ctx(), x.bucket, corsDocument, rules.encode())
}

func (h *Handler) deleteCORS(x *exchange) error {
	in, err := h.objectsOf(x.ctx(), x.bucket)
	if err == nil && in == nil {
		err = h.exists(x)
	} else if err == nil {
		err = h.o.Objects.SetDocument(x.ctx(), x.bucket, corsDocument, nil)
	}
	return x.done(http.StatusNoContent, err)
}

// parseCORS parses an XML document with rules about cross-origin requests. Its errors have the error codes of S3.
func parseCORS(doc []byte) (corsRules, error) {
	d := newXMLReader(doc)
	if name, err := d.root(); err != nil || name != "CORSConfiguration" {
		return nil, malformed(cmp.Or(err, errors.New("it is no CORSConfiguration")))
	}
	var rules corsRules
	err := d.children(func(name string) error {
		if name != "CORSRule" {
			return unexpected(name)
		}
		if len(rules) == maxCORSRules {
			return fmt.Errorf("it has more than %d rules", maxCORSRules)
		}
		var r corsRule
		err := d.children(func(name string) error { return r.element(d, name) })
		if err == nil {
			err = r.check()
		}
		rules = append(rules, r)
		return err
	})
	if err == nil && len(rules) == 0 {
		err = errors.New("it has no CORSRule")
	}
	if err != nil {
		return nil, malformed(err)
	}
	return rules, nil
}

// element reads one child of the XML element CORSRule. name is the name of the child.
func (r *corsRule) element(d *xmlReader, name string) error {
	list := map[string]*[]string{
		"AllowedMethod": &r.methods, "AllowedOrigin": &r.origins, "AllowedHeader": &r.headers,
		"ExposeHeader": &r.exposed,
	}[name]
	text, err := d.text()
	switch {
	case err != nil:
		return err
	case list != nil:
		*list = append(*list, text)
	case name == "ID" && !r.hasID:
		r.id, r.hasID = text, true
		if utf8.RuneCountInString(text) > maxCORSID {
			return fmt.Errorf("an ID has at most %d characters", maxCORSID)
		}
	case name == "MaxAgeSeconds" && !r.hasAge:
		age, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
		if err != nil {
			return fmt.Errorf("MaxAgeSeconds is no integer of 32 bits: %.64q", text)
		}
		r.maxAge, r.hasAge = int32(age), true
	case name == "ID", name == "MaxAgeSeconds":
		return fmt.Errorf("%s is there twice", name)
	default:
		return unexpected(name)
	}
	return nil
}

// check returns an error if the rule that was read lacks an element, or has a value that S3 refuses.
func (r *corsRule) check() error {
	if len(r.methods) == 0 || len(r.origins) == 0 {
		return errors.New("a CORSRule has at least one AllowedOrigin and one AllowedMethod")
	}
	for _, method := range r.methods {
		if !slices.Contains(corsMethods, method) {
			return invalidRequest("Found unsupported HTTP method in CORS config. Unsupported method is %.64s", method)
		}
	}
	for _, list := range []struct {
		name    string
		values  []string
		headers bool
	}{{"AllowedOrigin", r.origins, false}, {"AllowedHeader", r.headers, true}, {"ExposeHeader", r.exposed, true}} {
		for _, value := range list.values {
			switch {
			case list.headers && !isToken(value):
				return invalidRequest("%s \"%.255s\" contains invalid character.", list.name, value)
			case list.name != "ExposeHeader" && strings.Count(value, "*") > 1:
				return invalidRequest("%s \"%.255s\" can not have more than one wildcard.", list.name, value)
			}
		}
	}
	for _, header := range r.exposed {
		if strings.Contains(header, "*") {
			return invalidRequest("ExposeHeader \"%.255s\" contains wildcard. "+
				"We currently do not support wildcard for ExposeHeader.", header)
		}
	}
	return nil
}

const (
	// lookupsPerHour is the largest number of buckets that one network address can make the server look up in an hour
	// by requests without a valid signature. Buckets that are known to have rules about cross-origin requests do not
	// count.
	lookupsPerHour = 3600
	// mostShared is the largest number of names of buckets that are remembered to have such rules.
	mostShared = 10_000
	// lookupTime is the longest time for looking up the rules of a bucket for a request that is refused.
	lookupTime = 2 * time.Second
)

// corsLookups limits how often requests without a valid signature make the server look up a bucket. Such a look-up
// reads the store, unless the server knows the bucket.
type corsLookups struct {
	shared *lru.Cache[string, struct{}] // names of buckets that have rules

	mu     sync.Mutex
	counts *lru.Cache[netip.Prefix, cutCount] // of look-ups, by network address
}

func newCORSLookups() *corsLookups {
	shared, _ := lru.New[string, struct{}](mostShared) // fails only for a size that is not positive
	counts, _ := lru.New[netip.Prefix, cutCount](mostCounts)
	return &corsLookups{shared: shared, counts: counts}
}

// take counts a look-up of the named bucket by a client, at the time now. It returns false if the client has made too
// many look-ups.
func (l *corsLookups) take(bucket string, client netip.Prefix, now time.Time) bool {
	if l.shared.Contains(bucket) {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c, _ := l.counts.Get(client)
	n := c.left(now, lookupsPerHour) + 1
	if n > lookupsPerHour {
		return false
	}
	l.counts.Add(client, cutCount{n, now})
	return true
}

// rulesFor looks up the rules of the request's bucket about cross-origin requests. There are none if the bucket is
// plain, or if it does not exist. trusted is true for a request with a valid signature by an access key that may do
// what the request asks for. For other requests rulesFor returns an error if the client has made too many look-ups.
func (h *Handler) rulesFor(ctx context.Context, x *exchange, trusted bool) (corsRules, error) {
	l := h.lookups
	if !trusted && !l.take(x.bucket, webguard.Client(x.r.RemoteAddr), h.o.Now()) {
		return nil, slowDown(nil, "Too many requests without a valid signature. Please reduce your request rate.")
	}
	in, err := h.objectsOf(ctx, x.bucket)
	if errors.Is(err, listing.ErrNoSuchBucket) {
		in, err = nil, nil
	}
	if err != nil {
		return nil, err
	}
	if in == nil || len(in.cors) == 0 {
		l.shared.Remove(x.bucket)
		return nil, nil
	}
	l.shared.Add(x.bucket, struct{}{})
	return in.corsRules()
}

// share sets the headers of the answer that let a web page of another origin read the answer, if a rule of the bucket
// allows it. They are set before the request is worked on, as the bucket may be gone afterwards, and also if the
// request is refused, so that the page learns why. trusted is that of rulesFor.
func (h *Handler) share(x *exchange, trusted bool) error {
	asked := corsRequestOf(x.r.Method, x.r.Header)
	if asked.origin == "" || x.bucket == "" || badBucketName(x.bucket) != "" {
		return nil
	}
	find := h.rulesFor
	if !trusted {
		find = h.rulesForRefused
	}
	rules, err := find(x.ctx(), x, trusted)
	if err == nil {
		headers, _ := rules.answer(asked)
		x.setHeaders(headers)
	}
	return err
}

// rulesForRefused is rulesFor for a request that is refused. If the rules are not found soon, or at little cost, there
// are none.
func (h *Handler) rulesForRefused(ctx context.Context, x *exchange, trusted bool) (corsRules, error) {
	from := asker{addr: webguard.Client(x.r.RemoteAddr)}
	mine := h.requests.enter(from)
	defer h.requests.leave(from, mine)
	if !h.requests.takeSlot(mine) {
		return nil, nil
	}
	defer h.requests.freeSlot(mine)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookupTime)
	defer cancel()
	rules, _ := h.rulesFor(ctx, x, trusted) // what refuses the request is answered
	return rules, nil
}

func (x *exchange) setHeaders(headers []Header) {
	for _, header := range headers {
		x.w.Header().Set(header.Name, header.Value)
	}
}

// preflight answers a request by which a browser asks whether a web page of another origin may send a request. Such
// requests have no signature.
func (h *Handler) preflight(x *exchange) error {
	asked := corsRequestOf(x.r.Method, x.r.Header)
	names := x.r.Header.Get("Access-Control-Request-Method") != ""
	if asked.origin == "" {
		return badPreflight("Insufficient information. Origin request header needed.")
	}
	if names && !slices.Contains(corsMethods, asked.method) {
		return badPreflight("Invalid Access-Control-Request-Method: %.64s", asked.method)
	}
	if _, bad, _ := asked.askedHeaders(); bad != "" {
		return badPreflight("Access-Control-Request-Headers \"%.255s\" contains invalid character.", bad)
	}
	var rules corsRules
	if x.bucket != "" {
		var err error
		if rules, err = h.rulesFor(x.ctx(), x, false); err != nil {
			return err
		}
	}
	if len(rules) == 0 {
		// The answer is the same if the bucket does not exist: only who has an access key may know that.
		return forbiddenPreflight("CORS is not enabled for this bucket.", asked.method, "BUCKET")
	}
	if !names {
		return badPreflight("Invalid Access-Control-Request-Method: null")
	}
	headers, allowed := rules.answer(asked)
	if !allowed {
		resource := "BUCKET"
		if x.key != "" {
			resource = "OBJECT"
		}
		return forbiddenPreflight("This CORS request is not allowed. This is usually because the evalution of Origin, "+
			"request method / Access-Control-Request-Method or Access-Control-Request-Headers are not whitelisted by "+
			"the resource's CORS spec.", asked.method, resource)
	}
	x.setHeaders(headers)
	return nil
}

func badPreflight(format string, args ...any) *Error {
	return refuse(http.StatusBadRequest, "BadRequest", format, args...)
}

func forbiddenPreflight(why, method, resource string) *Error {
	e := refuse(http.StatusForbidden, "AccessForbidden", "CORSResponse: %s", why)
	e.Details = []Header{{"Method", method}, {"ResourceType", resource}}
	return e
}
