package adminserver

import "github.com/alecthomas/kong"

// Help holds the help texts of the flags that are too long for a struct tag. A tag refers to a text by the key of the
// text in Help.
var Help = kong.Vars{
	"adminserver_admin_token": "" +
		"Bearer token that requests other than /healthz and /readyz must have, of at least 16 characters. " +
		"Better set in the environment, where ps doesn't show it.",
	"adminserver_admin_https_cert_file": "" +
		"Serve the admin address over TLS with this certificate (PEM, with its chain). It is read again when " +
		"it or its key changes.",
	"adminserver_admin_https_key_file": "Private key (PEM) of --admin-https-cert-file.",
	"adminserver_admin_client_ca_file": "" +
		"Require certificates of these authorities (PEM) from clients of the admin address, for requests " +
		"other than /healthz and /readyz; beside the token, if there is one.",
	"adminserver_allow_host": "" +
		"Names and addresses of this host, beside loopback ones, that requests without authentication may " +
		"use; separated by commas, or * for any: then web pages can command this process by DNS rebinding.",
}
