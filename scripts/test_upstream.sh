#!/bin/bash
# Applies packaging/upstream to stand-ins for the files of kdump-tools and kdump-utils, and to the files themselves where they are at hand,
# runs them, and looks which program they call: the one that is configured, or makedumpfile.
# /usr/sbin/kdump-config is of the installed package kdump-tools; PAGEHAUL_KDUMP_CONFIG names another one. PAGEHAUL_KDUMP_UTILS is a
# directory with the sources of kdump-utils.
set -euo pipefail
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM HUP

fail() {
    echo "test_upstream: $*" >&2
    exit 1
}

# Programs that write their name, and the dump where they are asked for one.
mkdir "$scratch/bin"
for program in makedumpfile chosen; do
    printf '#!/bin/sh\necho "%s $*" >>"%s/calls"\necho dump\n' $program "$scratch" >"$scratch/bin/$program"
done
# The script calls them.
printf '#!/bin/sh\n' | tee "$scratch/bin/logger" >"$scratch/bin/sync"
chmod +x "$scratch/bin"/*
for kind in action success failure warning; do echo "log_${kind}_msg() { :; }"; done >"$scratch/functions"
echo vmcore >"$scratch/vmcore"

cat >"$scratch/kdump-config" <<'END'
#!/bin/sh
PATH=/bin:/usr/bin:/sbin:/usr/sbin
. /lib/lsb/init-functions
KDUMP_DEFAULTS=/etc/default/kdump-tools
[ -r $KDUMP_DEFAULTS ] && . $KDUMP_DEFAULTS
vmcore_file=/proc/vmcore
[ -x "$(command -v makedumpfile)" ] || exit 1
log_action_msg "running makedumpfile --dump-dmesg"
if makedumpfile --dump-dmesg $vmcore_file "$KDUMP_COREDIR/dmesg" >/dev/null; then
    log_action_msg "running makedumpfile $MAKEDUMP_ARGS $vmcore_file"
    makedumpfile $MAKEDUMP_ARGS $vmcore_file >"$KDUMP_COREDIR/dump"
fi
END

# calls FILE SETTING: runs a kdump-config after a crash, with a setting in /etc/default/kdump-tools. Prints the programs that it calls.
calls() {
    local run=$scratch/run
    rm -rf "$run" "$scratch/calls"
    mkdir "$run" "$run/crash"
    printf 'MAKEDUMP_ARGS="-F -c -d 31"\nKDUMP_COREDIR=%s/crash\n%s\n' "$run" "$2" >"$run/settings"
    sed "s|^PATH=|PATH=$scratch/bin:|; s|/lib/lsb/init-functions|$scratch/functions|; s|^KDUMP_DEFAULTS=.*|KDUMP_DEFAULTS=$run/settings|
        s|^vmcore_file=.*|vmcore_file=$scratch/vmcore|" "$1" >"$run/kdump-config"
    sh "$run/kdump-config" savecore >"$run/said" 2>&1 || { cat "$run/said" >&2; fail "$1 savecore fails"; }
    cut -d ' ' -f 1-2 "$scratch/calls" | sort -u | xargs
}

check_kdump_config() { # check_kdump_config FILE NAME
    sed -E -f packaging/upstream/kdump-tools.sed "$1" >"$scratch/patched"
    ! cmp -s "$1" "$scratch/patched" || fail "nothing changes in $2"
    sh -n "$scratch/patched" || fail "$2 is no shell script any more"
    local before plain chosen
    before=$(calls "$1" '')
    [ "$before" = "makedumpfile --dump-dmesg makedumpfile -F" ] || fail "$2 calls $before"
    plain=$(calls "$scratch/patched" '')
    [ "$plain" = "$before" ] || fail "without the setting, $2 calls $plain"
    chosen=$(calls "$scratch/patched" "MAKEDUMPFILE=$scratch/bin/chosen")
    [ "$chosen" = "chosen --dump-dmesg chosen -F" ] || fail "with the setting, $2 calls $chosen"
    # Those on the network are not run.
    ! grep -vE '^[[:space:]]*#|log_|logger|MAKEDUMPFILE' "$scratch/patched" | grep -E '(^|[[:space:]])makedumpfile[[:space:]]' ||
        fail "$2 still calls makedumpfile by its name"
    echo "ok   kdump-tools.sed: $2 calls the program of the setting"
}

cat >"$scratch/module-setup.sh" <<'END'
install() {
    inst "/bin/dd" "/bin/dd"
    inst "/sbin/makedumpfile" "/sbin/makedumpfile"
}
END

# installs FILE [PROGRAM]: what the initramfs gets as makedumpfile, with `export MAKEDUMPFILE=PROGRAM` in /etc/sysconfig/kdump.
installs() {
    local lines
    lines=$(grep -E '^ *inst .*/sbin/makedumpfile"$' "$1") || fail "$1 installs no makedumpfile"
    env ${2:+MAKEDUMPFILE="$2"} bash -c "inst() { echo \"\$1 as \$2\"; }; $lines"
}

check_module() { # check_module FILE NAME
    sed -E -f packaging/upstream/kdump-utils.sed "$1" >"$scratch/patched"
    ! cmp -s "$1" "$scratch/patched" || fail "nothing changes in $2"
    bash -n "$scratch/patched" || fail "$2 is no shell script any more"
    [ "$(installs "$1")" = "/sbin/makedumpfile as /sbin/makedumpfile" ] || fail "$2 installs $(installs "$1")"
    [ "$(installs "$scratch/patched")" = "$(installs "$1")" ] || fail "without the setting, $2 installs $(installs "$scratch/patched")"
    [ "$(installs "$scratch/patched" /usr/bin/chosen)" = "/usr/bin/chosen as /sbin/makedumpfile" ] ||
        fail "with the setting, $2 installs $(installs "$scratch/patched" /usr/bin/chosen)"
    echo "ok   kdump-utils.sed: $2 installs the program of the setting"
}

check_kdump_config "$scratch/kdump-config" "a stand-in"
file=${PAGEHAUL_KDUMP_CONFIG:-/usr/sbin/kdump-config}
if [ -e "$file" ]; then check_kdump_config "$file" "$file"; else echo "not tested: kdump-config of kdump-tools, which is not installed"; fi
check_module "$scratch/module-setup.sh" "a stand-in"
file=${PAGEHAUL_KDUMP_UTILS:-}/dracut/99kdumpbase/module-setup.sh
[ -n "${PAGEHAUL_KDUMP_UTILS:-}" ] || file=/usr/lib/dracut/modules.d/99kdumpbase/module-setup.sh
if [ -e "$file" ]; then check_module "$file" "$file"; else echo "not tested: module-setup.sh of kdump-utils: PAGEHAUL_KDUMP_UTILS"; fi
