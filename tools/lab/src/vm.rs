//! Runs one virtual machine.

use crate::cache;
use crate::child::end_with_parent;
use crate::console::{self, Line};
use crate::disk::Disk;
use crate::qmp::Qmp;
use crate::tools::Tools;
use anyhow::{Context, Result, anyhow, bail};
use lab_guest::plan::message;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How QEMU executes the guest's instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Accelerator {
    /// Translation: slow, works everywhere.
    #[default]
    Tcg,
    /// Translation with a clock that counts instructions, 4 ns each: the guest's seconds do not depend on the host's load.
    Counted,
    /// The host's virtualization. Guests may hang in the BIOS although /dev/kvm opens, so that the lab boots a test
    /// guest first.
    Kvm,
}

/// A virtual machine to boot.
pub struct Machine<'a> {
    /// QEMU for the guest's architecture.
    pub tools: &'a Tools,
    /// Kernel image.
    pub kernel: &'a Path,
    /// Its initramfs.
    pub initramfs: &'a Path,
    /// Its command line.
    pub command_line: &'a str,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Number of CPUs.
    pub cpus: u32,
    /// CPU model.
    pub cpu: &'a str,
    /// See [`Accelerator`].
    pub accelerator: Accelerator,
    /// Disks, found by their serial numbers.
    pub disks: &'a [Disk],
    /// Whether it has a network: QEMU's own, in which 10.0.2.2 is the host's loopback interface.
    pub network: bool,
    /// The time that its hardware clock has at first, instead of the host's.
    pub clock: Option<&'a str>,
    /// Additional devices.
    pub devices: &'a [&'a str],
    /// Additional arguments of QEMU.
    pub arguments: &'a [String],
    /// Directory for the console log and the control socket, whose path must be short.
    pub directory: &'a Path,
    /// Maximum time without console output.
    pub silence: Duration,
    /// Maximum total time.
    pub limit: Duration,
    /// Maximum time that a kernel takes to boot: from the start, or from a panic, to the guest's next message.
    pub boot: Duration,
}

/// What the emulator did wrong. Under translation, on a loaded host, a CPU can lose the interrupt of its timer, so that the
/// kernel does not boot; and QEMU can fail an assertion of its own.
#[derive(Debug)]
pub struct EmulatorFault(String);

impl std::fmt::Display for EmulatorFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for EmulatorFault {}

/// Does `work` a second time if the emulator failed the first time.
pub fn with_second_try<T>(mut work: impl FnMut() -> Result<T>) -> Result<T> {
    work().or_else(|error| {
        if !error.is::<EmulatorFault>() {
            return Err(error);
        }
        eprintln!("{error:#}\n\nOnce more, since the emulator is at fault.");
        work()
    })
}

/// A running machine. It is killed when dropped, and by the kernel if this process dies.
pub struct Vm {
    child: Child,
    lines: Receiver<String>,
    started: Instant,
    silence: Duration,
    limit: Duration,
    boot: Duration,
    /// When the kernel that boots has to have said something.
    booted_by: Option<Instant>,
    socket: PathBuf,
    tail: Vec<String>,
    // Two machines at once would slow each other down beyond their time limits.
    _only_one: File,
}

