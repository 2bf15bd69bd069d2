package sigv4_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/sigv4"
	"github.com/evenkeel/evenkeel/internal/test/presign"
	"github.com/evenkeel/evenkeel/internal/test/seed"
)

// TestNamesThatFoldV2: whoever holds a presigned URL can't keep its signature and rename a parameter that stands for a
// header, or move the border between parameters, or between a name and a value.
func TestNamesThatFoldV2(t *testing.T) {
	now := time.Unix(1_767_225_600, 0).UTC()
	expires := fmt.Sprint(now.Unix() + 600)
	for name, c := range map[string]struct {
		signed  []string // names and values of headers
		query   string
		headers []string
		code    string
	}{
		"as it was signed": {[]string{"x-amz-tagging", "k=v"}, "x-amz-tagging=k%3Dv", nil, ""},
		"upper case":       {[]string{"x-amz-tagging", "k=v"}, "X-AMZ-TAGGING=k%3Dv", nil, ""},
		"an underscore":    {[]string{"x-amz-meta-a_b.c", "v"}, "x-amz-meta-a_b.c=v", nil, ""},
		"the Kelvin sign": {[]string{"x-amz-checksum-sha256", "D"},
			"x-amz-chec%E2%84%AAsum-sha256=D", nil, "InvalidArgument"},
		"an I with a dot": {[]string{"x-amz-tagging", "k=v"},
			"x-amz-tagg%C4%B0ng=k%3Dv", nil, "InvalidArgument"},
		"beside another header": {[]string{"x-amz-tagging", "k=v"},
			"x-amz-tagg%C4%B0ng=k%3Dv", []string{"X-Amz-Tagging", "e=1"}, "InvalidArgument"},
		"a content type with it": {[]string{"content-type", "a"}, "content-typ%C3%A9=a", nil, "SignatureDoesNotMatch"},
		"two in one name": {[]string{"x-amz-copy-source", "/p/k", "x-amz-metadata-directive", "COPY"},
			"x-amz-copy-source%3A%2Fp%2Fk%0Ax-amz-metadata-directive=COPY", nil, "InvalidArgument"},
		"a colon": {[]string{"x-amz-copy-source", "/p:k"},
			"x-amz-copy-source%3A%2Fp=k", nil, "InvalidArgument"},
		"a carriage feed": {[]string{"x-amz-acl", "a"}, "x-amz-acl%0D=a", nil, "InvalidArgument"},
		"a blank":         {[]string{"x-amz-acl", "a"}, "x-amz-acl+=a", nil, "InvalidArgument"},
		"a blank before":  {[]string{"x-amz-acl", "a"}, "+x-amz-acl=a", nil, "SignatureDoesNotMatch"},
		"a zero":          {[]string{"x-amz-acl", "a"}, "x-amz-acl%00=a", nil, "InvalidArgument"},
		"no UTF-8":        {[]string{"x-amz-acl", "a"}, "x-amz-acl%FF=a", nil, "InvalidArgument"},
		"no name":         {[]string{"x-amz-", "a"}, "x-amz-=a", nil, ""},
		"a name in a text": {[]string{"x-amz-a", "b", "x-amz-c", "d"},
			"x-amz-a=b%0Ax-amz-c:d", nil, "InvalidArgument"},
		"a delete":          {[]string{"x-amz-a", "b"}, "x-amz-a=b%7F", nil, "InvalidArgument"},
		"blanks":            {[]string{"x-amz-a", "b"}, "x-amz-a=+b++", nil, ""}, // trimmed in what is used, too
		"no-break space":    {[]string{"x-amz-a", "b"}, "x-amz-a=b%C2%A0", nil, "SignatureDoesNotMatch"},
		"next line":         {[]string{"x-amz-a", "b"}, "x-amz-a=b%C2%85", nil, "SignatureDoesNotMatch"},
		"a wide space":      {[]string{"x-amz-a", "b"}, "x-amz-a=%E3%80%80b", nil, "SignatureDoesNotMatch"},
		"such a header":     {[]string{"x-amz-a", "b"}, "", []string{"X-Amz-A", "b\u00A0"}, "SignatureDoesNotMatch"},
		"a header's blanks": {[]string{"x-amz-a", "b"}, "", []string{"X-Amz-A", " \tb\t "}, ""},
		"a header's name":   {[]string{"x-amz-acl", "b"}, "", []string{"X-Amz-Acl\u00A0", "b"}, "InvalidArgument"},
		"a folding header": {[]string{"x-amz-tagging", "b"}, "", []string{"X-Amz-Tagg\u0130ng", "b"},
			"InvalidArgument"},
		"a header of two": {[]string{"x-amz-a", "b", "x-amz-c", "d"}, "", []string{"X-Amz-A", "b\nx-amz-c:d"},
			"InvalidArgument"},
	} {
		signature := presign.SignatureV2(exampleSecret, "PUT", expires, "/abc/k", c.signed...)
		r := ofHost("host", "abc", "PUT", "/k?AWSAccessKeyId="+exampleID+"&Expires="+expires+"&Signature="+
			url.QueryEscape(signature)+"&"+c.query)
		for i := 0; i < len(c.headers); i += 2 {
			r.Header[c.headers[i]] = []string{c.headers[i+1]}
		}
		_, err := verify(r, exampleSecret, now)
		assert.Equal(t, c.code, code(err), "%s: %v", name, err)
	}
}

