# A running kernel read through /proc/kcore, with what the kernel itself says beside it.
set -eu
cd /out
uname -r > release
pagehaul info /proc/kcore --json > info.json
pagehaul dmesg /proc/kcore > log
dmesg > log.kernel
banner=0x$(awk '$3 == "linux_banner" { print $1; exit }' /proc/kallsyms)
length=$(wc -c < /proc/version)
pagehaul read /proc/kcore --virt "$banner" --len "$length" --format raw > version
cp /proc/version version.kernel
pagehaul capture -q -d 31 /proc/kcore live.kdump
pagehaul verify live.kdump > verify
pagehaul dmesg live.kdump > log.dump
pagehaul read live.kdump --virt "$banner" --len "$length" --format raw > version.dump
pagehaul info live.kdump --json > dump.json
