// Package tracing records parts of the library's work as OpenTelemetry spans, below the spans that the calling program
// records.
package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Name is the name of this library in traces, which OpenTelemetry calls the instrumentation scope of a span.
const Name = "github.com/evenkeel/evenkeel"

// Start begins a trace span as a child of the span in ctx, and returns a context with the new span. If ctx has no
// recorded span, Start begins none, and costs only a read of ctx. So background work makes no spans, while a program
// that traces its own requests gets child spans.
func Start(ctx context.Context, name string, attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	above := trace.SpanFromContext(ctx)
	if !above.IsRecording() {
		return ctx, noop.Span{}
	}
	return above.TracerProvider().Tracer(Name).Start(ctx, name, trace.WithAttributes(attrs...))
}

// End ends the trace span s. If err is not nil, End marks the span as failed, but leaves out the text of err, as the
// text may contain keys of objects.
func End(s trace.Span, err error) {
	if err != nil {
		s.SetStatus(codes.Error, "")
	}
	s.End()
}
