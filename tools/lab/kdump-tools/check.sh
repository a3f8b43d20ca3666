# Runs `pagehaul kdump check` on this guest as it is, and once for each fault that is injected and mended again. A line says what
# was found: "good" with nothing, "fault" with what is expected, a colon, and what was found. "took" says how many seconds a check took.
# With the argument "good" it injects nothing, with "encrypted" only faults of a file of recipients.
settings=/etc/default/kdump-tools
initrd=/var/lib/kdump/initrd.img-$(uname -r)

# Debian's udev rules load the capture kernel again even where the kernel updates it itself, and the guest has no pstore.
found() {
    /lab/pagehaul kdump check --json "$@" | sed -n 's/^ *"id": "\(.*\)",$/\1/p' | grep -v -x -e needless-reload -e no-pstore | tr '\n' ' '
}

good() {
    echo "PHLAB good $(found)"
}

took() {
    begin=$(date +%s%N)
    /lab/pagehaul kdump check >/dev/null
    end=$(date +%s%N)
    milliseconds=$(((end - begin) / 1000000))
    echo "PHLAB took $(printf '%d.%03d' $((milliseconds / 1000)) $((milliseconds % 1000)))"
}

fault() { # fault FINDINGS: what is injected now leads to them, and to nothing else
    echo "PHLAB fault $1 : $(found)"
}

setting() { # setting FINDINGS LINE: a line of the settings
    cp -a $settings /lab/settings
    echo "$2" >>$settings
    touch -r /lab/settings $settings
    fault "$1"
    mv /lab/settings $settings
}

aside() { # aside FINDINGS FILE: a file that is not there
    mv "$2" "$2.aside"
    fault "$1"
    mv "$2.aside" "$2"
}

# Debian's defaults leave a hang to the operator.
sysctl -q -w kernel.softlockup_panic=1
good
took
[ "${1-}" != good ] || exit 0
if [ "${1-}" = encrypted ]; then
    recipients=/etc/pagehaul/recipients
    echo "PHLAB keys $(/lab/pagehaul kdump check --verbose | grep $recipients)"
    echo age1x >$recipients
    fault unusable-recipients
    cp /lab/recipients $recipients
    mv /usr/bin/makedumpfile /usr/bin/makedumpfile.aside
    cp -a /bin/true /usr/bin/makedumpfile
    # The other program is advice without recipients.
    fault 'not-encrypted not-pagehaul'
    mv /usr/bin/makedumpfile.aside /usr/bin/makedumpfile
    good
    exit 0
fi

kexec -p -u
fault not-loaded
kdump-config load >/dev/null
sysctl -q -w kernel.panic_on_oops=0
fault no-panic-on-oops
sysctl -q -w kernel.panic_on_oops=1
sysctl -q -w kernel.softlockup_panic=0
fault no-panic-on-hang
sysctl -q -w kernel.softlockup_panic=1

setting disabled USE_KDUMP=0
setting refused-option 'MAKEDUMP_ARGS="-c -d 31 --config /etc/erase"'
setting no-compressor KDUMP_COMPRESSION=lzop
setting compressed-twice KDUMP_COMPRESSION=gzip
# Since 6.9 the capture kernel finds the boot CPU itself.
case $(uname -r) in
[45].* | 6.[0-8].*)
    # The capture kernel is not loaded again with the line.
    line='systemd.unit=kdump-tools-dump.service nr_cpus=2'
    setting 'no-disable-cpu-apicid old-command-line' "KDUMP_CMDLINE_APPEND=\"$line\""
    setting 'wrong-disable-cpu-apicid old-command-line' "KDUMP_CMDLINE_APPEND=\"$line disable_cpu_apicid=7\""
    ;;
esac
mkdir -p -m 700 /root/.ssh
echo host ssh-ed25519 AAAA >/root/.ssh/known_hosts
setting no-ssh-key SSH=kdump@host
rm /root/.ssh/known_hosts
printf -- '-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\n' >/root/.ssh/kdump_id_rsa
chmod 600 /root/.ssh/kdump_id_rsa
setting unknown-host SSH=kdump@host
rm -r /root/.ssh
setting no-mount-nfs NFS=host:/export
setting no-kernel KDUMP_KERNEL=/nowhere
setting broken-configuration 'KDUMP_NUM_DUMPS="'
setting no-level 'MAKEDUMP_ARGS="-F -c -d x"'
setting no-fail-command 'KDUMP_FAIL_CMD="rebooot -f"'
systemctl -q mask kdump-tools-dump.service
fault unit-masked
systemctl -q unmask kdump-tools-dump.service
chmod -x /usr/lib/pagehaul/makedumpfile
fault broken-collector
chmod +x /usr/lib/pagehaul/makedumpfile

aside no-kdump $settings
aside no-initramfs "$initrd"
# An initramfs without modules.
mv "$initrd" "$initrd.aside"
mkdir -p /lab/empty
echo '#!/bin/sh' >/lab/empty/init
chmod +x /lab/empty/init
(cd /lab/empty && echo init | cpio --quiet -o -H newc | gzip) >"$initrd"
fault no-driver
mv "$initrd.aside" "$initrd"
aside no-collector /usr/bin/makedumpfile
mv /usr/bin/makedumpfile /usr/bin/makedumpfile.aside
cp -a /bin/true /usr/bin/makedumpfile
fault not-pagehaul
mv /usr/bin/makedumpfile.aside /usr/bin/makedumpfile

setting old-command-line 'KDUMP_CMDLINE_APPEND="reset_devices systemd.unit=kdump-tools-dump.service nr_cpus=1 lab"'
mount -t tmpfs -o size=64k none /var/crash
# A file system of so few bytes, in memory for lack of a disk.
fault 'target-in-memory target-full'
mount -o remount,size=400m /var/crash
setting 'target-in-memory target-small' 'MAKEDUMP_ARGS="-c -d 0"'
umount /var/crash
echo "PHLAB fault slow-target : $(found --disk 900T)"
cp -a /etc/fstab /lab/fstab
# Without nofail, boot would wait for the disk, which is another finding.
echo '/dev/vdb /var/crash ext4 nofail 0 2' >>/etc/fstab
fault target-not-mounted
mv /lab/fstab /etc/fstab

good
