package sigv4_test

import (
	"crypto/sha256"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/evenkeel/evenkeel/internal/sigv4"
)

// The examples of AWS's own documents: credentials, time and signatures.
// https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
const (
	exampleID     = "AKIAIOSFODNN7EXAMPLE"
	exampleSecret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
	exampleScope  = exampleID + "/20130524/us-east-1/s3/aws4_request"
	emptySum      = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

var exampleTime = time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)

// request builds a request of the example's bucket; headers are pairs.
func request(method, target string, headers ...string) *sigv4.Request {
	path, query, _ := strings.Cut(target, "?")
	r := &sigv4.Request{Method: method, Path: path, Query: query, Host: "examplebucket.s3.amazonaws.com",
		Header: http.Header{}, Length: -1}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func authorization(signed, signature string) string {
	return "AWS4-HMAC-SHA256 Credential=" + exampleScope + ",SignedHeaders=" + signed + ",Signature=" + signature
}

// verify does what a server does.
func verify(r *sigv4.Request, secret string, now time.Time) (*sigv4.Chain, error) {
	c, err := sigv4.Parse(r)
	if err != nil {
		return nil, err
	}
	if c == nil {
		return nil, &sigv4.Error{Code: "anonymous"}
	}
	if err := c.CheckTime(now); err != nil {
		return nil, err
	}
	return c.Verify(r, secret)
}

func code(err error) string {
	if err == nil {
		return ""
	}
	return err.(*sigv4.Error).Code
}

func TestPublishedSignatures(t *testing.T) {
	for name, r := range map[string]*sigv4.Request{
		"get a range": request("GET", "/test.txt", "Range", "bytes=0-9", "x-amz-content-sha256", emptySum, "x-amz-date",
			"20130524T000000Z",
			"Authorization", authorization("host;range;x-amz-content-sha256;x-amz-date",
				"f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41")),
		"put": request("PUT", "/test$file.text", "Date", "Fri, 24 May 2013 00:00:00 GMT", "x-amz-date",
			"20130524T000000Z",
			"x-amz-storage-class", "REDUCED_REDUNDANCY",
			"x-amz-content-sha256", "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072",
			"Authorization", authorization("date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
				"98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd")),
		"a parameter without a value": request("GET", "/?lifecycle", "x-amz-content-sha256", emptySum, "x-amz-date",
			"20130524T000000Z",
			"Authorization", authorization("host;x-amz-content-sha256;x-amz-date",
				"fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543")),
		"parameters in any order": request("GET", "/?prefix=J&max-keys=2", "x-amz-content-sha256", emptySum,
			"x-amz-date",
			"20130524T000000Z",
			"Authorization", authorization("host;x-amz-content-sha256;x-amz-date",
				"34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7")),
		"presigned": request("GET", "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential="+
			strings.ReplaceAll(exampleScope, "/", "%2F")+
			"&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&"+
			"X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"),
	} {
		_, err := verify(r, exampleSecret, exampleTime)
		require.NoError(t, err, name)
		_, err = verify(r, exampleSecret+"x", exampleTime)
		require.Equal(t, "SignatureDoesNotMatch", code(err), name)
	}
}

// https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html and
// sigv4-streaming-trailers.html
func TestPublishedChunkSignatures(t *testing.T) {
	first, second := strings.Repeat("a", 65536), strings.Repeat("a", 1024)
	for _, c := range []struct {
		name, seed, signed string
		headers            []string
		chunks             []string
		trailer, signature string
	}{
		{"chunks", "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
			"content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;" +
				"x-amz-storage-class",
			[]string{"content-length", "66824", "x-amz-content-sha256", sigv4.SignedChunks},
			[]string{"ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
				"0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
				"b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9"}, "", ""},
		{"chunks and trailer", "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e",
			"content-encoding;host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-storage-class;" +
				"x-amz-trailer",
			[]string{"x-amz-content-sha256", sigv4.SignedChunksTrailer, "x-amz-trailer", "x-amz-checksum-crc32c"},
			[]string{"b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
				"1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
				"2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992"},
			"x-amz-checksum-crc32c:sOO8/Q==\n", "d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435"},
	} {
		r := request("PUT", "/examplebucket/chunkObject.txt", append(c.headers, "x-amz-date", "20130524T000000Z",
			"x-amz-storage-class", "REDUCED_REDUNDANCY",
			"content-encoding", "aws-chunked", "x-amz-decoded-content-length", "66560", "Authorization",
			authorization(c.signed, c.seed))...)
		r.Host = "s3.amazonaws.com"
		chain, err := verify(r, exampleSecret, exampleTime)
		require.NoError(t, err, c.name)
		for i, data := range []string{first, second, ""} {
			require.Equal(t, "SignatureDoesNotMatch", code(chain.Chunk(sha256.Sum256([]byte(data+"x")), c.chunks[i])),
				c.name)
			require.NoError(t, chain.Chunk(sha256.Sum256([]byte(data)), c.chunks[i]), c.name)
		}
		if c.trailer != "" {
			require.Equal(t, "SignatureDoesNotMatch", code(chain.Trailer("x"+c.trailer, c.signature)))
			require.NoError(t, chain.Trailer(c.trailer, c.signature))
		}
	}
}

func TestClockSkewAndExpiry(t *testing.T) {
	header := request("GET", "/?lifecycle", "x-amz-content-sha256", emptySum, "x-amz-date", "20130524T000000Z",
		"Authorization", authorization("host;x-amz-content-sha256;x-amz-date",
			"fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"))
	presigned := request("GET", "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential="+exampleScope+
		"&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&"+
		"X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404")
	for _, c := range []struct {
		r     *sigv4.Request
		after time.Duration
		code  string
	}{
		{header, 15 * time.Minute, ""},
		{header, -15 * time.Minute, ""},
		{header, 15*time.Minute + 1, "RequestTimeTooSkewed"},
		{header, -15*time.Minute - 1, "RequestTimeTooSkewed"},
		{presigned, 24 * time.Hour, ""},
		{presigned, 24*time.Hour + 1, "AccessDenied"},
		{presigned, -15 * time.Minute, ""},
		{presigned, -15*time.Minute - 1, "AccessDenied"},
	} {
		_, err := verify(c.r, exampleSecret, exampleTime.Add(c.after))
		require.Equal(t, c.code, code(err), "%v", c.after)
	}
}

func TestMalformedClaims(t *testing.T) {
	const signature = "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
	const signed = "host;x-amz-content-sha256;x-amz-date"
	for value, want := range map[string]string{
		"": "anonymous",
		"AWS4-HMAC-SHA256 Credential=" + exampleScope + ", SignedHeaders=" + signed + ",  Signature=" + signature: "",
		"AWS4-HMAC-SHA256 Signature=" + signature + ",SignedHeaders=" + signed + ",Credential=" + exampleScope:    "",
		"AWS4-HMAC-SHA256": "AuthorizationHeaderMalformed",
		"AWS4-HMAC-SHA256 Credential=" + exampleScope + ",SignedHeaders=" +
			signed: "AuthorizationHeaderMalformed",
		"AWS4-HMAC-SHA256 Credential=" + exampleScope + ",SignedHeaders=,Signature=" +
			signature: "AuthorizationHeaderMalformed",
		authorization(signed, signature) + ",Signature=" +
			signature: "AuthorizationHeaderMalformed",
		authorization(signed, signature) +
			",x": "AuthorizationHeaderMalformed",
		"AWS4-HMAC-SHA256 Credential=a/b/c,SignedHeaders=" + signed + ",Signature=" +
			signature: "AuthorizationHeaderMalformed",
		"AWS4-HMAC-SHA256 Credential=/20130524/us-east-1/s3/aws4_request,SignedHeaders=" + signed +
			",Signature=x": "AuthorizationHeaderMalformed",
		"AWS4-HMAC-SHA256 Credential=a/20130525/us-east-1/s3/aws4_request,SignedHeaders=" + signed + ",Signature=" +
			signature: "AuthorizationHeaderMalformed",
		"AWS4-HMAC-SHA256 Credential=a/20130524/us-east-1/sts/aws4_request,SignedHeaders=" + signed +
			",Signature=x": "AuthorizationHeaderMalformed",
		"AWS4-HMAC-SHA256 Credential=a/20130524/us-east-1/s3/aws5_request,SignedHeaders=" + signed +
			",Signature=x": "AuthorizationHeaderMalformed",
		authorization("x-amz-content-sha256;x-amz-date",
			signature): "AccessDenied",
		authorization("host;x-amz-content-sha256",
			signature): "AccessDenied",
		authorization(signed,
			strings.ToUpper(signature)): "SignatureDoesN" +
			"otMatch",
		authorization(signed,
			signature[:63]): "SignatureDoesN" +
			"otMatch",
		authorization("x-amz-date;host;x-amz-content-sha256",
			signature): "AuthorizationHeaderMalformed",
		"AWS4-ECDSA-P256-SHA256 Credential=x": "NotImplemented",
		"AWS id:signature":                    "SignatureDoesNotMatch",
		"Basic abc":                           "InvalidArgument",
	} {
		r := request("GET", "/?lifecycle", "x-amz-content-sha256", emptySum, "x-amz-date", "20130524T000000Z",
			"Authorization", value)
		_, err := verify(r, exampleSecret, exampleTime)
		require.Equal(t, want, code(err), "%s: %v", value, err)
	}
	good := authorization(signed, signature)
	for want, headers := range map[string][]string{
		"InvalidRequest":  {"x-amz-date", "20130524T000000Z"},
		"AccessDenied":    {"x-amz-content-sha256", emptySum},
		"InvalidArgument": {"x-amz-content-sha256", strings.ToUpper(emptySum), "x-amz-date", "20130524T000000Z"},
		"NotImplemented": {"x-amz-content-sha256", "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD", "x-amz-date",
			"20130524T000000Z"},
		"InvalidToken": {"x-amz-content-sha256", emptySum, "x-amz-date", "20130524T000000Z", "x-amz-security-token",
			"t"},
		"SignatureDoesNotMatch": {"x-amz-content-sha256", sigv4.UnsignedPayload, "x-amz-date", "20130524T000000Z"},
	} {
		_, err := verify(request("GET", "/?lifecycle", append(headers, "Authorization", good)...), exampleSecret,
			exampleTime)
		require.Equal(t, want, code(err), "%q: %v", headers, err)
	}
	for _, names := range []string{"host;" + signed, "Host;" + signed, signed + ";", ";" + signed} {
		r := request("GET", "/", "x-amz-content-sha256", emptySum, "x-amz-date", "20130524T000000Z",
			"Authorization", authorization(names, signature))
		_, err := verify(r, exampleSecret, exampleTime)
		require.Equal(t, "AuthorizationHeaderMalformed", code(err), names)
	}
	// A header that changes the meaning must be signed.
	for _, name := range []string{"x-amz-acl", "x-amz-copy-source", "x-evenkeel-size", "X-Amz-Meta-A"} {
		_, err := verify(request("GET", "/?lifecycle", "x-amz-content-sha256", emptySum, "x-amz-date",
			"20130524T000000Z",
			"Authorization", good, name, "v"), exampleSecret, exampleTime)
		require.Equal(t, "AccessDenied", code(err), name)
	}
	whole := map[string]string{
		"X-Amz-Algorithm": "AWS4-HMAC-SHA256", "X-Amz-Credential": exampleScope, "X-Amz-Date": "20130524T000000Z",
		"X-Amz-Expires":       "86400",
		"X-Amz-SignedHeaders": "host",
		"X-Amz-Signature":     "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404",
	}
	for _, c := range []struct{ name, value, code string }{
		{"", "", ""},
		{"X-Amz-Algorithm", "", "AuthorizationQueryParametersError"},
		{"X-Amz-Algorithm", "AWS3", "AuthorizationQueryParametersError"},
		{"X-Amz-Algorithm", "AWS4-ECDSA-P256-SHA256", "NotImplemented"},
		{"X-Amz-Credential", "a", "AuthorizationQueryParametersError"},
		{"X-Amz-Date", "", "AuthorizationQueryParametersError"},
		{"X-Amz-Date", "Fri, 24 May 2013 00:00:00 GMT", "AuthorizationQueryParametersError"},
		{"X-Amz-Expires", "", "AuthorizationQueryParametersError"},
		{"X-Amz-Expires", "-1", "AuthorizationQueryParametersError"},
		{"X-Amz-Expires", "604801", "AuthorizationQueryParametersError"},
		{"X-Amz-Expires", "9999999999999", "AuthorizationQueryParametersError"},
		{"X-Amz-Expires", "604800", "SignatureDoesNotMatch"},
		{"X-Amz-SignedHeaders", "date", "AccessDenied"},
		{"X-Amz-Signature", "", "AuthorizationQueryParametersError"},
		{"X-Amz-Signature", "0", "SignatureDoesNotMatch"},
		{"X-Amz-Content-Sha256", emptySum, "SignatureDoesNotMatch"},
		{"X-Amz-Security-Token", "t", "InvalidToken"},
		{"x-amz-acl", "private", "SignatureDoesNotMatch"},
	} {
		var parts []string
		for name, value := range whole {
			if name == c.name {
				continue
			}
			parts = append(parts, name+"="+value)
		}
		if c.value != "" {
			parts = append(parts, c.name+"="+strings.ReplaceAll(c.value, " ", "%20"))
		}
		_, err := verify(request("GET", "/test.txt?"+strings.Join(parts, "&")), exampleSecret, exampleTime)
		require.Equal(t, c.code, code(err), "%s=%s: %v", c.name, c.value, err)
	}
	_, err := verify(request("GET", "/?X-Amz-Signature=1", "Authorization", good), exampleSecret, exampleTime)
	require.Equal(t, "InvalidArgument", code(err), "both forms at once")
	_, err = verify(request("GET", "/?AWSAccessKeyId=a&Signature=b&Expires=1369353601"), exampleSecret, exampleTime)
	require.Equal(t, "SignatureDoesNotMatch", code(err), "version 2")
}

// What Sign signs is verified, and no part of it can be altered.
func TestSignedRequestsCannotBeAltered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOf(rapid.Byte()).Draw(t, "key")
		path := "/"
		for _, b := range key {
			path += "%" + strings.ToUpper(string("0123456789abcdef"[b>>4])+string("0123456789abcdef"[b&15]))
		}
		r := request(rapid.SampledFrom([]string{"GET", "PUT", "HEAD"}).Draw(t, "method"), path, "X-Amz-Meta-A",
			rapid.StringMatching(`[ -~]{0,10}`).Draw(t, "meta"))
		r.Query = rapid.StringMatching(`([a-z]{1,3}(=[a-z+]{0,3}|=%[0-9A-F]{2})?&){0,3}`).Draw(t, "query")
		secret := rapid.String().Draw(t, "secret")
		require.NoError(t, sigv4.Sign(r, "id", secret, "r", sigv4.UnsignedPayload, exampleTime))
		_, err := verify(r, secret, exampleTime)
		if err != nil {
			t.Fatal(err)
		}
		other := *r
		other.Header = r.Header.Clone()
		switch rapid.IntRange(0, 6).Draw(t, "altered") {
		case 0:
			other.Method = "DELETE"
		case 1:
			other.Path += "x"
		case 2:
			other.Query += "&x"
		case 3:
			other.Host += "x"
		case 4:
			other.Header.Add("X-Amz-Meta-A", "x")
		case 5:
			other.Header.Set("X-Amz-Content-Sha256", emptySum)
		case 6:
			other.Header.Set("X-Amz-Date", "20130524T000001Z")
		}
		if _, err := verify(&other, secret, exampleTime); code(err) != "SignatureDoesNotMatch" {
			t.Fatalf("altered, it came to %v", err)
		}
	})
}

// FuzzVerify: whatever is sent, nothing is verified by a secret that nobody has
// signed with, and errors are S3's.
func FuzzVerify(f *testing.F) {
	f.Add("GET", "/?lifecycle", authorization("host;x-amz-content-sha256;x-amz-date",
		"fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"), "20130524T000000Z", emptySum)
	f.Add("GET", "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential="+
		exampleScope+"&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&"+
		"X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404", "", "", "")
	f.Add("PUT", "/a%2Fb/%zz?x=%zz&;", "AWS a:b", "Fri, 24 May 2013 00:00:00 GMT", sigv4.SignedChunksTrailer)
	f.Fuzz(func(t *testing.T, method, target, authorization, date, payload string) {
		r := request(method, target)
		for name, value := range map[string]string{"Authorization": authorization, "X-Amz-Date": date,
			"X-Amz-Content-Sha256": payload} {
			if value != "" {
				r.Header[http.CanonicalHeaderKey(name)] = []string{value}
			}
		}
		_, err := verify(r, "a secret that nobody has signed with", exampleTime)
		require.Error(t, err)
		require.NotEmpty(t, code(err))
	})
}
