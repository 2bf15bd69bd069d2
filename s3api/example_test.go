package s3api_test

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/objects/fileblobs"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// loopback is a Guard: it refuses the pages of other sites, and names that a page may have made up for this machine.
type loopback struct{ http.CrossOriginProtection }

func (*loopback) CheckHost(r *http.Request) error {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	if at, err := netip.ParseAddr(host); err != nil || !at.IsLoopback() {
		return fmt.Errorf("the host %q is no loopback address", host)
	}
	return nil
}

func (l *loopback) CheckOrigin(r *http.Request) error { return l.Check(r) }

// S3 without access keys, for programs on this machine. Here the rows are in memory; a program takes the Client of an
// evenkeel.DB.
func Example() {
	dir, err := os.MkdirTemp("", "bodies")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	client, err := listing.New(memstore.New(), listing.Options{})
	if err != nil {
		log.Fatal(err)
	}
	blobs, err := fileblobs.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer blobs.Close()
	o, err := objects.New(client, blobs, objects.Options{})
	if err != nil {
		log.Fatal(err)
	}

	handler, err := s3api.New(s3api.Over(client), s3api.Options{Objects: o, SoleWriter: true, Guard: &loopback{}})
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(handler) // without an http.ServeMux, which would clean the path
	defer server.Close()

	for _, request := range []struct{ method, path, body string }{
		{http.MethodPut, "/photos", ""},
		{http.MethodPut, "/photos/2024//a.txt", "hello"},
		{http.MethodGet, "/photos/2024//a.txt", ""},
	} {
		r, err := http.NewRequest(request.method, server.URL+request.path, strings.NewReader(request.body))
		if err != nil {
			log.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			log.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		fmt.Println(request.method, request.path, answer.Status, string(body), err)
	}
	// Output:
	// PUT /photos 200 OK  <nil>
	// PUT /photos/2024//a.txt 200 OK  <nil>
	// GET /photos/2024//a.txt 200 OK hello <nil>
}
