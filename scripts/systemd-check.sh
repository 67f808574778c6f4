#!/usr/bin/env bash
# Start deploy/systemd/penstock.service by a systemd of its own: a Debian that debootstrap makes, booted by systemd-nspawn.
# As root on Debian or Ubuntu (minutes, the first time).
#
# scripts/systemd-check.sh [FOLDER]      the Debian stays in FOLDER [build/systemd]
set -euo pipefail
cd "$(dirname "$0")/.."
readonly folder=${1:-build/systemd} suite=bookworm
readonly root=$folder/debian

if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
  echo "systemd-check needs root on Debian or Ubuntu (debootstrap, systemd-nspawn)" >&2
  exit 1
fi
packages=()
command -v debootstrap >/dev/null || packages+=(debootstrap)
command -v systemd-nspawn >/dev/null || packages+=(systemd-container)
if ((${#packages[@]})); then
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -qq -y --no-install-recommends "${packages[@]}" >/dev/null
fi

mkdir -p "$folder"
if [[ ! -e $folder/made ]]; then
  echo "== a Debian $suite with systemd"
  rm -rf "$root"
  debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,curl,ca-certificates,python3,python3-venv \
    "$suite" "$root" >"$folder/debootstrap.log"
  touch "$folder/made"
fi

echo "== the server in /opt/penstock, and the unit"
rm -rf "$root/src" "$root/opt/penstock" "$root"/etc/{penstock,systemd/system/penstock.service*} "$root/var/lib/private/penstock"
mkdir -p "$root/src"
cp -r src pyproject.toml README.md LICENSE requirements "$root/src/"
cp /etc/resolv.conf "$root/etc/"
# Where pip here trusts other authorities than Debian's, pip there does too.
if [[ -n ${PIP_CERT:-} ]]; then cp "$PIP_CERT" "$root/etc/ssl/certs/ca-certificates.crt"; fi
chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin PIP_CERT=/etc/ssl/certs/ca-certificates.crt sh -euc '
  python3 -m venv /opt/penstock
  /opt/penstock/bin/pip install -q --disable-pip-version-check --require-hashes -r /src/requirements/runtime.txt
  /opt/penstock/bin/pip install -q --disable-pip-version-check /src'
install -D -m 0644 deploy/systemd/penstock.service "$root/etc/systemd/system/penstock.service"
install -D -m 0644 deploy/systemd/penstock.toml "$root/etc/penstock/penstock.toml"
install -m 0644 deploy/systemd/auth.conf "$root/root/auth.conf"
install -m 0755 scripts/systemd_run.sh "$root/root/run.sh"
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
printf '[Unit]\nAfter=dbus.service\n[Service]\nType=oneshot\nExecStart=/root/run.sh\nExecStopPost=/bin/systemctl poweroff -f\n' \
  >"$root/etc/systemd/system/run.service"
ln -sf ../run.service "$root/etc/systemd/system/multi-user.target.wants/run.service"

echo "== a run, in namespaces of its own"
rm -f "$root/root/out"
timeout 300 systemd-nspawn -q --register=no --keep-unit -D "$root" --private-network --boot >"$folder/boot.log" 2>&1 </dev/null || true
grep '^ok:' "$root/root/out" || true
if ! grep -q '^all is well$' "$root/root/out"; then
  cat "$root/root/out" >&2
  exit 1
fi
