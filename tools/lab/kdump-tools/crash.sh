# Installs or removes pagehaul's package, and crashes. /lab/verb says which.
say() {
    echo "PHLAB $*"
}
read -r verb </lab/verb
chmod 755 /lab/pagehaul
# Of the crash before.
[ "$verb" = install ] || say report "$(/lab/pagehaul kdump report --json | tr -d '\n')"
case $verb in
install) dpkg -i /lab/pagehaul-kdump.deb || say error "dpkg -i failed" ;;
remove) dpkg -r pagehaul-kdump || say error "dpkg -r failed" ;;
esac
for second in $(seq 900); do
    [ "$(cat /sys/kernel/kexec_crash_loaded)" = 1 ] && break
    sleep 1
done
[ "$verb" = remove ] || sh /lab/check.sh
say status "$(kdump-config status)"
say version "$(makedumpfile -v | head -n 1)"
# A line for each file that dpkg does not know as it is.
say verify "$(dpkg --verify makedumpfile kdump-tools | tr '\n' ' ')"
say diverted "$(dpkg-divert --list '*makedumpfile*')"
sync
say crash
if [ "$verb" = install ]; then
    /lab/pagehaul kdump test --yes
    say error "kdump test did not crash the guest"
fi
echo 1 >/proc/sys/kernel/sysrq
echo c >/proc/sysrq-trigger