// TestDatesV2: a time counts as the signature covers it.
func TestDatesV2(t *testing.T) {
	now := time.Unix(1_767_225_600, 0).UTC()
	date := now.Format(http.TimeFormat)
	sign := func(date string, headers ...string) string {
		return "AWS " + exampleID + ":" + presign.SignatureV2(exampleSecret, "GET", date, "/abc/k", headers...)
	}
	for name, c := range map[string]struct {
		authorization string
		headers       []string
		code          string
	}{
		"Date": {sign(date), []string{"Date", date}, ""},
		"an empty x-amz-date is none": {sign("", "x-amz-date", ""), []string{"Date", date, "x-amz-date", ""},
			"AccessDenied"},
		"two Dates": {sign(date), []string{"Date", date, "Date", "x"}, ""}, // the first counts
	} {
		r := ofHost("host", "abc", "GET", "/k", append(c.headers, "Authorization", c.authorization)...)
		_, err := verify(r, exampleSecret, now)
		assert.Equal(t, c.code, code(err), "%s: %v", name, err)
	}
}

// TestBucketsOfHostsV2: the bucket in a host name is not decoded, and the one in a path is.
func TestBucketsOfHostsV2(t *testing.T) {
	now := time.Unix(1_767_225_600, 0).UTC()
	expires := fmt.Sprint(now.Unix() + 600)
	signature := presign.SignatureV2(exampleSecret, "DELETE", expires, "/ph%6ftos/")
	target := "?AWSAccessKeyId=" + exampleID + "&Expires=" + expires + "&Signature=" + url.QueryEscape(signature)
	_, err := verify(ofHost("host", "", "DELETE", "/ph%6ftos/"+target), exampleSecret, now)
	require.NoError(t, err)
	_, err = verify(ofHost("ph%6ftos.host", "ph%6ftos", "DELETE", "/"+target), exampleSecret, now)
	require.Equal(t, "SignatureDoesNotMatch", code(err))
}

