#!/usr/bin/env bash
# Build the programs that use the official Java, Go and Rust clients: `build.sh java|go|rust`.
#
# Everything is built in tests/clients/build/LANGUAGE. Where the toolchain is missing, the file `missing` there
# says what is needed, and the tests of that language are skipped with this line. A build that fails is a failure.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
here=$PWD
language=$1
out=$here/build/$language
mkdir -p "$out"
rm -f "$out/missing"

has() { command -v "$1" >/dev/null 2>&1; }
missing() {
  echo "$1" >"$out/missing"
  echo "skipped: the $language client: $1" >&2
  exit 0
}
# at_least 1.24 1.26.8: the second version is as new as the first.
at_least() { printf '%s\n%s\n' "$1" "$2" | sort -C -V; }

case $language in
java)
  has javac && has mvn || missing "javac (17 or later) and mvn are needed"
  at_least 17 "$(javac -version 2>&1 | sed 's/^javac //')" || missing "javac 17 or later is needed"
  mkdir -p "$out/lib" "$out/classes"
  if ! [[ $out/lib/.done -nt java/pom.xml ]]; then
    rm -f "$out"/lib/*
    mvn -q -B -Dstyle.color=never -f java/pom.xml dependency:copy-dependencies -DoutputDirectory="$out/lib"
    touch "$out/lib/.done"
  fi
  rm -rf "$out/classes"
  javac -nowarn -proc:none -cp "$out/lib/*" -d "$out/classes" java/*.java
  ;;
go)
  has go || missing "go 1.24 or later is needed"
  at_least 1.24 "$(go env GOVERSION | sed 's/^go//')" || missing "go 1.24 or later is needed"
  cd go
  CGO_ENABLED=0 GOFLAGS=-mod=readonly go build -o "$out/client" .
  ;;
rust)
  has cargo && has rustc || missing "cargo 1.85 or later is needed"
  at_least 1.85 "$(rustc --version | cut -d' ' -f2)" || missing "cargo 1.85 or later is needed"
  has protoc || missing "protoc is needed (protobuf-compiler)"
  has pkg-config && pkg-config --exists openssl || missing "pkg-config and OpenSSL's headers are needed (libssl-dev)"
  has cc || missing "a C compiler is needed (gcc)"
  cp rust/Cargo.toml rust/*.rs "$out"
  cd "$out"
  # The locked versions are committed without the address of the registry: cargo itself says which it is.
  if ! cmp -s "$here/rust/versions.lock" versions.lock; then
    rm -f Cargo.lock
    cargo generate-lockfile --quiet
    source_line=$(grep -m1 '^source = ' Cargo.lock)
    sed "s|^source = .*|$source_line|" "$here/rust/versions.lock" >Cargo.lock
    cp "$here/rust/versions.lock" .
  fi
  cargo build --quiet --locked
  ;;
*)
  echo "usage: $0 java|go|rust" >&2
  exit 2
  ;;
esac
