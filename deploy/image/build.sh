#!/bin/bash
# Builds our static binaries for the image: target/image/{ovnkube,ovn-k8s-cni-overlay}.
#   deploy/image/build.sh              debug build for the lab; reuses the libraries of other debug builds
#   deploy/image/build.sh --release    release build for a registry
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo=${CARGO:-cargo}
directory=target/image
profile=dev
built=target/debug
if [ "${1:-}" = --release ]; then
  profile=release
  built=target/release
fi
mkdir -p "$directory"
# Concurrent builds must not mix their files.
exec 9>"$directory/.lock"
flock --wait 900 9 || { echo "deploy/image/build.sh: another build has held $directory/.lock for 15 minutes" >&2; exit 1; }
# `cargo test` sets variables that build scripts (ring's) depend on; inheriting them would rebuild those crates each time.
mapfile -t inherited < <(compgen -e | grep -E '^CARGO_(PKG|MANIFEST|BIN|CRATE|PRIMARY)' || true)
if [ "${#inherited[@]}" -gt 0 ]; then unset "${inherited[@]}"; fi
# `cargo rustc` applies the flag to the binary only, so that libraries are shared with other builds. A fresh checkout takes
# minutes, so show progress on a terminal, and only errors in a log.
quiet=--quiet
if [ -t 2 ]; then quiet=; fi
"$cargo" rustc ${quiet:+"$quiet"} --locked --package ovnkube --bin ovnkube --profile "$profile" -- -C target-feature=+crt-static 9>&-
install_if_changed() { # install_if_changed FROM NAME
  if [ -e "$directory/$2" ] && [ ! "$1" -nt "$directory/$2" ]; then return; fi
  cp "$1" "$directory/.$2.new"
  strip --strip-debug "$directory/.$2.new"
  mv "$directory/.$2.new" "$directory/$2"
}
install_if_changed "$built/ovnkube" ovnkube
crates/cni-shim/build.sh
install_if_changed target/shim/ovn-k8s-cni-overlay ovn-k8s-cni-overlay
