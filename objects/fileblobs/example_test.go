package fileblobs_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	"github.com/evenkeel/evenkeel/objects/fileblobs"
)

// The store of blobs for objects.New. Package objects calls these methods.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "bodies")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	blobs, err := fileblobs.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer blobs.Close()
	if err := blobs.Create(ctx, "photos/a", strings.NewReader("a body"), 6); err != nil {
		log.Fatal(err)
	}
	body, size, err := blobs.Open(ctx, "photos/a", 2, 4)
	if err != nil {
		log.Fatal(err)
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	fmt.Println(string(text), "of", size, "bytes", err)
	// Output: body of 6 bytes <nil>
}
