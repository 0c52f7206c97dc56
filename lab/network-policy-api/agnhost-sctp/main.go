// Command agnhost-sctp is the agnhost of network-policy-api's conformance suite on kernels without SCTP.
//
// The suite's pods run `agnhost porter`, which exits where the kernel cannot listen on SCTP, and its probes run
// `agnhost connect --protocol=sctp`, which fails there. Policies act on packets, whoever sends them: on such a kernel
// this program serves and probes SCTP ports from user space, over raw sockets. Everything else, and everything on
// other kernels, is left to the upstream program.
package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	upstream   = "/usr/local/bin/agnhost"
	servePort  = "SERVE_SCTP_PORT_"
	firstRetry = time.Second
)

func main() {
	if len(os.Args) > 1 && !kernelHasSCTP() {
		switch os.Args[1] {
		case "porter":
			if ports := sctpPorts(os.Environ()); len(ports) > 0 {
				exitOn(serve(ports))
			}
		case "connect":
			if target, timeout, ok := sctpTarget(os.Args[2:]); ok {
				exitOn(connect(target, timeout))
				return
			}
		}
	}
	exitOn(syscall.Exec(upstream, append([]string{"/agnhost"}, os.Args[1:]...), os.Environ()))
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func kernelHasSCTP() bool {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, protocolNumber)
	if err == nil {
		syscall.Close(socket)
	}
	return err == nil
}

// sctpPorts returns the ports that porter is asked to serve, if it is asked for nothing else.
func sctpPorts(environment []string) map[uint16]bool {
	ports := map[uint16]bool{}
	for _, variable := range environment {
		name, _, _ := strings.Cut(variable, "=")
		if text, found := strings.CutPrefix(name, servePort); found {
			if port, err := strconv.ParseUint(text, 10, 16); err == nil {
				ports[uint16(port)] = true
			}
		}
	}
	return ports
}

// sctpTarget reads the arguments of `agnhost connect`.
func sctpTarget(arguments []string) (target string, timeout time.Duration, ok bool) {
	timeout = time.Minute
	for _, argument := range arguments {
		name, value, _ := strings.Cut(argument, "=")
		switch {
		case name == "--protocol":
			ok = value == "sctp"
		case name == "--timeout":
			if parsed, err := time.ParseDuration(value); err == nil && parsed > 0 {
				timeout = parsed
			}
		case !strings.HasPrefix(argument, "-"):
			target = argument
		}
	}
	return target, timeout, ok && target != ""
}

// serve answers INIT chunks to the given ports, on IPv4 and IPv6, for ever.
func serve(ports map[uint16]bool) error {
	failures := make(chan error)
	for _, network := range []string{"ip4", "ip6"} {
		socket, err := net.ListenIP(fmt.Sprintf("%s:%d", network, protocolNumber), nil)
		if err != nil {
			return fmt.Errorf("cannot listen on raw SCTP over %s: %w", network, err)
		}
		go func() { failures <- answer(socket, ports) }()
	}
	return <-failures
}

func answer(socket *net.IPConn, ports map[uint16]bool) error {
	buffer := make([]byte, 2048)
	for {
		length, peer, err := socket.ReadFromIP(buffer)
		if err != nil {
			return fmt.Errorf("cannot receive SCTP: %w", err)
		}
		received, ok := parse(buffer[:length])
		if !ok || received.chunk != chunkInit || !ports[received.destination] {
			continue
		}
		reply := packet{
			source: received.destination, destination: received.source,
			tag: received.initiateTag, chunk: chunkInitAck, initiateTag: newTag(),
		}
		if _, err := socket.WriteToIP(reply.bytes(), peer); err != nil {
			fmt.Fprintf(os.Stderr, "cannot answer %s: %v\n", peer, err)
		}
	}
}

// connect tries to set up an association; its errors begin with the words that `agnhost connect` uses.
func connect(target string, timeout time.Duration) error {
	host, text, err := net.SplitHostPort(target)
	if err != nil {
		return fmt.Errorf("UNKNOWN: %w", err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return fmt.Errorf("UNKNOWN: %w", err)
	}
	address, err := net.ResolveIPAddr("ip", host)
	if err != nil {
		return fmt.Errorf("DNS: %w", err)
	}
	network := "ip6"
	if address.IP.To4() != nil {
		network = "ip4"
	}
	socket, err := net.DialIP(fmt.Sprintf("%s:%d", network, protocolNumber), nil, address)
	if err != nil {
		return fmt.Errorf("OTHER: %w", err)
	}
	defer socket.Close()
	request := packet{source: ephemeralPort(), destination: uint16(port), chunk: chunkInit, initiateTag: newTag()}
	return associate(socket, request, timeout)
}

func associate(socket *net.IPConn, request packet, timeout time.Duration) error {
	deadline := time.Now().Add(timeout)
	buffer := make([]byte, 2048)
	for retry := firstRetry; time.Now().Before(deadline); retry *= 2 {
		if _, err := socket.Write(request.bytes()); err != nil {
			return explain(err)
		}
		next := time.Now().Add(retry)
		if next.After(deadline) {
			next = deadline
		}
		if err := socket.SetReadDeadline(next); err != nil {
			return fmt.Errorf("OTHER: %w", err)
		}
		for {
			length, _, err := socket.ReadFromIP(buffer)
			if timedOut, ok := err.(net.Error); ok && timedOut.Timeout() {
				break
			}
			if err != nil {
				return explain(err)
			}
			reply, ok := parse(buffer[:length])
			if !ok || reply.source != request.destination || reply.destination != request.source ||
				reply.tag != request.initiateTag {
				continue
			}
			switch reply.chunk {
			case chunkInitAck:
				return nil
			case chunkAbort:
				return fmt.Errorf("REFUSED")
			}
		}
	}
	return fmt.Errorf("TIMEOUT")
}

func explain(err error) error {
	if strings.Contains(err.Error(), "refused") {
		return fmt.Errorf("REFUSED: %w", err)
	}
	return fmt.Errorf("OTHER: %w", err)
}
