package s3api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/cors"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/door"
	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/objects/fileblobs"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store/memstore"
)

func corsRule(origin, method, rest string) string {
	return "<CORSRule><AllowedMethod>" + method + "</AllowedMethod><AllowedOrigin>" + origin + "</AllowedOrigin>" +
		rest + "</CORSRule>"
}

func corsOf(rules ...string) string {
	return "<CORSConfiguration>" + strings.Join(rules, "") + "</CORSConfiguration>"
}

// shared are the headers of an answer that are about web pages of other origins.
func shared(a answer) map[string]string {
	all := map[string]string{}
	for name := range a.header {
		if short, ok := strings.CutPrefix(name, "Access-Control-"); ok || name == "Vary" {
			all[short] = a.header.Get(name)
		}
	}
	return all
}

const varyOfCORS = "Origin, Access-Control-Request-Headers, Access-Control-Request-Method"

// serveKeyedObjects is a server of buckets of objects for whoever has one of testKeys.
func serveKeyedObjects(t *testing.T) *server {
	keys, err := s3api.ParseKeys([]byte(testKeys))
	require.NoError(t, err)
	s, _ := serveObjectsBy(t, func(o *s3api.Options) { o.Keys = keys })
	return s
}

func TestCORSOfABucket(t *testing.T) {
	s, _ := serveObjects(t)
	s.want(200, "", "PUT", "/abc", "")
	none := s.want(404, "NoSuchCORSConfiguration", "GET", "/abc?cors", "")
	require.Contains(t, none.body, "<BucketName>abc</BucketName>")
	s.want(204, "", "DELETE", "/abc?cors", "")
	const root = `<CORSConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">`
	for name, rules := range map[string]string{
		"one": corsRule("*", "GET", ""),
		"all of it": "<CORSRule><ID>a&amp;b</ID><AllowedMethod>PUT</AllowedMethod><AllowedMethod>GET</AllowedMethod>" +
			"<AllowedOrigin>https://*.example</AllowedOrigin><AllowedOrigin></AllowedOrigin>" +
			"<AllowedHeader>X-Amz-*</AllowedHeader><AllowedHeader>*</AllowedHeader><MaxAgeSeconds>0</MaxAgeSeconds>" +
			"<ExposeHeader>ETag</ExposeHeader></CORSRule>" + corsRule("b", "HEAD", ""),
		"an empty ID":    "<CORSRule><ID></ID>" + strings.TrimPrefix(corsRule("*", "GET", ""), "<CORSRule>"),
		"a negative age": corsRule("*", "POST", "<MaxAgeSeconds>-2147483648</MaxAgeSeconds>"),
		"a hundred":      strings.Repeat(corsRule("*", "DELETE", ""), 100),
	} {
		s.want(200, "", "PUT", "/abc?cors", corsOf(rules))
		got := s.want(200, "", "GET", "/abc?cors", "").body
		require.Equal(t, root+rules+"</CORSConfiguration>", got[strings.Index(got, root):], name)
	}
	s.want(200, "", "PUT", "/abc?versioning",
		"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>")
	s.want(200, "", "PUT", "/abc?lifecycle", lifecycle(rule("1", inDays)))
	require.Contains(t, s.want(200, "", "GET", "/abc?cors", "").body, "<CORSRule>", "other settings leave it alone")
	s.want(204, "", "DELETE", "/abc?cors", "")
	s.want(404, "NoSuchCORSConfiguration", "GET", "/abc?cors", "")
	require.Contains(t, s.want(200, "", "GET", "/abc?lifecycle", "").body, "<Rule>")

	s.want(200, "", "PUT", "/plain", "", "x-evenkeel-bucket-kind", "plain")
	s.want(501, "NotImplemented", "PUT", "/plain?cors", corsOf(corsRule("*", "GET", "")))
	s.want(404, "NoSuchCORSConfiguration", "GET", "/plain?cors", "")
	s.want(204, "", "DELETE", "/plain?cors", "")
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		s.want(404, "NoSuchBucket", method, "/none?cors", corsOf(corsRule("*", "GET", "")))
	}
}

