package retention_test

import (
	"fmt"
	"log"
	"time"

	"github.com/evenkeel/evenkeel/retention"
)

// A rule for keys with days, such as day/2024-05-31/sensor 7. evenkeel.Options takes such rules.
func Example() {
	rules, err := retention.Parse([]byte(`
rules:
- {bucket: sensors-*, prefix: day/, keep: 720h, time: 2006-01-02}
`))
	if err != nil {
		log.Fatal(err)
	}
	r := &rules[0]
	now := time.Date(2024, 5, 31, 12, 0, 0, 0, time.UTC)
	from, to, some := r.Old(now)
	fmt.Println(r.Applies("sensors-eu"), some)
	fmt.Printf("%q to %q\n", from, to)
	// Output:
	// true true
	// "day/0000-01-01" to "day/2024-05-01"
}
