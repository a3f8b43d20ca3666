# Takes the place of kdump-tools' start in the capture kernel: sends the vmcore to the host, to an S3 server with TLS and over ssh,
# with a clock that is years behind.
exec >/dev/ttyS0 2>&1
say() {
    echo "PHLAB $*"
}

# Captures, and says the exit status and what was printed.
capture() {
    name=$1
    shift
    /lab/pagehaul capture "$@" 2>/run/told
    # Without the lines of its progress.
    say "$name" "$? $(grep -a '^pagehaul:' /run/told | grep -v ' left$' | tr '\n' ' ')"
}

# Waits until the driver of the network device is loaded.
udevadm settle
for device in /sys/class/net/e*; do
    ip address add 10.0.2.15/24 dev "${device##*/}"
    ip link set "${device##*/}" up
done
say clock "$(date -u +%Y)"
# systemd has set the clock to the date of its own release, which most capture kernels do not have.
date -s 1990-01-01 >/dev/null
read -r object </lab/object
export PAGEHAUL_S3=/lab/s3 SSL_CERT_FILE=/lab/authority.pem
chmod 600 /lab/s3
SSL_CERT_FILE='' capture untrusted /proc/vmcore "$object.untrusted"
date -s 1990-01-01 >/dev/null
capture store /proc/vmcore "$object"

read -r file </lab/file
export PAGEHAUL_SSH='ssh -i /root/.ssh/kdump_id_rsa'
capture ssh /proc/vmcore "ssh://$file"
/lab/pagehaul capture -q -d 1 -c none /proc/vmcore "ssh://$file.large" &
pagehaul=$!
for attempt in $(seq 1000); do
    bytes=$($PAGEHAUL_SSH "${file%%/*}" stat -c %s "/${file#*/}.large.incomplete" 2>/dev/null)
    [ "${bytes:-0}" -lt 3000000 ] || break
done
kill -9 $pagehaul
wait $pagehaul
say killed "$?"
capture resumed -d 1 -c none /proc/vmcore "ssh://$file.large"
reboot -f
