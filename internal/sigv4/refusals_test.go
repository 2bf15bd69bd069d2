package sigv4_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/sigv4"
	"github.com/evenkeel/evenkeel/internal/test/presign"
)

// byHand signs a canonical request, whose text the test has written itself.
func byHand(canonical string) string {
	sum := func(key []byte, text string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(text))
		return h.Sum(nil)
	}
	key := []byte("AWS4" + exampleSecret)
	for _, part := range []string{"20130524", "us-east-1", "s3", "aws4_request"} {
		key = sum(key, part)
	}
	hashed := sha256.Sum256([]byte(canonical))
	return hex.EncodeToString(sum(key, "AWS4-HMAC-SHA256\n20130524T000000Z\n20130524/us-east-1/s3/aws4_request\n"+
		hex.EncodeToString(hashed[:])))
}

// What is signed, to the letter.
func TestCanonicalForms(t *testing.T) {
	const host = "examplebucket.s3.amazonaws.com"
	for _, c := range []struct {
		name, target, path, query, header, value string
		length                                   int64
		sent                                     []string
	}{
		{name: "slashes", target: "/a/b%2Fc?prefix=a/b&x=%2F", path: "/a/b/c", query: "prefix=a%2Fb&x=%2F"},
		{name: "blanks", target: "/a%20b+c?p=a+b&q=a%20b", path: "/a%20b%2Bc", query: "p=a%20b&q=a%20b"},
		{name: "unreserved", target: "/-_.~%2D%5F%2E%7E%41%7a%30", path: "/-_.~-_.~Az0", query: ""},
		{name: "reserved", target: "/!$&'()*,:;=@%5B%60%7B%2F%40%5E",
			path: "/%21%24%26%27%28%29%2A%2C%3A%3B%3D%40%5B%60%7B/%40%5E", query: ""},
		{name: "bytes", target: "/%00%ff%C3%BC", path: "/%00%FF%C3%BC", query: ""},
		{name: "parameters in order", target: "/?b=2&a=1&a=0&aa&B=", path: "/", query: "B=&a=0&a=1&aa=&b=2"},
		{name: "a slash in a name", target: "/?a/b=1", path: "/", query: "a%2Fb=1"},
		{name: "empty parameters", target: "/?&&a=1&&b&", path: "/", query: "a=1&b="},
		{name: "no cleaning", target: "/a//../b/.", path: "/a//../b/.", query: ""},
		{name: "blanks in a header", target: "/", path: "/", header: "x-amz-meta-a", value: "a b c",
			sent: []string{"  a   b  c "}},
		{name: "two values", target: "/", path: "/", header: "x-amz-meta-a", value: "a,b c",
			sent: []string{"a ", " b  c"}},
		{name: "length that net/http took", target: "/", path: "/", header: "content-length", value: "1234567",
			length: 1234567},
		{name: "length zero", target: "/", path: "/", header: "content-length", value: "0"},
		{name: "length in a header", target: "/", path: "/", header: "content-length", value: "5", sent: []string{"5"},
			length: 7},
		{name: "no length", target: "/", path: "/", header: "content-length", value: "", length: -1},
	} {
		names, lines := []string{"host", "x-amz-content-sha256", "x-amz-date"}, map[string]string{
			"host": host, "x-amz-content-sha256": emptySum, "x-amz-date": "20130524T000000Z",
		}
		if c.header != "" {
			names = append(names, c.header)
			lines[c.header] = c.value
		}
		slices.Sort(names)
		canonical := "GET\n" + c.path + "\n" + c.query + "\n"
		for _, n := range names {
			canonical += n + ":" + lines[n] + "\n"
		}
		canonical += "\n" + strings.Join(names, ";") + "\n" + emptySum
		r := request("GET", c.target, "x-amz-content-sha256", emptySum, "x-amz-date", "20130524T000000Z",
			"Authorization", authorization(strings.Join(names, ";"), byHand(canonical)))
		r.Length = c.length
		for _, v := range c.sent {
			r.Header.Add(c.header, v)
		}
		_, err := verify(r, exampleSecret, exampleTime)
		require.NoError(t, err, c.name)
	}
}

// presigned are the parameters of a presigned URL.
func presigned(change map[string]string) *sigv4.Request {
	all := map[string]string{
		"X-Amz-Algorithm": "AWS4-HMAC-SHA256", "X-Amz-Credential": exampleScope, "X-Amz-Date": "20130524T000000Z",
		"X-Amz-Expires":       "86400",
		"X-Amz-SignedHeaders": "host",
		"X-Amz-Signature":     "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404",
	}
	for name, value := range change {
		all[name] = value
	}
	var parts []string
	for name, value := range all {
		if value != "" {
			parts = append(parts, name+"="+value)
		}
	}
	slices.Sort(parts)
	return request("GET", "/test.txt?"+strings.Join(parts, "&"))
}

