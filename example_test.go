package evenkeel_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/evenkeel/evenkeel"
	"github.com/evenkeel/evenkeel/listing"
)

// One process has the directory for itself; sizes are kept in shape from Open to Close.
func ExampleOpen() {
	ctx, dir := context.Background(), temporary()
	defer os.RemoveAll(dir)

	db, err := evenkeel.Open(dir, evenkeel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	err = db.CreateBucket(ctx, "photos")
	photos := db.Bucket("photos")
	err = photos.Put(ctx, []byte("2024/a.jpg"), []byte("…"))
	for item, err := range photos.All(ctx, listing.Query{Prefix: []byte("2024/")}) {
		fmt.Println(string(item.Key), err)
	}
	// Output: 2024/a.jpg <nil>
}

// Any number of processes open a keyspace, which `rebalancer schema apply` has laid out.
func ExampleOpenCassandra() {
	ctx := context.Background()

	db, err := evenkeel.OpenCassandra(ctx, evenkeel.Cassandra{
		Hosts: []string{"10.0.0.1", "10.0.0.2"}, DataCentre: "dc1",
		Counter: "redis://10.0.0.9:6379/0",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	err = db.Bucket("photos").Put(ctx, []byte("2024/a.jpg"), []byte("…"))
	fmt.Println(err)
}

// A program shows its users, or its checks of health, what happens in the background.
func ExampleDB_Status() {
	ctx, dir := context.Background(), temporary()
	defer os.RemoveAll(dir)
	db, err := evenkeel.Open(dir, evenkeel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	s, err := db.Status(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("moves ranges:", s.Leading)
	for _, problem := range s.Problems {
		fmt.Println("look at this:", problem)
	}
	for _, b := range s.Buckets {
		for _, f := range b.Failures {
			fmt.Println(b.Name, "tries again after", f.Text)
		}
	}
	// Output: moves ranges: true
}

// What moves now, with the part that is done.
func ExampleDB_Moves() {
	ctx, dir := context.Background(), temporary()
	defer os.RemoveAll(dir)
	db, err := evenkeel.Open(dir, evenkeel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	moves, err := db.Moves(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range moves {
		fmt.Printf("%s of %s from %q to %q: %s, %d of %d rows, because of %s\n",
			m.Kind, m.Bucket, m.Start, m.End, m.Phase, m.Copied, m.Rows, m.Why)
	}
	fmt.Println(len(moves), "moves")
	// Output: 0 moves
}

// The ranges of a bucket, with what the counters know of their sizes.
func ExampleDB_Sizes() {
	ctx, dir := context.Background(), temporary()
	defer os.RemoveAll(dir)
	db, err := evenkeel.Open(dir, evenkeel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := db.CreateBucket(ctx, "photos", []byte("2024/"), []byte("2025/")); err != nil {
		log.Fatal(err)
	}

	var rows int64
	for size, err := range db.Sizes(ctx, "photos", nil) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%q to %q\n", size.Start, size.End)
		rows += size.Rows
	}
	fmt.Println("about", rows, "rows")
	// Output:
	// "" to "2024/"
	// "2024/" to "2025/"
	// "2025/" to ""
	// about 0 rows
}

// The console is a part of a program's own web server, which knows who may see it.
func ExampleDB_Handler() {
	dir := temporary()
	defer os.RemoveAll(dir)
	db, err := evenkeel.Open(dir, evenkeel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	console := http.StripPrefix("/evenkeel", db.Handler(evenkeel.HandlerOptions{}))
	mux := http.NewServeMux()
	mux.HandleFunc("/evenkeel/", func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "secret" {
			w.Header().Set("WWW-Authenticate", "Basic")
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		console.ServeHTTP(w, r)
	})
	server := httptest.NewServer(mux)
	defer server.Close()

	for _, password := range []string{"", "secret"} {
		r, err := http.NewRequest(http.MethodGet, server.URL+"/evenkeel/console/", nil)
		if err != nil {
			log.Fatal(err)
		}
		r.SetBasicAuth("operator", password)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			log.Fatal(err)
		}
		answer.Body.Close()
		fmt.Println(answer.Status)
	}
	// Output:
	// 401 Unauthorized
	// 200 OK
}

func temporary() string {
	dir, err := os.MkdirTemp("", "evenkeel")
	if err != nil {
		log.Fatal(err)
	}
	return dir
}
