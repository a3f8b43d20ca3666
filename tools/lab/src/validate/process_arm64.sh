#!/bin/busybox sh
# Init of the guest: the tests of `pagehaul core`, then cores for the host, as a tar file on the disk.
/bin/busybox --install -s /bin
export PATH=/bin HOME=/ TMPDIR=/tmp
mkdir -p /proc /sys /dev /tmp
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmpfs /tmp
for module in /modules/*.ko; do [ -e "$module" ] && insmod "$module"; done

cd /tmp
(/test/deps/core --test-threads 1{skipped} 2>&1; echo "status $?") | while read -r line; do
    case $line in
    "status 0") touch passed ;;
    "status "*) ;;
    *) echo "PHLAB test $line" ;;
    esac
done

mkdir cores
for mode in registers vectors; do
    mkfifo hold
    /test/examples/subject 1 2 $mode <hold >"cores/$mode.ready" &
    exec 3>hold
    while ! grep -q ready "cores/$mode.ready"; do sleep 0.1; done
    pid=$(cut -d ' ' -f 2 "cores/$mode.ready")
    for way in stopped snapshot live; do
        options=--$way
        [ $way = stopped ] && options=
        pagehaul core -q $options "$pid" "cores/$mode.$way.zst" || rm -f passed
    done
    echo check >&3
    until grep -q ok "cores/$mode.ready"; do sleep 0.1; done
    exec 3>&-
    wait
    rm hold
done
tar -cf /dev/vda cores || rm -f passed
sync
[ -e passed ] && echo "PHLAB done 0" || echo "PHLAB done 1"
poweroff -f
