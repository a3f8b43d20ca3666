# Reads the running kernel through /proc/kcore, and the same facts from the kernel.
set -eu
cd /out
uname -r > release
pagehaul info /proc/kcore --json > info.json
pagehaul dmesg /proc/kcore > log
# As the kernel formats it, with a time on each line of a record. dmesg without -S prints it on the first line only.
dmesg -S > log.kernel
banner=0x$(awk '$3 == "linux_banner" { print $1; exit }' /proc/kallsyms)
length=$(wc -c < /proc/version)
pagehaul read /proc/kcore --virt "$banner" --len "$length" --format raw > version
cp /proc/version version.kernel
# Tasks that exist before and after are in the report.
pids() { ls /proc | grep -E '^[0-9]+$' | sort; }
pids > before
pagehaul triage --live --json --tasks --stacks > triage.json
pids > after
comm -12 before after > pids
# A file of 32 MiB on a tmpfs between two moments.
pagehaul pages --owners --live --json > owners.before
head -c 33554432 /dev/zero > /dev/shm/grows
pagehaul pages --owners --live --json > owners.after
pagehaul pages diff owners.before owners.after --json > grown.json
pagehaul pages --owners --live --interval 1 --count 2 --json > intervals
sed -n 's/^MemTotal: *\([0-9]*\) kB$/\1/p' /proc/meminfo > total
