package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// PicturesVariable is the name of the environment variable with the directory in which pictures of pages are kept.
// Without the variable only failed tests keep pictures, in the system's directory for temporary files.
const PicturesVariable = "EVENKEEL_CONSOLE_PICTURES"

// patience is the time limit for a page to show what a test waits for. It is long, since tests do not measure speed.
const patience = 90 * time.Second

// Browser is a running Chromium with one tab, in which a test uses the console.
type Browser struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex
	problems []string
	hosts    map[string]bool
}

// Size is the size of a browser's window, in CSS pixels.
type Size struct{ Width, Height int64 }

// Desk and Phone are the sizes of the windows of a usual computer and of a usual phone.
var (
	Desk  = Size{1280, 900}
	Phone = Size{390, 844}
)

// NewBrowser starts a browser that ends with the test t. The browser has an empty profile, and sends no requests by
// itself, e.g. for updates.
func NewBrowser(t testing.TB, size Size) *Browser {
	t.Helper()
	ctx, end := chromedp.NewExecAllocator(context.Background(),
		chromedp.NoFirstRun, chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.UserDataDir(t.TempDir()), chromedp.WindowSize(int(size.Width), int(size.Height)),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("no-default-browser-check", true), chromedp.Flag("disable-default-apps", true),
		chromedp.Flag("disable-extensions", true), chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("force-device-scale-factor", "1"), chromedp.Flag("hide-scrollbars", true),
		chromedp.WSURLReadTimeout(patience))
	t.Cleanup(end)
	b := &Browser{t: t, hosts: map[string]bool{}}
	b.ctx, end = chromedp.NewContext(ctx, chromedp.WithListener(b.heard))
	t.Cleanup(end)
	t.Cleanup(func() {
		if t.Failed() {
			b.Picture("failed-" + strings.ReplaceAll(t.Name(), "/", "-"))
		}
		_ = chromedp.Cancel(b.ctx) // it closes the browser and waits for its end
	})
	require.NoError(t, chromedp.Do(b.ctx), "Chromium does not start: scripts/install-tools installs it")
	call(b, log.Enable, cdp.Empty{})
	call(b, network.Enable, network.EnableParams{})
	b.Resize(size)
	return b
}

// heard records an event of the browser if it is a problem that must not occur on any page, such as an exception. It
// also records the hosts to which pages send requests.
func (b *Browser) heard(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, fmt.Sprintf("exception: %s %v", e.ExceptionDetails.Text,
			described(e.ExceptionDetails.Exception)))
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError {
			b.problems = append(b.problems, fmt.Sprintf("console.error: %v", described(e.Args...)))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			b.problems = append(b.problems, fmt.Sprintf("%s: %s (%s)", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	case *network.EventRequestWillBeSent:
		if u, err := url.Parse(e.Request.URL); err == nil && u.Host != "" {
			b.hosts[u.Host] = true
		}
	}
}

// Problems returns the problems that have occurred on pages since the last call: exceptions, errors of the console,
// refusals by the Content-Security-Policy, and failed requests.
func (b *Browser) Problems() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.problems
	b.problems = nil
	return p
}

// Hosts returns the set of the hosts to which pages have sent requests.
func (b *Browser) Hosts() map[string]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hosts
}

// described returns values of the page as texts, for messages about problems.
func described(values ...*runtime.RemoteObject) (texts []string) {
	for _, v := range values {
		if v != nil {
			texts = append(texts, v.Description+string(v.Value))
		}
	}
	return texts
}

// run runs an action in the browser, and returns its result. what is the name of the action. If the action fails, run
// ends the test.
func run[T any](b *Browser, what string, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, action)
	if err != nil {
		b.fail(what, err)
	}
	return v
}

// fail ends the test because the action what has failed with err. The message contains the text of the page.
func (b *Browser) fail(what string, err error) {
	b.t.Helper()
	text, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string]("document.body.innerText"))
	require.NoError(b.t, err, "%s\nthe page says:\n%s\nproblems: %q", what, text, b.Problems())
}

// call sends a command of Chromium's DevTools protocol to the browser, and returns the answer.
func call[P, R any](b *Browser, command cdp.Command[P, R], parameters P) R {
	b.t.Helper()
	return run(b, command.Method, func(ctx context.Context, _ *chromedp.Target) (R, error) {
		return chromedp.Call(ctx, command, parameters)
	})
}

// Resize changes the size of the window. With the size Phone the browser also behaves like that of a phone.
func (b *Browser) Resize(size Size) {
	b.t.Helper()
	scale := 1.0
	if size == Phone {
		scale = 2
	}
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: size.Width, Height: size.Height, DeviceScaleFactor: scale, Mobile: size == Phone,
	})
}

// Dark lets the page use dark colours if dark is true, and light colours otherwise.
func (b *Browser) Dark(dark bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
}

// Go opens the page with the given address.
func (b *Browser) Go(address string) {
	b.t.Helper()
	run(b, "open "+address, chromedp.Navigate(address))
}

