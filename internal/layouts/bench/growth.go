package bench

import (
	"fmt"

	"github.com/evenkeel/evenkeel/internal/layouts"
)

// Growth is what it costs a layout when its set has twice as many rows and no
// partition may be larger than before.
type Growth struct {
	Set    string `json:"set"`
	Layout string `json:"layout"`
	// Moved is rows moved per row added; below 0 where no move helps.
	Moved float64 `json:"rows_moved_per_row_added"`
	How   string  `json:"how"`
}

func (g *Growth) moved() string {
	if g.Moved < 0 {
		return "cannot"
	}
	return fmt.Sprintf("%.2f", g.Moved)
}

// growthOfHashing counts the rows that lie elsewhere with twice as many buckets.
func growthOfHashing(keys [][]byte, n int) float64 {
	moved := 0
	for _, k := range keys {
		if layouts.HashBucket(k, n) != layouts.HashBucket(k, 2*n) {
			moved++
		}
	}
	return float64(moved) / (float64(len(keys)) / 2)
}
