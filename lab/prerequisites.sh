#!/bin/sh
# Installs the packages that the project needs on this machine, and reports what it cannot install. Everything else is in
# the lab's node image.
#   lab/prerequisites.sh               everything, for the lab
#   lab/prerequisites.sh --compiler    only what `make check` and `make unit` need: no Go, no image builder
set -eu

wanted_rust=1.95.0 # as in rust-toolchain.toml
wanted_go=1.21 # from here on Go fetches the newer one that Kubernetes needs by itself

scope=everything
if [ "${1:-}" = --compiler ]; then scope=compiler; fi

say() { printf 'prerequisites: %s\n' "$*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }

# at_least HAVE WANTED: is version HAVE new enough?
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

packages=
need() { # need PROGRAM PACKAGE
  have "$1" || packages="$packages $2"
}

need cc build-essential
need git git
if [ "$scope" = everything ]; then
  need mmdebstrap mmdebstrap
  need go golang-go
  [ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || packages="$packages debian-archive-keyring"
fi
[ -e /etc/ssl/certs/ca-certificates.crt ] || packages="$packages ca-certificates"

if [ -n "$packages" ]; then
  if ! have apt-get; then
    say "missing:$packages; this machine has no apt-get, install them by its own means"
    exit 1
  fi
  if [ "$(id -u)" != 0 ]; then
    say "missing:$packages; run as root: apt-get install$packages"
    exit 1
  fi
  say "installing:$packages"
  log=$(mktemp)
  # shellcheck disable=SC2086 # one word for each package
  if ! { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends $packages; } >"$log" 2>&1; then
    grep -E '^(E|Err)' "$log" >&2 || tail -n 3 "$log" >&2
    say "cannot install:$packages; check the network and apt's sources, then run it again (apt's log: $log)"
    exit 1
  fi
  rm -f "$log"
fi

# Each kubelet, container runtime and cluster component takes some; the kernel's 128 are enough for two clusters.
instances=/proc/sys/fs/inotify/max_user_instances
wanted_instances=1024
if [ "$scope" = everything ] && [ "$(cat $instances)" -lt "$wanted_instances" ]; then
  if (echo "$wanted_instances" >$instances) 2>/dev/null; then
    say "raised fs.inotify.max_user_instances to $wanted_instances until the next boot"
  else
    say "fs.inotify.max_user_instances is $(cat $instances); several labs at once need $wanted_instances: raise it as root"
  fi
fi

if ! have cargo || ! cargo --version >/dev/null 2>&1; then
  # Debian has rustup from 13 on; before that it comes from Rust's own site.
  if ! have rustup && { [ "$(id -u)" != 0 ] || ! have apt-get || ! apt-get install --yes rustup >/dev/null 2>&1; }; then
    say "Rust $wanted_rust is missing and this system has no rustup package; install Rust as its site describes, then run this again"
    exit 1
  fi
  say "installing Rust $wanted_rust with rustup"
  if ! rustup toolchain install "$wanted_rust" --profile default || ! rustup default "$wanted_rust"; then
    say "Rust $wanted_rust is missing and rustup could not fetch it; install it, then run this again"
    exit 1
  fi
fi

rust=$(cargo --version | awk '{print $2}')
if ! at_least "$rust" "$wanted_rust"; then
  say "cargo is $rust, but $wanted_rust is needed; run: rustup toolchain install $wanted_rust"
  exit 1
fi

if [ "$scope" = everything ] && [ -z "${OVNKUBE_LAB_KUBERNETES:-}" ]; then
  go=$(go env GOVERSION | sed 's/^go//')
  if ! at_least "$go" "$wanted_go"; then
    say "go is $go, but $wanted_go is needed to build Kubernetes; install a newer one (Debian: golang-go from backports)," \
      "or set OVNKUBE_LAB_KUBERNETES to a directory with Kubernetes' binaries"
    exit 1
  fi
fi
