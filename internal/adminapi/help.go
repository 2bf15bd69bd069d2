package adminapi

// Help holds those help texts of the command-line flags in Flags that are too long for struct tags. A struct tag refers
// to a text by its key in Help, e.g. admin_admin.
var Help = map[string]string{
	"admin_admin": "" +
		"Admin address of listd, or of whoever else moves ranges. Addresses behind a comma are of servers " +
		"that it may hand the command on to: where there is a token, no others are asked.",
	"admin_admin_token": "" +
		"Bearer token that the admin address asks for. Better given in the environment, where ps doesn't show " +
		"it.",
	"admin_admin_ca_file": "" +
		"Certificates (PEM) of the authorities to trust at https:// admin addresses; those of the system " +
		"without it.",
	"admin_admin_cert_file": "Certificate (PEM) to show to admin addresses that ask for one.",
	"admin_admin_key_file":  "Private key (PEM) of --admin-cert-file.",
}
