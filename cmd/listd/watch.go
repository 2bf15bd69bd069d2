package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/evenkeel/evenkeel/s3api"
)

const (
	// lookEvery is the pause between two looks at files that may change. They are
	// read each time: a date or a size would miss changes.
	lookEvery = time.Second
	// maxWatchedBytes bounds a file that is watched.
	maxWatchedBytes = 16 << 20
)

// watched are files that are read again when they change. What they said is
// kept for as long as they say nothing that can be used.
type watched struct {
	what  string // for the log
	files []string
	// take uses the files' new content, or says why it can't.
	take func(contents [][]byte) error
	// tell logs what is in force now; nil: there is no more to say.
	tell func(*slog.Logger)

	seen     [sha256.Size]byte
	complain string // the last complaint, so that it is logged once
}

// load reads the files for the first time.
func (w *watched) load() error {
	_, err := w.look()
	return err
}

// look reads the files and takes them if they are others than before.
func (w *watched) look() (changed bool, err error) {
	contents := make([][]byte, len(w.files))
	sum := sha256.New()
	for i, name := range w.files {
		if contents[i], err = readBounded(name); err != nil {
			return false, err
		}
		fmt.Fprintf(sum, "%d ", len(contents[i]))
		sum.Write(contents[i])
	}
	now := [sha256.Size]byte(sum.Sum(nil))
	if now == w.seen {
		return false, nil
	}
	if err := w.take(contents); err != nil {
		return false, err
	}
	w.seen = now
	return true, nil
}

func readBounded(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxWatchedBytes+1))
	if err == nil && len(data) > maxWatchedBytes {
		err = fmt.Errorf("%s has more than %d bytes", name, maxWatchedBytes)
	}
	return data, err
}

// run looks at the files until ctx ends.
func (w *watched) run(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	w.told(log)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		changed, err := w.look()
		switch {
		case err != nil && err.Error() != w.complain:
			w.complain = err.Error()
			log.Error(w.what+" can't be used: what was read before stays in force", "files", w.files, "error", err)
		case err == nil && (changed || w.complain != ""):
			w.complain = ""
			log.Info(w.what+" were read again", "files", w.files)
			w.told(log)
		}
	}
}

func (w *watched) told(log *slog.Logger) {
	if w.tell != nil {
		w.tell(log)
	}
}

// keysFile is a file of access keys.
type keysFile struct {
	watched
	set atomic.Pointer[s3api.KeySet]
}

// openKeys reads a file of access keys.
func openKeys(file string) (*keysFile, error) {
	k := &keysFile{}
	k.watched = watched{what: "the access keys", files: []string{file}, take: func(contents [][]byte) error {
		set, err := s3api.ParseKeys(contents[0])
		if err == nil {
			k.set.Store(&set)
		}
		return err
	}, tell: k.logScopes}
	return k, k.load()
}

// logScopes shows whoever has changed the file what it gives to each key, and no
// secret.
func (k *keysFile) logScopes(log *slog.Logger) {
	set := *k.set.Load()
	for _, id := range slices.Sorted(maps.Keys(set)) {
		access := "read-only"
		if set[id].Write {
			access = "read-write"
		}
		if set[id].AnyBytes {
			access += ", any key bytes"
		}
		log.Info("access key", "key", id, "access", access, "scope", set[id].Scope())
	}
}

// Key implements s3api.Keys.
func (k *keysFile) Key(id string) *s3api.Key { return k.set.Load().Key(id) }

// certificate is a TLS certificate with its key, read again when they change.
type certificate struct {
	watched
	pair atomic.Pointer[tls.Certificate]
}

// openCertificate reads a certificate and its key. While a change of both is half
// done they don't fit, and the old ones stay.
func openCertificate(certFile, keyFile string) (*certificate, error) {
	c := &certificate{}
	c.watched = watched{what: "the certificate and its key", files: []string{certFile, keyFile}, take: func(contents [][]byte) error {
		pair, err := tls.X509KeyPair(contents[0], contents[1])
		if err == nil {
			c.pair.Store(&pair)
		}
		return err
	}}
	return c, c.load()
}

// config serves the certificate that is in force. S3 speaks HTTP/1.1 only, and so
// does this: one set of limits for slow clients is enough.
func (c *certificate) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.pair.Load(), nil },
	}
}