// Each refusal says what it is about: where several of them have one code, only the
// message tells whether the right one was met.
func TestRefusals(t *testing.T) {
	headers := func(credential string) *sigv4.Request {
		return request("GET", "/", "x-amz-content-sha256", emptySum, "x-amz-date", "20130524T000000Z",
			"Authorization", "AWS4-HMAC-SHA256 Credential="+
				credential+",SignedHeaders=host;x-amz-content-sha256;x-amz-date,Signature=0")
	}
	query := func(change ...string) *sigv4.Request {
		m := map[string]string{}
		for i := 0; i < len(change); i += 2 {
			m[change[i]] = change[i+1]
		}
		return presigned(m)
	}
	credential := func(value string) *sigv4.Request { return query("X-Amz-Credential", value) }
	badHeader, badQuery := "AuthorizationHeaderMalformed", "AuthorizationQueryParametersError"
	for _, c := range []struct {
		name          string
		r             *sigv4.Request
		code, message string
	}{
		{"header: short credential", headers("a/b"), badHeader,
			"The authorization header is malformed; the Credential is mal-formed; expecting"},
		{"header: four parts", headers("20130524/us-east-1/s3/aws4_request"), badHeader,
			"the Credential is mal-formed; expecting"},
		{"header: no id", headers("/20130524/us-east-1/s3/aws4_request"), badHeader, "a non-empty Access Key"},
		{"header: service", headers("id/20130524/us-east-1/ec2/aws4_request"), badHeader,
			`incorrect service "ec2". This endpoint belongs to "s3"`},
		{"header: end", headers("id/20130524/us-east-1/s3/aws5_request"), badHeader,
			`incorrect terminal "aws5_request". This endpoint uses "aws4_request"`},
		{"header: date", headers("id/20130525/us-east-1/s3/aws4_request"), badHeader,
			`invalid credential date "20130525". This date is not the same as X-Amz-Date: "20130524"`},
		{"query: short credential", credential("a/b"), badQuery,
			"Error parsing the X-Amz-Credential parameter; the Credential is mal-formed"},
		{"query: no id", credential("/20130524/us-east-1/s3/aws4_request"), badQuery, "a non-empty Access Key"},
		{"query: service", credential("id/20130524/us-east-1/ec2/aws4_request"), badQuery, `incorrect service "ec2"`},
		{"query: end", credential("id/20130524/us-east-1/s3/x"), badQuery, `incorrect terminal "x"`},
		{"query: date", credential("id/20130525/us-east-1/s3/aws4_request"), badQuery,
			"Error parsing the X-Amz-Credential parameter; invalid credential date"},
		{"query: no date", query("X-Amz-Date", "now", "X-Amz-Credential", "id/00010101/us-east-1/s3/aws4_request"),
			badQuery,
			"ISO8601 Long Format"},
		{"query: expires, a word", query("X-Amz-Expires", "soon"), badQuery, "should be a number, not negative"},
		{"query: expires, negative", query("X-Amz-Expires", "-1"), badQuery, "should be a number, not negative"},
		{"query: expires, beyond counting", query("X-Amz-Expires", "2147483648"), badQuery,
			"should be a number, not negative"},
		{"query: expires, too late", query("X-Amz-Expires", "604801"), badQuery, "must be less than 604800 seconds"},
		{"query: payload", query("X-Amz-Content-Sha256", "abc"), "InvalidArgument", "must be UNSIGNED-PAYLOAD"},
		{"query: payload of another form", query("X-Amz-Content-Sha256", "STREAMING-X"), "NotImplemented",
			"x-amz-content-sha256: STREAMING-X."},
		{"query: another algorithm", query("X-Amz-Algorithm", "AWS4-X"), "NotImplemented", "signatures by AWS4-X."},
		{"query: no algorithm of ours", query("X-Amz-Algorithm", "RSA"), badQuery, `only supports "AWS4-HMAC-SHA256"`},
		{"query: only the algorithm", request("GET", "/?X-Amz-Algorithm=AWS4-HMAC-SHA256"), badQuery,
			"requires the X-Amz-Credential parameter"},
		{"query: only the credential", request("GET", "/?X-Amz-Credential="+exampleScope), badQuery,
			"requires the X-Amz-Algorithm parameter"},
		{"query: only the signature", request("GET", "/?X-Amz-Signature=0"), badQuery,
			"requires the X-Amz-Algorithm parameter"},
		{"a query that is none", request("GET", "/?a=%zz"), "InvalidURI", "The query can't be parsed"},
		{"a path that is none", &sigv4.Request{Method: "GET", Path: "/%zz", Query: presigned(nil).Query, Host: "h",
			Header: http.Header{}}, "InvalidURI", "The URI can't be parsed"},
		{"two mechanisms", request("GET", "/?Signature=b", "Authorization", "AWS4-HMAC-SHA256 x"), "InvalidArgument",
			"Only one auth mechanism allowed"},
	} {
		_, err := verify(c.r, exampleSecret, exampleTime)
		require.Equal(t, c.code, code(err), "%s: %v", c.name, err)
		require.ErrorContains(t, err, c.message, c.name)
	}
	for _, late := range []struct {
		after         time.Duration
		code, message string
	}{
		{24 * time.Hour, "", ""},
		{24*time.Hour + 1, "AccessDenied", "good for 86400 seconds from 20130524T000000Z on"},
		{-15 * time.Minute, "", ""},
		{-15*time.Minute - 1, "AccessDenied", "not valid yet"},
	} {
		_, err := verify(presigned(nil), exampleSecret, exampleTime.Add(late.after))
		require.Equal(t, late.code, code(err), late.after)
		if err != nil {
			require.ErrorContains(t, err, late.message)
		}
	}
	// What only looks like a signature is none.
	for _, target := range []string{"/", "/?Expires=1", "/?signature=a"} {
		c, err := sigv4.Parse(request("GET", target))
		require.NoError(t, err)
		require.Nil(t, c, target)
	}
}

