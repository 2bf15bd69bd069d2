package keys_test

import (
	"fmt"
	"sort"
	"time"

	"github.com/evenkeel/evenkeel/keys"
)

// Posts by user, the newest first, and a page of those that are older than a time.
func Example() {
	posted := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	var all []string
	for _, user := range []string{"alice", "bob"} {
		for hour := range 3 {
			id := keys.FirstSnowflake(posted.Add(time.Duration(hour) * time.Hour))
			all = append(all, string(keys.Of(keys.String(user), keys.Desc(keys.Int(id)))))
		}
	}
	sort.Strings(all)
	// Where a listing of what alice posted before 13:00 begins.
	older := string(keys.Of(keys.String("alice"), keys.Desc(keys.Int(keys.FirstSnowflake(posted.Add(time.Hour))-1))))
	for _, key := range all {
		r := keys.Read([]byte(key))
		user, at := r.String(), keys.SnowflakeTime(r.Int()).UTC()
		if err := r.End(); err != nil {
			panic(err)
		}
		fmt.Println(user, at.Format(time.TimeOnly), key >= older)
	}
	// Output:
	// alice 14:00:00 false
	// alice 13:00:00 false
	// alice 12:00:00 true
	// bob 14:00:00 true
	// bob 13:00:00 true
	// bob 12:00:00 true
}
