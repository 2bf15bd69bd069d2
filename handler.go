package evenkeel

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"strings"

	"github.com/evenkeel/evenkeel/internal/adminapi"
	"github.com/evenkeel/evenkeel/internal/console"
	"github.com/evenkeel/evenkeel/internal/webguard"
	"github.com/evenkeel/evenkeel/store"
)

// HandlerOptions are the options of DB.Handler. The zero value shows everything and changes nothing.
type HandlerOptions struct {
	// Commands makes the handler take commands, too, and not only show what there is. Commands move ranges, pause and
	// resume moves, read whole buckets to count and to check them, and copy the store to any directory that this
	// process can write. So a client that may send commands must be trusted like the process itself. An Unbalanced DB
	// takes no commands.
	Commands bool
}

// Handler returns an HTTP handler that shows the DB to its operators: the web console below /console/, to which /
// leads, and below /v1/ the JSON API by which the console and the program rebalancer work. The handler may be at / or
// below any path, as by http.StripPrefix:
//
//	http.Handle("/evenkeel/", http.StripPrefix("/evenkeel", db.Handler(evenkeel.HandlerOptions{})))
//
// The handler asks nobody for a password: the caller has to authenticate clients before the requests get here, also if
// the handler only shows things, since names of buckets and keys are data. The handler itself refuses what pages of
// other origins make a browser send, and without Commands all methods but GET and HEAD, with status 403. That does not
// protect a server without authentication: a page can make the name of its own host lead to the server's address (DNS
// rebinding), and is then of the same origin.
//
// The figures of a bucket come from the process that moves its ranges. Other processes of a keyspace, among them those
// whose DB is Unbalanced, answer requests for figures with status 421 and the name of that process; an Unbalanced
// directory answers with 404. Status, maps and the processes are shown by all.
//
// Requests that are under way when the DB is closed are ended; later ones are answered with status 503. Each handler
// has some caches and counts its streams of live events, of which 16 may be open, so a program needs only one. A
// middleware around the handler must let http.ResponseController flush answers, or the console is not live.
func (db *DB) Handler(o HandlerOptions) http.Handler {
	guard, _ := webguard.New(nil, nil) // an error would be about a name of a host
	return &handler{
		db: db, api: adminapi.New(db.engine), pages: console.Handler(), guard: guard,
		commands: o.Commands && db.balanced,
	}
}

// handler is the HTTP handler that DB.Handler returns. It leads to the console's pages and to the admin API.
type handler struct {
	db         *DB
	api, pages http.Handler
	guard      *webguard.Guard
	commands   bool
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	asked, _, _ := strings.Cut(r.RequestURI, "?")
	if p := r.URL.Path; !strings.HasPrefix(p, "/") && (p != "" || strings.HasSuffix(asked, "/")) {
		// StripPrefix was given a prefix that ends with a slash.
		with := *r.URL
		with.Path = "/" + p
		if with.RawPath != "" {
			with.RawPath = "/" + with.RawPath
		}
		r = r.WithContext(r.Context())
		r.URL = &with
	}
	switch p := r.URL.Path; {
	case p == "":
		// StripPrefix was given the whole path. The address of a page is relative to the last part of that path.
		redirect(w, "./"+path.Base(asked)+"/console/")
	case p == "/", p == "/console":
		redirect(w, "./console/")
	case strings.HasPrefix(p, "/console/"):
		h.pages.ServeHTTP(w, r)
	case strings.HasPrefix(p, "/v1/"):
		h.serveAPI(w, r)
	default:
		http.NotFound(w, r)
	}
}

// redirect leads a browser to an address that is relative to that of the request. http.Redirect would make the address
// absolute, without the path below which the handler is.
func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusFound)
}

// serveAPI answers a request to the admin API, as far as the handler may. The request ends when the DB is closed.
func (h *handler) serveAPI(w http.ResponseWriter, r *http.Request) {
	if err := h.guard.CheckAnyOrigin(r); err != nil {
		refuse(w, http.StatusForbidden, store.InvalidArgument, err.Error())
		return
	}
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case h.db.open.Err() != nil:
		refuse(w, http.StatusServiceUnavailable, store.Unavailable, errClosed.Error())
	case r.URL.Path == "/v1/session":
		// Nobody signs in here: whose requests get here may do what the handler does.
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = io.WriteString(w, `{"required":false,"signed_in":true}`+"\n")
	case !reads && !h.commands:
		refuse(w, http.StatusForbidden, store.InvalidArgument,
			"this address only shows what there is; for commands the program has to allow them (HandlerOptions)")
	default:
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(h.db.open, cancel)()
		h.api.ServeHTTP(w, r.WithContext(ctx))
	}
}

// refuse answers a request with a status code and an error, in the form of the errors of the admin API.
func refuse(w http.ResponseWriter, code int, kind store.Kind, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// An error means that the client has gone.
	_ = json.NewEncoder(w).Encode(adminapi.Problem{Error: text, Kind: kind.Error()})
}
