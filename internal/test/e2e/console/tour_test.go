package console

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/internal/test/child"
	"github.com/evenkeel/evenkeel/internal/test/e2e/harness"
	"github.com/evenkeel/evenkeel/internal/test/seed"
)

func TestMain(m *testing.M) { os.Exit(harness.Run(m, nil)) }

const token = "a-token-of-the-tour"

// pages are all of them.
var pages = []string{"keys?b=photos&last=300", "bucket?b=photos", "moves", "plan?b=photos", "cluster", "buckets"}

// start starts an embedded listd whose ranges have at most a fifteenth of so many keys: splits come soon.
func start(t *testing.T, keys int) (*harness.Programs, *harness.Server) {
	t.Helper()
	p := harness.Build(t)
	return p, p.Serve("--data", filepath.Join(p.Dir, "data"), "--admin-token", token, "--rebalance-interval", "1s",
		"--max-rows", strconv.Itoa(keys/15), "--min-rows", strconv.Itoa(keys/60))
}

// load starts to load lines into a bucket.
func load(t *testing.T, p *harness.Programs, s *harness.Server, bucket string, lines []string, flags ...string) func() {
	t.Helper()
	args := append([]string{"load", bucket, "--server", s.S3, "--progress", "none"}, flags...)
	cmd := p.Command(t.Context(), "listd", args...)
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

// differences are where the picture does not show what the counters say: the colour of each row at the newest time,
// read as a number by the legend's scale, has to be the rows that the counters have for its keys now. The picture lies
// beside a gutter of 148 pixels, above an axis of 24.
const differences = `(async () => {
	const { shade, Scale } = await import('/console/colour.js');
	const { Heat } = await import('/console/picture.js');
	const get = async (path) => (await fetch(path)).json();
	const text = (key) => (typeof key === 'string' ? key : JSON.stringify(key));
	const window = new URLSearchParams(location.hash.split('?')[1]);
	const heat = new Heat(await get('/v1/heat?bucket=photos&width=31&height=240&from=' + window.get('from') +
		'&to=' + window.get('until')));
	const { ranges } = await get('/v1/ranges?bucket=photos&limit=1000');
	const canvas = document.querySelector('.picture canvas');
	const [width, height] = [canvas.clientWidth - 148 - 8, canvas.clientHeight - 24 - 8];
	const { rows, times, newest } = heat;
	const x = 148 + Math.round(width * ((times[newest] + times[newest + 1]) / 2 - times[0]) / (times.at(-1) - times[0]));
	const scale = new Scale(heat.metrics.rows.max);
	const number = new Map(Array.from({ length: 256 }, (_, i) => [shade(i / 255).join(), scale.value(i / 255)]));
	const pen = canvas.getContext('2d');
	const differ = [];
	let compared = 0;
	for (let y = 0; y < rows; y++) {
		const [start, end] = [heat.keys[y], heat.keys[y + 1]].map(text);
		const own = ranges.filter((r) => text(r.start) >= start && (end === '' || text(r.start) < end));
		if (own[0]?.start !== start || text(own.at(-1).end) !== end) continue; // its keys are no ranges now
		compared++;
		const has = own.reduce((sum, r) => sum + r.rows, 0);
		const [r, g, b] = pen.getImageData(x, 8 + Math.round(height * (1 - (y + 0.5) / rows)), 1, 1).data;
		const shown = number.get([r, g, b].join());
		// Two steps of the scale, and what lies below it.
		const near = has > scale.most / 500 ? Math.abs(Math.log(shown / has)) < 0.06 : shown < scale.most / 400;
		if (shown === undefined || !near) {
			differ.push(start + ' … ' + end + ': ' + has + ' rows, shown as ' + [shown, r, g, b]);
		}
	}
	if (compared < rows / 2) differ.push('only ' + compared + ' rows of ' + rows + ' can be compared');
	return differ;
})()`

// split is where the picture has a split, as shares of its width and height.
const split = `(async () => {
	const { Heat } = await import('/console/picture.js');
	const now = Math.ceil(Date.now() / 1000);
	const answer = await fetch('/v1/heat?bucket=photos&width=31&height=240&from=' + (now - 300) + '&to=' + now);
	const heat = new Heat(await answer.json());
	const event = heat.events.find((e) => e.kind === 'split' && e.ended && heat.column(e.ended) > 1);
	const column = heat.column(event.ended);
	const when = (heat.times[column] + heat.times[column + 1]) / 2; // far from other columns
	const canvas = document.querySelector('.picture canvas');
	const [width, height] = [canvas.clientWidth - 148 - 8, canvas.clientHeight - 24 - 8];
	const [first, last] = [heat.times[0], heat.times.at(-1)];
	return [(148 + width * (when - first) / (last - first)) / canvas.clientWidth,
		(8 + height * (1 - (Math.floor(heat.place(event.start)) + 0.5) / heat.rows)) / canvas.clientHeight];
})()`

// TestTour does what an operator does in the first hour, on a load with moves going on.
// EVENKEEL_CONSOLE_KEYS is how many keys are loaded.
func TestTour(t *testing.T) {
	n := harness.Setting(t, "EVENKEEL_CONSOLE_KEYS", 30_000)
	p, s := start(t, n)
	b := NewBrowser(t, Desk)
	b.Dark(false)

	// Signing in, and what a console without a bucket says.
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
	small, hot, appended := tourKeys(t, n/3*2, n/3)
	cuts := filepath.Join(p.Dir, "cuts")
	require.NoError(t, os.WriteFile(cuts, []byte("hot/\nlog/\n"), 0o644))
	load(t, p, s, "photos", small, "--create", "--cuts-file", cuts)()
	hotEnds := load(t, p, s, "photos", hot)
	appendEnds := load(t, p, s, "photos", appended, "--concurrency", "32")
	b.Go(s.Admin + "/console/#/keys?b=photos&last=300")
	b.Click("The same as a table: the 50 rows with the most")
	b.Await(`['hot/', 'log/'].every((p) => ` +
		`[...document.querySelectorAll('td .key')].some((e) => e.innerText.startsWith(p)))`)

	// The hot range is split, and the tail rolled.
	b.Click("Moves")
	for _, kind := range []string{"split", "roll"} {
		b.Await(`[...document.querySelectorAll('td strong')].some((e) => e.innerText === ` + quote(kind) + `)`)
	}
	hotEnds()
	appendEnds()

	// Why nothing is done about a range that waits: behind a roll there are empty ones, at least.
	b.Click("Buckets")
	b.Says("Sizes are looked after by")
	b.Click("photos")
	b.Await(`[...document.querySelectorAll('#why-h ~ .scroll tbody tr')].some((r) => r.innerText.includes('waits') && ` +
		`r.querySelector('td:last-child').innerText.length > 20)`)
	b.Await("document.querySelector('.bars canvas').width > 300")
	b.Click("hot/")
	b.Says("One level up")

	// A pause, and its end.
	b.Click("Pause moves")
	b.Says("Nothing new is split")
	b.Picture("pause")
	b.Click("Cancel")
	b.Click("Moves")
	b.Click("Pause all moves")
	b.Click("Pause")
	b.Says("All moves are paused since")
	b.Picture("moves")
	b.Click("Resume")
	b.Await("!document.body.innerText.includes('All moves are paused since')")

	// Once all has moved and is counted, the picture shows what the counters say.
	from := time.Now().Add(-time.Minute).Unix() // until well after the wait below
	b.Go(fmt.Sprintf("%s/console/#/keys?b=photos&of=rows&from=%d&until=%d", s.Admin, from, from+300))
	b.Await("document.querySelector('.legend .ticks span')")
	var found []string
	for end := time.Now().Add(patience); ; time.Sleep(500 * time.Millisecond) {
		if found = Value[[]string](b, differences); len(found) == 0 || time.Now().After(end) {
			break
		}
	}
	require.Empty(t, found, "the picture does not show what the counters say")
	b.Picture("keys-rows")
	b.Go(s.Admin + "/console/#/keys?b=photos&last=300")
	b.Await("document.querySelector('.legend .ticks span')")
	// The place is that of a picture of this moment. The page's may be of a moment before, and one column to the right.
	for end := time.Now().Add(patience); ; {
		at := Value[[]float64](b, split)
		b.Point(".picture .over", 0.5, 0.5)
		b.Point(".picture .over", at[0], at[1])
		if b.Within(3*time.Second, "document.body.innerText.includes('Happened here')") {
			break
		}
		if time.Now().After(end) {
			b.fail(fmt.Sprintf("the page does not say what happened at a split, at %v", at), context.DeadlineExceeded)
		}
	}
	b.Says("Partition")
	b.Picture("keys")
	b.Dark(true)
	b.Picture("keys-dark")
	b.Dark(false)

	b.Go(s.Admin + "/console/#/bucket?b=photos")
	b.Await("document.querySelector('.bars canvas')")
	b.Picture("bucket")

	// A plan, and carrying it out.
	b.Click("Plan")
	b.Click("Make a plan")
	b.Says("Before and after")
	b.Await("document.querySelector('.strips canvas').width > 300")
	b.Picture("plan")
	b.Click("Apply …")
	b.Says("Clients read and write meanwhile")
	b.Click("Apply")
	b.Says("The plan is carried out")
	b.Click("Moves")
	b.Says("by request")

	b.Click("Cluster")
	b.Says("This process")
	b.Says("the data directory")
	b.Says("Free space")
	b.Picture("cluster")
	keyboard(b, s)
	b.Resize(Phone)
	for _, page := range pages {
		b.Go(s.Admin + "/console/#/" + page)
		b.Await("document.querySelector('section')")
		require.LessOrEqual(t, Value[int64](b, "document.documentElement.scrollWidth"), Phone.Width, "%s is too wide", page)
		b.Picture("phone-" + strings.SplitN(page, "?", 2)[0])
	}
	b.Resize(Desk)
	b.Click("Sign out")
	b.Says("Admin token")
	require.Empty(t, b.Problems())
	for host := range b.Hosts() {
		require.Equal(t, strings.TrimPrefix(s.Admin, "http://"), host, "the console asks nobody else")
	}
}

// keyboard walks through the console without a pointer.
func keyboard(b *Browser, s *harness.Server) {
	b.t.Helper()
	b.Go("about:blank")
	b.Go(s.Admin + "/console/")
	b.Says("looked after by")
	b.Press(kb.Tab)
	b.Await("document.activeElement.innerText === 'Skip to the page'")
	b.Press(kb.Enter)
	b.Await("document.activeElement.id === 'page'")
	b.Tab("e.innerText === 'photos'")
	b.Press(kb.Enter)
	b.Await("document.activeElement.innerText === 'photos' && document.activeElement.tagName === 'H1'")
	b.Says("What waits, and why")
	b.Tab("e.getAttribute('role') === 'application'")
	b.Press(kb.ArrowRight, kb.ArrowRight)
	b.Await("document.querySelector('.bars + p').innerText.includes('hot/')")
	b.Press(kb.Enter)
	b.Await("location.hash.includes('at=')")

	b.Go("about:blank")
	b.Go(s.Admin + "/console/#/keys?b=photos&last=300")
	b.Await("document.querySelector('.legend .ticks span')")
	b.Tab("e.getAttribute('role') === 'application'")
	b.Says("Partition") // of the newest column
	b.Press(kb.ArrowUp, kb.ArrowUp)
	b.Await("document.querySelector('#detail').innerText.includes('hot/')")
	b.Press("+")
	b.Await("location.hash.includes('start=')")
	b.Await("document.activeElement.getAttribute('role') === 'application'")
	b.Press(kb.Escape)
	b.Await("!location.hash.includes('start=')")

	b.Go("about:blank")
	b.Go(s.Admin + "/console/#/moves")
	b.Says("History")
	b.Tab("e.innerText === 'Pause all moves'")
	b.Press(kb.Enter)
	b.Await("document.querySelector('dialog').contains(document.activeElement)")
	b.Press(kb.Escape)
	b.Await("!document.querySelector('dialog') && document.activeElement.innerText === 'Pause all moves'")

	for _, page := range pages {
		b.Go(s.Admin + "/console/#/" + page)
		b.Await("document.querySelector('section')")
		require.Empty(b.t, b.Nameless(), "on %s a screen reader has no name for these", page)
		require.Equal(b.t, []int{1, 1, 1, 1}, Value[[]int](b, "['header', 'nav', 'main', 'h1'].map((e) => "+
			"document.querySelectorAll(e).length)"), page)
	}
}
