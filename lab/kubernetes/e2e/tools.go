//go:build tools

// Package e2e keeps what `make conformance` builds in go.mod: the suite, its runner, and the programs of images that
// the specs run. They are not among the module's tools, which every lab with Kubernetes builds.
package e2e

import (
	_ "github.com/onsi/ginkgo/v2/ginkgo"
	_ "k8s.io/kubernetes/test/e2e"
	_ "k8s.io/kubernetes/test/images/nonewprivs"
	_ "k8s.io/kubernetes/test/images/regression-issue-74839"
	_ "k8s.io/sample-apiserver"
)
