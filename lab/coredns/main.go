// Command coredns is CoreDNS with the plugins that a cluster's name service needs, and no others: a third of the
// code, and of the time to build it.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
)

func main() {
	// The order in which a question passes the plugins, as CoreDNS's own list has it.
	dnsserver.Directives = []string{
		"reload", "ready", "health", "errors", "log", "cache", "hosts", "kubernetes", "loop", "forward",
	}
	coremain.Run()
}