impl Machine<'_> {
    /// Boots the machine once no other machine of the lab runs.
    pub fn start(&self) -> Result<Vm> {
        let only_one = cache::lock("vm")?;
        let socket = self.directory.join("qmp");
        let mut command = self.command(&socket)?;
        end_with_parent(&mut command, libc::SIGKILL);
        let started = Instant::now();
        let mut child = command.spawn().context("starting QEMU")?;
        let log = self.directory.join("console.log");
        let file = File::create(&log).with_context(|| log.display().to_string())?;
        let output = child.stdout.take().context("QEMU's output is a pipe")?;
        let lines = follow(output, file);
        Ok(Vm {
            child,
            lines,
            started,
            silence: self.silence,
            limit: self.limit,
            boot: self.boot,
            booted_by: started.checked_add(self.boot),
            socket,
            tail: Vec::new(),
            _only_one: only_one,
        })
    }

    fn command(&self, socket: &Path) -> Result<Command> {
        let mut command = self.tools.qemu()?;
        let machine = self.tools.architecture().qemu().1;
        let accelerator = match self.accelerator {
            Accelerator::Tcg => "tcg,thread=multi",
            Accelerator::Counted => "tcg,thread=single",
            Accelerator::Kvm => "kvm",
        };
        let qmp = format!("unix:{},server=on,wait=off", socket.display());
        command
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
            .args(["-machine", machine, "-accel", accelerator, "-cpu", self.cpu])
            .args(["-m", &format!("{}M", self.memory_mib), "-smp", &self.cpus.to_string()])
            .args(["-serial", "stdio", "-qmp", &qmp])
            .arg("-kernel")
            .arg(self.kernel)
            .arg("-initrd")
            .arg(self.initramfs)
            .args(["-append", self.command_line]);
        if self.accelerator == Accelerator::Counted {
            command.args(["-icount", "shift=2"]);
        }
        for Disk { serial, path, write_rate, log } in self.disks {
            let slow = write_rate.map_or_else(String::new, |rate| format!(",throttling.bps-write={rate}"));
            let drive = match log {
                None => format!("format=raw,cache=unsafe,file={}", path.display()),
                // cache=unsafe would keep flushes from the log.
                Some(log) => format!(
                    "driver=blklogwrites,cache=writeback,discard=ignore,file.driver=raw,file.file.driver=file,\
                     file.file.filename={},log.driver=raw,log.file.driver=file,log.file.filename={}",
                    path.display(),
                    log.display()
                ),
            };
            command.args(["-drive", &format!("if=none,id={serial},{drive}{slow}")]);
            command.args(["-device", &format!("virtio-blk-pci,drive={serial},serial={serial}")]);
        }
        if self.network {
            // No firmware: nothing boots from the network.
            command.args(["-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile="]);
        }
        if let Some(clock) = self.clock {
            command.args(["-rtc", &format!("base={clock}")]);
        }
        for device in self.devices {
            command.args(["-device", device]);
        }
        command.args(self.arguments);
        // Standard error is inherited, to show QEMU's complaints.
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        Ok(command)
    }
}

/// Copies the console to the log and sends its lines to a channel.
fn follow(output: ChildStdout, mut log: File) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(output);
        let mut bytes = Vec::new();
        while let Ok(1..) = reader.read_until(b'\n', &mut bytes) {
            // A missing log is noticed when it is read; the machine is more important.
            let _ = log.write_all(&bytes);
            if sender.send(String::from_utf8_lossy(&bytes).into_owned()).is_err() {
                return;
            }
            bytes.clear();
        }
    });
    receiver
}

impl Vm {
    /// Waits for the guest's next message, as name and details. Returns `None` when QEMU has ended. `panicked` gets
    /// kernel panics, and may end the wait with an error.
    pub fn next_message(
        &mut self,
        mut panicked: impl FnMut(&str) -> Result<()>,
    ) -> Result<Option<(String, String)>> {
        loop {
            let Some(left) = self.limit.checked_sub(self.started.elapsed()) else {
                bail!(
                    "the guest exceeded its time limit of {} s{}",
                    self.limit.as_secs(),
                    self.console_tail()
                );
            };
            let boot = self.booted_by.map_or(left, |by| by.saturating_duration_since(Instant::now()));
            if boot.is_zero() {
                let seconds = self.boot.as_secs();
                bail!(EmulatorFault(format!(
                    "the kernel did not boot within {seconds} s{}",
                    self.console_tail()
                )));
            }
            let left = left.min(boot);
            let line = match self.lines.recv_timeout(left.min(self.silence)) {
                Ok(line) => line,
                Err(RecvTimeoutError::Disconnected) => return self.ended().map(|()| None),
                Err(RecvTimeoutError::Timeout) if left <= self.silence => continue,
                Err(RecvTimeoutError::Timeout) => {
                    let seconds = self.silence.as_secs();
                    let why =
                        format!("the guest's console was silent for {seconds} s{}", self.console_tail());
                    return Err(if self.booted_by.is_some() {
                        EmulatorFault(why).into()
                    } else {
                        anyhow!(why)
                    });
                }
            };
            self.remember(&line);
            let line = console::parse(&line);
            match &line {
                Line::Message(..) => self.booted_by = None,
                Line::Panic(_) => self.booted_by = Instant::now().checked_add(self.boot),
                Line::Other => {}
            }
            match line {
                Line::Message(what, detail) if what == message::ERROR => {
                    bail!("the guest failed: {detail}{}", self.console_tail())
                }
                Line::Message(what, detail) => return Ok(Some((what, detail))),
                Line::Panic(line) => {
                    panicked(&line).with_context(|| format!("the guest panicked{}", self.console_tail()))?
                }
                Line::Other => {}
            }
        }
    }

