package s3api

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/internal/webguard"
)

// told are the headers of an answer, by their names without Access-Control-.
func told(headers []Header) map[string]string {
	all := map[string]string{}
	for _, h := range headers {
		all[strings.TrimPrefix(h.Name, "Access-Control-")] = h.Value
	}
	return all
}

func TestAnswersByCORSRules(t *testing.T) {
	one := func(origins, methods, headers string) corsRule {
		return corsRule{
			origins: strings.Fields(origins), methods: strings.Fields(methods), headers: strings.Fields(headers),
		}
	}
	full := one("https://a.example https://*.b.example", "GET PUT", "Content-Type X-Amz-*")
	full.exposed, full.hasAge, full.maxAge = []string{"ETag", "", "x-amz-version-id"}, true, 3000
	hundred := corsRules{}
	for i := range 99 {
		hundred = append(hundred, one(fmt.Sprintf("https://%d.example", i), "GET", "*"))
	}
	hundred = append(hundred, one("https://last.example", "DELETE", "*"))
	allowed := func(origin, methods string) map[string]string {
		all := map[string]string{"Allow-Origin": origin, "Allow-Methods": methods, "Vary": varyCORS}
		if origin != "*" {
			all["Allow-Credentials"] = "true"
		}
		return all
	}
	with := func(all map[string]string, more ...string) map[string]string {
		for i := 0; i < len(more); i += 2 {
			all[more[i]] = more[i+1]
		}
		return all
	}
	ofFull := func(origin string, more ...string) map[string]string {
		all := with(allowed(origin, "GET, PUT"), "Expose-Headers", "ETag, x-amz-version-id", "Max-Age", "3000")
		return with(all, more...)
	}
	manyHeaders := strings.Repeat("x-amz-a,", maxAskedHeaders)
	for name, c := range map[string]struct {
		rules   corsRules
		origin  string
		method  string
		headers []string
		want    map[string]string // nil: not allowed
	}{
		"no rules":              {nil, "https://a.example", "GET", nil, nil},
		"no origin":             {corsRules{one("*", "GET", "")}, "", "GET", nil, nil},
		"an origin by its name": {corsRules{full}, "https://a.example", "GET", nil, ofFull("https://a.example")},
		"a wildcard": {corsRules{full}, "https://x.y.b.example", "PUT", nil,
			ofFull("https://x.y.b.example")},
		"a wildcard for nothing": {corsRules{full}, "https://.b.example", "PUT", nil, ofFull("https://.b.example")},
		"not below the wildcard": {corsRules{full}, "https://b.example", "PUT", nil, nil},
		"a longer origin":        {corsRules{full}, "https://a.example.evil", "GET", nil, nil},
		"a port":                 {corsRules{full}, "https://a.example:443", "GET", nil, nil},
		"another scheme":         {corsRules{full}, "http://a.example", "GET", nil, nil},
		"a slash":                {corsRules{full}, "https://a.example/", "GET", nil, nil},
		"an origin in capitals":  {corsRules{full}, "https://A.example", "GET", nil, nil},
		"another method":         {corsRules{full}, "https://a.example", "POST", nil, nil},
		"a method in small":      {corsRules{full}, "https://a.example", "get", nil, nil},
		"HEAD is not GET":        {corsRules{full}, "https://a.example", "HEAD", nil, nil},
		"OPTIONS":                {corsRules{full}, "https://a.example", "OPTIONS", nil, nil},
		"headers in any case": {
			corsRules{full}, "https://a.example", "PUT", []string{"CONTENT-type,x-AMZ-Date ,\tx-amz-"},
			ofFull("https://a.example", "Allow-Headers", "content-type, x-amz-date, x-amz-"),
		},
		"headers in lines": {
			corsRules{full}, "https://a.example", "PUT", []string{"content-type", "", "x-amz-a,,"},
			ofFull("https://a.example", "Allow-Headers", "content-type, x-amz-a"),
		},
		"another header":       {corsRules{full}, "https://a.example", "PUT", []string{"content-type,x-am"}, nil},
		"no header is allowed": {corsRules{one("*", "GET", "")}, "https://a.example", "GET", []string{"a"}, nil},
		"a header of two lines": {
			corsRules{one("*", "GET", "*")}, "https://a.example", "GET", []string{"a\r\nset-cookie: b"}, nil,
		},
		"a header with a blank": {corsRules{one("*", "GET", "*")}, "https://a.example", "GET", []string{"a b"}, nil},
		"a header with umlauts": {corsRules{one("*", "GET", "*")}, "https://a.example", "GET", []string{"ä"}, nil},
		"the star as a header": {
			corsRules{one("*", "GET", "*")}, "https://a.example", "GET", []string{"*"},
			with(allowed("*", "GET"), "Allow-Headers", "*"),
		},
		"many headers": {
			corsRules{full}, "https://a.example", "PUT", []string{manyHeaders},
			ofFull("https://a.example", "Allow-Headers", strings.TrimSuffix(strings.ReplaceAll(manyHeaders, ",", ", "),
				", ")),
		},
		"too many headers": {corsRules{full}, "https://a.example", "PUT", []string{manyHeaders + "x-amz-b"}, nil},
		"any origin":       {corsRules{one("*", "GET", "")}, "https://a.example", "GET", nil, allowed("*", "GET")},
		"any origin beside one": {
			corsRules{one("https://a.example *", "GET", "")}, "https://a.example", "GET", nil, allowed("*", "GET"),
		},
		"null, by any":        {corsRules{one("*", "GET", "")}, "null", "GET", nil, allowed("*", "GET")},
		"null, by its name":   {corsRules{one("null", "GET", "")}, "null", "GET", nil, allowed("null", "GET")},
		"null, by a wildcard": {corsRules{one("https://*", "GET", "")}, "null", "GET", nil, nil},
		"an origin that is *": {corsRules{one("http*", "GET", "")}, "*", "GET", nil, nil},
		"a wildcard in a text": {
			corsRules{one("http*://a.example:*", "GET", "")}, "https://a.example:1", "GET", nil, nil,
		},
		"both ends overlap": {corsRules{one("https://a*a", "GET", "")}, "https://a", "GET", nil, nil},
		"both ends": {
			corsRules{one("https://a*a", "GET", "")}, "https://aa", "GET", nil, allowed("https://aa", "GET"),
		},
		"text, not a pattern":  {corsRules{one("https://a.example", "GET", "")}, "https://aXexample", "GET", nil, nil},
		"an empty rule origin": {corsRules{{origins: []string{""}, methods: []string{"GET"}}}, "a", "GET", nil, nil},
		"the first that allows": {
			corsRules{
				one("https://b.example", "GET", ""), one("https://a.example", "PUT", ""),
				one("*", "GET HEAD", ""), full,
			},
			"https://a.example", "GET", nil, allowed("*", "GET, HEAD"),
		},
		"a later one allows the headers": {
			corsRules{one("*", "GET", "a"), full}, "https://a.example", "GET", []string{"content-type"},
			ofFull("https://a.example", "Allow-Headers", "content-type"),
		},
		"the last of a hundred": {
			hundred, "https://last.example", "DELETE", []string{"a"},
			with(allowed("https://last.example", "DELETE"), "Allow-Headers", "a"),
		},
		"none of a hundred": {hundred, "https://last.example", "GET", nil, nil},
		"an age of nothing": {
			corsRules{{origins: []string{"*"}, methods: []string{"GET"}, hasAge: true}}, "a", "GET", nil,
			with(allowed("*", "GET"), "Max-Age", "0"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			headers, ok := c.rules.answer(corsRequest{c.origin, c.method, c.headers})
			require.Equal(t, c.want != nil, ok)
			require.Equal(t, len(c.want), len(headers))
			if ok {
				require.Equal(t, c.want, told(headers))
			}
		})
	}
}

