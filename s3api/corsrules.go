package s3api

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/evenkeel/evenkeel/internal/wire"
)

// corsRule is one rule of a bucket about cross-origin requests (CORS), which are requests that a web page of another
// origin makes a browser send. The rule says which origins may send which requests and read the answers. The browser
// enforces the rule; the rule authorises nothing.
type corsRule struct {
	id string
	// methods and origins have at least one text each. An origin has at most one wildcard (*), which stands for any
	// text, even an empty one.
	methods, origins []string
	// headers are names of headers that requests may have, each with at most one wildcard. exposed are names of headers
	// that pages may read in answers.
	headers, exposed []string
	// maxAge is the time in seconds for which a browser may cache the answer to a preflight, if hasAge is true.
	maxAge int32
	hasID  bool
	hasAge bool
}

// corsRules are the rules of a bucket about cross-origin requests. The first rule that allows a request holds.
type corsRules []corsRule

// Limits of rules about cross-origin requests.
const (
	// maxCORSRules is the largest number of rules of a bucket, and maxCORSID the largest length of the ID of a rule in
	// characters, both as in S3.
	maxCORSRules = 100
	maxCORSID    = 255
	// maxAskedHeaders is the largest number of headers that a request may ask for. It bounds the work for a request
	// without a signature: each header is compared with all headers of a rule.
	maxAskedHeaders = 256
)

// corsMethods are the methods that rules about cross-origin requests may allow.
var corsMethods = []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete, http.MethodHead}

// varyCORS is the value of the header Vary of an answer that depends on what a browser says about a web page.
const varyCORS = "Origin, Access-Control-Request-Headers, Access-Control-Request-Method"

// corsRequest is what a browser says about a cross-origin request.
type corsRequest struct {
	// origin is the origin of the web page: a scheme, host and port, or null.
	origin string
	// method is the method that the page wants to use.
	method string
	// headers are the names of the headers that the page wants to send, as in the header
	// Access-Control-Request-Headers: separated by commas, in any case.
	headers []string
}

// corsRequestOf returns what the headers of a request say about a web page. The result has the empty origin if the
// request is no cross-origin request. As in S3, the header Access-Control-Request-Method counts more than the method of
// the request.
func corsRequestOf(method string, h http.Header) corsRequest {
	c := corsRequest{origin: h.Get("Origin"), method: method, headers: h["Access-Control-Request-Headers"]}
	if asked := h.Get("Access-Control-Request-Method"); asked != "" {
		c.method = asked
	}
	return c
}

// askedHeaders returns the names of the headers that the page wants to send, in lower case. If a name is malformed,
// bad is this name. ok is false if a name is malformed, or if there are too many names.
func (c *corsRequest) askedHeaders() (names []string, bad string, ok bool) {
	for _, line := range c.headers {
		for part := range strings.SplitSeq(line, ",") {
			name := strings.Trim(part, " \t")
			switch {
			case name == "":
				continue
			case !isToken(name):
				return nil, part, false
			case len(names) == maxAskedHeaders:
				return nil, "", false
			}
			names = append(names, strings.ToLower(name))
		}
	}
	return names, "", true
}

// answer returns the headers by which an answer tells a browser that the web page may read the answer. After a
// preflight they also say that the page may send its request. allowed is false if no rule allows the request.
func (rules corsRules) answer(c corsRequest) (headers []Header, allowed bool) {
	if c.origin == "" {
		return nil, false
	}
	asked, _, ok := c.askedHeaders()
	if !ok {
		return nil, false
	}
	at := slices.IndexFunc(rules, func(r corsRule) bool { return r.allows(c.origin, c.method, asked) })
	if at < 0 {
		return nil, false
	}
	r := &rules[at]
	if slices.Contains(r.origins, "*") {
		headers = append(headers, Header{"Access-Control-Allow-Origin", "*"})
	} else {
		headers = append(headers, Header{"Access-Control-Allow-Origin", c.origin},
			Header{"Access-Control-Allow-Credentials", "true"})
	}
	headers = append(headers, Header{"Access-Control-Allow-Methods", strings.Join(r.methods, ", ")})
	if len(asked) > 0 {
		headers = append(headers, Header{"Access-Control-Allow-Headers", strings.Join(asked, ", ")})
	}
	exposed := slices.DeleteFunc(slices.Clone(r.exposed), func(name string) bool { return name == "" })
	if len(exposed) > 0 {
		headers = append(headers, Header{"Access-Control-Expose-Headers", strings.Join(exposed, ", ")})
	}
	if r.hasAge {
		headers = append(headers, Header{"Access-Control-Max-Age", strconv.Itoa(int(r.maxAge))})
	}
	return append(headers, Header{"Vary", varyCORS}), true
}