    /// Waits for the end of QEMU, which has closed the console.
    fn ended(&mut self) -> Result<()> {
        match self.child.wait().context("waiting for QEMU")?.signal() {
            None => Ok(()),
            Some(signal) => {
                bail!(EmulatorFault(format!("QEMU was ended by signal {signal}{}", self.console_tail())))
            }
        }
    }

    /// Returns seconds since the start.
    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Connects to QEMU's control socket.
    pub fn qmp(&self) -> Result<Qmp> {
        Qmp::connect(&self.socket)
    }

    /// Returns the last lines of the console, for error messages.
    pub fn console_tail(&self) -> String {
        format!("; last console lines:\n  {}", self.tail.join("\n  "))
    }

    fn remember(&mut self, line: &str) {
        const LINES: usize = 12;
        let line = line.trim_end();
        if !line.is_empty() {
            if self.tail.len() == LINES {
                self.tail.remove(0);
            }
            self.tail.push(line.to_owned());
        }
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        // Fails if QEMU has ended; wait reaps it either way.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that has said `lines` and runs on.
    fn vm(boot: Duration, lines: &[&str]) -> Vm {
        let child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let (sender, receiver) = channel();
        lines.iter().for_each(|line| sender.send((*line).to_owned()).unwrap());
        // Nothing disconnects the channel before the test ends.
        std::mem::forget(sender);
        let started = Instant::now();
        Vm {
            child,
            lines: receiver,
            started,
            silence: Duration::from_secs(600),
            limit: Duration::from_secs(600),
            boot,
            booted_by: started.checked_add(boot),
            socket: PathBuf::new(),
            tail: Vec::new(),
            _only_one: File::open("/dev/null").unwrap(),
        }
    }

    #[test]
    fn a_kernel_that_does_not_boot_is_the_emulators_fault() {
        let error = vm(Duration::ZERO, &[]).next_message(|_| Ok(())).unwrap_err();
        assert!(error.is::<EmulatorFault>(), "{error:#}");
    }

    #[test]
    fn a_panic_starts_the_next_kernel() {
        let boot = Duration::from_millis(50);
        let mut vm = vm(boot, &["PHLAB panic\n", "Kernel panic - not syncing: sysrq triggered crash\n"]);
        vm.booted_by = None;
        assert_eq!(vm.next_message(|_| Ok(())).unwrap().unwrap().0, "panic");
        assert!(vm.next_message(|_| Ok(())).unwrap_err().is::<EmulatorFault>());
    }

    #[test]
    fn a_qemu_that_a_signal_ends_is_the_emulators_fault_and_gets_a_second_try() {
        let mut tries = 0;
        let ended = with_second_try(|| {
            let mut vm = vm(Duration::MAX, &[]);
            vm.lines = channel().1;
            tries += 1;
            match tries {
                1 => vm.child.kill()?,
                _ => drop(vm.child.stdin.take()),
            }
            vm.next_message(|_| Ok(()))
        });
        assert!(ended.unwrap().is_none());
        assert_eq!(tries, 2);
    }
}
