package s3api_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/listing"
	"github.com/evenkeel/evenkeel/s3api"
	"github.com/evenkeel/evenkeel/store/memstore"
)

// slow makes writes begin late, so that others may come between a condition and
// its write if anything lets them.
type slow struct{ inner }

type inner = s3api.Buckets

type slowBucket struct{ s3api.Bucket }

func (s slow) Bucket(name string) s3api.Bucket { return slowBucket{s.inner.Bucket(name)} }

func (b slowBucket) Put(ctx context.Context, key, value []byte) error {
	time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
	return b.Bucket.Put(ctx, key, value)
}

func (b slowBucket) Delete(ctx context.Context, key []byte) error {
	time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
	return b.Bucket.Delete(ctx, key)
}

// objectCall is one request about one object; "" is no object. The ETag of a
// body stands for it.
type objectCall struct {
	kind       string // get, put, create (If-None-Match: *), follow (If-Match), delete, drop (delete If-Match)
	body, seen string // what is written, and what the condition names
}

// objectModel is one object as S3 has it, with exact conditions.
var objectModel = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		now, in, out := state.(string), input.(objectCall), output.(string)
		status := "200"
		next := in.body
		switch in.kind {
		case "get":
			return out == now, state
		case "create":
			if now != "" {
				status = "412"
			}
		case "follow", "drop":
			switch now {
			case "":
				status = "404"
			case in.seen:
			default:
				status = "412"
			}
		}
		if status != "200" {
			next = now
		}
		return out == status, next
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%v -> %v", input, output) },
}

// TestConditionsAreLinearizable: what clients saw of a few objects, with and
// without conditions, can have happened one request after the other.
func TestConditionsAreLinearizable(t *testing.T) {
	t.Logf("seed: -seed=%d", *seed)
	st := memstore.New()
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	c, err := listing.NewEmbedded(st, listing.Options{})
	require.NoError(t, err)
	s := serve(t, slow{s3api.Over(c)}, s3api.Options{SoleWriter: true})
	s.want(200, "", "PUT", "/abc", "")
	for round := range 12 {
		uri := fmt.Sprintf("/abc/k%d", round)
		var mu sync.Mutex
		var history []porcupine.Operation
		var wg sync.WaitGroup
		begun := time.Now()
		for client := range 6 {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(*seed, uint64(round*100+client)))
				seen, etag := "", "none"
				for i := range 25 {
					in := objectCall{kind: []string{"get", "get", "put", "create", "follow", "follow", "delete", "drop"}[rnd.IntN(8)], seen: seen}
					method, body, headers := "PUT", "", []string(nil)
					switch in.kind {
					case "get":
						method = "GET"
					case "create":
						headers = []string{"If-None-Match", "*"}
					case "follow":
						headers = []string{"If-Match", etag}
					case "delete":
						method = "DELETE"
					case "drop":
						method, headers = "DELETE", []string{"If-Match", etag}
					}
					if method == "PUT" {
						body = fmt.Sprintf("%d/%d", client, i)
						in.body = body
					}
					called := time.Since(begun)
					a := s.do(method, uri, body, headers...)
					returned := time.Since(begun)
					out := fmt.Sprint(a.status)
					switch {
					case in.kind == "get" && a.status == 404:
						out, seen, etag = "", "nothing", "none"
					case in.kind == "get":
						out, seen, etag = a.body, a.body, a.header.Get("ETag")
					case a.status == 204:
						out = "200"
					}
					mu.Lock()
					history = append(history, porcupine.Operation{ClientId: client, Input: in, Output: out, Call: int64(called), Return: int64(returned)})
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		var told strings.Builder
		for _, o := range history {
			fmt.Fprintln(&told, o.ClientId, o.Call, o.Return, objectModel.DescribeOperation(o.Input, o.Output))
		}
		require.Equal(t, porcupine.Ok, porcupine.CheckOperationsTimeout(objectModel, history, time.Minute), "round %d:\n%s", round, told.String())
	}
}
