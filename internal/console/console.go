// Package console is the web console of the admin address: pages, styles and scripts that run in the operator's browser
// and show the answers of the JSON API in internal/adminapi. All files of the console are embedded in the program, and
// nothing is loaded from another server.
package console

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

//go:embed assets
var embedded embed.FS

// policy is the Content-Security-Policy header of the console's web pages. The pages may load only files that this
// server serves, and may not have scripts or styles inside the HTML. So if a key or an error message gets into a page
// as markup, the browser runs no script in the markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// types maps the endings of file names, e.g. .css, to content types. The console serves only files with an ending in
// types.
var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

type asset struct {
	kind, tag string
	data      []byte
}

// Handler returns an HTTP handler for the console's web pages, scripts and styles below /console/. The files contain no
// data of the store, so the handler needs no authentication. The pages read data from the JSON API, which checks the
// access.
func Handler() http.Handler {
	assets := map[string]asset{}
	files, err := fs.Sub(embedded, "assets")
	if err == nil {
		err = fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := fs.ReadFile(files, name)
			sum := sha256.Sum256(data)
			tag := `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
			assets[name] = asset{kind: types[path.Ext(name)], tag: tag, data: data}
			return err
		})
	}
	if err != nil {
		panic(err) // embedded files can always be read
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, below := strings.CutPrefix(r.URL.Path, "/console/")
		if name == "" {
			name = "index.html"
		}
		a, there := assets[name]
		if !below || !there || a.kind == "" {
			http.NotFound(w, r)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "the console's files can only be read", http.StatusMethodNotAllowed)
			return
		}
		h := w.Header()
		h.Set("Content-Type", a.kind)
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		// The browser must ask for each file again, so that it does not mix old and new scripts after an upgrade.
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", a.tag)
		if r.Header.Get("If-None-Match") == a.tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = w.Write(a.data) // for HEAD, net/http sends the header only
	})
}
