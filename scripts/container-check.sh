#!/usr/bin/env bash
# Build deploy/container/Containerfile and run the image, without a registry: its base is a Debian that debootstrap makes
# from the distribution's packages. As root on Debian or Ubuntu (minutes).
#
# scripts/container-check.sh [FOLDER]      what is made stays in FOLDER [build/container]; the base is made once
set -euo pipefail
cd "$(dirname "$0")/.."
readonly folder=${1:-build/container}
readonly suite=trixie image=localhost/penstock base=localhost/debian

if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
  echo "container-check needs root on Debian or Ubuntu (debootstrap, buildah)" >&2
  exit 1
fi
packages=()
for command in debootstrap buildah curl; do
  command -v "$command" >/dev/null || packages+=("$command")
done
command -v ip >/dev/null || packages+=(iproute2)
if ((${#packages[@]})); then
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -qq -y --no-install-recommends "${packages[@]}" >/dev/null
fi

mkdir -p "$folder"
made=$(realpath "$folder")
export BUILDAH_ISOLATION=chroot
buildah() { command buildah --root "$made/images" --runroot "$made/run" "$@"; }

if ! buildah inspect --type image "$base" >/dev/null 2>&1; then
  echo "== a Debian $suite, in place of the image of the container file"
  rm -rf "$made/debian"
  debootstrap --variant=minbase "$suite" "$made/debian" >"$made/debootstrap.log"
  # Where pip here trusts other authorities than Debian's, pip there does too.
  if [[ -n ${PIP_CERT:-} ]]; then
    cp "$PIP_CERT" "$made/debian/etc/pip-authorities.pem"
    printf '[global]\ncert = /etc/pip-authorities.pem\n' >"$made/debian/etc/pip.conf"
  fi
  container=$(buildah from scratch)
  buildah add -q "$container" "$made/debian" / >/dev/null
  buildah commit -q --rm "$container" "$base" >/dev/null
  rm -rf "$made/debian"
fi

echo "== the container file"
buildah bud --quiet --format docker --network host --build-arg "BASE=$base" -f deploy/container/Containerfile -t "$image" . >"$made/build.log" 2>&1 || {
  tail -n 40 "$made/build.log" >&2
  exit 1
}
buildah images "$image"

echo "== a run: no privileges, read-only root, a volume, a network of its own"
container=$(buildah from --pull-never "$image")
trap 'buildah umount "$container" >/dev/null; buildah rm "$container" >/dev/null' EXIT
root=$(buildah mount "$container")
buildah inspect --type image "$image" >"$made/image.json"
unshare --mount --net --pid --fork --kill-child python3 scripts/container_run.py "$root" "$made/image.json"