func TestCORSDocumentsThatAreRefused(t *testing.T) {
	s, _ := serveObjects(t)
	s.want(200, "", "PUT", "/abc", "")
	good := corsRule("*", "GET", "")
	for code, docs := range map[string][]string{
		"MalformedXML": {
			"", "<", "<Other/>", "<CORSConfiguration/>", "<CORSConfiguration>" + good, corsOf("<CORSRule/>"),
			corsOf("<CORSRule><AllowedMethod>GET</AllowedMethod></CORSRule>"),
			corsOf("<CORSRule><AllowedOrigin>*</AllowedOrigin></CORSRule>"), corsOf(strings.Repeat(good, 101)),
			corsOf(good, "<Rule/>"), corsOf(corsRule("*", "GET", "<Other/>")), corsOf(corsRule("<a/>", "GET", "")),
			corsOf(corsRule("*", "GET", "<ID>a</ID><ID>b</ID>")), corsOf(corsRule("*", "GET", "<ID/><ID/>")),
			corsOf(corsRule("*", "GET", "<ID>"+strings.Repeat("ä", 256)+"</ID>")),
			corsOf(corsRule("*", "GET", "<MaxAgeSeconds>x</MaxAgeSeconds>")),
			corsOf(corsRule("*", "GET", "<MaxAgeSeconds/>")),
			corsOf(corsRule("*", "GET", "<MaxAgeSeconds>2147483648</MaxAgeSeconds>")),
			corsOf(corsRule("*", "GET", "<MaxAgeSeconds>1</MaxAgeSeconds><MaxAgeSeconds>1</MaxAgeSeconds>")),
		},
		"InvalidRequest": {
			corsOf(corsRule("*", "OPTIONS", "")), corsOf(corsRule("*", "get", "")), corsOf(corsRule("*", "", "")),
			corsOf(corsRule("*", "*", "")), corsOf(corsRule("http://*.*", "GET", "")),
			corsOf(good, corsRule("**", "GET", "")),
			corsOf(corsRule("*", "GET", "<AllowedHeader>*-*</AllowedHeader>")),
			corsOf(corsRule("*", "GET", "<AllowedHeader>a b</AllowedHeader>")),
			corsOf(corsRule("*", "GET", "<AllowedHeader>a&#13;&#10;b: c</AllowedHeader>")),
			corsOf(corsRule("*", "GET", "<ExposeHeader>a&#13;&#10;set-cookie: c</ExposeHeader>")),
			corsOf(corsRule("*", "GET", "<ExposeHeader>*</ExposeHeader>")),
			corsOf(corsRule("*", "GET", "<ExposeHeader>x-*</ExposeHeader>")),
		},
		"InvalidArgument": {corsOf(strings.Repeat(corsRule(strings.Repeat("a", 170), "GET", ""), 100))},
		"EntityTooLarge":  {strings.Repeat(" ", 65<<10)},
	} {
		for _, doc := range docs {
			s.want(400, code, "PUT", "/abc?cors", doc)
		}
	}
	s.want(404, "NoSuchCORSConfiguration", "GET", "/abc?cors", "")
	long := corsOf(strings.Repeat(corsRule(strings.Repeat("a", 150), "GET", ""), 100))
	s.want(200, "", "PUT", "/abc?cors", long)
	var rules []string
	for i := range 10 {
		rules = append(rules, strings.Replace(rule(fmt.Sprint(i), inDays), "logs/", strings.Repeat("k", 1000), 1))
	}
	a := s.want(400, "InvalidArgument", "PUT", "/abc?lifecycle", lifecycle(rules...))
	require.Contains(t, a.body, "at most 16384", "all settings of a bucket have a bound together")
	require.Contains(t, s.want(400, "InvalidRequest", "PUT", "/abc?cors", corsOf(corsRule("*", "PATCH", ""))).body,
		"Found unsupported HTTP method in CORS config. Unsupported method is PATCH")
}

