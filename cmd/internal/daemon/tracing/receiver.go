package tracing

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/evenkeel/evenkeel/internal/reload"
	"github.com/evenkeel/evenkeel/internal/wait"
)

// receiver sends the spans of traces to an OpenTelemetry collector, by OTLP over HTTP. The environment variables of the
// OpenTelemetry standard configure the receiver, e.g. OTEL_EXPORTER_OTLP_ENDPOINT. It implements otlptrace.Client. The
// standard's own client would add gRPC to every program.
type receiver struct {
	url     string
	header  http.Header
	gzip    bool
	timeout time.Duration
	http    *http.Client
}

// setting returns the value of a setting of the OpenTelemetry exporter, and the name of the environment variable that
// has it. The parameter name is the end of the variable's name, e.g. ENDPOINT. The variable OTEL_EXPORTER_OTLP_TRACES_…
// comes before OTEL_EXPORTER_OTLP_…, which also holds for metrics and logs. The value is "" if neither is set.
func setting(name string) (variable, value string) {
	for _, variable := range []string{"OTEL_EXPORTER_OTLP_TRACES_" + name, "OTEL_EXPORTER_OTLP_" + name} {
		if value := os.Getenv(variable); value != "" {
			return variable, value
		}
	}
	return "OTEL_EXPORTER_OTLP_" + name, ""
}

// openReceiver returns the client of the OpenTelemetry collector that the environment variables describe, or nil if
// they name no endpoint. openReceiver reads certificates, and sends nothing.
func openReceiver() (*receiver, error) {
	variable, endpoint := setting("ENDPOINT")
	if endpoint == "" {
		return nil, nil
	}
	to, err := url.Parse(endpoint)
	if err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Host == "" {
		return nil, fmt.Errorf("%s is not an address like http://127.0.0.1:4318", variable)
	}
	if variable == "OTEL_EXPORTER_OTLP_ENDPOINT" {
		to = to.JoinPath("v1", "traces")
	}
	const protocol = "http/protobuf"
	if variable, other := setting("PROTOCOL"); cmp.Or(other, protocol) != protocol {
		return nil, fmt.Errorf("%s is %q, but spans are sent by %s only, which collectors take at port 4318", variable,
			other, protocol)
	}
	r := &receiver{url: to.String(), header: http.Header{"Content-Type": {"application/x-protobuf"}}}
	switch variable, compression := setting("COMPRESSION"); compression {
	case "", "none":
	case "gzip":
		r.gzip = true
		r.header.Set("Content-Encoding", compression)
	default:
		return nil, fmt.Errorf("%s is %q, not gzip or none", variable, compression)
	}
	variable, text := setting("TIMEOUT")
	ms, err := strconv.Atoi(cmp.Or(text, "10000"))
	if err != nil || ms <= 0 {
		return nil, fmt.Errorf("%s is %q, not a number of milliseconds", variable, text)
	}
	r.timeout = time.Duration(ms) * time.Millisecond
	variable, headers := setting("HEADERS")
	for pair := range strings.SplitSeq(headers, ",") {
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); pair != "" && (!ok || name == "" || err != nil) {
			return nil, fmt.Errorf("%s does not have the form name=value,name=value", variable) // values are secrets
		}
		if name != "" {
			r.header.Set(name, value)
		}
	}
	_, ca := setting("CERTIFICATE")
	_, cert := setting("CLIENT_CERTIFICATE")
	_, key := setting("CLIENT_KEY")
	trust, err := reload.ClientTLS("OTEL_EXPORTER_OTLP", ca, cert, key)
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE, _CLIENT_CERTIFICATE and _CLIENT_KEY: %w", err)
	}
	r.http = &http.Client{Transport: &http.Transport{TLSClientConfig: trust, Proxy: http.ProxyFromEnvironment,
		IdleConnTimeout: time.Minute}}
	return r, nil
}

func (r *receiver) Start(context.Context) error { return nil }

func (r *receiver) Stop(context.Context) error {
	r.http.CloseIdleConnections()
	return nil
}

// UploadTraces sends spans to the OpenTelemetry collector. A request that may succeed later, by the rules of OTLP, is
// repeated until the timeout.
func (r *receiver) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	var body []byte
	for _, s := range spans {
		b, err := proto.Marshal(s)
		if err != nil {
			return err
		}
		body = protowire.AppendBytes(protowire.AppendTag(body, 1, protowire.BytesType), b)
	}
	if r.gzip {
		var zipped bytes.Buffer
		z := gzip.NewWriter(&zipped)
		_, _ = z.Write(body)
		_ = z.Close()
		body = zipped.Bytes()
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	pauses := wait.Backoff{First: 100 * time.Millisecond, Most: 5 * time.Second}
	for n := 1; ; n++ {
		again, err := r.send(ctx, body)
		if err == nil || !again || pauses.Sleep(ctx, n) != nil {
			return err
		}
	}
}

// send sends one request to the OpenTelemetry collector, with the encoded spans in body. The result `again` is true if
// the request failed, but another attempt may succeed.
func (r *receiver) send(ctx context.Context, body []byte) (again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	req.Header = r.header
	resp, err := r.http.Do(req)
	if err != nil {
		return true, err
	}
	defer resp.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if resp.StatusCode/100 == 2 {
		return false, nil
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		again = true
	}
	return again, fmt.Errorf("%s answered %s: %q", r.url, resp.Status, said)
}