// allows reports whether the rule allows a request of a web page. asked are the names of the headers that the page
// wants to send, in lower case.
func (r *corsRule) allows(origin, method string, asked []string) bool {
	of := func(pattern string) bool { return matchesWildcard(pattern, origin) }
	if !slices.Contains(r.methods, method) || !slices.ContainsFunc(r.origins, of) {
		return false
	}
	if len(asked) == 0 {
		return true
	}
	patterns := make([]string, len(r.headers))
	for i, pattern := range r.headers {
		patterns[i] = strings.ToLower(pattern)
	}
	return !slices.ContainsFunc(asked, func(name string) bool {
		return !slices.ContainsFunc(patterns, func(pattern string) bool { return matchesWildcard(pattern, name) })
	})
}

// matchesWildcard reports whether text is pattern, in which the first * stands for any text.
func matchesWildcard(pattern, text string) bool {
	before, after, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == text
	}
	return len(text) >= len(before)+len(after) && strings.HasPrefix(text, before) && strings.HasSuffix(text, after)
}

// corsFormat is the version of the encoding of rules about cross-origin requests.
const corsFormat = 1

// Flags of a rule about cross-origin requests, as bits of one byte in its encoding: the rule has an ID, or an age.
const (
	corsHasID = 1 << iota
	corsHasAge
)

// encode returns the rules as bytes: corsFormat, the number of rules, and for each rule its flags, ID, age, and four
// lists of texts.
func (rules corsRules) encode() []byte {
	e := wire.Encoder{B: []byte{corsFormat}}
	e.Uint(uint64(len(rules)))
	for i := range rules {
		r := &rules[i]
		flags := byte(0)
		if r.hasID {
			flags |= corsHasID
		}
		if r.hasAge {
			flags |= corsHasAge
		}
		e.Raw(flags)
		if r.hasID {
			e.Bytes([]byte(r.id))
		}
		if r.hasAge {
			e.Int(int64(r.maxAge))
		}
		for _, list := range [][]string{r.methods, r.origins, r.headers, r.exposed} {
			e.Uint(uint64(len(list)))
			for _, text := range list {
				e.Bytes([]byte(text))
			}
		}
	}
	return e.B
}

// decodeCORS decodes rules about cross-origin requests. ok is false if b has another form than encode returns.
func decodeCORS(b []byte) (rules corsRules, ok bool) {
	d := wire.Decoder{Rest: b}
	if d.Raw(1)[0] != corsFormat {
		return nil, false
	}
	for range d.Count(len("\x00\x00\x00\x00\x00")) {
		var r corsRule
		flags := d.Raw(1)[0]
		r.hasID, r.hasAge = flags&corsHasID != 0, flags&corsHasAge != 0
		d.Bad = d.Bad || flags&^(corsHasID|corsHasAge) != 0
		if r.hasID {
			r.id = string(d.Bytes())
		}
		if r.hasAge {
			age := d.Int()
			r.maxAge = int32(age) //nolint:gosec // checked
			d.Bad = d.Bad || int64(r.maxAge) != age
		}
		for _, list := range []*[]string{&r.methods, &r.origins, &r.headers, &r.exposed} {
			for range d.Count(1) {
				*list = append(*list, string(d.Bytes()))
			}
		}
		rules = append(rules, r)
	}
	return rules, !d.Bad && len(d.Rest) == 0 && len(rules) > 0
}
