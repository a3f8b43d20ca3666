use crate::arch;
use crate::architecture::Arch;
use crate::page_size::PageSize;

/// The machine that a source is of, as its header says: architecture, layout of integers, size of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Platform {
    /// `e_machine` of ELF files (`include/uapi/linux/elf-em.h`); 0 if the source does not say.
    pub machine: u16,
    /// Whether `long` has 8 bytes.
    pub wide: bool,
    /// Whether integers are big-endian.
    pub big_endian: bool,
    /// The size of its pages; 4 KiB if the source does not say.
    pub page_size: PageSize,
}

/// `e_machine` and what `uname -m` calls such machines, by prefix; longer prefixes first.
const NAMES: [(u16, &str); 13] = [
    (62, "x86_64"),
    (3, "i"),
    (183, "aarch64"),
    (40, "arm"),
    (21, "ppc64"),
    (20, "ppc"),
    (22, "s390"),
    (243, "riscv"),
    (258, "loongarch"),
    (8, "mips"),
    (43, "sparc64"),
    (2, "sparc"),
    (15, "parisc"),
];

impl Platform {
    /// x86_64.
    pub const X86_64: Self = Self { machine: 62, wide: true, big_endian: false, page_size: PageSize::KIB_4 };

    /// Returns `e_machine` of machines that `uname -m` calls `name`; 0 for unknown ones.
    pub fn machine_of(name: &str) -> u16 {
        NAMES.iter().find(|(_, prefix)| name.starts_with(prefix)).map_or(0, |(machine, _)| *machine)
    }

    /// Returns the architecture, if its kernels can be read. A header may leave the machine open.
    pub fn arch(&self) -> Option<&'static dyn Arch> {
        arch::of_elf_machine(self.machine).filter(|_| self.wide && !self.big_endian)
    }

    /// Returns what `uname -m` calls it, or its ELF number.
    pub fn name(&self) -> String {
        let bits = if self.wide { "64" } else { "32" };
        match (self.machine, self.wide, self.big_endian) {
            (0, ..) => "unknown".into(),
            (3, ..) => "i686".into(),
            (183, _, true) => "aarch64_be".into(),
            (21, _, false) => "ppc64le".into(),
            (22, true, _) => "s390x".into(),
            (243, ..) => format!("riscv{bits}"),
            (258, ..) => format!("loongarch{bits}"),
            (8, true, _) => "mips64".into(),
            (15, true, _) => "parisc64".into(),
            (machine, ..) => match NAMES.iter().find(|(number, _)| *number == machine) {
                Some((_, name)) => (*name).into(),
                None => format!("ELF machine {machine}"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_have_names() {
        assert_eq!(Platform::machine_of("x86_64"), 62);
        assert_eq!(Platform::machine_of("i686"), 3);
        assert_eq!(Platform::machine_of("ppc64le"), 21);
        assert_eq!(Platform::machine_of("Unknown"), 0);
        assert_eq!(Platform::X86_64.name(), "x86_64");
        assert_eq!(Platform { machine: 21, ..Platform::X86_64 }.name(), "ppc64le");
        for name in
            ["aarch64", "s390x", "riscv64", "loongarch64", "mips64", "sparc64", "parisc64", "x86_64", "ppc64"]
        {
            let big_endian = name == "ppc64";
            assert_eq!(
                Platform { machine: Platform::machine_of(name), big_endian, ..Platform::X86_64 }.name(),
                name
            );
        }
        let narrow = |machine| Platform { machine, wide: false, ..Platform::X86_64 }.name();
        assert_eq!([22, 243, 8, 20].map(narrow), ["s390", "riscv32", "mips", "ppc"]);
        assert_eq!(Platform { machine: 4711, ..Platform::X86_64 }.name(), "ELF machine 4711");
    }
}
