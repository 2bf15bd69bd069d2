// Package tracing exports OpenTelemetry traces of requests, if environment variables name a collector to send traces
// to.
package tracing

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon/version"
	"github.com/evenkeel/evenkeel/internal/tracing"
)

// Tracing records traces of requests and sends them to an OpenTelemetry collector. A nil *Tracing is valid, and records
// nothing.
type Tracing struct {
	provider *sdktrace.TracerProvider
	context  propagation.TraceContext
}

// maxAttribute is the default limit of the length of a span attribute, in characters. An environment variable can set
// another limit. A limit is necessary, as clients choose the values of some attributes.
const maxAttribute = 256

// Open returns the tracing that the OpenTelemetry environment variables describe, or nil if they name no endpoint.
// program is the service name in the traces. An error names the variable that is wrong. Later failures to send traces
// are logged.
func Open(ctx context.Context, program string, log *slog.Logger) (*Tracing, error) {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil
	}
	to, err := openReceiver()
	if err != nil || to == nil {
		return nil, err
	}
	if other := os.Getenv("OTEL_TRACES_EXPORTER"); cmp.Or(other, "otlp") != "otlp" {
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER is %q, not otlp or none", other)
	}
	what, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", program),
			attribute.String("service.version", version.Current().Version)),
		resource.WithHost(), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	exporter, err := otlptrace.New(ctx, to)
	if err != nil {
		return nil, err
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("spans are not exported", "cause", err) }))
	log.Info("requests are traced", "to", to.url)
	limits := sdktrace.NewSpanLimits()
	if limits.AttributeValueLengthLimit < 0 {
		limits.AttributeValueLengthLimit = maxAttribute
	}
	return &Tracing{provider: sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter), sdktrace.WithResource(what), sdktrace.WithRawSpanLimits(limits),
	)}, nil
}

// Requests returns a handler that passes requests on to h, and records a trace span for each request. If a request has
// the header traceparent, the span becomes a part of the client's trace. If h is an http.ServeMux, the pattern that
// matches the request names the span.
func (t *Tracing) Requests(h http.Handler) http.Handler {
	if t == nil {
		return h
	}
	tracer := t.provider.Tracer(tracing.Name)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := t.context.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := tracer.Start(ctx, "request", trace.WithSpanKind(trace.SpanKindServer),
			trace.WithAttributes(attribute.String("http.request.method", r.Method)))
		defer span.End()
		r = r.WithContext(ctx)
		h.ServeHTTP(w, r)
		if r.Pattern != "" {
			span.SetName(r.Pattern)
		}
	})
}

// lastSpans is the time limit for sending the last trace spans when the program ends.
const lastSpans = 3 * time.Second

// End sends the remaining trace spans to the OpenTelemetry collector, and stops the tracing. End takes at most 3 s.
func (t *Tracing) End() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastSpans)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // its failures are logged by the error handler
}
