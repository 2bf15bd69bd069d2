package adminapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/evenkeel/evenkeel/internal/rebalance/scheduler"
	"github.com/evenkeel/evenkeel/internal/reload"
	"github.com/evenkeel/evenkeel/store"
)

// Client talks to a handler. It is safe for concurrent use.
type Client struct {
	token   string
	servers []string // that get the token
	http    *http.Client

	mu   sync.Mutex
	base string // where the leader was met last
}

// NewClient makes a client of an admin address, such as http://127.0.0.1:9001, with its bearer
// token, if any. Requests that only the leader answers are forwarded to it; but a token is sent
// to no other server than this one.
func NewClient(base, token string) (*Client, error) {
	server, err := serverOf(base)
	if err != nil {
		return nil, err
	}
	// Servers name the leader in a Problem, never by a redirect.
	h := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &Client{base: server, servers: []string{server}, token: token, http: h}, nil
}

// serverOf normalises an address.
func serverOf(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" ||
		u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		// Without the address: it may have a password.
		return "", store.Errorf(store.InvalidArgument,
			"an address is like http://127.0.0.1:9001, with nothing before the host or behind the port")
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	u.Host, u.RawPath, u.Path = net.JoinHostPort(strings.ToLower(u.Hostname()), port), "", strings.TrimSuffix(u.Path, "/")
	return u.String(), nil
}

// named normalises an address that another process names as the leader's, and refuses it if the
// token must not be sent there.
func (c *Client) named(holder, address string) (string, error) {
	server, err := serverOf(address)
	if err != nil {
		return "", store.Errorf(store.InvalidArgument, "%s leads, at %q (its --admin-url): %w", holder, address, err)
	}
	if c.token != "" && !slices.Contains(c.servers, server) {
		return "", store.Errorf(store.InvalidArgument, "%s leads, at %s. The admin token is sent only to servers that "+
			"--admin (EVENKEEL_ADMIN_URL) names, and this one is not among them: if it is yours, give --admin %s",
			holder, server, list(c.servers, server))
	}
	return server, nil
}

// Within makes a client of a handler in the same process, and a function that ends
// the handler's service.
func Within(h http.Handler) (c *Client, end func()) {
	l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	server := &http.Server{Handler: h}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	transport := &http.Transport{DialContext: l.dial}
	return &Client{base: "http://within", http: &http.Client{Transport: transport}}, func() {
		transport.CloseIdleConnections()
		_ = server.Close()
		serving.Wait()
	}
}

// pipes is a listener whose connections are in memory.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "within", Net: "pipe"} }

// Status requests the status.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	return s, c.do(ctx, http.MethodGet, "/v1/status", nil, &s)
}

// Cluster requests and returns the list of the processes, and the health of what the processes use.
func (c *Client) Cluster(ctx context.Context) (s Cluster, err error) {
	return s, c.do(ctx, http.MethodGet, "/v1/cluster", nil, &s)
}

// Map requests a map at an epoch (0: the newest), as a stream of JSON, which the caller closes.
func (c *Client) Map(ctx context.Context, bucket string, epoch uint64) (io.ReadCloser, error) {
	q := url.Values{"bucket": {bucket}}
	if epoch > 0 {
		q.Set("epoch", strconv.FormatUint(epoch, 10))
	}
	return c.open(ctx, http.MethodGet, "/v1/map?"+q.Encode(), nil)
}

// History requests the last epochs of a bucket; limit 0: all that are known.
func (c *Client) History(ctx context.Context, bucket string, limit int) (h History, err error) {
	q := url.Values{"bucket": {bucket}}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return h, c.do(ctx, http.MethodGet, "/v1/history?"+q.Encode(), nil, &h)
}

// Moves requests moves.
func (c *Client) Moves(ctx context.Context, m Moves) (a Answer, err error) {
	return a, c.do(ctx, http.MethodPost, "/v1/moves", m, &a)
}

// Apply requests the moves of a plan.
func (c *Client) Apply(ctx context.Context, p Apply) (a Answer, err error) {
	return a, c.do(ctx, http.MethodPost, "/v1/apply", p, &a)
}

