# Runs when a kernel has booted again after a crash: copies what pstore has, has systemd-pstore move it, copies what that made of it, and
# asks `kdump report` before and after.
set -eu
mount -t pstore pstore /sys/fs/pstore
mkdir -p /var/crash /var/lib/systemd
echo USE_KDUMP=1 >/etc/default/kdump-tools

report() { # report NAME: there is no dump in /var/crash, so its exit status is 1
    code=0
    pagehaul kdump report >"/out/report.$1" 2>&1 || code=$?
    echo $code >"/out/status.$1"
}

cp -r /sys/fs/pstore /out/shown
report shown
/lib/systemd/systemd-pstore
cp -r /var/lib/systemd/pstore /out/kept
ls /sys/fs/pstore >/out/left
report kept
