package objects

// Versioning is versioning, for tests.
func (s Status) Versioning() Versioning { return s.versioning() }

// IsZero is isZero, for tests.
func (id UploadID) IsZero() bool { return id.isZero() }

// Version is version, for tests.
func (id UploadID) Version() ID { return id.version() }

// ByAge is byAge, for tests.
func (l Lifecycle) ByAge() bool { return l.byAge() }
