package attacks

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/e2e/siege"
)

// attacks were seen to take a server down, or to keep others from it.
var attacks = []*attack{
	{name: "a signed header named 12,000 times", run: repeat(4, forged(
		strings.Repeat("x-long;", 8_000)+strings.Repeat("a;", 4_000), "X-Long", strings.Repeat("x", 60<<10)))},
	{name: "a signed header named 3,000 times", run: repeat(4, forged(
		strings.Repeat("x-long;", 1_000)+strings.Repeat("a;", 2_000), "X-Long", strings.Repeat("x", 18<<10)))},
	{name: "idle connections", run: func(ctx context.Context, g *ground) {
		g.Crowd(ctx, 5000, func(ctx context.Context, c *siege.Conn, i int) error {
			if i%2 == 0 {
				if err := c.Do(g.Text(g.key, "GET", "/attacked/k", nil)); err != nil {
					return err
				}
			}
			<-ctx.Done()
			return ctx.Err()
		})
	}},
	{name: "bodies that never come", run: hold(5000, 0, begun("PUT", "/attacked/k", 4096))},
	{name: "bodies that never come, without keys", open: true, run: hold(5000, 0, begun("PUT", "/attacked/k", 4096))},
	{name: "bodies that never come, from many addresses", open: true, many: true,
		run: hold(5000, 0, begun("PUT", "/attacked/k", 4096))},
	{name: "slow headers", run: hold(5000, second, plain("GET /attacked/k HTTP/1.1\r\nHost: h\r\nX: "))},
	{name: "listings that nobody reads", prepare: longKeys,
		run: hold(200, 0, get("/attacked?list-type=2&max-keys=1000&prefix=long"))},
	{name: "documents of empty elements", run: repeat(8, deletion(
		"<Delete>"+strings.Repeat("<a/>", 2_000_000)+"</Delete>"))},
	{name: "large documents, held", run: hold(200, 0, func(g *ground) []byte {
		text := deletion("<Delete>" + strings.Repeat("<Object><Key>k</Key></Object>", 200_000))(g)
		return text[:len(text)-1]
	})},
	{name: "large headers, held", run: hold(2000, 0, with(manyHeaders(30<<10), begun("PUT", "/attacked/k", 4096)))},
	{name: "headers that are too large, held",
		run: hold(500, 0, with(manyHeaders(120<<10), begun("PUT", "/attacked/k", 4096)))},
	{name: "cuts at creation", run: func(ctx context.Context, g *ground) {
		cuts := cutLines(1_000_000)
		g.Crowd(ctx, 4, func(ctx context.Context, c *siege.Conn, i int) error {
			bucket := fmt.Sprintf("/attacked-%d", 4+i)
			return c.Each(g.Text(g.key, "PUT", bucket+"?evenkeel-cuts", cuts),
				g.Text(g.key, "GET", bucket+"?list-type=2", nil),
				g.Text(g.key, "DELETE", bucket, nil))
		})
	}, check: func(t *testing.T, g *ground, s *score) {
		for i := range 4 {
			require.Contains(t, []int{204, 404}, g.remove(t, fmt.Sprintf("/attacked-%d", 4+i)))
		}
	}},
	{name: "large lists of cuts, held", run: func(ctx context.Context, g *ground) {
		cuts := cutLines(7 << 20)
		g.Crowd(ctx, 16, func(ctx context.Context, c *siege.Conn, i int) error {
			err := c.Send(begun("PUT", fmt.Sprintf("/attacked-%d?evenkeel-cuts", i), len(cuts)+2)(g))
			if err == nil {
				err = c.Send(cuts)
			}
			if err == nil {
				<-ctx.Done()
				err = ctx.Err()
			}
			return err
		})
	}},
	{name: "listings of empty ranges, whose clients go", prepare: manyRanges,
		run: abandon(64, get("/attacked-15?list-type=2")),
		check: func(t *testing.T, g *ground, s *score) {
			require.Contains(t, []int{204, 404}, g.remove(t, "/attacked-15"))
		}},
	{name: "guesses of the admin token", token: true, run: func(ctx context.Context, g *ground) {
		admin := g.At(g.Admin)
		const guess = "GET /metrics HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %d\r\n\r\n"
		admin.Crowd(ctx, 16, func(_ context.Context, c *siege.Conn, i int) error {
			return c.Do(fmt.Appendf(nil, guess, admin.Host, rand.Uint64()))
		})
	}, check: func(t *testing.T, g *ground, s *score) {
		require.Positive(t, s.Statuses[401])
		require.Contains(t, g.server.Log.String(), "token", "the log tells of it")
	}},
	{name: "requests to fill the log", run: repeat(4, func(g *ground) []byte {
		long := strings.Repeat("x", 15<<10)
		return g.Head(siege.Key{}, "GET", "/attacked/"+long, "", -1, "User-Agent", long)
	})},
	{name: "keys that are not UTF-8", run: func(ctx context.Context, g *ground) {
		g.Crowd(ctx, 4, func(_ context.Context, c *siege.Conn, i int) error {
			return c.Do(put(fmt.Sprintf("/attacked/%%FF%d", rand.IntN(100)), "x", "x-evenkeel-key-bytes", "any")(g))
		})
	}, check: func(t *testing.T, g *ground, s *score) {
		err := g.Must(t.Context(), g.client, honest, "GET", "/attacked?list-type=2", nil)
		require.NoError(t, err, "others' plain listings")
	}},
	{name: "buckets that are not there", open: true, run: func(ctx context.Context, g *ground) {
		g.Crowd(ctx, 64, func(_ context.Context, c *siege.Conn, i int) error {
			return c.Do(get(fmt.Sprintf("/missing-%d/k", rand.IntN(1000)))(g))
		})
	}},
}
