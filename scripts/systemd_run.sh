#!/usr/bin/env bash
# What scripts/systemd-check.sh has done within the Debian that it boots. Its output is /root/out.
exec >/root/out 2>&1
set -euo pipefail
trap 'journalctl --unit penstock --boot --no-pager' ERR
readonly url=http://127.0.0.1:8080 unit=penstock.service
readonly topic=$url/topics/public/default/t

systemctl start "$unit" # returns when the server takes work
[[ $(systemctl show -P ActiveState "$unit") == active ]]
curl -sSf -o /dev/null "$url/health/ready"
pid=$(systemctl show -P MainPID "$unit")
[[ $(stat -c %U "/proc/$pid") != root ]]
echo "ok: ready when systemctl start returns, and not root"

curl -sSf -o /dev/null -d '{"messages": [{"value": "kept"}]}' -H 'content-type: application/json' "$topic"
grep -q '^CapEff:\s*0*$' "/proc/$pid/status"
grep -q '^NoNewPrivs:\s*1$' "/proc/$pid/status"
grep -q '^Seccomp:\s*2$' "/proc/$pid/status"
[[ $(stat -c %a /var/lib/private/penstock/penstock.db) == 600 ]]
echo "ok: no capabilities, system calls are filtered, the storage is its own"

systemctl reload "$unit"
[[ $(systemctl show -P MainPID "$unit") == "$pid" ]]
systemctl restart "$unit"
curl -sSf "$topic/partitions/0/messages" | grep '"value":"kept"'
echo "ok: reload and restart"

/opt/penstock/bin/penstock tokens create-secret-key --output /etc/penstock/secret.key
/opt/penstock/bin/penstock tokens create --secret-key /etc/penstock/secret.key --subject root --expires 1d --output /root/token
install -D -m 0644 /root/auth.conf "/etc/systemd/system/$unit.d/auth.conf"
sed -i 's/127.0.0.1:8080/0.0.0.0:8080/' /etc/penstock/penstock.toml
systemctl daemon-reload
systemctl restart "$unit"
[[ $(curl -s -o /dev/null -w '%{http_code}' "$url/metrics") == 401 ]]
curl -sSf -o /dev/null -H "Authorization: Bearer $(cat /root/token)" "$url/metrics"
echo "ok: a key that root alone reads, by the drop-in"

systemctl stop "$unit"
[[ $(systemctl show -P Result "$unit") == success ]]
journalctl --unit penstock --boot --no-pager | grep -c '"event":"stopped"' | grep -qx 3
echo "ok: it drains when it is stopped"
echo "all is well"
