package e2e

import (
	"os"
	"testing"

	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Run(m, nil)) }
