#!/bin/bash
# Builds the CNI plugin as it is installed: one small file without libraries, target/shim/ovn-k8s-cni-overlay.
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo=${CARGO:-cargo}
folder=${1:-target/shim}
triple=$(rustc -vV | sed -n 's/^host: //p')
# With a target named, the flags are for the program alone and not for what the compiler runs.
RUSTFLAGS="-C target-feature=+crt-static -C relocation-model=static" \
  "$cargo" build --quiet --locked --package cni-shim --profile shim --target "$triple" --target-dir "$folder/build"
# Whoever reads it meanwhile sees the old one or the new one whole.
cp "$folder/build/$triple/shim/ovn-k8s-cni-overlay" "$folder/.ovn-k8s-cni-overlay.new"
mv "$folder/.ovn-k8s-cni-overlay.new" "$folder/ovn-k8s-cni-overlay"