func TestPreflights(t *testing.T) {
	s := serveKeyedObjects(t)
	admin := s.as("ADMIN")
	admin.want(200, "", "PUT", "/photos", "")
	admin.want(200, "", "PUT", "/bare", "")
	admin.want(200, "", "PUT", "/plain", "", "x-evenkeel-bucket-kind", "plain")
	admin.want(200, "", "PUT", "/photos?cors", corsOf(
		corsRule("https://a.example", "PUT", "<AllowedHeader>x-amz-*</AllowedHeader><ExposeHeader>ETag</ExposeHeader>"+
			"<MaxAgeSeconds>60</MaxAgeSeconds>"),
		corsRule("*", "GET", "")))
	ask := func(status int, code, uri string, headers ...string) answer {
		t.Helper()
		a := s.want(status, code, "OPTIONS", uri, "", headers...)
		if status != 200 {
			require.Empty(t, shared(a))
		}
		return a
	}
	const origin, method, header = "Origin", "Access-Control-Request-Method", "Access-Control-Request-Headers"
	for _, uri := range []string{
		"/photos/k", "/photos", "/photos/", "/photos/k?uploads", "/photos/k?X-Amz-Signature=0&X-Amz-Foo=1",
		"/photos?policy",
		"/photos/a%2f%2e%2e/b?versionId=x",
	} {
		a := ask(200, "", uri, origin, "https://a.example", method, "PUT", header, "X-Amz-Date,x-amz-a")
		require.Empty(t, a.body)
		require.Equal(t, "0", a.header.Get("Content-Length"))
		require.Equal(t, map[string]string{
			"Allow-Origin": "https://a.example", "Allow-Credentials": "true", "Allow-Methods": "PUT",
			"Allow-Headers": "x-amz-date, x-amz-a", "Expose-Headers": "ETag", "Max-Age": "60", "Vary": varyOfCORS,
		}, shared(a))
	}
	require.Equal(t, map[string]string{"Allow-Origin": "*", "Allow-Methods": "GET", "Vary": varyOfCORS},
		shared(ask(200, "", "/photos/k", origin, "null", method, "GET")))

	says := func(a answer, texts ...string) {
		t.Helper()
		for _, text := range texts {
			require.Contains(t, a.body, text)
		}
	}
	const enabled = "<Message>CORSResponse: CORS is not enabled for this bucket.</Message>"
	for _, uri := range []string{"/bare/k", "/bare", "/plain/k", "/none/k", "/none", "/"} {
		says(ask(403, "AccessForbidden", uri, origin, "https://a.example", method, "PUT"), enabled,
			"<Method>PUT</Method><ResourceType>BUCKET</ResourceType>")
		says(ask(403, "AccessForbidden", uri, origin, "https://a.example"), enabled, "<Method>OPTIONS</Method>")
		says(ask(400, "BadRequest", uri, method, "PUT"), "Insufficient information. Origin request header needed.")
		says(ask(400, "BadRequest", uri), "Insufficient information. Origin request header needed.")
	}
	says(ask(403, "AccessForbidden", "/photos/k", origin, "https://a.example", method, "PUT", header, "content-type"),
		"CORSResponse: This CORS request is not allowed.", "<Method>PUT</Method><ResourceType>OBJECT</ResourceType>")
	says(ask(403, "AccessForbidden", "/photos", origin, "https://b.example", method, "PUT"),
		"<Method>PUT</Method><ResourceType>BUCKET</ResourceType>")
	says(ask(400, "BadRequest", "/photos/k", origin, "https://a.example"),
		"Invalid Access-Control-Request-Method: null")
	for _, bad := range []string{"put", "PATCH", "OPTIONS", "nonsense"} {
		says(ask(400, "BadRequest", "/photos/k", origin, "https://a.example", method, bad),
			"Invalid Access-Control-Request-Method: "+bad)
	}
	says(ask(400, "BadRequest", "/photos/k", origin, "https://a.example", method, "PUT", header, "a, b/c"),
		"Access-Control-Request-Headers &quot; b/c&quot; contains invalid character.")
	ask(400, "InvalidBucketName", "/x", origin, "https://a.example", method, "PUT")
	ask(400, "KeyTooLongError", "/photos/"+strings.Repeat("k", 1025), origin, "https://a.example", method, "PUT")
}

