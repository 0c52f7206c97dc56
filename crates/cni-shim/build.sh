#!/bin/bash
# Builds the CNI plugin as it is installed: one small file without libraries, target/shim/ovn-k8s-cni-overlay.
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo=${CARGO:-cargo}
directory=${1:-target/shim}
triple=$(rustc -vV | sed -n 's/^host: //p')
# With --target, RUSTFLAGS apply to the program only, not to build scripts.
RUSTFLAGS="-C target-feature=+crt-static -C relocation-model=static" \
  "$cargo" build --quiet --locked --package cni-shim --profile shim --target "$triple" --target-dir "$directory/build"
# By rename: a concurrent reader sees the old file or the new one, never a part.
cp "$directory/build/$triple/shim/ovn-k8s-cni-overlay" "$directory/.ovn-k8s-cni-overlay.new"
mv "$directory/.ovn-k8s-cni-overlay.new" "$directory/ovn-k8s-cni-overlay"
