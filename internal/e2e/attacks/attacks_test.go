package attacks

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/e2e/siege"
	"github.com/evenkeel/evenkeel/internal/sigv4"
)

// attacks are those that were seen to succeed, and variations of them.
var attacks = []*attack{
	{name: "a signed header named 30,000 times", run: repeat(4, func(g *ground) []byte {
		return forged(g, "/attacked", strings.Repeat("x-long;", 8_000)+strings.Repeat("a;", 4_000), "X-Long", strings.Repeat("x", 60<<10))
	})},
	{name: "idle connections", run: func(ctx context.Context, g *ground) {
		g.Crowd(ctx, 5000, func(ctx context.Context, c *siege.Conn, i int) error {
			if i%2 == 0 {
				if err := c.Do(g.Text(g.key, "GET", "/attacked/k", nil)); err != nil {
					return err
				}
			}
			<-ctx.Done()
			return ctx.Err()
		})
	}},
	{name: "bodies that never come", run: hold(2000, func(g *ground) []byte {
		return append(g.Head(g.key, "PUT", "/attacked/k", sigv4.UnsignedPayload, 4096), 'x')
	}, 0)},
	{name: "bodies that never come, without keys", open: true, run: hold(2000, func(g *ground) []byte {
		return append(g.Head(g.key, "PUT", "/attacked/k", sigv4.UnsignedPayload, 4096), 'x')
	}, 0)},
	{name: "listings that nobody reads", prepare: longKeys, run: hold(200, func(g *ground) []byte {
		return g.Text(g.key, "GET", "/attacked?list-type=2&max-keys=1000&prefix=long", nil)
	}, 0)},
	{name: "documents of empty elements", run: repeat(8, func(g *ground) []byte {
		return deletion(g, g.key, "<Delete>"+strings.Repeat("<a/>", 2_000_000)+"</Delete>")
	})},
	{name: "large headers, held", run: hold(500, func(g *ground) []byte {
		head := append(g.Head(g.key, "PUT", "/attacked/k", sigv4.UnsignedPayload, 4096), 'x')
		return bytes.Replace(head, []byte("\r\n"), []byte("\r\n"+manyHeaders(120<<10)), 1)
	}, 0)},
	{name: "cuts at creation", run: func(ctx context.Context, g *ground) {
		cuts := cutLines(1_000_000)
		g.Crowd(ctx, 4, func(ctx context.Context, c *siege.Conn, i int) error {
			bucket := fmt.Sprintf("/attacked-%d", i)
			for _, text := range [][]byte{
				g.Text(g.key, "PUT", bucket+"?evenkeel-cuts", cuts), g.Text(g.key, "GET", bucket+"?list-type=2", nil), g.Text(g.key, "DELETE", bucket, nil),
			} {
				if err := c.Do(text); err != nil {
					return err
				}
			}
			return nil
		})
	}},
	{name: "listings of empty ranges, whose clients go", prepare: manyRanges, run: abandon(64, func(g *ground) []byte {
		return g.Text(g.key, "GET", "/attacked-15?list-type=2", nil)
	})},
	{name: "guesses of the admin token", run: func(ctx context.Context, g *ground) {
		admin := g.At(g.Admin)
		admin.Crowd(ctx, 16, func(_ context.Context, c *siege.Conn, _ int) error {
			return c.Do(fmt.Appendf(nil, "GET /metrics HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %d\r\n\r\n", admin.Host, rand.Uint64()))
		})
	}},
	{name: "requests to fill the log", run: repeat(4, func(g *ground) []byte {
		return g.Head(siege.Key{}, "GET", "/attacked/"+strings.Repeat("x", 60<<10), "", -1, "User-Agent", strings.Repeat("y", 60<<10))
	})},
	{name: "keys that are not UTF-8", run: func(ctx context.Context, g *ground) {
		g.Crowd(ctx, 4, func(_ context.Context, c *siege.Conn, i int) error {
			return c.Do(g.Text(g.key, "PUT", fmt.Sprintf("/attacked/%%FF%d", rand.IntN(100)), []byte("x"), "x-evenkeel-key-bytes", "any"))
		})
	}, check: func(t *testing.T, g *ground) {
		require.NoError(t, g.Must(t.Context(), g.client, honest, "GET", "/attacked?list-type=2", nil), "others' plain listings")
	}},
	{name: "buckets that are not there", run: func(ctx context.Context, g *ground) {
		g.Crowd(ctx, 64, func(_ context.Context, c *siege.Conn, i int) error {
			return c.Do(g.Text(wide, "GET", fmt.Sprintf("/missing-%d/k", rand.IntN(1000)), nil))
		})
	}},
	{name: "buckets that are not there, without keys", open: true, run: func(ctx context.Context, g *ground) {
		g.Crowd(ctx, 64, func(_ context.Context, c *siege.Conn, i int) error {
			return c.Do(g.Text(g.key, "GET", fmt.Sprintf("/missing-%d/k", rand.IntN(1000)), nil))
		})
	}},

	{group: "headers", name: "many names of headers", run: repeat(8, func(g *ground) []byte {
		text := g.Text(g.key, "GET", "/attacked/k", nil)
		return bytes.Replace(text, []byte("\r\n"), []byte("\r\n"+manyHeaders(120<<10)), 1)
	})},
	{group: "headers", name: "many signed headers", run: repeat(4, func(g *ground) []byte {
		names, header := &strings.Builder{}, []string{}
		for i := range 5000 {
			fmt.Fprintf(names, "x-%04d;", i)
			header = append(header, fmt.Sprintf("X-%04d", i), "")
		}
		return forged(g, "/attacked", names.String(), header...)
	})},
	{group: "headers", name: "one header, 20,000 values", run: repeat(4, func(g *ground) []byte {
		text := g.Text(g.key, "GET", "/attacked/k", nil)
		return bytes.Replace(text, []byte("\r\n"), []byte("\r\n"+strings.Repeat("X:\r\n", 25_000)), 1)
	})},
	{group: "headers", name: "giant X-Amz-SignedHeaders", run: func(ctx context.Context, g *ground) {
		target, err := g.Presigned(g.key, "GET", "/attacked/k", url.Values{"X-Amz-SignedHeaders": {"host" + strings.Repeat(";x-long", 5_000)}})
		if err != nil {
			panic(err)
		}
		repeat(4, func(g *ground) []byte {
			return g.Head(siege.Key{}, "GET", target, "", -1, "X-Long", strings.Repeat(" x", 25<<10))
		})(ctx, g)
	}},
	{group: "headers", name: "many parameters", run: repeat(4, func(g *ground) []byte {
		var b strings.Builder
		for i := range 10_000 {
			fmt.Fprintf(&b, "&%x=%%20", (i*7919)%10_000)
		}
		return g.Text(g.key, "GET", "/attacked?list-type=2"+b.String(), nil)
	})},
	{group: "headers", name: "one parameter, 50,000 times", run: repeat(4, func(g *ground) []byte {
		return g.Text(g.key, "GET", "/attacked?list-type=2"+strings.Repeat("&a", 50_000), nil)
	})},
	{group: "headers", name: "a path of escapes", run: repeat(8, func(g *ground) []byte {
		return g.Text(g.key, "GET", "/attacked/"+strings.Repeat("%2e%2F", 20_000), nil)
	})},
	{group: "headers", name: "junk conditions and ranges", run: repeat(8, func(g *ground) []byte {
		junk := strings.Repeat(`W/"x",`, 4_000)
		return g.Text(g.key, "GET", "/attacked/k", nil, "If-Match", junk, "If-None-Match", junk, "If-Modified-Since", junk[:8000],
			"Range", "bytes="+strings.Repeat("0-1,", 4_000), "If-Range", junk[:8000])
	})},
	{group: "headers", name: "giant metadata", run: repeat(8, func(g *ground) []byte {
		return g.Text(g.key, "PUT", "/attacked/k", []byte("x"), "x-amz-meta-a", strings.Repeat("x", 100<<10))
	})},
	{group: "headers", name: "giant tokens", run: repeat(8, func(g *ground) []byte {
		return g.Text(g.key, "GET", "/attacked?list-type=2&continuation-token="+strings.Repeat("QUFB", 25_000), nil)
	})},

	{group: "documents", name: "deep nesting", run: repeat(2, func(g *ground) []byte {
		return deletion(g, g.key, "<Delete>"+strings.Repeat("<a>", 2<<20))
	})},
	{group: "documents", name: "deep nesting below an object", run: repeat(2, func(g *ground) []byte {
		return deletion(g, g.key, "<Delete><Object>"+strings.Repeat("<Key>", 1<<20))
	})},
	{group: "documents", name: "a huge attribute", run: repeat(2, func(g *ground) []byte {
		return deletion(g, g.key, `<Delete a="`+strings.Repeat("x", 7<<20)+`"><Object><Key>k</Key></Object></Delete>`)
	})},
	{group: "documents", name: "many attributes", run: repeat(2, func(g *ground) []byte {
		return deletion(g, g.key, `<Delete`+strings.Repeat(` a=""`, 1<<20)+`><Object><Key>k</Key></Object></Delete>`)
	})},
	{group: "documents", name: "a huge CDATA section", run: repeat(2, func(g *ground) []byte {
		return deletion(g, g.key, `<Delete><Object><Key><![CDATA[`+strings.Repeat("]", 7<<20)+`]]></Key></Object></Delete>`)
	})},
	{group: "documents", name: "a huge comment", run: repeat(2, func(g *ground) []byte {
		return deletion(g, g.key, `<Delete><!--`+strings.Repeat("- ", 3<<20)+`--><Object><Key>k</Key></Object></Delete>`)
	})},
	{group: "documents", name: "entities", run: repeat(2, func(g *ground) []byte {
		return deletion(g, g.key, `<!DOCTYPE d [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;">]><Delete><Object><Key>`+
			strings.Repeat("&b;", 1<<20)+`</Key></Object></Delete>`)
	})},
	{group: "documents", name: "a huge key of references", run: repeat(2, func(g *ground) []byte {
		return deletion(g, g.key, `<Delete><Object><Key>`+strings.Repeat("&lt;", 7<<18)+`</Key></Object></Delete>`)
	})},
	{group: "documents", name: "objects without end", run: repeat(2, func(g *ground) []byte {
		return deletion(g, g.key, `<Delete>`+strings.Repeat("<Object><Key>k</Key></Object>", 250_000)+`</Delete>`)
	})},
	{group: "documents", name: "1,000 long keys", run: repeat(4, func(g *ground) []byte {
		var b strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&b, "<Object><Key>%s%d</Key></Object>", strings.Repeat("&quot;", 1010), i)
		}
		return deletion(g, g.key, `<Delete>`+b.String()+`</Delete>`)
	})},
	{group: "documents", name: "documents of small operations", run: repeat(4, func(g *ground) []byte {
		return g.Text(g.key, "PUT", "/attacked-1", []byte("<CreateBucketConfiguration>"+strings.Repeat("<a b='c'/>", 6_000)))
	})},

	{group: "bodies", name: "chunks of a byte", run: repeat(8, func(g *ground) []byte {
		return aws(g, strings.Repeat("1;chunk-signature="+strings.Repeat("0", 64)+"\r\nx\r\n", 4096)+"0\r\n\r\n")
	})},
	{group: "bodies", name: "chunks with endless extensions", run: repeat(8, func(g *ground) []byte {
		return aws(g, strings.Repeat("1;"+strings.Repeat("e", 1000)+"\r\nx\r\n", 4096)+"0\r\n\r\n")
	})},
	{group: "bodies", name: "a chunk's line without end", run: repeat(4, func(g *ground) []byte {
		return aws(g, strings.Repeat("0", 8<<20))
	})},
	{group: "bodies", name: "trailers without end", run: repeat(4, func(g *ground) []byte {
		return aws(g, "1\r\nx\r\n0\r\n"+strings.Repeat("x-amz-a:b\r\n", 100_000))
	})},
	{group: "bodies", name: "HTTP chunks of a byte", run: func(ctx context.Context, g *ground) {
		g.Crowd(ctx, 4, func(_ context.Context, c *siege.Conn, i int) error {
			head := chunked(g)
			return c.Do(append(head, strings.Repeat("1;"+strings.Repeat("e", 200)+"\r\nx\r\n", 20_000)...))
		})
	}},
	{group: "bodies", name: "HTTP trailers without end", run: func(ctx context.Context, g *ground) {
		g.Crowd(ctx, 4, func(_ context.Context, c *siege.Conn, i int) error {
			head := chunked(g)
			return c.Do(append(head, "1\r\nx\r\n0\r\n"+strings.Repeat("a: b\r\n", 1<<20)...))
		})
	}},
	{group: "bodies", name: "bodies of reads", run: repeat(4, func(g *ground) []byte {
		return append(g.Head(g.key, "GET", "/attacked/k", sigv4.UnsignedPayload, 8<<20), make([]byte, 8<<20)...)
	})},
	{group: "bodies", name: "bodies that are too large", run: repeat(4, func(g *ground) []byte {
		return append(g.Head(g.key, "PUT", "/attacked/k", sigv4.UnsignedPayload, -1, "Content-Length", "10000000000"), make([]byte, 8<<20)...)
	})},
	{group: "bodies", name: "bodies that are announced", run: hold(300, func(g *ground) []byte {
		return g.Head(g.key, "PUT", "/attacked/k", sigv4.UnsignedPayload, 4096, "Expect", "100-continue")
	}, 0)},
	{group: "bodies", name: "bodies of a byte at a time", run: hold(300, func(g *ground) []byte {
		return g.Head(g.key, "PUT", "/attacked/k", sigv4.UnsignedPayload, 4096)
	}, 100*time.Millisecond)},

	{name: "slow headers", run: hold(5000, func(g *ground) []byte {
		return []byte("GET /attacked/k HTTP/1.1\r\nHost: h\r\nX: ")
	}, time.Second)},
	{name: "large documents, held", run: func(ctx context.Context, g *ground) {
		half := deletion(g, g.key, "<Delete>"+strings.Repeat("<Object><Key>k</Key></Object>", 200_000))
		hold(200, func(*ground) []byte { return half[:len(half)-1] }, 0)(ctx, g)
	}},
	{name: "large lists of cuts, held", run: func(ctx context.Context, g *ground) {
		cuts := cutLines(7 << 20)
		g.Crowd(ctx, 16, func(ctx context.Context, c *siege.Conn, i int) error {
			err := c.Send(g.Head(g.key, "PUT", fmt.Sprintf("/attacked-%d?evenkeel-cuts", i), sigv4.UnsignedPayload, int64(len(cuts)+1)))
			if err == nil {
				err = c.Send(cuts)
			}
			if err == nil {
				<-ctx.Done()
				err = ctx.Err()
			}
			return err
		})
	}},

	{group: "answers", name: "slow readers of long keys", prepare: longKeys, run: func(ctx context.Context, g *ground) {
		text := g.Text(g.key, "GET", "/attacked?versions&encoding-type=url&max-keys=1000&prefix=long", nil)
		g.Crowd(ctx, 100, func(ctx context.Context, c *siege.Conn, i int) error {
			err := c.Send(text)
			for b := make([]byte, 1000); err == nil; siege.Pause(ctx, 20*time.Millisecond) {
				_, err = c.Read(b)
			}
			return err
		})
	}},
	{group: "answers", name: "pipelines that nobody reads", prepare: longKeys, run: func(ctx context.Context, g *ground) {
		text := bytes.Repeat(g.Text(g.key, "GET", "/attacked?list-type=2&prefix=long", nil), 1000)
		g.Crowd(ctx, 50, func(ctx context.Context, c *siege.Conn, i int) error { return c.Send(text) })
	}},
	{group: "answers", name: "pipelines of small requests", run: func(ctx context.Context, g *ground) {
		text := bytes.Repeat(g.Text(g.key, "GET", "/attacked/k", nil), 100)
		g.Crowd(ctx, 4, func(ctx context.Context, c *siege.Conn, i int) error {
			err := c.Send(text)
			for i := 0; i < 100 && err == nil; i++ {
				_, err = c.Answer()
			}
			return err
		})
	}},
	{group: "answers", name: "listings whose clients go", prepare: longKeys, run: abandon(16, func(g *ground) []byte {
		return g.Text(g.key, "GET", "/attacked?list-type=2&prefix=long", nil)
	})},
	{group: "answers", name: "delimiters", prepare: manyPrefixes, run: repeat(16, func(g *ground) []byte {
		return g.Text(g.key, "GET", "/attacked-2?list-type=2&delimiter=/", nil)
	})},
	{group: "answers", name: "pieces", prepare: manyRanges, run: repeat(8, func(g *ground) []byte {
		return g.Text(g.key, "GET", "/attacked-15?evenkeel-splits=1000", nil)
	})},

	{group: "work", name: "connection churn", run: func(ctx context.Context, g *ground) {
		g.Crowd(ctx, 32, func(ctx context.Context, c *siege.Conn, i int) error {
			if i%2 == 0 {
				_ = c.Do(g.Text(g.key, "GET", "/attacked/k", nil))
			}
			return http.ErrAbortHandler
		})
	}},
	{group: "work", name: "requests of nobody", run: func(ctx context.Context, g *ground) {
		g.Crowd(ctx, 32, func(_ context.Context, c *siege.Conn, i int) error {
			return c.Do(g.Text(siege.Key{ID: strconv.Itoa(rand.IntN(1 << 30)), Secret: "x"}, "GET", "/attacked/k", nil))
		})
	}},
	{group: "work", name: "buckets made and removed", run: func(ctx context.Context, g *ground) {
		g.Crowd(ctx, 8, func(_ context.Context, c *siege.Conn, i int) error {
			bucket := fmt.Sprintf("/made-%d-%d", i, rand.IntN(1000))
			err := c.Do(g.Text(wide, "PUT", bucket, nil))
			if err == nil {
				err = c.Do(g.Text(wide, "DELETE", bucket, nil))
			}
			return err
		})
	}},
	{group: "work", name: "many conditions on one key", run: repeat(64, func(g *ground) []byte {
		return g.Text(g.key, "PUT", "/attacked/condition", []byte("x"), "If-None-Match", "*")
	})},
	{group: "work", name: "many puts of one key", run: repeat(64, func(g *ground) []byte {
		return g.Text(g.key, "PUT", "/attacked/condition", bytes.Repeat([]byte("x"), 4096))
	})},
	{group: "work", name: "copies in a circle", prepare: func(ctx context.Context, g *ground) error {
		return g.must(ctx, "PUT", "/attacked/copy-0", strings.Repeat("x", 4096))
	}, run: func(ctx context.Context, g *ground) {
		g.Crowd(ctx, 16, func(_ context.Context, c *siege.Conn, i int) error {
			from, to := fmt.Sprintf("/attacked/copy-%d", i%4), fmt.Sprintf("/attacked/copy-%d", (i+1)%4)
			return c.Do(g.Text(g.key, "PUT", to, nil, "x-amz-copy-source", from))
		})
	}},
}