// TestWhatPagesMayRead: answers to requests of pages, refusals included. Rules authorise nothing.
func TestWhatPagesMayRead(t *testing.T) {
	s := serveKeyedObjects(t)
	admin := s.as("ADMIN")
	admin.want(200, "", "PUT", "/photos", "")
	admin.want(200, "", "PUT", "/other", "")
	admin.want(200, "", "PUT", "/photos/k", "body")
	const page = "https://a.example"
	for _, uri := range []string{"/photos/k", "/photos", "/photos?cors"} {
		require.Empty(t, shared(admin.do("GET", uri, "", "Origin", page)))
	}
	rules := corsOf(corsRule(page, "GET", "<AllowedMethod>HEAD</AllowedMethod><ExposeHeader>ETag</ExposeHeader>"),
		corsRule("https://b.example", "PUT", ""), corsRule(page, "POST", "<AllowedMethod>DELETE</AllowedMethod>"))
	admin.want(200, "", "PUT", "/photos?cors", rules)
	read := map[string]string{
		"Allow-Origin": page, "Allow-Credentials": "true", "Allow-Methods": "GET, HEAD", "Expose-Headers": "ETag",
		"Vary": varyOfCORS,
	}
	changed := map[string]string{
		"Allow-Origin": page, "Allow-Credentials": "true", "Allow-Methods": "POST, DELETE", "Vary": varyOfCORS,
	}
	presigned := func(key string) string {
		u, err := s.minio(key).Presign(t.Context(), "GET", "photos", "k", time.Hour, nil)
		require.NoError(t, err)
		return u.RequestURI()
	}
	for name, c := range map[string]struct {
		as          *server
		status      int
		method, uri string
		headers     []string
		want        map[string]string
	}{
		"a read":                     {admin, 200, "GET", "/photos/k", nil, read},
		"a HEAD":                     {admin, 200, "HEAD", "/photos/k", nil, read},
		"a part":                     {admin, 206, "GET", "/photos/k", []string{"Range", "bytes=1-2"}, read},
		"nothing new":                {admin, 304, "GET", "/photos/k", []string{"If-None-Match", "*"}, read},
		"a listing":                  {admin, 200, "GET", "/photos?list-type=2", nil, read},
		"a setting":                  {admin, 200, "GET", "/photos?cors", nil, read},
		"no such key":                {admin, 404, "GET", "/photos/none", nil, read},
		"not implemented":            {admin, 501, "GET", "/photos?policy", nil, read},
		"an unknown parameter":       {admin, 501, "GET", "/photos/k?foo", nil, read},
		"a bad parameter":            {admin, 400, "GET", "/photos?max-keys=x", nil, read},
		"a presigned URL":            {s, 200, "GET", presigned("ADMIN"), nil, read},
		"of a key without rights":    {s, 403, "GET", presigned("LOGS"), nil, read},
		"a bad signature":            {s, 403, "GET", presigned("ADMIN") + "0", nil, read},
		"no signature":               {s, 403, "GET", "/photos/k", nil, read},
		"of a key for other buckets": {s.as("LOGS"), 403, "GET", "/photos/k", nil, read},
		"no signature for a HEAD":    {s, 403, "HEAD", "/photos/k", nil, read},
		"a start of parts":           {admin, 200, "POST", "/photos/up?uploads", nil, changed},
		"a delete of nothing":        {admin, 204, "DELETE", "/photos/none", nil, changed},
		"a reader's delete":          {s.as("READER"), 403, "DELETE", "/photos/k", nil, changed},
		"no rule for PUT":            {admin, 200, "PUT", "/photos/new", nil, nil},
		"no rule for the other page": {admin, 200, "GET", "/photos/k", []string{"Origin", "https://c.example"}, nil},
		"a bucket without rules":     {admin, 404, "GET", "/other/k", nil, nil},
		"no such bucket":             {admin, 404, "GET", "/none/k", nil, nil},
		"no such bucket, unsigned":   {s, 403, "GET", "/none/k", nil, nil},
		"the service":                {admin, 200, "GET", "/", nil, nil},
		"another method is asked for": {
			admin, 200, "GET", "/photos/k", []string{"Access-Control-Request-Method", "PUT"}, nil,
		},
		"headers are asked for": {
			admin, 200, "GET", "/photos/k", []string{"Access-Control-Request-Headers", "a"}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			headers := append([]string{"Origin", page}, c.headers...)
			a := c.as.do(c.method, c.uri, "", headers...)
			require.Equal(t, c.status, a.status, a.body)
			if c.want == nil {
				c.want = map[string]string{}
			}
			require.Equal(t, c.want, shared(a))
		})
	}
	require.Empty(t, shared(admin.do("GET", "/photos/k", "")), "no page, no headers")
	admin.want(204, "", "DELETE", "/photos/new", "")
	admin.want(204, "", "DELETE", "/photos/k", "")
	require.Equal(t, changed, shared(admin.want(204, "", "DELETE", "/photos", "", "Origin", page)),
		"the bucket is gone")
	require.Empty(t, shared(admin.want(404, "", "DELETE", "/photos", "", "Origin", page)))
}

