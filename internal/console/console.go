// Package console is the web console of the admin address: pages, styles and scripts that run in the
// operator's browser and show what the JSON API of rebalance/adminapi answers. All of it is embedded;
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

// policy lets pages load only what this handler serves, and no script or style in their text: a key or
// an error that reaches a page as markup could do nothing.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// types are those of the files that the console has; what is not here is not served.
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

// Handler serves the console below /console/. Its answers hold no data of the store: who may see that
// is up to the API.
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
		// After an upgrade no browser may mix old scripts with new ones.
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", a.tag)
		if r.Header.Get("If-None-Match") == a.tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = w.Write(a.data) // of a HEAD, the header alone is sent
	})
}