// Await waits until a JavaScript expression is true on the page. The value of the expression may be a promise. If the
// expression is still false after 90 s (patience), Await ends the test.
func (b *Browser) Await(expression string) {
	b.t.Helper()
	if !b.Within(patience, expression) {
		b.fail("await "+expression, context.DeadlineExceeded)
	}
}

// Within waits until a JavaScript expression is true on the page, and returns true. If the expression is still false
// after the time most, the result is false.
func (b *Browser) Within(most time.Duration, expression string) bool {
	b.t.Helper()
	for end := time.Now().Add(most); ; time.Sleep(100 * time.Millisecond) {
		if Value[bool](b, "Promise.resolve("+expression+").then((held) => !!held)") {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// Says waits until the page shows the given text.
func (b *Browser) Says(text string) {
	b.t.Helper()
	b.Await("document.body.innerText.includes(" + quote(text) + ")")
}

// Value returns the value of a JavaScript expression on the page. If the value is a promise, Value waits for its
// result.
func Value[T any](b *Browser, expression string) T {
	b.t.Helper()
	return run(b, "value of "+expression, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

// Texts returns the texts of all elements of the page that match the CSS selector.
func (b *Browser) Texts(selector string) []string {
	b.t.Helper()
	return Value[[]string](b, "[...document.querySelectorAll("+quote(selector)+")].map((e) => e.innerText)")
}

// Click waits for a button, link, label or summary with the given text, and clicks on it as a mouse does. If a dialog
// is open, only its elements count.
func (b *Browser) Click(text string) {
	b.t.Helper()
	var at []float64
	for end := time.Now().Add(patience); len(at) == 0; time.Sleep(50 * time.Millisecond) {
		// The element is found and measured in one step, as pages are drawn anew at any time.
		at = Value[[]float64](b, `(() => {
			const dialog = document.querySelector('dialog[open]');
			const e = [...(dialog ?? document).querySelectorAll('button, a, label, summary')].find((e) =>
				e.innerText.trim() === `+quote(text)+`);
			e?.scrollIntoView({ block: 'center' });
			const r = e?.getBoundingClientRect();
			return r ? [r.left + r.width / 2, r.top + r.height / 2] : [];
		})()`)
		if time.Now().After(end) {
			b.fail("click on "+text, context.DeadlineExceeded)
		}
	}
	run(b, "click on "+text, chromedp.MouseClickXY(at[0], at[1]))
}

// Point moves the mouse pointer to a place in the element that matches the selector. across and down give the place as
// shares of the element's width and height, from 0 to 1.
func (b *Browser) Point(selector string, across, down float64) {
	b.t.Helper()
	at := Value[[]float64](b, "((r) => [r.left, r.top, r.width, r.height])(document.querySelector("+quote(selector)+
		").getBoundingClientRect())")
	run(b, "point at "+selector, chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved,
		at[0]+across*at[2], at[1]+down*at[3]))
}

// Nameless returns the roles of those elements of the page that can have the focus but have no name for a screen
// reader.
func (b *Browser) Nameless() (found []string) {
	b.t.Helper()
	for _, n := range call(b, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes {
		if n.Ignored || n.Role == nil {
			continue
		}
		role := string(n.Role.Value)
		focusable := slices.ContainsFunc(n.Properties, func(p *accessibility.Property) bool {
			return p.Name == accessibility.PropertyNameFocusable && string(p.Value.Value) == "true"
		})
		if focusable && role != `"RootWebArea"` && role != `"main"` && (n.Name == nil || len(n.Name.Value) <= len(`""`)) {
			found = append(found, role)
		}
	}
	return found
}

// Press presses keys, one after the other. Each key is a constant of the package chromedp/kb, or a text to type.
func (b *Browser) Press(keys ...string) {
	b.t.Helper()
	for _, k := range keys {
		run(b, fmt.Sprintf("press %q", k), chromedp.KeyEvent(k))
	}
}

// Tab presses the key Tab until a JavaScript expression about the focused element is true. In the expression, e is that
// element. After 200 presses, Tab fails the test.
func (b *Browser) Tab(expression string) {
	b.t.Helper()
	const most = 200
	for range most {
		b.Press(kb.Tab)
		if Value[bool](b, "((e) => !!("+expression+"))(document.activeElement)") {
			return
		}
	}
	require.Fail(b.t, "the keyboard does not lead there", expression)
}

// Picture saves a picture of the window under the given name. If the test has failed, the picture shows the whole page.
func (b *Browser) Picture(name string) {
	b.t.Helper()
	dir := os.Getenv(PicturesVariable)
	if dir == "" && !b.t.Failed() {
		return
	}
	if dir == "" {
		dir = os.TempDir()
	}
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	beyond := b.t.Failed()
	png, err := chromedp.Run(ctx, func(ctx context.Context, _ *chromedp.Target) ([]byte, error) {
		r, err := chromedp.Call(ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{CaptureBeyondViewport: &beyond})
		return r.Data, err
	})
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	file := filepath.Join(dir, name+".png")
	if err == nil {
		err = os.WriteFile(file, png, 0o644)
	}
	b.t.Logf("picture of the page: %s (%v)", file, err)
}

// quote returns a text as a string literal of JavaScript.
func quote(text string) string {
	q, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string can always be written
	}
	return string(q)
}
