package siege

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evenkeel/evenkeel/internal/sigv4"
	"github.com/evenkeel/evenkeel/internal/test/presign"
)

// Key is an access key, with which requests are signed. With the zero Key requests are not signed.
type Key struct{ ID, Secret string }

// Target is a server that is attacked, and the addresses from which attacks come.
type Target struct {
	Process
	S3   string // http://host:port
	Host string // host:port
	// From is the address from which attacks come. The honest client has another address.
	From net.IP
	// Many is true if attacks come from many addresses, and not only from From.
	Many bool
	// Part divides the number of attackers: with 4, a quarter of them comes. With 0 all of them come.
	Part int

	shots *shots
}

// shots counts the requests of attackers, and the answers to these requests.
type shots struct {
	sent     atomic.Int64
	mu       sync.Mutex
	statuses map[int]int
}

// NewTarget sets the other fields of a target whose process and S3 address are set, and returns the target.
func NewTarget(t *Target) *Target {
	t.Host = t.S3[strings.Index(t.S3, "//")+2:]
	t.From = net.IPv4(127, 0, 0, 2)
	t.shots = &shots{statuses: map[int]int{}}
	return t
}

// At returns the target with another of the server's addresses, such as the admin address.
func (t *Target) At(url string) *Target {
	other := *t
	other.Host = url[strings.Index(url, "//")+2:]
	return &other
}

// sign returns the headers of a request, including the signature. header has pairs of a name and a value.
func (t *Target) sign(k Key, method, target, payload string, length int64, header []string) (http.Header, error) {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Add(header[i], header[i+1])
	}
	if k.ID == "" {
		return h, nil
	}
	path, query, _ := strings.Cut(target, "?")
	r := &sigv4.Request{Method: method, Path: path, Query: query, Host: t.Host, Header: h, Length: length}
	return h, sigv4.Sign(r, k.ID, k.Secret, "us-east-1", payload, time.Now())
}

// Head returns the beginning of a request as it is sent, up to the empty line after the headers. payload stands for the
// body in the signature. length is the value of the header Content-Length, which is left out if length is -1. header
// has pairs of a name and a value.
func (t *Target) Head(k Key, method, target, payload string, length int64, header ...string) []byte {
	h, err := t.sign(k, method, target, payload, length, header)
	if err != nil {
		panic(err) // the attack's own mistake
	}
	b := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, target, t.Host)
	if length >= 0 {
		b = fmt.Appendf(b, "Content-Length: %d\r\n", length)
	}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, v := range h[name] {
			b = append(append(append(append(b, name...), ": "...), v...), "\r\n"...)
		}
	}
	return append(b, "\r\n"...)
}

// Text returns a whole request as it is sent, with its body.
func (t *Target) Text(k Key, method, target string, body []byte, header ...string) []byte {
	length := int64(len(body))
	if length == 0 && method == http.MethodGet {
		length = -1
	}
	return append(t.Head(k, method, target, sigv4.PayloadOf(body), length, header...), body...)
}

// Presigned returns the path and query of a presigned URL, in which query parameters contain the signature.
func (t *Target) Presigned(k Key, method, path string, query url.Values) (string, error) {
	q := url.Values{
		"X-Amz-Algorithm": {sigv4.Algorithm}, "X-Amz-Expires": {"600"},
		"X-Amz-Date":          {time.Now().UTC().Format("20060102T150405Z")},
		"X-Amz-Credential":    {k.ID + "/" + time.Now().UTC().Format("20060102") + "/us-east-1/s3/aws4_request"},
		"X-Amz-SignedHeaders": {"host"},
	}
	maps.Copy(q, query)
	r := &sigv4.Request{Method: method, Path: path, Query: q.Encode(), Host: t.Host, Header: http.Header{}, Length: -1}
	signature, err := presign.Signature(r, k.Secret, "us-east-1", time.Now())
	return path + "?" + r.Query + "&X-Amz-Signature=" + signature, err
}

// Conn is a connection of an attacker to the server.
type Conn struct {
	net.Conn
	t *Target
	r *bufio.Reader
}

// manyAddresses is the number of addresses of attackers that have many. An attack with a new address for each
// connection would be a flood, against which only a firewall helps.
const manyAddresses = 32