// Job requests the state of a job.
func (c *Client) Job(ctx context.Context, id string) (j scheduler.Job, err error) {
	return j, c.do(ctx, http.MethodGet, "/v1/jobs/"+url.PathEscape(id), nil, &j)
}

// Abort drops requested moves that have not begun; of all buckets if which names none.
func (c *Client) Abort(ctx context.Context, which Which) (d Done, err error) {
	return d, c.do(ctx, http.MethodPost, "/v1/abort", which, &d)
}

func (c *Client) do(ctx context.Context, method, path string, in, out any) error {
	body, err := c.open(ctx, method, path, in)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(out); err != nil {
		return store.Errorf(store.Unavailable, "the answer is not understood: %w", err)
	}
	return nil
}

// open sends a request and returns the body of a good answer.
func (c *Client) open(ctx context.Context, method, path string, in any) (io.ReadCloser, error) {
	var payload []byte
	if in != nil {
		var err error
		if payload, err = marshal(in); err != nil {
			return nil, store.Errorf(store.InvalidArgument, "%w", err)
		}
	}
	const most = 3 // leaders, each naming the next
	for try := 1; ; try++ {
		c.mu.Lock()
		base := c.base
		c.mu.Unlock()
		req, err := http.NewRequestWithContext(ctx, method, base+path, bytes.NewReader(payload))
		if err != nil {
			return nil, store.Errorf(store.InvalidArgument, "%w", err)
		}
		if c.token != "" {
			req.Header.Set("Authorization", "Bearer "+c.token)
		}
		resp, err := c.http.Do(req)
		if err != nil {
			if ctx.Err() != nil {
				return nil, store.Wrap(base, context.Cause(ctx))
			}
			if cause := reload.ClientError("--admin", req.URL, err); cause != nil {
				return nil, store.Errorf(store.Unavailable, "%w", cause)
			}
			return nil, store.Errorf(store.Unavailable, "%s can't be reached (is `listd serve` or `rebalancer run` running?): "+
				"%w", base, err)
		}
		if resp.StatusCode == http.StatusOK {
			return resp.Body, nil
		}
		p, err := problem(resp)
		if p == nil || p.Leader == nil || p.Leader.Admin == "" || try == most {
			return nil, err
		}
		next, nerr := c.named(cmp.Or(p.Leader.Name, p.Leader.ID.String()), p.Leader.Admin)
		if nerr != nil {
			return nil, nerr
		}
		if next == base {
			return nil, err
		}
		// Later requests, for instance about a job, go there at once.
		c.mu.Lock()
		c.base = next
		c.mu.Unlock()
	}
}

// problem reads an answer that is not good.
func problem(resp *http.Response) (*Problem, error) {
	defer resp.Body.Close()
	const most = 1 << 20
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return nil, store.Errorf(store.Unavailable, "%w", err)
	}
	var p Problem
	if json.Unmarshal(body, &p) == nil && p.Error != "" {
		return &p, p.err()
	}
	if resp.Request.URL.Scheme == "http" && reload.AsksForTLS(resp.StatusCode, body) {
		return nil, store.Errorf(store.Unavailable, "%w", reload.SpeaksTLS("--admin", resp.Request.URL))
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized:
		return nil, store.Errorf(store.InvalidArgument, "the admin address does not let this client in: %s; "+
			"give --admin-token (EVENKEEL_ADMIN_TOKEN), and --admin-cert-file where it asks for a certificate",
			strings.TrimSpace(string(body)))
	case http.StatusNotFound:
		return nil, store.Errorf(store.NotFound, "there is no admin API at %s: is it the address of --admin, "+
			"of a process that moves ranges?", resp.Request.URL.Host)
	}
	return nil, store.Errorf(store.Unavailable, "the answer is %s: %s", resp.Status, strings.TrimSpace(string(body)))
}

// err is the problem as an error of the client.
func (p *Problem) err() error { return &remoteError{kindOf(p.Kind), p.Error} }

// remoteError is an error of the other process, in its words.
type remoteError struct {
	kind store.Kind
	text string
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.kind }

// kindOf finds a kind by its name.
func kindOf(name string) store.Kind {
	for k := store.Other; k <= store.TooMuchDeadData; k++ {
		if k.String() == name {
			return k
		}
	}
	return store.Other
}

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
