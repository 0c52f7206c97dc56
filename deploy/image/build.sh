#!/bin/bash
# Builds what the image of the network holds of ours: target/image/{ovnkube,ovn-k8s-cni-overlay}, both static.
#   deploy/image/build.sh              as the lab wants it: the libraries that are built anyway, linked once more
#   deploy/image/build.sh --release    as a registry wants it
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo=${CARGO:-cargo}
folder=target/image
profile=dev
built=target/debug
if [ "${1:-}" = --release ]; then
  profile=release
  built=target/release
fi
mkdir -p "$folder"
# Several may be building at once: each sees files of one build only.
exec 9>"$folder/.lock"
flock --wait 900 9 || { echo "deploy/image/build.sh: another build holds $folder/.lock for 15 minutes" >&2; exit 1; }
# Started by `cargo test`, this would inherit variables that build scripts depend on (ring's), and build them again each time.
mapfile -t inherited < <(compgen -e | grep -E '^CARGO_(PKG|MANIFEST|BIN|CRATE|PRIMARY)' || true)
if [ "${#inherited[@]}" -gt 0 ]; then unset "${inherited[@]}"; fi
# Only the program itself is compiled for this: its libraries are the ones of every other build.
# For minutes on a fresh checkout, so a terminal sees cargo's progress; a log sees only errors.
quiet=--quiet
if [ -t 2 ]; then quiet=; fi
"$cargo" rustc ${quiet:+"$quiet"} --locked --package ovnkube --bin ovnkube --profile "$profile" -- -C target-feature=+crt-static 9>&-
install_if_changed() { # install_if_changed FROM NAME
  if [ -e "$folder/$2" ] && [ ! "$1" -nt "$folder/$2" ]; then return; fi
  cp "$1" "$folder/.$2.new"
  strip --strip-debug "$folder/.$2.new"
  mv "$folder/.$2.new" "$folder/$2"
}
install_if_changed "$built/ovnkube" ovnkube
crates/cni-shim/build.sh
install_if_changed target/shim/ovn-k8s-cni-overlay ovn-k8s-cni-overlay
