//! Faults of Debian's kdump-tools.

use super::Fault;
use super::edits::Edits;

const DUMPS: &str = "kdump-tools-dump.service";
const GRUB_D: &str = "/etc/default/grub.d/kdump-tools.cfg";

pub(super) const FAULTS: &[Fault] = &[
    ("no-kdump", |m| m.remove("/etc/default/kdump-tools")),
    ("disabled", |m| m.set("USE_KDUMP=0")),
    ("unit-masked", |m| m.link("/etc/systemd/system/kdump-tools-dump.service", "/dev/null")),
    ("unit-masked", |m| m.write("/etc/systemd/system/kdump-tools-dump.service", "")),
    ("no-unit", |m| m.remove("/usr/lib/systemd/system/kdump-tools-dump.service")),
    ("no-unit-program", |m| m.mode(&m.program_of(DUMPS), 0o644)),
    ("small-reservation", |m| m.kernel_says("crash_size", "67108864\n")),
    // Nothing was made anew from the settings.
    ("boot-loader-pending", |m| {
        m.edit(GRUB_D, |text| super::edits::each_word(text, "crashkernel=", |_| "crashkernel=1G".into()))
    }),
    ("boot-loader-pending", |m| m.damage(GRUB_D, "")),
    ("boot-loader-pending", |m| m.append("/etc/default/grub", "GRUB_CMDLINE_LINUX=\"crashkernel=1G\"")),
    ("missing-device", |m| m.append("/etc/fstab", "UUID=bbbb /home xfs defaults")),
    ("missing-device", |m| m.append("/etc/fstab", "/dev/nowhere1 /srv ext4 defaults 0 2")),
    ("missing-device", |m| m.set("KDUMP_CMDLINE=\"root=/dev/nowhere1 ro\"")),
    ("target-not-at-boot", |m| m.fstab_option("noauto")),
    ("target-read-only", |m| {
        m.edit("/proc/self/mountinfo", |text| {
            let lines = text.lines().filter(|line| !line.contains(" /var "));
            lines.map(|line| format!("{line}\n")).collect()
        });
        m.edit("/proc/cmdline", |text| format!("{} ro\n", text.trim()));
        m.damage("/etc/fstab", "# nothing\n");
    }),
    ("target-full", |m| {
        m.edit("/proc/meminfo", |text| {
            let rest = text.lines().filter(|line| !line.starts_with("MemTotal:"));
            let rest: String = rest.map(|line| format!("{line}\n")).collect();
            format!("MemTotal: 9000000000000000 kB\n{rest}")
        });
    }),
    ("luks2-memory", |m| m.luks("CRYPT-LUKS2-1", "crypt UUID=cccc /etc/key luks\n")),
    ("needless-reload", |m| m.kernel_follows("1\n")),
    ("no-root-parameter", |m| m.set("KDUMP_CMDLINE=\"quiet\"")),
    ("wrong-dump-unit", |m| m.set_append("nr_cpus=1 reset_devices systemd.unit=rescue.target")),
    ("wrong-dump-unit", |m| m.set_append("nr_cpus=1 reset_devices systemd.unit=emergency.target")),
    ("no-dump-unit", |m| m.set_append("nr_cpus=1 reset_devices")),
    ("old-command-line", |m| {
        m.write(
            "/var/crash/kexec_cmd",
            "kexec -p --command-line=\"root=/dev/sda1 systemd.unit=u irqpoll\" vmlinuz",
        );
        m.set("KDUMP_CMDLINE_APPEND=\"systemd.unit=u nr_cpus=1 irqpoll\"");
    }),
    ("no-disable-cpu-apicid", |m| m.set_append("systemd.unit=u nr_cpus=2 irqpoll")),
    ("wrong-disable-cpu-apicid", |m| m.set_append("systemd.unit=u nr_cpus=2 disable_cpu_apicid=77")),
    ("reservation-limits-threads", |m| {
        m.set_append("systemd.unit=u nr_cpus=64 disable_cpu_apicid=0");
        m.write("/sys/devices/system/cpu/online", "0-63\n");
    }),
    ("broken-configuration", |m| m.set("KDUMP_NUM_DUMPS=\"3")),
    ("broken-configuration", |m| m.set("SSH_KEY='/x")),
    ("broken-configuration", |m| m.set("exit 0")),
    ("wrong-level", |m| m.set("MAKEDUMP_ARGS=\"-F -c -d -1\"")),
    ("wrong-level", |m| m.set("MAKEDUMP_ARGS=\"-F -c -d\"")),
    ("no-level", |m| m.set("MAKEDUMP_ARGS=\"-F -c -d x\"")),
    ("disabled", |m| m.set("USE_KDUMP=no")),
    ("disabled", |m| m.set("USE_KDUMP=00")),
    ("no-fail-command", |m| m.set("KDUMP_FAIL_CMD=\"rebooot -f\"")),
    ("no-compressor", |m| m.set("KDUMP_COMPRESSION=lzop")),
    ("compressed-twice", |m| m.set("KDUMP_COMPRESSION=gzip")),
    ("no-kernel", |m| m.set("KDUMP_KERNEL=/nowhere")),
    ("no-kernel", |m| {
        m.set("KDUMP_KERNEL=/var/lib/kdump/vmlinuz");
        m.link("/var/lib/kdump/vmlinuz", "/boot/vmlinuz-6.0");
    }),
    ("no-initramfs", |m| m.set("KDUMP_INITRD=/nowhere")),
    ("other-kernel", |m| {
        let [config, kernel] = ["config", "vmlinuz"].map(|name| format!("/boot/{name}-{}", m.release()));
        m.write("/proc/sys/kernel/osrelease", "6.1.0-51-amd64\n");
        m.write("/boot/config-6.1.0-51-amd64", &m.text(&config));
        m.damage(&kernel, "kernel");
        m.write("/boot/vmlinuz-6.1.0-51-amd64", "kernel");
        // In guests it is a link to the other one.
        m.set("KDUMP_KERNEL=/boot/vmlinuz-6.1.0-51-amd64");
    }),
    ("not-pagehaul", |m| {
        m.remove("/usr/bin/makedumpfile");
        m.program("/usr/bin/makedumpfile", "another program");
    }),
    ("no-mount-nfs", |m| {
        m.remove_any(&["/usr/sbin/mount.nfs"]);
        m.set("NFS=host:/export");
    }),
    ("no-ssh-key", |m| {
        m.write("/root/.ssh/known_hosts", "host ssh-ed25519 AAAA");
        m.set("SSH=kdump@host");
    }),
    ("unknown-host", |m| {
        m.set("SSH=kdump@host");
        m.ssh_target();
        m.write("/root/.ssh/known_hosts", "other,10.0.0.1 ssh-ed25519 AAAA");
    }),
    ("ssh-key-unusable", |m| {
        m.set("SSH=kdump@host");
        m.ssh_target();
        m.ssh_key("");
    }),
    ("ssh-key-unusable", |m| {
        m.set("SSH=kdump@host");
        m.ssh_target();
        m.ssh_key("-----BEGIN ENCRYPTED PRIVATE KEY-----\nMII\n-----END ENCRYPTED PRIVATE KEY-----\n");
    }),
    ("ssh-key-unusable", |m| {
        m.set("SSH=kdump@host");
        m.ssh_target();
        m.mode("/root/.ssh/kdump_id_rsa", 0o644);
    }),
    ("no-ssh-client", |m| {
        m.set("SSH=kdump@host");
        m.ssh_target();
        m.remove("/usr/bin/ssh");
    }),
];
