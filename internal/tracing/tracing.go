// Package tracing begins OpenTelemetry spans within those of a program.
package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Name is that of the instrumentation.
const Name = "github.com/evenkeel/evenkeel"

// Start begins a span below that of ctx, if that one is recorded. Else it costs a look into ctx.
// So background work makes no spans, and a library's user gets some below those of its own.
func Start(ctx context.Context, name string, attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	above := trace.SpanFromContext(ctx)
	if !above.IsRecording() {
		return ctx, noop.Span{}
	}
	return above.TracerProvider().Tracer(Name).Start(ctx, name, trace.WithAttributes(attrs...))
}

// End ends a span with the outcome of what it covers. The text of an error may have keys, which stay
// here.
func End(s trace.Span, err error) {
	if err != nil {
		s.SetStatus(codes.Error, "")
	}
	s.End()
}
