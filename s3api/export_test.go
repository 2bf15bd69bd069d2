package s3api

// Summary is what a listing shows of a value.
func Summary(value []byte) (size int64, etag string, err error) {
	s, err := parseSummary(value)
	return s.size, string(s.appendETag(nil)), err
}
