package attacks

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evenkeel/evenkeel/internal/sigv4"
	"github.com/evenkeel/evenkeel/internal/test/e2e/siege"
)

// shot is what an attacker sends.
type shot func(g *ground) []byte

// assault is what attackers do until ctx ends.
type assault = func(ctx context.Context, g *ground)

// repeat lets n attackers send one request again and again and read its answers.
func repeat(n int, s shot) assault {
	return func(ctx context.Context, g *ground) {
		text := s(g)
		g.Crowd(ctx, n, func(_ context.Context, c *siege.Conn, _ int) error { return c.Do(text) })
	}
}

// hold lets n attackers send something and then no more, or a byte now and then. They
// begin anew when they are cut off, and read no answers.
func hold(n int, every time.Duration, s shot) assault {
	return func(ctx context.Context, g *ground) {
		text := s(g)
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
func abandon(n int, s shot) assault {
	return func(ctx context.Context, g *ground) {
		text := s(g)
		g.Crowd(ctx, n, func(ctx context.Context, c *siege.Conn, _ int) error {
			_ = c.Send(text)
			siege.Pause(ctx, time.Millisecond)
			return http.ErrAbortHandler
		})
	}
}

// slowly lets n attackers read an answer slowly.
func slowly(n int, s shot) assault {
	return func(ctx context.Context, g *ground) {
		text := s(g)
		g.Crowd(ctx, n, func(ctx context.Context, c *siege.Conn, _ int) error {
			err := c.Send(text)
			for b := make([]byte, 500); err == nil; siege.Pause(ctx, 50*time.Millisecond) {
				_, err = c.Read(b)
			}
			return err
		})
	}
}

// plain is text that is sent as it is.
func plain(text string) shot { return func(*ground) []byte { return []byte(text) } }

func get(target string, header ...string) shot {
	return func(g *ground) []byte { return g.Text(g.key, "GET", target, nil, header...) }
}

func put(target, body string, header ...string) shot {
	return func(g *ground) []byte { return g.Text(g.key, "PUT", target, []byte(body), header...) }
}

// begun is a request with the first byte of a body of so many.
func begun(method, target string, length int) shot {
	return func(g *ground) []byte {
		return append(g.Head(g.key, method, target, sigv4.UnsignedPayload, int64(length)), 'x')
	}
}

// behind adds to a request.
func behind(s shot, more []byte) shot { return func(g *ground) []byte { return append(s(g), more...) } }

// with puts lines, which are not signed, into the header of a request.
func with(lines string, s shot) shot {
	return func(g *ground) []byte { return bytes.Replace(s(g), []byte("\r\n"), []byte("\r\n"+lines), 1) }
}

// forged is a request with a signature that is not right, of headers that are named.
func forged(names string, header ...string) shot {
	return func(g *ground) []byte {
		date := time.Now().UTC().Format("20060102T150405Z")
		credential := g.key.ID + "/" + date[:8] + "/us-east-1/s3/aws4_request"
		header := append(header, "X-Amz-Date", date, "X-Amz-Content-Sha256", sigv4.UnsignedPayload, "Authorization",
			sigv4.Algorithm+" Credential="+credential+", SignedHeaders=host;"+names+"x-amz-content-sha256;x-amz-date"+
				", Signature="+strings.Repeat("0", 64))
		return g.Head(siege.Key{}, "GET", "/attacked", "", -1, header...)
	}
}

// forgedOf is such a request with so many signed headers.
func forgedOf(n int) shot {
	names, header := &strings.Builder{}, []string{}
	for i := range n {
		fmt.Fprintf(names, "x-a%04d;", i)
		header = append(header, fmt.Sprintf("X-A%04d", i), "")
	}
	return forged(names.String(), header...)
}

// deletion is a request to delete what a document names.
func deletion(document string) shot {
	return func(g *ground) []byte {
		sum := md5.Sum([]byte(document))
		digest := base64.StdEncoding.EncodeToString(sum[:])
		return g.Text(g.key, "POST", "/attacked?delete", []byte(document), "Content-Md5", digest)
	}
}

// framed is a request whose body is aws-chunked.
func framed(body string) shot {
	return func(g *ground) []byte {
		head := g.Head(g.key, "PUT", "/attacked/k", sigv4.UnsignedChunksTrailer, int64(len(body)),
			"X-Amz-Decoded-Content-Length", "4096", "Content-Encoding", "aws-chunked")
		return append(head, body...)
	}
}

// chunked is a request whose body comes in chunks of HTTP.
func chunked(body string) shot {
	return behind(with("Transfer-Encoding: chunked\r\n", func(g *ground) []byte {
		return g.Head(g.key, "PUT", "/attacked/k", sigv4.UnsignedPayload, -1)
	}), []byte(body))
}

// presigned is a target with a signature by the attackers' key.
func (g *ground) presigned(method, path string, query url.Values) string {
	target, err := g.Presigned(g.key, method, path, query)
	if err != nil {
		panic(err) // the attack's own mistake
	}
	return target
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
	var number [4]byte
	for i := range n { // fmt would take a second for millions of lines, which an attack does not have
		binary.BigEndian.PutUint32(number[:], uint32(i))
		b = append(hex.AppendEncode(b, number[:]), '\n')
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
var longKeys = &preparation{func(ctx context.Context, g *ground) error {
	return many(1000, func(i int) error {
		return g.must(ctx, "PUT", "/attacked/long"+strings.Repeat("%22", 1016)+fmt.Sprintf("%04d", i), "x")
	})
}}

// manyRanges makes a bucket of as many empty ranges as may be.
var manyRanges = &preparation{func(ctx context.Context, g *ground) (err error) {
	for n := 10_000; n > 100; n /= 2 {
		if err = g.must(ctx, "PUT", "/attacked-15?evenkeel-cuts", string(cutLines(n))); err == nil {
			return nil
		}
	}
	return err
}}

// manyBuckets makes buckets.
var manyBuckets = &preparation{func(ctx context.Context, g *ground) error {
	return many(manyBucketsN, func(i int) error { return g.must(ctx, "PUT", bucketName(i), "") })
}}

const manyBucketsN = 3000

func bucketName(i int) string { return fmt.Sprintf("/bucket-%s%d", strings.Repeat("x", 50), i) }

// manyPrefixes puts keys with a common prefix each.
var manyPrefixes = &preparation{func(ctx context.Context, g *ground) error {
	if err := g.must(ctx, "PUT", "/attacked-2", ""); err != nil {
		return err
	}
	return many(3000, func(i int) error { return g.must(ctx, "PUT", fmt.Sprintf("/attacked-2/p%d/x", i), "x") })
}}

// manyDeleted puts keys and deletes them.
var manyDeleted = &preparation{func(ctx context.Context, g *ground) error {
	if err := g.must(ctx, "PUT", "/attacked-3", ""); err != nil {
		return err
	}
	return many(3000, func(i int) error {
		key := fmt.Sprintf("/attacked-3/%d", i)
		if err := g.must(ctx, "PUT", key, "x"); err != nil {
			return err
		}
		return g.must(ctx, "DELETE", key, "")
	})
}}

// firstCopy puts what is copied.
var firstCopy = &preparation{func(ctx context.Context, g *ground) error {
	return g.must(ctx, "PUT", "/attacked/copy-0", strings.Repeat("x", 4096))
}}
