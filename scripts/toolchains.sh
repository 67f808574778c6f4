#!/usr/bin/env bash
# Install what is missing to build the users of the official Java, Go and Rust clients (tests/clients), and the browser
# of the console's tests (tests/browser).
#
# This happens only as root with apt-get, and only with what the distribution has new enough. What cannot be had
# stops nothing: tests/clients/build.sh says what is missing, and those tests are skipped.
set -euo pipefail

has() { command -v "$1" >/dev/null 2>&1; }
[[ $(id -u) == 0 ]] && has apt-get || exit 0

# offers PACKAGE VERSION: the distribution has the package in this version or a later one.
offers() {
  local version
  version=$(apt-cache policy "$1" | sed -n 's/^ *Candidate: //p')
  [[ -n $version && $version != "(none)" ]] && dpkg --compare-versions "${version#*:}" ge "$2"
}

java=() go=() rust=() browser=()
has javac || java+=(default-jdk-headless)
has mvn || java+=(maven)
has go || go+=(golang-go)
has cargo || rust+=(cargo)
has protoc || rust+=(protobuf-compiler)
has pkg-config || rust+=(pkg-config)
{ has pkg-config && pkg-config --exists openssl; } || rust+=(libssl-dev)
has cc || rust+=(gcc libc6-dev)
has chromium || has google-chrome || browser+=(chromium fonts-dejavu-core)
((${#java[@]} + ${#go[@]} + ${#rust[@]} + ${#browser[@]})) || exit 0

export DEBIAN_FRONTEND=noninteractive
apt-get update -qq || exit 0
has go || offers golang-go 1.24 || go=()
has cargo || offers cargo 1.85 || rust=()
packages=("${java[@]}" "${go[@]}" "${rust[@]}" "${browser[@]}")
((${#packages[@]})) || exit 0
echo "Installing ${packages[*]} …"
apt-get install -qq -y --no-install-recommends "${packages[@]}" >/dev/null ||
  echo "warning: not installed: ${packages[*]}" >&2
