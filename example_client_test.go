package evenkeel_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/evenkeel/evenkeel"
	"github.com/evenkeel/evenkeel/objects"
	"github.com/evenkeel/evenkeel/objects/fileblobs"
	"github.com/evenkeel/evenkeel/s3api"
)

// Objects of any size, in Go and over S3, in the store of a DB.
func ExampleDB_Client() {
	ctx, dir := context.Background(), temporary()
	defer os.RemoveAll(dir)
	db, err := evenkeel.Open(dir, evenkeel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	blobs, err := fileblobs.Open(filepath.Join(dir, "bodies"))
	if err != nil {
		log.Fatal(err)
	}
	defer blobs.Close()
	o, err := objects.New(db.Client(), blobs, objects.Options{})
	if err != nil {
		log.Fatal(err)
	}
	if err := o.CreateBucket(ctx, "photos"); err != nil {
		log.Fatal(err)
	}
	b, _, err := o.Open(ctx, "photos")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := b.Put(ctx, []byte("2024/a.txt"), strings.NewReader("hello"), objects.Meta{Size: 5}); err != nil {
		log.Fatal(err)
	}

	handler, err := s3api.New(s3api.Over(db.Client()), s3api.Options{Objects: o})
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	answer, err := http.Get(server.URL + "/photos/2024/a.txt")
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	fmt.Println(answer.Status, string(text), err)
	// Output: 200 OK hello <nil>
}