// TestWhatRequestsAskOfCORS: what a preflight asks for counts, whatever method carries it.
func TestWhatRequestsAskOfCORS(t *testing.T) {
	h := http.Header{"Origin": {"a"}, "Access-Control-Request-Headers": {"b", "c"}}
	require.Equal(t, corsRequest{"a", "GET", []string{"b", "c"}}, corsRequestOf("GET", h))
	h.Set("Access-Control-Request-Method", "PUT")
	require.Equal(t, corsRequest{"a", "PUT", []string{"b", "c"}}, corsRequestOf("GET", h))
	require.Empty(t, corsRequestOf("GET", http.Header{}).origin)
}

// TestWildcardsAgainstAnOracle: a pattern with one wildcard is a regular expression.
func TestWildcardsAgainstAnOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		letters := rapid.SampledFrom([]string{"a", "b", ".", "", "ab", "é", "\n", "[", "\\"})
		word := func(name string) string {
			return strings.Join(rapid.SliceOfN(letters, 0, 3).Draw(t, name), "")
		}
		before, after := word("before"), word("after")
		pattern, oracle := before, regexp.QuoteMeta(before)
		if rapid.Bool().Draw(t, "wild") {
			pattern, oracle = before+"*"+after, oracle+`(?s:.*)`+regexp.QuoteMeta(after)
		}
		text := word("text")
		if rapid.Bool().Draw(t, "near") {
			text = before + text + after
		}
		want := regexp.MustCompile(`\A` + oracle + `\z`).MatchString(text)
		require.Equal(t, want, matchesWildcard(pattern, text), "%q %q", pattern, text)
	})
}

func TestEncodedCORSRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(rapid.StringN(0, 20, 40), 0, 4)
		rules := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) corsRule {
			list := func(name string) []string {
				if l := texts.Draw(t, name); len(l) > 0 {
					return l
				}
				return nil
			}
			r := corsRule{
				methods: list("methods"), origins: list("origins"), headers: list("headers"), exposed: list("exposed"),
			}
			if r.hasID = rapid.Bool().Draw(t, "has id"); r.hasID {
				r.id = rapid.String().Draw(t, "id")
			}
			if r.hasAge = rapid.Bool().Draw(t, "has age"); r.hasAge {
				r.maxAge = rapid.Int32().Draw(t, "age")
			}
			return r
		}), 1, 5).Draw(t, "rules")
		b := corsRules(rules).encode()
		got, ok := decodeCORS(b)
		require.True(t, ok)
		require.Equal(t, corsRules(rules), got)
		for n := range b {
			_, ok := decodeCORS(b[:n])
			require.False(t, ok, "cut to %d bytes", n)
		}
		_, ok = decodeCORS(append(slices.Clone(b), 0))
		require.False(t, ok)
		b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "bits"))
		if again, ok := decodeCORS(b); ok {
			require.LessOrEqual(t, len(again), len(b))
		}
	})
	for _, bad := range []string{"", "\x02\x01\x00\x00\x00\x00\x00", "\x01\x00", "\x01\x01\x04\x00\x00\x00\x00",
		"\x01\x01\x02\x80\x80\x80\x80\x80\x01\x00\x00\x00\x00"} {
		_, ok := decodeCORS([]byte(bad))
		require.False(t, ok, "%q", bad)
	}
}

// FuzzParseCORS: what is taken is answered as it was, and is small enough to be stored or refused.
func FuzzParseCORS(f *testing.F) {
	f.Add([]byte("<CORSConfiguration><CORSRule><AllowedOrigin>*</AllowedOrigin><AllowedMethod>GET</AllowedMethod>" +
		"<ID>a</ID><MaxAgeSeconds>-1</MaxAgeSeconds><AllowedHeader>x-*</AllowedHeader><ExposeHeader/></CORSRule>" +
		"</CORSConfiguration>"))
	f.Add([]byte("<CORSConfiguration/>"))
	f.Fuzz(func(t *testing.T, doc []byte) {
		rules, err := parseCORS(doc)
		if err != nil {
			require.IsType(t, &Error{}, err)
			return
		}
		b := newXML()
		defer b.free()
		b.root("CORSConfiguration")
		for i := range rules {
			writeCORSRule(b, &rules[i])
		}
		b.close("CORSConfiguration")
		again, err := parseCORS(b.b)
		require.NoError(t, err)
		require.Equal(t, rules, again)
		decoded, ok := decodeCORS(rules.encode())
		require.True(t, ok)
		require.Equal(t, rules, decoded)
	})
}

// TestLookupsOfClientsAreBounded: per address and hour, but for buckets that are known to have rules.
func TestLookupsOfClientsAreBounded(t *testing.T) {
	l, now := newCORSLookups(), time.Unix(1e9, 0)
	taken := map[string]int{}
	for range lookupsPerHour + 10 {
		for _, addr := range []string{"192.0.2.1:1", "192.0.2.2:1"} {
			if l.take("abc", webguard.Client(addr), now) {
				taken[addr]++
			}
		}
	}
	require.Equal(t, []int{lookupsPerHour, lookupsPerHour}, slices.Collect(maps.Values(taken)))
	require.False(t, l.take("abc", webguard.Client("192.0.2.1:2"), now), "another port is no other client")
	for range 2 {
		require.True(t, l.take("abc", webguard.Client("192.0.2.1:1"), now.Add(2*time.Second)))
	}
	require.False(t, l.take("abc", webguard.Client("192.0.2.1:1"), now.Add(2*time.Second)))
	l.shared.Add("known", struct{}{})
	for range 100 {
		require.True(t, l.take("known", webguard.Client("192.0.2.1:1"), now))
	}
}
