package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/cmd/internal/daemon"
)

// TestLimits: each is what docs/s3.md, the help or the comment promises. Defaults of flags are in
// docs/flags.md, see TestGoldenReference.
func TestLimits(t *testing.T) {
	r, err := (&serverFlags{Server: "http://127.0.0.1:1"}).connect(7)
	require.NoError(t, err)
	transport := r.http.Transport.(*http.Transport)
	for name, c := range map[string]struct{ got, want any }{
		"load: complaints":               {maxComplaints, 100},
		"load: key":                      {maxKeyBytes, 1024},
		"load: value":                    {maxValueBytes, 65_536},
		"load: pause between lines":      {daemon.LineEvery, 5 * time.Second},
		"ls: parallel":                   {maxParallel, 256},
		"ls: pieces":                     {piecesPerReader, 8},
		"ls: pages ahead":                {pagesAhead, 32},
		"client: answer":                 {maxAnswer, 67_108_864},
		"client: first pause":            {firstPause, 100 * time.Millisecond},
		"client: longest pause":          {maxPause, 30 * time.Second},
		"client: idle connections":       {transport.MaxIdleConnsPerHost, 7},
		"client: all idle connections":   {transport.MaxIdleConns, 7},
		"client: time for a header":      {transport.ResponseHeaderTimeout, time.Minute},
		"client: time of an idle one":    {transport.IdleConnTimeout, time.Minute},
		"serve: start on Cassandra":      {openTimeout, time.Minute},
		"serve: small bodies":            {smallBodyTime, 5 * time.Second},
		"files: other":                   {otherFiles, 64},
		"files: tables":                  {mostTables, 1000},
		"files: least":                   {leastFiles, 256},
		"memory: least for requests":     {leastRequests, 32},
		"memory: most for requests":      {mostRequests, 128},
		"memory: memtables":              {memTablesMiB, 192},
		"memory: other":                  {otherMiB, 152},
		"headers: a byte":                {byteCost, 2},
		"headers: a line":                {lineCost, 160},
		"headers: free":                  {freeCost, 12_288}, // 4 KiB and 25 lines
		"headers: an encrypted byte":     {sealedCost, 16},
		"headers: free of encrypted":     {sealedFree, 6 * 1024 * sealedCost},
		"exit codes: the store":          {daemon.ExitUnusable, 3},
		"exit codes: some lines are bad": {daemon.ExitRefused, 4},
	} {
		require.Equal(t, c.want, c.got, name)
	}
}
