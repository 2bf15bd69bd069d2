package objects

import "context"

// Names that only tests use.
var (
	ErrBodyDamaged = errBodyDamaged
	ErrUploadEnds  = errUploadEnds
	ErrWrongSize   = errWrongSize
	ParseSettings  = parseSettings
)

// Status returns the status of the named bucket, for tests.
func (o *Objects) Status(ctx context.Context, name string) (Status, error) {
	_, s, err := o.Open(ctx, name)
	return s.Status, err
}

// Lifecycle returns the lifecycle rules of the named bucket, for tests.
func (o *Objects) Lifecycle(ctx context.Context, name string) (Lifecycle, error) {
	_, s, err := o.Open(ctx, name)
	return s.Lifecycle, err
}

// IsZero is isZero, for tests.
func (id ID) IsZero() bool { return id.isZero() }

// IsZero is isZero, for tests.
func (id UploadID) IsZero() bool { return id.isZero() }

// Version is version, for tests.
func (id UploadID) Version() ID { return id.version() }

// ByAge is byAge, for tests.
func (l Lifecycle) ByAge() bool { return l.byAge() }