// What a presigned URL says of the body: a parameter, else a header, else nothing.
func TestPayloadsOfPresignedURLs(t *testing.T) {
	for _, c := range []struct{ param, header, want string }{
		{"", "", sigv4.UnsignedPayload},
		{emptySum, "", emptySum},
		{"", emptySum, emptySum},
		{sigv4.UnsignedPayload, emptySum, sigv4.UnsignedPayload},
	} {
		r := presigned(map[string]string{"X-Amz-Content-Sha256": c.param})
		if c.header != "" {
			r.Header.Set("X-Amz-Content-Sha256", c.header)
		}
		claim, err := sigv4.Parse(r)
		require.NoError(t, err)
		require.Equal(t, c.want, claim.Payload)
		require.True(t, claim.Presigned)
		require.Equal(t, 24*time.Hour, claim.Expires)
		require.Equal(t, sigv4.Scope{Date: "20130524", Region: "us-east-1"}, claim.Scope)
	}
}

func TestSignedHeaders(t *testing.T) {
	c, err := sigv4.Parse(request("GET", "/test.txt", "Range", "bytes=0-9", "x-amz-content-sha256", emptySum, "x-amz-date",
		"20130524T000000Z", "Authorization", authorization("host;range;x-amz-content-sha256;x-amz-date", emptySum)))
	require.NoError(t, err)
	for _, name := range []string{"host", "range", "x-amz-content-sha256", "x-amz-date"} {
		require.True(t, c.Signs(name), name)
	}
	for _, name := range []string{"", "date", "rang", "host;range", "content-type"} {
		require.False(t, c.Signs(name), name)
	}
}

func TestDigests(t *testing.T) {
	require.True(t, sigv4.IsDigest(emptySum))
	require.True(t, sigv4.IsDigest(strings.Repeat("09af", 16)))
	require.False(t, sigv4.IsDigest(""))
	require.False(t, sigv4.IsDigest(emptySum[1:]))
	require.False(t, sigv4.IsDigest(emptySum+"0"))
	for at := range emptySum {
		for _, c := range []string{"/", ":", "`", "g", "A"} {
			require.False(t, sigv4.IsDigest(emptySum[:at]+c+emptySum[at+1:]), "%q at %d", c, at)
		}
	}
}

// Sign names what it signs in order, and its time in UTC.
func TestSign(t *testing.T) {
	elsewhere := exampleTime.In(time.FixedZone("", 3600*5))
	r := request("GET", "/", "B", "1", "a", "2", "X-Z", "3", "x-y", "4", "Authorization", "old")
	require.NoError(t, sigv4.Sign(r, "id", exampleSecret, "r", sigv4.UnsignedPayload, elsewhere))
	require.Equal(t, "20130524T000000Z", r.Header.Get("X-Amz-Date"))
	require.Contains(t, r.Header.Get("Authorization"), "Credential=id/20130524/r/s3/aws4_request, SignedHeaders=a;b;host;x-amz-content-sha256;x-amz-date;x-y;x-z, Signature=")
	query := strings.TrimSuffix(presigned(map[string]string{"X-Amz-Signature": ""}).Query, "&")
	p := request("GET", "/test.txt?"+query)
	signature, err := presign.Signature(p, exampleSecret, "us-east-1", elsewhere)
	require.NoError(t, err)
	p.Query += "&X-Amz-Signature=" + signature
	_, err = verify(p, exampleSecret, exampleTime)
	require.NoError(t, err)
	for _, bad := range []string{"/%zz", "/?%zz=a", "/?a=%zz"} {
		require.Error(t, sigv4.Sign(request("GET", bad), "id", "secret", "r", sigv4.UnsignedPayload, exampleTime), bad)
	}
}