// Dial opens a connection to the server from an attacker's address. The connection is closed when ctx ends.
func (t *Target) Dial(ctx context.Context) (*Conn, error) {
	from := t.From
	if t.Many {
		from = net.IPv4(127, 1, 0, byte(1+rand.IntN(manyAddresses)))
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from}, Timeout: 10 * time.Second}
	c, err := d.DialContext(ctx, "tcp", t.Host)
	if err != nil {
		return nil, err
	}
	// The connection is closed without the closing steps of TCP, so no port stays in use for a minute, and the server
	// sees a reset.
	_ = c.(*net.TCPConn).SetLinger(0)
	context.AfterFunc(ctx, func() { _ = c.Close() })
	return &Conn{Conn: c, t: t, r: bufio.NewReaderSize(c, 4<<10)}, nil
}

// Send sends a text, and does not wait for an answer.
func (c *Conn) Send(text []byte) error {
	_, err := c.Write(text)
	c.t.shots.sent.Add(1)
	return err
}

// Do sends a request, and reads the whole answer. A server may answer and close the connection before the whole request
// is sent. In this case Do returns no error of sending.
func (c *Conn) Do(text []byte) error {
	failed := c.Send(text)
	status, err := c.Answer()
	if failed != nil && status == 0 {
		return failed
	}
	return err
}

// Each sends several requests, one after the other, and reads the answer to each.
func (c *Conn) Each(texts ...[]byte) error {
	for _, text := range texts {
		if err := c.Do(text); err != nil {
			return err
		}
	}
	return nil
}

// Handshake makes a TLS handshake on the connection.
func (c *Conn) Handshake(ctx context.Context) error {
	c.t.shots.sent.Add(1)
	return tls.Client(c.Conn, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(ctx)
}

// Answer reads one whole answer, and returns its status.
func (c *Conn) Answer() (status int, err error) {
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	c.t.shots.answered(resp.StatusCode)
	if _, err = io.Copy(io.Discard, resp.Body); err == nil && resp.Close {
		err = io.EOF
	}
	return resp.StatusCode, err
}

// Crowd lets n attackers work at the same time until ctx ends, or fewer if Target.Part is set. Each attacker opens a
// connection, calls work again and again, and opens a new connection when work fails. The parameter attacker of work is
// the number of the attacker.
func (t *Target) Crowd(ctx context.Context, n int, work func(ctx context.Context, c *Conn, attacker int) error) {
	var all sync.WaitGroup
	for i := range max(1, n/max(1, t.Part)) {
		all.Go(func() {
			for ctx.Err() == nil {
				one, end := context.WithCancel(ctx)
				c, err := t.Dial(one)
				for err == nil && ctx.Err() == nil {
					err = work(one, c, i)
				}
				end()
				Pause(ctx, 2*time.Millisecond)
			}
		})
	}
	all.Wait()
}

// Pause waits for the duration d, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func (s *shots) answered(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.statuses[status]++
}

// Shots returns the number of requests that attackers have sent, and the number of answers for each HTTP status.
func (t *Target) Shots() (sent int64, statuses map[int]int) {
	s := t.shots
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent.Load(), maps.Clone(s.statuses)
}

// Reply is the answer to a request that is not part of an attack.
type Reply struct {
	Status int
	Header http.Header
	Body   []byte
}

// NewClient returns an HTTP client that accepts any certificate. If fresh is true, it uses a new connection for each
// request.
func NewClient(fresh bool) *http.Client {
	return &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: 64, DisableKeepAlives: fresh, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
}

// Ask sends a request by the client c, not from an attacker's address, and returns the answer.
func (t *Target) Ask(ctx context.Context, c *http.Client, k Key, method, target string, body []byte, header ...string,
) (*Reply, error) {
	h, err := t.sign(k, method, target, sigv4.PayloadOf(body), int64(len(body)), header)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, method, t.S3+target, strings.NewReader(string(body)))
	if err != nil {
		return nil, err
	}
	r.Header = h
	resp, err := c.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return &Reply{resp.StatusCode, resp.Header, got}, err
}

// Must sends a request like Ask, and returns an error if the status of the answer is not 2xx.
func (t *Target) Must(ctx context.Context, c *http.Client, k Key, method, target string, body []byte, header ...string,
) error {
	got, err := t.Ask(ctx, c, k, method, target, body, header...)
	if err == nil && got.Status/100 != 2 {
		err = fmt.Errorf("%s %.100s: %d: %.500s", method, target, got.Status, got.Body)
	}
	return err
}
