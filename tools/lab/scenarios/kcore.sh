# A running kernel read through /proc/kcore, with what the kernel itself says beside it.
set -eu
cd /out
uname -r > release
pagehaul info /proc/kcore --json > info.json
pagehaul dmesg /proc/kcore > log
# As the kernel formats it: of records of several lines, each has its time, which dmesg's own way leaves out.
dmesg -S > log.kernel
banner=0x$(awk '$3 == "linux_banner" { print $1; exit }' /proc/kallsyms)
length=$(wc -c < /proc/version)
pagehaul read /proc/kcore --virt "$banner" --len "$length" --format raw > version
cp /proc/version version.kernel