// TestWhoMaySetCORS: who may use the whole bucket.
func TestWhoMaySetCORS(t *testing.T) {
	s := serveKeyedObjects(t)
	s.as("ADMIN").want(200, "", "PUT", "/photos", "")
	s.as("ADMIN").want(200, "", "PUT", "/logs", "")
	doc := corsOf(corsRule("*", "GET", ""))
	s.as("PHOTOS").want(200, "", "PUT", "/photos?cors", doc)
	for _, key := range []string{"READER", "LOGS", "PHOTOS"} {
		s.as(key).want(403, "AccessDenied", "PUT", "/logs?cors", doc)
		s.as(key).want(403, "AccessDenied", "DELETE", "/logs?cors", "")
	}
	s.as("READER").want(200, "", "GET", "/photos?cors", "")
	s.as("LOGS").want(200, "", "GET", "/photos?cors", "")
	s.want(403, "AccessDenied", "PUT", "/photos?cors", doc)
	s.as("PHOTOS").want(204, "", "DELETE", "/photos?cors", "")
}

// lookedUp counts the look-ups of buckets.
type lookedUp struct {
	allBuckets
	n atomic.Int64
}

type allBuckets interface{ s3api.Buckets }

type lookedUpBucket struct {
	s3api.Bucket
	n *atomic.Int64
}

func (b *lookedUp) Bucket(name string) s3api.Bucket {
	return lookedUpBucket{b.allBuckets.Bucket(name), &b.n}
}

func (b lookedUpBucket) Settings(ctx context.Context) ([]byte, error) {
	b.n.Add(1)
	return b.Bucket.Settings(ctx)
}

// TestUnsignedLookupsAreBounded: who has no access key can't make the server look up buckets without end. Other
// clients, and buckets that are known to have rules, are served on.
func TestUnsignedLookupsAreBounded(t *testing.T) {
	st := memstore.New()
	defer st.Close()
	c, err := listing.New(st, listing.Options{})
	require.NoError(t, err)
	blobs, err := fileblobs.Open(t.TempDir())
	require.NoError(t, err)
	defer blobs.Close()
	o, err := objects.New(c, blobs, objects.Options{})
	require.NoError(t, err)
	keys, err := s3api.ParseKeys([]byte(testKeys))
	require.NoError(t, err)
	counted := &lookedUp{allBuckets: s3api.Over(c)}
	now := time.Now()
	h, err := s3api.New(counted, s3api.Options{Objects: o, Keys: keys, Now: func() time.Time { return now }})
	require.NoError(t, err)
	require.NoError(t, o.CreateBucket(t.Context(), "photos"))
	rules := "\x01\x01\x00\x01\x03GET\x01\x01*\x00\x00"
	require.NoError(t, o.SetDocument(t.Context(), "photos", "cors", []byte(rules)))
	ask := func(method, uri, from string, headers ...string) int {
		r := httptest.NewRequest(method, uri, nil)
		r.RemoteAddr = from + ":1"
		r.Header.Set("Origin", "https://a.example")
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code == 200 || method == "GET" && w.Header().Get("Access-Control-Allow-Origin") != "" {
			return 200
		}
		return w.Code
	}
	const asks = "Access-Control-Request-Method"
	const many = 5000
	require.Equal(t, 200, ask("OPTIONS", "/photos", "192.0.2.7", asks, "GET"))
	refused := 0
	for i := range many {
		if ask("OPTIONS", fmt.Sprintf("/none-%d", i), "192.0.2.1", asks, "GET") == 503 {
			refused++
		}
	}
	looked := counted.n.Load()
	require.Less(t, looked, int64(many))
	require.Equal(t, many-int(looked-1), refused)
	require.Equal(t, 403, ask("GET", "/none", "192.0.2.1"))
	require.Equal(t, looked, counted.n.Load(), "a request without a signature makes no look-up, either")
	require.Equal(t, 403, ask("OPTIONS", "/none", "192.0.2.2", asks, "GET"), "another client")
	require.Equal(t, 200, ask("OPTIONS", "/photos", "192.0.2.1", asks, "GET"), "a bucket that has rules")
	require.Equal(t, 200, ask("GET", "/photos/k", "192.0.2.1"), "and what is refused there")
	now = now.Add(time.Hour)
	require.Equal(t, 403, ask("OPTIONS", "/none", "192.0.2.1", asks, "GET"), "later again")
	require.NoError(t, o.SetDocument(t.Context(), "photos", "cors", nil))
	require.Equal(t, 403, ask("OPTIONS", "/photos", "192.0.2.1", asks, "GET"))
}

