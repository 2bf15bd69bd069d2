package rediscounter_test

import (
	"fmt"

	"github.com/evenkeel/evenkeel/counter/rediscounter"
)

// One Redis, or a master that two sentinels watch. Open makes a backend of the options.
func ExampleParseURL() {
	for _, text := range []string{
		"redis://10.0.0.9:6379/3",
		"redis://10.0.0.9:26379,10.0.0.10:26379/0?sentinel=counts",
	} {
		o, err := rediscounter.ParseURL(text)
		fmt.Println(o.Addr, o.DB, o.Sentinel, err)
	}
	// Output:
	// 10.0.0.9:6379 3  <nil>
	// 10.0.0.9:26379,10.0.0.10:26379 0 counts <nil>
}