// repeat lets n attackers send one request again and again and read its answers.
func repeat(n int, text func(g *ground) []byte) func(context.Context, *ground) {
	return func(ctx context.Context, g *ground) {
		text := text(g)
		g.Crowd(ctx, n, func(_ context.Context, c *siege.Conn, _ int) error { return c.Do(text) })
	}
}

// hold lets n attackers send something and then no more, or a byte now and then. They
// begin anew when they are cut off, and read no answers.
func hold(n int, text func(g *ground) []byte, every time.Duration) func(context.Context, *ground) {
	return func(ctx context.Context, g *ground) {
		text := text(g)
		g.Crowd(ctx, n, func(ctx context.Context, c *siege.Conn, _ int) error {
			err := c.Send(text)
			if every == 0 && err == nil {
				<-ctx.Done()
				return ctx.Err()
			}
			for ; err == nil; siege.Pause(ctx, every) {
				_, err = c.Write([]byte("x"))
			}
			return err
		})
	}
}

// abandon lets n attackers send a request and be gone.
func abandon(n int, text func(g *ground) []byte) func(context.Context, *ground) {
	return func(ctx context.Context, g *ground) {
		text := text(g)
		g.Crowd(ctx, n, func(ctx context.Context, c *siege.Conn, _ int) error {
			_ = c.Send(text)
			siege.Pause(ctx, time.Millisecond)
			return http.ErrAbortHandler
		})
	}
}

