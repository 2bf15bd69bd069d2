package countbook_test

import (
	"testing"

	"github.com/evenkeel/evenkeel/counter"
	"github.com/evenkeel/evenkeel/internal/countbook"
	"github.com/evenkeel/evenkeel/internal/test/countertest"
)

// A Memory does what every Backend has to do. It has no data beside the process, so it stays when it is closed, or
// crashes.
func TestMemory(t *testing.T) {
	countertest.Run(t, func(_ *testing.T, clock *countertest.Clock) *countertest.Env {
		m := countbook.NewMemory(clock.Now)
		return &countertest.Env{
			Open:  func(*testing.T) counter.Backend { return m },
			Crash: func(*testing.T) {},
			Lose:  func(*testing.T) { m = countbook.NewMemory(clock.Now) },

			GoesOn: true,
		}
	})
}
