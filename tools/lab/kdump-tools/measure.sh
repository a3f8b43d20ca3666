# Takes the place of kdump-tools' start in the capture kernel: has kdump-config save the vmcore once for each line of /lab/cases
# (program, bytes per second that the disk takes, makedumpfile's options), and says what each took.
exec >/dev/ttyS0 2>&1
settings=/etc/default/kdump-tools

say() {
    echo "PHLAB $*"
}

# Sets `now`, in hundredths of a second since the boot.
clock() {
    read -r now _ </proc/uptime
    now=${now%.*}${now#*.}
}

# Adds up what reclaim did since the boot, with a sign: allocations that stalled, pages scanned, pages written back.
count() {
    while read -r name value; do
        case $name in
        allocstall_*) stalls=$((stalls $1 value)) ;;
        pgscan_direct | pgscan_kswapd) scans=$((scans $1 value)) ;;
        nr_vmscan_write) writes=$((writes $1 value)) ;;
        esac
    done </proc/vmstat
}

# Keeps the least MemAvailable and the most anonymous memory of makedumpfile, in KiB, in a file.
sample() {
    least=999999999 most=0
    while :; do
        while read -r name value _; do
            [ "$name" != MemAvailable: ] || [ "$value" -ge $least ] || least=$value
        done </proc/meminfo
        for status in /proc/[0-9]*/status; do
            read -r _ name <"$status" && [ "$name" = makedumpfile ] || continue
            while read -r name value _; do
                [ "$name" != RssAnon: ] || [ "$value" -le $most ] || most=$value
            done <"$status"
        done 2>/dev/null
        echo "$least $most" >/run/lab-sample
        sleep 0.2
    done
}

clock
say boot "$now"
rate=0
while read -r program wanted options <&3; do
    case $program in
    pagehaul) link=../lib/pagehaul/makedumpfile ;;
    makedumpfile) link=makedumpfile.distrib ;;
    cp) link=/lab/cp.sh ;;
    esac
    ln -sf $link /usr/bin/makedumpfile
    sed -i '/^MAKEDUMP_ARGS/d' $settings
    echo "MAKEDUMP_ARGS=\"$options\"" >>$settings
    if [ "$wanted" != $rate ]; then
        rate=$wanted
        say throttle "$rate"
        # The lab tells QEMU meanwhile.
        sleep 2
    fi
    sync
    echo 3 >/proc/sys/vm/drop_caches
    stalls=0 scans=0 writes=0
    count -
    sample &
    clock
    began=$now
    kdump-config savecore 3<&- || say error "kdump-config savecore failed"
    # As the reboot does.
    sync
    clock
    kill $!
    count +
    say saved "$program $rate $((now - began)) $(stat -c %s /var/crash/2*/dump.*) $(cat /run/lab-sample) $stalls $scans $writes $options"
    rm -rf /var/crash/2*
done 3</lab/cases
reboot -f