// forged is a request with a signature that is not right.
func forged(g *ground, target, names string, header ...string) []byte {
	date := time.Now().UTC().Format("20060102T150405Z")
	header = append(header, "X-Amz-Date", date, "X-Amz-Content-Sha256", sigv4.UnsignedPayload,
		"Authorization", sigv4.Algorithm+" Credential="+g.key.ID+"/"+date[:8]+"/us-east-1/s3/aws4_request, SignedHeaders=host;"+names+
			"x-amz-content-sha256;x-amz-date, Signature="+strings.Repeat("0", 64))
	return g.Head(siege.Key{}, "GET", target, "", -1, header...)
}

// deletion is a request to delete what a document names.
func deletion(g *ground, k siege.Key, document string) []byte {
	sum := md5.Sum([]byte(document))
	return g.Text(k, "POST", "/attacked?delete", []byte(document), "Content-Md5", base64.StdEncoding.EncodeToString(sum[:]))
}

// aws is a request whose body is aws-chunked.
func aws(g *ground, framed string) []byte {
	head := g.Head(g.key, "PUT", "/attacked/k", sigv4.UnsignedChunksTrailer, int64(len(framed)), "X-Amz-Decoded-Content-Length", "4096",
		"Content-Encoding", "aws-chunked")
	return append(head, framed...)
}

