// Package s3api serves the S3 protocol over package listing. Bucket names are in paths or in host names. The answers
// are those that S3's own clients expect. A feature that is not implemented is refused by its name, with 501
// NotImplemented. No part of a request that would change its meaning is ignored. docs/s3.md, in the repository, has the
// operations, the limits and the differences from AWS.
//
//	keys, err := s3api.ParseKeys(text) // YAML; docs/s3.md has the form
//	handler, err := s3api.New(s3api.Over(db.Client()), s3api.Options{
//		Keys:       keys,
//		Objects:    o,        // of objects.New; nil: plain buckets only
//		SoleWriter: true,     // nothing else writes to the buckets
//		MinRate:    16 << 10, // of large bodies, which may take longer than the timeouts of the server
//	})
//	server := &http.Server{
//		Addr: "127.0.0.1:9000", Handler: handler,
//		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: time.Minute,
//	}
//	err = server.ListenAndServe()
//
// The client db.Client() is that of an evenkeel.DB, or another one of package listing.
//
// Access: without Options.Keys everybody may do everything. Then set Options.Guard, or a web page in the browser
// of a user of the machine can change data. The example has a Guard for programs on the same machine.
//
// Paths: keys are taken from the raw request path, which is not cleaned. So no http.ServeMux may be in front of the
// Handler, since it redirects /bucket/a//b to /bucket/a/b. But a function may be in front of it that looks at
// r.URL.Path and calls one of two handlers.
//
// Writers: writes with conditions, such as If-Match, need Options.SoleWriter. It is true only if all writes to the
// buckets go through this one Handler. It must be false if the program also puts entries through the DB, or if another
// process writes to the same Cassandra keyspace.
//
// In a plain bucket, values are metadata: a small body is stored in the entry, and an object whose bytes are stored
// elsewhere has an entry with its size and ETag. A bucket of objects has versions and bodies of any size. Bodies that
// are deleted need a cleaner: see package objects.
package s3api