// TestCORSWithoutKeys: a server without access keys goes on to refuse changes by pages, whatever the rules say.
func TestCORSWithoutKeys(t *testing.T) {
	s, _ := serveObjectsBy(t, func(o *s3api.Options) { o.Guard = guardOf{} })
	s.want(200, "", "PUT", "/abc", "")
	s.want(200, "", "PUT", "/abc?cors",
		corsOf(corsRule("https://a.example", "PUT", "<AllowedMethod>GET</AllowedMethod>")))
	s.want(200, "", "OPTIONS", "/abc/k", "", "Origin", "https://a.example", "Access-Control-Request-Method", "PUT")
	a := s.want(403, "AccessDenied", "PUT", "/abc/k", "body", "Origin", "https://a.example")
	require.Equal(t, "https://a.example", a.header.Get("Access-Control-Allow-Origin"), "the page can read why")
	s.want(404, "NoSuchKey", "GET", "/abc/k", "", "Origin", "https://a.example")
	s.want(403, "AccessDenied", "OPTIONS", "/abc/k", "", "Origin", "https://a.example", "Access-Control-Request-Method",
		"PUT", "X-Other-Host", "1")
}

// guardOf refuses changes by pages, and what has another host.
type guardOf struct{}

func (guardOf) CheckHost(r *http.Request) error {
	if r.Header.Get("X-Other-Host") != "" {
		return fmt.Errorf("the host is not known")
	}
	return nil
}

func (guardOf) CheckOrigin(r *http.Request) error {
	if r.Header.Get("Origin") != "" && r.Method != "GET" && r.Method != "OPTIONS" {
		return fmt.Errorf("a page")
	}
	return nil
}

// TestSettingsOfNewerPrograms: a bucket with a setting of a newer S3 layer is refused, as the setting may restrict what
// the bucket allows.
func TestSettingsOfNewerPrograms(t *testing.T) {
	s, _ := serveObjects(t)
	s.want(200, "", "PUT", "/abc", "")
	for _, settings := range []string{
		"o\x04\x00\x01\x00\x01\x06policy\x01{", "o\x04\x00\x01\x00\x01\x04cors\x02\x02\x01", "o\x05\x00",
	} {
		newer := func([]byte) ([]byte, error) { return []byte(settings), nil }
		require.NoError(t, door.Bucket(s.buckets.Bucket("abc")).ChangeSettings(t.Context(), newer))
		s.want(503, "ServiceUnavailable", "GET", "/abc/k", "")
		s.want(503, "ServiceUnavailable", "PUT", "/abc/k", "body")
		s.want(503, "ServiceUnavailable", "OPTIONS", "/abc/k", "", "Origin", "a", "Access-Control-Request-Method",
			"GET")
	}
}

// minio is a client with one of testKeys.
func (s *server) minio(key string) *minio.Client {
	s.t.Helper()
	u, err := url.Parse(s.url)
	require.NoError(s.t, err)
	client, err := minio.New(u.Host, &minio.Options{
		Creds: credentials.NewStaticV4(key, "the secret of the "+strings.ToLower(key), ""), Region: "us-east-1",
	})
	require.NoError(s.t, err)
	return client
}

// TestMinioGoSetsCORS: a client that other people wrote.
func TestMinioGoSetsCORS(t *testing.T) {
	s := serveKeyedObjects(t)
	client, ctx := s.minio("ADMIN"), t.Context()
	require.NoError(t, client.MakeBucket(ctx, "photos", minio.MakeBucketOptions{}))
	none, err := client.GetBucketCors(ctx, "photos")
	require.NoError(t, err)
	require.Nil(t, none)
	rules := []cors.Rule{
		{
			ID: "one", AllowedOrigin: []string{"https://a.example", "https://*.b.example"},
			AllowedMethod: []string{"GET", "PUT"},
			AllowedHeader: []string{"*"}, ExposeHeader: []string{"ETag"}, MaxAgeSeconds: 3000,
		},
		{AllowedOrigin: []string{"*"}, AllowedMethod: []string{"HEAD"}},
	}
	require.NoError(t, client.SetBucketCors(ctx, "photos", cors.NewConfig(rules)))
	got, err := client.GetBucketCors(ctx, "photos")
	require.NoError(t, err)
	require.Equal(t, rules, got.CORSRules)
	require.Error(t, client.SetBucketCors(ctx, "photos", cors.NewConfig([]cors.Rule{{}})))
	require.NoError(t, client.SetBucketCors(ctx, "photos", nil))
	none, err = client.GetBucketCors(ctx, "photos")
	require.NoError(t, err)
	require.Nil(t, none)
}
