//go:build tools

// Package suite keeps what `make conformance CONFORMANCE=policy-api` builds in go.mod: the suite, and what only its
// tests import.
package suite

import (
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	_ "sigs.k8s.io/network-policy-api/conformance"
	_ "sigs.k8s.io/network-policy-api/conformance/tests"
)
