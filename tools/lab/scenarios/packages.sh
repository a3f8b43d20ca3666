# Installs the packages in /test in this Debian tree, runs what they install, and removes them: each .deb, then each .rpm.
set -eu
mkdir -p /var/lib/dpkg/info /var/lib/dpkg/updates /var/lib/dpkg/triggers /var/lib/dpkg/alternatives /var/lib/rpm
touch /var/lib/dpkg/status
# The lab's own.
rm /usr/local/bin/pagehaul
version=$(dpkg-deb -f /test/pagehaul.deb Version)
version=${version%-*}

fail() {
    echo "packages: $*" >&2
    exit 1
}

# Debian's rpm asks for --force-debian, and keeps its database in the home directory by default.
on_rpm() {
    rpm --dbpath /var/lib/rpm "$@"
}

# Lists every path of the tree, except the package managers' records. /test, /tmp and /out are other file systems or stay as they are.
paths() {
    find / -xdev \( -path /var/lib/dpkg -o -path /var/lib/rpm -o -path /var/log \) -prune -o -print | sort
}

check_installed() {
    [ "$(pagehaul --version)" = "pagehaul $version" ] || fail "pagehaul --version does not print $version"
    for file in man/man1/pagehaul.1.gz man/man1/pagehaul-capture.1.gz bash-completion/completions/pagehaul; do
        [ -s /usr/share/$file ] || fail "/usr/share/$file is missing or empty"
    done
    for machine in x86_64 arm64; do
        pagehaul capture -q --force -d 31 /test/$machine /tmp/dump
        /usr/lib/pagehaul/pagehaul-capture capture -q --force -d 31 /test/$machine /tmp/dump.capture
        cmp /tmp/dump /tmp/dump.capture || fail "the two binaries write different dumps"
        cmp /tmp/dump /test/$machine.dump || fail "the x86_64 binary writes another dump of the $machine machine"
        pagehaul info /tmp/dump >/tmp/info
        grep -q '^format *kdump-compressed' /tmp/info || fail "pagehaul info does not read the dump"
        pagehaul verify /tmp/dump >/dev/null || fail "pagehaul verify rejects the dump"
        pagehaul pages /tmp/dump >/tmp/pages
        grep -q slab /tmp/pages || fail "pagehaul pages does not classify the dump's pages"
    done
}

check_fleet_installed() {
    [ "$(pagehaul-fleet --version)" = "pagehaul-fleet $version" ] || fail "pagehaul-fleet --version does not print $version"
    pagehaul-fleet extract /test/arm64 --to /tmp/tables >/tmp/extracted
    grep -q '1 dumps of 1 crashes' /tmp/extracted || fail "pagehaul-fleet extract fails: $(cat /tmp/extracted)"
    pagehaul-fleet report /tmp/tables >/dev/null || fail "pagehaul-fleet report fails"
    rm -r /tmp/tables
}

# With the distribution's makedumpfile in /usr/bin; $1 is pagehaul's.
check_makedumpfile() {
    "$1" -v >/tmp/version
    grep -q "pagehaul $version" /tmp/version || fail "$1 is not pagehaul"
    "$1" -F -c -d 31 /test/arm64 >/tmp/flattened
    "$1" -R /tmp/rearranged </tmp/flattened >/dev/null
    cp "$1" /tmp/pagehaul
    /tmp/pagehaul verify /tmp/rearranged >/dev/null || fail "pagehaul verify rejects what $1 -F and -R write"
    rm /tmp/rearranged
}

check_removed() {
    paths >/tmp/after
    diff /tmp/before /tmp/after || fail "removing the $1 leaves files"
}

printf '#!/bin/sh\necho distribution\n' >/usr/bin/makedumpfile
chmod 755 /usr/bin/makedumpfile
paths >/tmp/before

dpkg -i /test/pagehaul.deb
check_installed
dpkg -P pagehaul
check_removed .deb
echo "ok   pagehaul's .deb installs, runs and uninstalls on $(uname -m)"

on_rpm -i --force-debian /test/pagehaul.rpm
[ "$(on_rpm -q --qf '%{VERSION} %{ARCH}' pagehaul)" = "$version $(uname -m)" ] || fail "rpm -q finds another package"
check_installed
on_rpm -e --force-debian pagehaul
check_removed .rpm
echo "ok   pagehaul's .rpm installs, runs and uninstalls"

dpkg -i /test/pagehaul-kdump.deb
check_makedumpfile /usr/bin/makedumpfile
[ "$(makedumpfile.distrib)" = distribution ] || fail "the distribution's makedumpfile is gone"
dpkg -P pagehaul-kdump
[ "$(makedumpfile)" = distribution ] || fail "removal does not restore makedumpfile"
check_removed "pagehaul-kdump's .deb"
echo "ok   pagehaul-kdump's .deb diverts makedumpfile, captures and restores"

# rpm has no record of a package with /bin/sh, which the scriptlets run.
on_rpm -i --nodeps --force-debian /test/pagehaul-kdump.rpm
[ -x /usr/lib/dracut/modules.d/99pagehaul-kdump/module-setup.sh ] || fail "the .rpm has no dracut module"
check_makedumpfile /usr/lib/pagehaul/makedumpfile
[ "$(makedumpfile)" = distribution ] || fail "the .rpm changes makedumpfile outside of the initramfs"
on_rpm -e --force-debian pagehaul-kdump
check_removed "pagehaul-kdump's .rpm"
echo "ok   pagehaul-kdump's .rpm installs, captures and uninstalls"

dpkg -i /test/pagehaul-fleet.deb
check_fleet_installed
dpkg -P pagehaul-fleet
check_removed "pagehaul-fleet's .deb"
on_rpm -i --force-debian /test/pagehaul-fleet.rpm
check_fleet_installed
on_rpm -e --force-debian pagehaul-fleet
check_removed "pagehaul-fleet's .rpm"
echo "ok   pagehaul-fleet's .deb and .rpm install, make tables and uninstall"

check_core_installed() {
    [ "$(/usr/lib/pagehaul/core-handler --version)" = "pagehaul-core-handler $version" ] || fail "core-handler --version does not print $version"
}

dpkg -i /test/pagehaul-core.deb
check_core_installed
dpkg -P pagehaul-core
check_removed "pagehaul-core's .deb"
on_rpm -i --nodeps --force-debian /test/pagehaul-core.rpm
check_core_installed
on_rpm -e --force-debian pagehaul-core
check_removed "pagehaul-core's .rpm"
echo "ok   pagehaul-core's .deb and .rpm install and uninstall"
