//go:build unix

package chaos

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/test/framework/manager"
)

// answering listens and answers every line with its name; it returns its port.
func answering(t *testing.T, name string) int {
	t.Helper()
	var listen net.ListenConfig
	listener, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() }) // Only for the test.
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				lines := bufio.NewScanner(conn)
				for lines.Scan() {
					fmt.Fprintf(conn, "%s: %s\n", name, lines.Text())
				}
				_ = conn.Close() // The other side is gone.
			}()
		}
	}()
	return listener.Addr().(*net.TCPAddr).Port
}

// ask sends a line on a new connection and returns the answer.
func ask(t *testing.T, port int, line string) string {
	t.Helper()
	var dialer net.Dialer
	conn, err := dialer.DialContext(t.Context(), "tcp", loopback(port))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // Only for the test.
	if _, err := io.WriteString(conn, line+"\n"); err != nil {
		return "broken"
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return "broken"
	}
	return answer
}

func TestTheProxyFindsWhoAnswers(t *testing.T) {
	var ports [2]int // Where the proxy listens, and where nobody does.
	for i := range ports {
		port, err := manager.FreePort(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ports[i] = port
	}
	p, err := startProxy(ports[0], []int{ports[1], answering(t, "second")})
	if err != nil {
		t.Fatal(err)
	}
	got := []string{ask(t, ports[0], "one"), ask(t, ports[0], "two")}
	p.setCut(true)
	got = append(got, ask(t, ports[0], "three"))
	p.setCut(false)
	p.slow(Step / 10)
	got = append(got, ask(t, ports[0], "four"))
	want := []string{"second: one\n", "second: two\n", "broken", "second: four\n"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
}
