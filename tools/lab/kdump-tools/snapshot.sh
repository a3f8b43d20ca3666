# Copies the files that `pagehaul kdump check` reads, with their modes and times, into a tar. Devices are empty files, kernels are cut.
# Usage: snapshot.sh [ROOT [OUT]]: ROOT is the directory of another system than this, OUT.tar (/lab/tree.tar) the result.
root=${1-}
out=${2-/lab/tree}
rm -rf "$out" "$out.tar"
mkdir -p "$out"

above() { # above PATH: makes the directory that it is in
    mkdir -p "$out${1%/*}"
}
keep() { # keep PATH...: files, links and directories as they are
    for path; do
        [ -e "$root$path" ] || [ -L "$root$path" ] || continue
        above "$path"
        cp -a "$root$path" "$out${path%/*}/"
    done
}
text() { # text PATH...: what is in files of the kernel, which have no size
    for path; do
        [ -f "$root$path" ] || continue
        above "$path"
        cat "$root$path" >"$out$path" 2>/dev/null || rm -f "$out$path"
    done
}
follow() { # follow PATH: a file, and all links that lead to it
    path=$1
    for link in 1 2 3 4 5; do
        keep "$path"
        [ -L "$root$path" ] || return 0
        target=$(readlink "$root$path")
        case $target in
        /*) path=$target ;;
        *) path=${path%/*}/$target ;;
        esac
    done
}
within() { # within GLOB: paths of the system that it matches
    for found in $root$1; do
        if [ -e "$found" ] || [ -L "$found" ]; then echo "${found#"$root"}"; fi
    done
}

mkdir -p "$out/usr/bin" "$out/usr/sbin" "$out/usr/lib" "$out/usr/lib64"
keep /bin /sbin /lib /lib64 2>/dev/null

text /proc/cmdline /proc/meminfo /proc/cpuinfo /proc/iomem /proc/self/mountinfo /proc/stat /proc/devices /proc/modules /proc/zoneinfo
for name in osrelease hostname panic_on_oops hung_task_panic softlockup_panic kexec_load_disabled; do
    text /proc/sys/kernel/$name
done

mkdir -p "$out/sys/module"
text /sys/kernel/kexec_crash_size /sys/kernel/kexec_crash_loaded /sys/kernel/kexec/crash_size /sys/kernel/kexec/crash_loaded \
    /sys/kernel/security/lockdown /sys/kernel/config/crash_dm_crypt_keys/count \
    /sys/devices/system/cpu/online /sys/devices/system/cpu/crash_hotplug /sys/devices/system/memory/crash_hotplug \
    /sys/module/pstore/parameters/backend /sys/module/efi_pstore/parameters/pstore_disable \
    /sys/module/kernel/parameters/crash_kexec_post_notifiers
[ ! -d "$root/sys/firmware/efi" ] || mkdir -p "$out/sys/firmware/efi"
text $(within '/sys/firmware/efi/efivars/SecureBoot-*') $(within '/sys/bus/nd/devices/*/mode') \
    $(within '/sys/bus/dax/devices/*/memmap_on_memory')
# The disks, what they are made of, and the drivers of all that they are connected through.
for block in $(within '/sys/dev/block/*'); do
    keep "$block"
    directory=$(readlink -f "$root$block")
    directory=${directory#"$root"}
    mkdir -p "$out$directory"
    text "$directory/dm/uuid" "$directory/dm/name"
    keep $(within "$directory/slaves/*")
    while [ "${directory#/sys/devices/}" != "$directory" ]; do
        if [ -L "$root$directory/driver" ]; then
            keep "$directory/driver"
            driver=$(readlink -f "$root$directory/driver")
            driver=${driver#"$root"}
            mkdir -p "$out$driver"
            if [ -L "$root$driver/module" ]; then
                keep "$driver/module"
                module=$(readlink -f "$root$driver/module")
                mkdir -p "$out${module#"$root"}"
            fi
        fi
        directory=${directory%/*}
    done
done
keep $(within '/sys/class/block/*')
mkdir -p "$out/dev"
for block in $(within '/sys/class/block/*'); do
    : >"$out/dev/${block##*/}"
done
keep $(within '/dev/disk/by-*/*') $(within '/dev/mapper/*-*')

keep /etc/fstab /etc/crypttab /etc/default/kdump-tools /etc/default/grub /etc/default/grub.d /etc/kdump.conf /etc/sysconfig/kdump \
    /etc/sysctl.conf /etc/sysctl.d /usr/lib/sysctl.d /usr/local/lib/sysctl.d /run/sysctl.d /etc/pagehaul /etc/ssh/ssh_known_hosts \
    /root/.ssh/known_hosts /usr/lib/dracut/modules.d/99pagehaul-kdump /etc/machine-id /usr/lib/kdump/kdump-lib-initramfs.sh
# Programs that /etc/kdump.conf names, and the version of kdump-tools.
if [ -f "$root/etc/kdump.conf" ]; then
    options='kdump_post|kdump_pre|kdump_emergency|extra_bins'
    for program in $(sed -nE "s/^[[:blank:]]*($options)[[:blank:]]+([^#]*).*/\2/p" "$root/etc/kdump.conf"); do
        follow "$program"
    done
fi
if [ -f "$root/var/lib/dpkg/status" ]; then
    above /var/lib/dpkg/status
    sed -n '/^Package: kdump-tools$/,/^$/p' "$root/var/lib/dpkg/status" >"$out/var/lib/dpkg/status"
fi
for directory in /etc/systemd/system /run/systemd/system /usr/local/lib/systemd/system /usr/lib/systemd/system; do
    [ -d "$root$directory" ] || continue
    mkdir -p "$out$directory"
    keep $(within "$directory/kdump*") $(within "$directory/*.target") $(within "$directory/*.wants/kdump*") \
        $(within "$directory/*.requires/kdump*")
    # What the units start.
    for unit in $(within "$directory/kdump*.service"); do
        [ -f "$root$unit" ] || continue
        follow "$(sed -n 's/^ExecStart=[-@:+!|]*\([^ ]*\).*/\1/p' "$root$unit" | head -n 1)"
    done
done
for directory in /etc/udev/rules.d /run/udev/rules.d /usr/lib/udev/rules.d; do
    keep $(within "$directory/*kdump*.rules") $(within "$directory/*kexec*.rules")
done

keep $(within '/boot/config-*') $(within '/boot/grub*/grub.cfg') /boot/grub2/grubenv /boot/loader/entries
for kernel in $(within '/boot/vmlinu*-*'); do
    above "$kernel"
    head -c 65536 "$root$kernel" >"$out$kernel"
    # What is cut has the length that its header says.
    truncate -s "$(wc -c <"$root$kernel")" "$out$kernel"
    touch -r "$root$kernel" "$out$kernel"
done
mkdir -p "$out/var/lib/kdump"
for image in $(within '/var/lib/kdump/*') $(within '/boot/initramfs-*kdump.img'); do
    if [ -L "$root$image" ] || [ -n "$(find "$root$image" -prune -type f -size -65536k)" ]; then keep "$image"; fi
done
if [ -d "$root/var/crash" ]; then
    mkdir -p "$out/var/crash"
    keep /var/crash/kexec_cmd
fi

for program in kexec makedumpfile mkinitramfs dracut ssh mount.nfs reboot gzip bzip2 lz4 xz; do
    for directory in /usr/bin /usr/sbin /bin /sbin; do
        if [ -e "$root$directory/$program" ] || [ -L "$root$directory/$program" ]; then
            follow $directory/$program
            break
        fi
    done
done
tar -C "$out" -cf "$out.tar" .
rm -rf "$out"
