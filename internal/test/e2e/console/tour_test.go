package console

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/child"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/seed"
)

func TestMain(m *testing.M) { os.Exit(harness.Run(m, nil)) }

const token = "a-token-of-the-tour"

// start starts an embedded listd with small limits, so that splits come soon.
func start(t *testing.T, flags ...string) (*harness.Programs, *harness.Server) {
	t.Helper()
	p := harness.Build(t)
	return p, p.Serve(append([]string{"--data", filepath.Join(p.Dir, "data"), "--admin-token", token,
		"--max-rows", "20000", "--min-rows", "5000", "--rebalance-interval", "1s"}, flags...)...)
}

// load starts to load lines into a bucket.
func load(t *testing.T, p *harness.Programs, s *harness.Server, bucket string, lines []string, flags ...string) func() {
	t.Helper()
	cmd := p.Command(t.Context(), "listd", append([]string{"load", bucket, "--server", s.S3, "--progress", "none"}, flags...)...)
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	ended, err := child.Start(cmd)
	require.NoError(t, err)
	return func() {
		t.Helper()
		<-ended
		require.True(t, cmd.ProcessState.Success(), out.String())
	}
}

// The keys of the tour: a tenant that is small and stays so, a hot prefix whose keys come in any order, and one that
// appends.
func tourKeys(t *testing.T, hot, appended int) (small, anywhere, ahead []string) {
	r := rand.New(rand.NewPCG(seed.Number(t), 1))
	for i := range 300 {
		small = append(small, fmt.Sprintf("archive/%04d.tar", i))
	}
	for i := range hot {
		anywhere = append(anywhere, fmt.Sprintf("hot/%03d/%06d.jpg", i%1000, i))
	}
	r.Shuffle(len(anywhere), func(i, j int) { anywhere[i], anywhere[j] = anywhere[j], anywhere[i] })
	for i := range appended {
		ahead = append(ahead, fmt.Sprintf("log/2026-11-23/%09d", i))
	}
	return small, anywhere, ahead
}

func signIn(b *Browser, s *harness.Server) {
	b.t.Helper()
	b.Go(s.Admin + "/console/")
	b.Says("Sign in")
	b.Await("document.activeElement.id === 'token'")
	b.Press(token, kb.Enter)
	b.Says("live")
}

// TestTour does what an operator does in the first hour, on a load with moves going on.
func TestTour(t *testing.T) {
	p, s := start(t)
	b := NewBrowser(t, Desk)
	b.Dark(false)

	b.Go(s.Admin + "/console/")
	b.Says("Admin token")
	b.Press("not-the-token-at-all", kb.Enter)
	b.Says("This is not the token of this server")
	require.Len(t, b.Problems(), 1, "the refusal alone")
	b.Picture("sign-in")
	b.Press(token, kb.Enter)
	b.Says("There is no bucket yet")
	b.Says("live")
	b.Click("Key visualizer")
	b.Says("no keys to look at")
	b.Click("Plan")
	b.Says("nothing to plan")

	// A load with a hot prefix and a tenant that appends; both appear.
	small, hot, appended := tourKeys(t, 200_000, 100_000)
	cuts := filepath.Join(p.Dir, "cuts")
	require.NoError(t, os.WriteFile(cuts, []byte("hot/\nlog/\n"), 0o644))
	load(t, p, s, "photos", small, "--create", "--cuts-file", cuts)()
	hotEnds := load(t, p, s, "photos", hot)
	appendEnds := load(t, p, s, "photos", appended, "--concurrency", "32")
	b.Go(s.Admin + "/console/#/keys?b=photos&last=900")
	b.Says("ranges now")
	b.Await("document.querySelector('.picture canvas')")

	// The bucket: bars, what moves, what waits and why not.
	b.Go(s.Admin + "/console/#/buckets")
	b.Click("photos")
	b.Says("What waits, and why")
	b.Says("archive/")
	b.Await("document.querySelector('.bars canvas').width > 0")
	b.Picture("bucket")
	hotEnds()
	appendEnds()

	// The hot range was split, the tail was rolled.
	b.Click("Moves")
	b.Await("[...document.querySelectorAll('td')].some((e) => e.innerText === 'split')")
	b.Await("[...document.querySelectorAll('td')].some((e) => e.innerText === 'roll')")
	b.Picture("moves")

	colours(b, s)
	b.Picture("keys")
	b.Dark(true)
	b.Picture("keys-dark")
	b.Dark(false)

	pauses(b, s)
	plans(b, s)

	b.Click("Cluster")
	b.Says("This process")
	b.Says("the data directory")
	b.Picture("cluster")
	b.Resize(Phone)
	for _, page := range []string{"keys?b=photos&last=900", "bucket?b=photos", "moves"} {
		b.Go(s.Admin + "/console/#/" + page)
		b.Says("photos")
		require.LessOrEqual(t, Value[int](b, "document.documentElement.scrollWidth"), int(Phone.Width), "%s is too wide", page)
		b.Picture("phone-" + strings.SplitN(page, "?", 2)[0])
	}
	b.Resize(Desk)
	b.Click("Sign out")
	b.Says("Admin token")
	require.Empty(t, b.Problems())
	for host := range b.Hosts() {
		require.Equal(t, strings.TrimPrefix(s.Admin, "http://"), host, "the console asks nobody else")
	}
	_ = exec.ErrNotFound
}
