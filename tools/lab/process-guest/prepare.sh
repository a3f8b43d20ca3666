# Makes a guest what validate_process.py and CRIU expect of a running system.

# CRIU needs them, and the kernel does not load them itself: it would look for modprobe in the tree of init. In the order in which they
# depend on each other.
for module in /test/modules/*.ko; do
    [ -e "$module" ] || continue
    name=${module##*-}
    [ -d "/sys/module/${name%.ko}" ] || insmod "$module"
done
# CRIU connects a socket to find out what the kernel can do: the loopback interface has to be up (SIOCSIFFLAGS, IFF_UP).
python3 -c 'import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh22x", b"lo", 1))'
# CRIU keeps what it knows of the kernel in /run, if that is a tmpfs, and looks for terminals.
mkdir -p /run /dev/pts /var/tmp
mount -t tmpfs -o mode=755 tmpfs /run
mount -t devpts -o ptmxmode=666 devpts /dev/pts
[ -e /sys/fs/cgroup/cgroup.procs ] || mount -t cgroup2 cgroup2 /sys/fs/cgroup
# What bash opens for >(...).
[ -e /dev/fd ] || ln -s /proc/self/fd /dev/fd
# Packages are unpacked but not configured.
echo 'postgres:x:112:112::/:/bin/bash' >> /etc/passwd
echo 'root:x:0:
postgres:x:112:' > /etc/group
mkdir /scratch/work
chmod 755 /scratch /scratch/work
chmod 1777 /tmp
uname -r
grep -m1 -E 'model name|CPU part' /proc/cpuinfo
pagehaul --version
# What it complains of may be something that these programs do not need.
/test/criu/criu check || true