// TestWhatIsSignedIsUsedV2: whoever holds a presigned URL, or sees a request, and sends its headers and parameters in
// other forms, has no signature or the headers that were signed.
func TestWhatIsSignedIsUsedV2(t *testing.T) {
	rnd := seed.New(t)
	now := time.Unix(1_767_225_600, 0).UTC()
	pick := func(of ...string) string { return of[rnd.IntN(len(of))] }
	verified, changed := 0, 0
	for range 5_000 {
		signed, pairs := map[string]string{}, []string(nil)
		for range 1 + rnd.IntN(3) {
			name := pick("x-amz-tagging", "x-amz-checksum-sha256", "x-amz-copy-source", "content-type", "content-md5",
				"x-amz-meta-a_b", "x-amz-date")
			if signed[name] == "" {
				signed[name] = pick("/p/k", "/p/a,b", "k=v", "a:b", "REPLACE", "a b", "b,x-amz-acl:private")
				pairs = append(pairs, name, signed[name])
			}
		}
		date, presigned := now.Format(http.TimeFormat), rnd.IntN(3) > 0
		if presigned {
			date = fmt.Sprint(now.Unix() + 600)
		} else {
			pairs, signed["date"] = append(pairs, "date", date), date
			delete(signed, "x-amz-date")
			if at := slices.Index(pairs, "x-amz-date"); at >= 0 {
				pairs = slices.Delete(pairs, at, at+2)
			}
		}
		signature := presign.SignatureV2(exampleSecret, "PUT", date, "/abc/k", pairs...)
		r := ofHost("host", "abc", "PUT", "/k")
		if presigned {
			r.Query = "AWSAccessKeyId=" + exampleID + "&Expires=" + date + "&Signature=" + url.QueryEscape(signature)
		} else {
			r.Header.Set("Authorization", "AWS "+exampleID+":"+signature)
		}
		for i := 0; i < len(pairs); i += 2 {
			name, value := pairs[i], pairs[i+1]
			if rnd.IntN(4) == 0 { // blanks
				value = pick(" ", "\t", "\u00A0", "\u0085", "\u3000", "") + value + pick(" ", "\u00A0", "\t ", "")
			}
			if rnd.IntN(6) == 0 { // letters that fold
				name = strings.NewReplacer("k", pick("\u212A", "K"), "i", pick("\u0130", "I")).Replace(name)
			}
			if before, after, found := strings.Cut(value, ":"); found && rnd.IntN(2) == 0 { // another border
				name, value = name+":"+before, after
			}
			if i+2 < len(pairs) && rnd.IntN(8) == 0 { // two as one
				if i += 2; rnd.IntN(2) == 0 {
					value += "\n" + pairs[i] + ":" + pairs[i+1]
				} else {
					name, value = name+":"+value+"\n"+pairs[i], pairs[i+1]
				}
			}
			switch rnd.IntN(3) {
			case 0:
				if !presigned {
					r.Header.Add(name, value)
					continue
				}
				r.Query += "&" + url.QueryEscape(name) + "=" + url.QueryEscape(value)
			case 1:
				r.Header[http.CanonicalHeaderKey(name)] = strings.Split(value, pick(",", ", ", "\x00"))
			default:
				r.Header.Add(name, value)
			}
			if rnd.IntN(6) == 0 { // beside it
				other := pick("", "evil", value)
				r.Header.Add(pick(name, "X-Amz-Tagging", "Content-Type"), other)
			}
			if rnd.IntN(6) == 0 {
				r.Query += "&" + pick(name, strings.ToUpper(name), "x-amz-tagging") + "=" + pick("", "evil")
			}
		}
		if strings.Contains(r.Query, "\n") || strings.Contains(r.Query, " ") {
			continue // no such request comes
		}
		c, err := sigv4.Parse(r)
		if err != nil || c == nil {
			continue
		}
		if _, err := c.Verify(r, exampleSecret); err != nil {
			continue
		}
		verified++
		before := r.Header.Clone()
		c.SetSigned(r.Header)
		used := map[string]string{}
		for name, values := range r.Header {
			require.Len(t, values, 1)
			if lower := strings.ToLower(name); c.Signs(lower) && (values[0] != "" || signed[lower] != "") {
				used[lower] = values[0]
			}
		}
		if presigned {
			delete(used, "date")
		}
		require.Equal(t, signed, used, "%+v", r)
		if fmt.Sprint(before) != fmt.Sprint(r.Header) {
			changed++
		}
	}
	require.Greater(t, verified, 300)
	require.Greater(t, changed, 30)
}
