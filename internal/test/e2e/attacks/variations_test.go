package attacks

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evenkeel/evenkeel/internal/sigv4"
	"github.com/evenkeel/evenkeel/internal/test/e2e/siege"
)

// variations are further attacks on the same weaknesses, and on others of the kind, by
// their groups.
var variations = slices.Concat(
	grouped("headers", onHeaders),
	grouped("documents", onDocuments),
	grouped("bodies", onBodies),
	grouped(answers, onAnswers),
	grouped("work", onWork),
	grouped("handshakes", onHandshakes),
)

func grouped(name string, attacks []*attack) []*attack {
	for _, a := range attacks {
		a.group = name
	}
	return attacks
}

var onHeaders = []*attack{
	{name: "many names of headers", run: repeat(8, with(manyHeaders(30<<10), get("/attacked/k")))},
	{name: "one header, 6,000 values", run: repeat(4, with(times("X:\r\n", 6_000), get("/attacked/k")))},
	{name: "many signed headers", run: repeat(4, func(g *ground) []byte { return forgedOf(5000)(g) })},
	{name: "as many signed headers as may be", run: repeat(4, func(g *ground) []byte { return forgedOf(500)(g) })},
	{name: "a giant X-Amz-SignedHeaders", run: repeat(4, func(g *ground) []byte {
		names := "host" + times(";x-long", 1_500)
		target := g.presigned("GET", "/attacked/k", url.Values{"X-Amz-SignedHeaders": {names}})
		return g.Head(siege.Key{}, "GET", target, "", -1, "X-Long", times(" x", 5<<10))
	})},
	{name: "many parameters", run: repeat(4, func(g *ground) []byte {
		var b strings.Builder
		for i := range 3_000 {
			fmt.Fprintf(&b, "&%x=%%20", (i*7919)%3_000)
		}
		return get("/attacked?list-type=2" + b.String())(g)
	})},
	{name: "one parameter, 12,000 times", run: repeat(4, get("/attacked?list-type=2"+times("&a", 12_000)))},
	{name: "a path of escapes", run: repeat(8, get("/attacked/"+times("%2e%2F", 4_000)))},
	{name: "junk conditions and ranges", run: repeat(8, func(g *ground) []byte {
		junk := times(`W/"x",`, 1_000)
		return get("/attacked/k", "If-Match", junk, "If-None-Match", junk, "If-Modified-Since", junk[:4000],
			"Range", "bytes="+times("0-1,", 1_500), "If-Range", junk[:4000])(g)
	})},
	{name: "giant metadata", run: repeat(8, put("/attacked/k", "x", "x-amz-meta-a", times("x", 28<<10)))},
	{name: "giant tokens", run: repeat(8, get("/attacked?list-type=2&continuation-token="+times("QUFB", 6_000)))},
	{name: "no HTTP", run: repeat(8, plain("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+times("\x00", 64<<10)))},
	{name: "headers without end", run: repeat(8, plain("GET / HTTP/1.1\r\nHost: h\r\n"+times("a: b\r\n", 1<<20)))},
}

var onDocuments = []*attack{
	{name: "deep nesting", run: repeat(2, deletion("<Delete>"+times("<a>", 2<<20)))},
	{name: "deep nesting below an object", run: repeat(2, deletion("<Delete><Object>"+times("<Key>", 1<<20)))},
	{name: "a huge attribute", run: repeat(2, deletion(`<Delete a="`+times("x", 7<<20)+`">`+object+`</Delete>`))},
	{name: "many attributes", run: repeat(2, deletion(`<Delete`+times(` a=""`, 1<<20)+`>`+object+`</Delete>`))},
	{name: "a huge name", run: repeat(2, deletion(`<Delete><`+times("a", 7<<20)+`/></Delete>`))},
	{name: "a huge CDATA section", run: repeat(2, deletion(
		`<Delete><Object><Key><![CDATA[`+times("]", 7<<20)+`]]></Key></Object></Delete>`))},
	{name: "a huge comment", run: repeat(2, deletion(`<Delete><!--`+times("- ", 3<<20)+`-->`+object+`</Delete>`))},
	{name: "entities", run: repeat(2, deletion(`<!DOCTYPE d [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>`+
		`<Delete><Object><Key>`+times("&b;", 1<<20)+`</Key></Object></Delete>`))},
	{name: "a huge key of references", run: repeat(2, deletion(
		`<Delete><Object><Key>`+times("&lt;", 7<<18)+`</Key></Object></Delete>`))},
	{name: "objects without end", run: repeat(2, deletion(`<Delete>`+times(object, 250_000)+`</Delete>`))},
	{name: "1,000 long keys", run: repeat(4, func(g *ground) []byte {
		var b strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&b, "<Object><Key>%s%d</Key></Object>", times("&quot;", 1010), i)
		}
		return deletion(`<Delete>` + b.String() + `</Delete>`)(g)
	})},
	{name: "documents of small operations", run: repeat(4, put("/attacked-1",
		"<CreateBucketConfiguration>"+times("<a b='c'/>", 6_000)))},
}

var onBodies = []*attack{
	{name: "chunks of a byte", run: repeat(8, framed(
		times("1;chunk-signature="+times("0", 64)+"\r\nx\r\n", 4096)+"0\r\n\r\n"))},
	{name: "chunks with long extensions", run: repeat(8, framed(
		times("1;"+times("e", 1000)+"\r\nx\r\n", 4096)+"0\r\n\r\n"))},
	{name: "a chunk's line without end", run: repeat(4, framed(times("0", 8<<20)))},
	{name: "trailers without end", run: repeat(4, framed("1\r\nx\r\n0\r\n"+times("x-amz-a:b\r\n", 100_000)))},
	{name: "HTTP chunks of a byte", run: repeat(4, chunked(times("1;"+times("e", 200)+"\r\nx\r\n", 20_000)))},
	{name: "HTTP trailers without end", run: repeat(4, chunked("1\r\nx\r\n0\r\n"+times("a: b\r\n", 1<<20)))},
	{name: "bodies of reads", run: repeat(4, behind(begun("GET", "/attacked/k", 8<<20), make([]byte, 8<<20)))},
	{name: "bodies that are too large", run: repeat(4, behind(
		begun("PUT", "/attacked/k", 10_000_000_000), make([]byte, 8<<20)))},
	{name: "bodies that are announced", run: hold(300, 0, func(g *ground) []byte {
		return g.Head(g.key, "PUT", "/attacked/k", sigv4.UnsignedPayload, 4096, "Expect", "100-continue")
	})},
	{name: "bodies of a byte at a time", run: hold(300, second/10, begun("PUT", "/attacked/k", 4096))},
	{name: "documents of a byte at a time", run: hold(300, second/10, begun("POST", "/attacked?delete", 7<<20))},
}

var onAnswers = []*attack{
	{name: "slow readers of long keys", prepare: longKeys, run: slowly(100,
		get("/attacked?versions&encoding-type=url&max-keys=1000&prefix=long"))},
	{name: "slow readers of all buckets", prepare: manyBuckets, run: slowly(1200, func(g *ground) []byte {
		return g.Text(wide, "GET", "/", nil)
	})},
	{name: "pipelines that nobody reads", prepare: longKeys, run: func(ctx context.Context, g *ground) {
		text := bytes.Repeat(get("/attacked?list-type=2&prefix=long")(g), 1000)
		g.Crowd(ctx, 50, func(ctx context.Context, c *siege.Conn, i int) error { return c.Send(text) })
	}},
	{name: "pipelines of small requests", run: func(ctx context.Context, g *ground) {
		text := bytes.Repeat(get("/attacked/k")(g), 100)
		g.Crowd(ctx, 4, func(ctx context.Context, c *siege.Conn, i int) error {
			err := c.Send(text)
			for i := 0; i < 100 && err == nil; i++ {
				_, err = c.Answer()
			}
			return err
		})
	}},
	{name: "listings whose clients go", prepare: longKeys, run: abandon(16, get("/attacked?list-type=2&prefix=long"))},
	{name: "delimiters", prepare: manyPrefixes, run: repeat(16, get("/attacked-2?list-type=2&delimiter=/"))},
	{name: "pieces", prepare: manyRanges, run: repeat(8, get("/attacked-15?evenkeel-splits=1000"))},
	{name: "what was deleted", prepare: manyDeleted, run: repeat(8, get("/attacked-3?list-type=2"))},
}

var onWork = []*attack{
	{name: "connection churn", run: func(ctx context.Context, g *ground) {
		text := get("/attacked/k")(g)
		g.Crowd(ctx, 32, func(ctx context.Context, c *siege.Conn, i int) error {
			if i%2 == 0 {
				_ = c.Do(text)
			}
			return http.ErrAbortHandler
		})
	}},
	{name: "requests of nobody", run: func(ctx context.Context, g *ground) {
		g.Crowd(ctx, 32, func(_ context.Context, c *siege.Conn, i int) error {
			return c.Do(g.Text(siege.Key{ID: strconv.Itoa(rand.IntN(1 << 30)), Secret: "x"}, "GET", "/attacked/k", nil))
		})
	}},
	{name: "buckets made and removed", run: func(ctx context.Context, g *ground) {
		g.Crowd(ctx, 8, func(_ context.Context, c *siege.Conn, i int) error {
			bucket := fmt.Sprintf("/made-%d-%d", i, rand.IntN(1000))
			return c.Each(g.Text(wide, "PUT", bucket, nil), g.Text(wide, "DELETE", bucket, nil))
		})
	}},
	{name: "many conditions on one key", run: repeat(64, put("/attacked/condition", "x", "If-None-Match", "*"))},
	{name: "conditions on many keys", run: func(ctx context.Context, g *ground) {
		g.Crowd(ctx, 16, func(_ context.Context, c *siege.Conn, _ int) error {
			return c.Do(put(fmt.Sprintf("/attacked/none-%x", rand.Uint64()), "x", "If-Match", "x")(g))
		})
	}},
	{name: "reads of many buckets", prepare: manyBuckets, run: func(ctx context.Context, g *ground) {
		g.Crowd(ctx, 16, func(_ context.Context, c *siege.Conn, _ int) error {
			return c.Do(g.Text(wide, "GET", bucketName(rand.IntN(manyBucketsN))+"?list-type=2", nil))
		})
	}},
	{name: "many puts of one key", run: repeat(64, put("/attacked/one", times("x", 4096)))},
	{name: "many puts of new keys", run: func(ctx context.Context, g *ground) {
		value := times("x", 4096)
		g.Crowd(ctx, 64, func(_ context.Context, c *siege.Conn, _ int) error {
			return c.Do(put(fmt.Sprintf("/attacked/new-%x", rand.Uint64()), value)(g))
		})
	}},
	{name: "copies in a circle", prepare: firstCopy, run: func(ctx context.Context, g *ground) {
		g.Crowd(ctx, 16, func(_ context.Context, c *siege.Conn, i int) error {
			from, to := fmt.Sprintf("/attacked/copy-%d", i%4), fmt.Sprintf("/attacked/copy-%d", (i+1)%4)
			return c.Do(put(to, "", "x-amz-copy-source", from)(g))
		})
	}},
}

var onHandshakes = []*attack{
	{name: "requests to the admin address, held", tls: true, run: func(ctx context.Context, g *ground) {
		g.At(g.Admin).Crowd(ctx, 200, func(ctx context.Context, c *siege.Conn, _ int) error {
			err := c.Send([]byte("POST /v1/pause HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n{"))
			if err == nil {
				<-ctx.Done()
				err = ctx.Err()
			}
			return err
		})
	}},
	{name: "handshakes that do not end", tls: true, run: hold(2000, 0, plain("\x16\x03\x01\x02\x00\x01"))},
	{name: "handshakes again and again", tls: true, run: func(ctx context.Context, g *ground) {
		g.Crowd(ctx, 8, func(ctx context.Context, c *siege.Conn, _ int) error {
			_ = c.Handshake(ctx)
			return http.ErrAbortHandler
		})
	}},
	{name: "no TLS", tls: true, run: repeat(16, plain("GET / HTTP/1.1\r\nHost: h\r\n\r\n"))},
}

const (
	second = time.Second
	object = `<Object><Key>k</Key></Object>`
)

func times(s string, n int) string { return strings.Repeat(s, n) }
