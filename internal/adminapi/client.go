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

// A Client sends requests to the admin API of a server, by which operators split, merge and inspect buckets. It is safe
// for concurrent use.
type Client struct {
	token   string
	servers []string // the only servers that get the token
	http    *http.Client

	mu   sync.Mutex
	base string // the given address, or the leader's once it is known
}

// NewClient returns a client of the admin API at the address `base`, such as http://127.0.0.1:9001. token is the bearer
// token that the server asks for, or empty.
//
// If only the leader of the store can answer a request, the client sends the request again to the leader's address. A
// client with a token refuses this and returns an error, since the token is only for the server at `base`.
func NewClient(base, token string) (*Client, error) {
	server, err := serverOf(base)
	if err != nil {
		return nil, err
	}
	// Servers name the leader in a Problem, never by a redirect.
	h := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &Client{base: server, servers: []string{server}, token: token, http: h}, nil
}

// serverOf returns the normal form of the address of a server, in lower case and with the port, so that addresses can
// be compared. It fails with InvalidArgument if the address is not like http://127.0.0.1:9001.
func serverOf(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" ||
		u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		// The error does not quote the address, which may have a password.
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

// named checks that the client may send requests to the leader's address, which another process has told it. A client
// with a token may do so only if it knows the address. named returns the normal form of the address. The parameter
// holder is the leader's name, for errors. named also fails if the address is wrong.
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

// Within returns a client that sends its requests to the handler h in the same process, without a network. The function
// end closes the client's connections and waits until h has served them; the caller must call it once.
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

// pipes is a net.Listener for connections from the same process. The connections are pipes in memory, which dial makes.
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

// Status returns what the server does at present: its moves, its checks of sizes, and its cleaning.
func (c *Client) Status(ctx context.Context) (s Status, err error) {
	return s, c.do(ctx, http.MethodGet, "/v1/status", nil, &s)
}

// Cluster returns the list of the processes that share the store, and the health of the store, the counters and the
// clocks.
func (c *Client) Cluster(ctx context.Context) (s Cluster, err error) {
	return s, c.do(ctx, http.MethodGet, "/v1/cluster", nil, &s)
}

// Map returns the partition map of a bucket, which lists its ranges and partitions, as a stream of JSON. The caller
// must close the stream. The argument epoch is the version of the map; 0 stands for the newest.
func (c *Client) Map(ctx context.Context, bucket string, epoch uint64) (io.ReadCloser, error) {
	q := url.Values{"bucket": {bucket}}
	if epoch > 0 {
		q.Set("epoch", strconv.FormatUint(epoch, 10))
	}
	return c.open(ctx, http.MethodGet, "/v1/map?"+q.Encode(), nil)
}

// History returns the last versions (epochs) of a bucket's partition map, the newest first. The argument limit is the
// maximum number of versions; 0 stands for all that are known.
func (c *Client) History(ctx context.Context, bucket string, limit int) (h History, err error) {
	q := url.Values{"bucket": {bucket}}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return h, c.do(ctx, http.MethodGet, "/v1/history?"+q.Encode(), nil, &h)
}

// Moves asks the server to split, merge or refresh ranges of a bucket, as the request m says. The answer has the
// planned moves and the job that makes them. After a dry run, which makes no moves, there is no job.
func (c *Client) Moves(ctx context.Context, m Moves) (a Answer, err error) {
	return a, c.do(ctx, http.MethodPost, "/v1/moves", m, &a)
}

// Apply asks the server to make the moves of the plan in p, which was computed before. The answer has the moves and the
// job that makes them. After a dry run, which makes no moves, there is no job.
func (c *Client) Apply(ctx context.Context, p Apply) (a Answer, err error) {
	return a, c.do(ctx, http.MethodPost, "/v1/apply", p, &a)
}

// Job returns the state of the job with the given id, which is in the answer to a request for moves. A job is a set of
// requested moves of one bucket.
func (c *Client) Job(ctx context.Context, id string) (j scheduler.Job, err error) {
	return j, c.do(ctx, http.MethodGet, "/v1/jobs/"+url.PathEscape(id), nil, &j)
}

// Abort cancels the requested moves of a bucket that have not begun; moves that have begun go on. `which` selects the
// bucket, or all buckets. Done.Dropped is the number of cancelled moves.
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

// open sends a request and returns the body of the answer, which the caller must close. `in` is the content of the
// request, sent as JSON; nil means no content. If only the leader of the store can answer, open sends the request again
// to the leader. If the HTTP status is not OK, open returns an error.
func (c *Client) open(ctx context.Context, method, path string, in any) (io.ReadCloser, error) {
	var payload []byte
	if in != nil {
		var err error
		if payload, err = marshal(in); err != nil {
			return nil, store.Errorf(store.InvalidArgument, "%w", err)
		}
	}
	const most = 3 // number of leaders asked, each named by the one before
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
		// Later requests, for instance about a job, go to the leader at once.
		c.mu.Lock()
		c.base = next
		c.mu.Unlock()
	}
}

// problem returns the error for an answer whose HTTP status is not OK, and closes the body of the answer. The first
// result is the Problem that the body has as JSON, or nil if the body has none.
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

// err returns the problem as a Go error with the same kind and text. The server has sent the problem as its answer.
func (p *Problem) err() error { return &remoteError{kindOf(p.Kind), p.Error} }

// remoteError is an error with which a server has answered a request: the kind and the text of the server's error.
type remoteError struct {
	kind store.Kind
	text string
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.kind }

// kindOf returns the kind of error with the given name, e.g. store.NotFound. It returns store.Other if no kind has this
// name, as when the server is newer.
func kindOf(name string) store.Kind {
	for k := store.Other; k <= store.TooMuchDeadData; k++ {
		if k.Error() == name {
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