// chunked is the head of a request whose body comes in chunks of HTTP.
func chunked(g *ground) []byte {
	head := g.Head(g.key, "PUT", "/attacked/k", sigv4.UnsignedPayload, -1)
	return bytes.Replace(head, []byte("\r\n"), []byte("\r\nTransfer-Encoding: chunked\r\n"), 1)
}

// manyHeaders are header lines of so many bytes, each of another name.
func manyHeaders(bytes int) string {
	var b strings.Builder
	for i := 0; b.Len() < bytes; i++ {
		fmt.Fprintf(&b, "%x:\r\n", i)
	}
	return b.String()
}

// cutLines are so many cuts.
func cutLines(n int) []byte {
	b := make([]byte, 0, 9*n)
	for i := range n {
		b = fmt.Appendf(b, "%08x\n", i)
	}
	return b
}

// many does something for each number below n, several at once.
func many(n int, f func(i int) error) error {
	var g errgroup.Group
	g.SetLimit(64)
	for i := range n {
		g.Go(func() error { return f(i) })
	}
	return g.Wait()
}

// longKeys puts a page of keys that become six times as long in a document.
func longKeys(ctx context.Context, g *ground) error {
	return many(1000, func(i int) error {
		return g.must(ctx, "PUT", "/attacked/long"+strings.Repeat("%22", 1016)+fmt.Sprintf("%04d", i), "x")
	})
}

// manyRanges makes a bucket of many empty ranges.
func manyRanges(ctx context.Context, g *ground) error {
	_ = g.must(ctx, "PUT", "/attacked-15?evenkeel-cuts", string(cutLines(10_000)))
	return nil
}

// manyPrefixes puts keys with a common prefix each.
func manyPrefixes(ctx context.Context, g *ground) error {
	if err := g.must(ctx, "PUT", "/attacked-2", ""); err != nil {
		return err
	}
	return many(3000, func(i int) error { return g.must(ctx, "PUT", fmt.Sprintf("/attacked-2/p%d/x", i), "x") })
}
