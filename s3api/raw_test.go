package s3api_test

import (
	"io"
	"net"
	"strings"

	"github.com/stretchr/testify/require"
)

// raw sends bytes on a connection of its own, ends its sending side, and
// returns everything that came back.
func (s *server) raw(request string) string {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	require.NoError(s.t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, request)
	require.NoError(s.t, err)
	require.NoError(s.t, conn.(*net.TCPConn).CloseWrite())
	answer, err := io.ReadAll(conn)
	require.NoError(s.t, err)
	return string(answer)
}
