package adminapi

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/evenkeel/evenkeel/internal/reload"
)

// Flags are the command-line flags that name the admin API of a server, and the token or certificate with which a
// command identifies itself. The struct tags are for the package kong. A command embeds Flags in its own struct.
type Flags struct {
	Admin         []string `default:"http://127.0.0.1:9001" env:"EVENKEEL_ADMIN_URL" sep:"," placeholder:"URL" help:"${admin_admin=}"`
	AdminToken    string   `env:"EVENKEEL_ADMIN_TOKEN" placeholder:"TOKEN" help:"${admin_admin_token=}"`
	AdminCAFile   string   `name:"admin-ca-file" env:"EVENKEEL_ADMIN_CA_FILE" placeholder:"FILE" help:"${admin_admin_ca_file=}"`
	AdminCertFile string   `name:"admin-cert-file" env:"EVENKEEL_ADMIN_CERT_FILE" placeholder:"FILE" help:"${admin_admin_cert_file=}"`
	AdminKeyFile  string   `name:"admin-key-file" env:"EVENKEEL_ADMIN_KEY_FILE" placeholder:"FILE" help:"${admin_admin_key_file=}"`
}

// Client returns a client of the first address that the flag --admin names. If that server sends the client on to
// another server, the client sends its token only to addresses that --admin names, too. Errors name the wrong flag.
func (f *Flags) Client() (*Client, error) {
	if len(f.Admin) == 0 {
		return nil, errors.New("--admin is empty: name the admin address of listd")
	}
	c, err := NewClient(f.Admin[0], f.AdminToken)
	if err != nil {
		return nil, fmt.Errorf("--admin: %w", err)
	}
	for _, more := range f.Admin[1:] {
		server, err := serverOf(more)
		if err != nil {
			return nil, fmt.Errorf("--admin: %w", err)
		}
		c.servers = append(c.servers, server)
	}
	config, err := reload.ClientTLS("--admin", f.AdminCAFile, f.AdminCertFile, f.AdminKeyFile)
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = config
	c.http.Transport = transport
	return c, nil
}

// At returns a client of an address that came from another process or from the store, such as the leader's address. If
// the flags have a token, the flag --admin must name this address. Otherwise At fails, so that the token is not sent to
// an unknown server. The parameter holder is the name of the process at the address, for errors.
func (f *Flags) At(holder, address string) (*Client, error) {
	c, err := f.Client()
	if err != nil {
		return nil, err
	}
	if c.base, err = c.named(holder, address); err != nil {
		return nil, err
	}
	return c, nil
}

// CheckURL checks the value of a flag that names a server. It returns nil if the value is empty, or the address of one
// server, such as http://127.0.0.1:9001. For any other value it returns an error that names the flag.
func CheckURL(flag, address string) error {
	if address == "" {
		return nil
	}
	if _, err := serverOf(address); err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return nil
}

// list joins addresses into one text with commas between them, in the form of the flag --admin. `servers` come first,
// and `more` is the last one.
func list(servers []string, more string) string {
	return strings.Join(append(servers[:len(servers):len(servers)], more), ",")
}
