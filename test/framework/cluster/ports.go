package cluster

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports are taken from below the range that Linux and macOS hand out to
// outgoing connections, so that a component that was killed finds its port
// still free when it comes back.
const (
	firstPort = 20000
	lastPort  = 31999
	portTries = 200
)

// freePorts returns n different free ports of 127.0.0.1. Another process may still be
// quicker; then Start begins again with others.
func freePorts(n int) ([]int, error) {
	seen := map[int]bool{}
	var ports []int
	for try := 0; len(ports) < n; try++ {
		if try == portTries {
			return nil, fmt.Errorf("find %d free ports between %d and %d: gave up after %d tries", n, firstPort, lastPort, portTries)
		}
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if seen[port] {
			continue
		}
		seen[port] = true
		listener, err := net.Listen("tcp", loopback(port))
		if err != nil {
			continue
		}
		if err := listener.Close(); err != nil {
			return nil, fmt.Errorf("release port %d: %w", port, err)
		}
		ports = append(ports, port)
	}
	return ports, nil
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
