# Installs or removes pagehaul's package, and crashes. /lab/verb says which. ssh, nfs: installs it and sends the dump to the
# host; measure: installs it, and has the capture kernel run measure.sh; upload: has it run upload.sh.
say() {
    echo "PHLAB $*"
}
# Has kdump-tools send the dump to the host, over a network that the capture kernel configures as well.
to_host() {
    cp -a $settings /lab/settings.local
    cat /lab/target.settings >>$settings
    printf '[Match]\nType=ether\n[Network]\nAddress=10.0.2.15/24\n' >/etc/systemd/network/lab.network
    systemctl -q enable --now systemd-networkd systemd-networkd-wait-online
}
read -r verb </lab/verb
chmod 755 /lab/pagehaul
# Of the crash before.
case $verb in ssh | remove) say report "$(/lab/pagehaul kdump report --json | tr -d '\n')" ;; esac
settings=/etc/default/kdump-tools
if [ -e /lab/settings.local ]; then
    mv /lab/settings.local $settings
    systemctl -q disable --now systemd-networkd
fi
case $verb in
ssh)
    dpkg -i /lab/pagehaul-kdump.deb || say error "dpkg -i failed"
    mkdir -p -m 700 /root/.ssh
    for file in kdump_id_rsa known_hosts config; do
        install -m 600 /lab/$file /root/.ssh/
    done
    to_host
    ssh -i /root/.ssh/kdump_id_rsa "$(. $settings && echo "$SSH")" true || say error "the host does not answer"
    ;;
nfs)
    dpkg -i /lab/pagehaul-kdump.deb || say error "dpkg -i failed"
    # Not configured: the daemons need packages that are not there, mount.nfs does not.
    dpkg --unpack /lab/nfs-common.deb || say error "dpkg --unpack failed"
    cp /lab/nfsmount.conf /etc/
    to_host
    mount -t nfs -o nolock,tcp,soft "$(. $settings && echo "$NFS")" /mnt || say error "the host does not answer"
    umount /mnt
    ;;
measure)
    dpkg -i /lab/pagehaul-kdump.deb || say error "dpkg -i failed"
    chmod 755 /lab/cp.sh
    mkdir -p /etc/systemd/system/kdump-tools-dump.service.d
    printf '[Service]\nExecStart=\nExecStart=/bin/sh /lab/measure.sh\n' \
        >/etc/systemd/system/kdump-tools-dump.service.d/lab.conf
    ;;
upload)
    mkdir -p -m 700 /root/.ssh
    for file in kdump_id_rsa known_hosts config; do
        install -m 600 /lab/$file /root/.ssh/
    done
    mkdir -p /etc/systemd/system/kdump-tools-dump.service.d
    printf '[Service]\nExecStart=\nExecStart=/bin/sh /lab/upload.sh\n' \
        >/etc/systemd/system/kdump-tools-dump.service.d/lab.conf
    # As a time server sets it. The clock of the hardware stays as it is.
    date -s "@$(cat /lab/now)"
    ;;
install) dpkg -i /lab/pagehaul-kdump.deb || say error "dpkg -i failed" ;;
encrypt)
    dpkg -i /lab/pagehaul-kdump.deb || say error "dpkg -i failed"
    install -D -m 644 /lab/recipients /etc/pagehaul/recipients
    ;;
remove)
    dpkg -r pagehaul-kdump || say error "dpkg -r failed"
    # makedumpfile would not heed it, and kdump check says so.
    rm -rf /etc/pagehaul
    ;;
esac
for second in $(seq 900); do
    [ "$(cat /sys/kernel/kexec_crash_loaded)" = 1 ] && break
    sleep 1
done
case $verb in
install)
    sh /lab/snapshot.sh || say error "snapshot.sh failed"
    sh /lab/check.sh
    ;;
encrypt) sh /lab/check.sh encrypted ;;
nfs) sh /lab/check.sh good ;;
esac
say status "$(kdump-config status)"
say version "$(makedumpfile -v | head -n 1)"
# A line for each file that dpkg does not know as it is.
case $verb in measure | upload) ;; *) say verify "$(dpkg --verify makedumpfile kdump-tools | tr '\n' ' ')" ;; esac
say diverted "$(dpkg-divert --list '*makedumpfile*')"
sync
say crash
if [ "$verb" = install ] || [ "$verb" = encrypt ]; then
    /lab/pagehaul kdump test --yes
    say error "kdump test did not crash the guest"
fi
echo 1 >/proc/sys/kernel/sysrq
echo c >/proc/sysrq-trigger
