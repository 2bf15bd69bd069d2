package s3api

import (
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/sigv4"
	"github.com/evenkeel/evenkeel/store"
)

// TestDefaultsAndLimits: each is what docs/s3.md or the docstring of Options promises.
func TestDefaultsAndLimits(t *testing.T) {
	h, err := New(nil, Options{})
	require.NoError(t, err)
	processors := int64(runtime.GOMAXPROCS(0))
	for name, c := range map[string]struct{ got, want any }{
		"Region":         {h.o.Region, "us-east-1"},
		"MaxBodyBytes":   {h.o.MaxBodyBytes, int64(4096)},
		"MaxCuts":        {h.o.MaxCuts, 10_000},
		"MemoryBytes":    {h.o.MemoryBytes, int64(134_217_728)},
		"MaxRequests":    {h.o.MaxRequests, 1024},
		"RequestTimeout": {h.o.RequestTimeout, 30 * time.Second},
		"BodyTimeout":    {h.o.BodyTimeout, time.Minute},
		"AnswerTimeout":  {h.o.AnswerTimeout, 2 * time.Minute},

		"keys: bytes":                 {maxKeyBytes, 1024},
		"bodies: documents":           {maxConfigurationBytes, 65_536},
		"bodies: cuts":                {maxCutsBytes, 4_194_304},
		"bodies: DeleteObjects":       {maxDeleteBytes, 8_192_000}, // 7.8 MiB
		"bodies: trailers":            {maxTrailerBytes, 8192},
		"bodies: a chunk's line":      {maxChunkLine, 1024},
		"queries: parameters":         {maxParams, 512},
		"metadata: bytes":             {maxMetaBytes, 2048},
		"metadata: another header":    {maxHeaderValue, 1024},
		"metadata: ETags":             {maxETagBytes, 256},
		"DeleteObjects: objects":      {maxDeletes, 1000},
		"DeleteObjects: a tag":        {maxXMLToken, 65_536},
		"DeleteObjects: at once":      {deletesAtOnce, 64},
		"ListBuckets: a page":         {maxBucketsPage, 10_000},
		"ListBuckets: a part":         {bucketsChunk, 262_144},
		"ListBuckets: time of a part": {writeTime, 30 * time.Second},
		"ListBuckets: memory":         {listBucketsMemory, 1_048_576},
		"listings: keys of a page":    {maxPageKeys, 1000},
		"listings: a page's document": {maxPageXML, 1_048_576},
		"listings: empty reads":       {maxIdle, 32},
		"listings: time of a page":    {fillTime, 2 * time.Second},
		"listings: one read":          {readBytes, 524_288},
		"listings: after its client":  {leftTime, time.Second},
		"split points":                {maxSplits, 10_000},
		"split points: memory":        {splitMemory, 2_097_152},
		"split points: memory each":   {splitMemoryEach, 3072},
		"cuts: hours' worth":          {cutsHours, 10},
		"cuts: counted clients":       {mostCounts, 10_000},
		"buffers that are kept":       {keepBuffer, 2_097_152},
		"access keys: id":             {maxKeyID, 128},
		"access keys: least secret":   {minSecret, 16},
		"access keys: largest secret": {maxSecret, 256},
		"Retry-After":                 {retryAfter, 1},
		"Retry-After: deleted data":   {fromStore(store.Errorf(store.TooMuchDeadData, ""), false).RetryAfter, 60},
		"signatures: skew":            {sigv4.MaxSkew, 15 * time.Minute},
		"signatures: expiry":          {sigv4.MaxExpires, 168 * time.Hour},
		"signatures: headers":         {sigv4.MaxSignedHeaders, 512},

		"memory: least":              {minMemory, 16_777_216},
		"memory: a small request":    {smallBytes, 65_536},
		"memory: not counted":        {freeBytes, 4096},
		"memory: wait":               {memoryWait, time.Second},
		"memory: of small requests":  {h.requests.small, int64(33_554_432)},
		"memory: of others":          {h.requests.large, int64(100_663_296)},
		"memory: of others, one's":   {h.requests.ownLarge, int64(75_497_472)},
		"memory: a page":             {pageMemory(1000), int64(3_670_016)},
		"memory: a short page":       {pageMemory(40), int64(671_744)},
		"memory: a page of a key":    {pageMemory(1), int64(524_288)},
		"memory: cuts":               {forCuts(1000), int64(1_052_576)},
		"memory: deletes":            {forDeletes(1000), int64(264_000)},
		"memory: most deletes":       {forDeletes(8_192_000), int64(15_616_000)},
		"memory: parts":              {forParts(1000), int64(5000)},
		"memory: documents":          {asDocument(1000), int64(24_000)},
		"transfers: slack":           {slackTime, 10 * time.Second},
		"slots":                      {h.requests.most, 1024},
		"turns: over Cassandra":      {h.o.turns(), 16 * processors},
		"turns: embedded":            {(&Options{SoleWriter: true}).turns(), 2 * processors},
		"turns: of 8, one's":         {newRequests(1, minMemory, 8).ownTurns, int64(6)},
		"turns: of one, one's":       {newRequests(1, minMemory, 1).ownTurns, int64(1)},
		"time for 1 MiB at 16 KiB/s": {(&Handler{o: Options{MinRate: 16 << 10}}).timeFor(1 << 20), 74 * time.Second},
	} {
		require.Equal(t, c.want, c.got, name)
	}
	_, err = New(nil, Options{RequestTimeout: 1, BodyTimeout: 1, AnswerTimeout: 1, MaxBodyBytes: 1, MaxCuts: 1,
		MaxRequests: 1, MinRate: 1})
	require.NoError(t, err)
	for memory, ok := range map[int64]bool{minMemory: true, minMemory - 1: false} {
		_, err := New(nil, Options{MemoryBytes: memory})
		require.Equal(t, ok, err == nil, "%d bytes", memory)
	}
}

// TestTurnsOfProcessors: each processor has its turns.
func TestTurnsOfProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	require.Equal(t, []int64{48, 6}, []int64{(&Options{}).turns(), (&Options{SoleWriter: true}).turns()})
}

// TestBodiesTakeTheirMemory: a body takes the memory for its announced length, or else for the limit.
func TestBodiesTakeTheirMemory(t *testing.T) {
	h, err := New(nil, Options{})
	require.NoError(t, err)
	for announced, want := range map[int64]int64{0: -1, 1: 1, 5: 5, 200: 100, -1: 100} {
		r := httptest.NewRequest("PUT", "/abc/k", strings.NewReader(""))
		r.ContentLength = announced
		x := &exchange{h: h, w: httptest.NewRecorder(), r: r, held: held{of: h.requests, mine: h.requests.enter(asker{})}}
		got := int64(-1) // it is not asked
		_, _ = h.receive(x, 100, func(n int64) int64 {
			got = n
			return n
		})
		require.Equal(t, want, got, "a body of %d bytes", announced)
		x.release()
	}
}
