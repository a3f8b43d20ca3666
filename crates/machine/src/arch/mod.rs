//! Architectures: one directory each. VMCOREINFO or the header of a dump chooses, never the machine that this code runs on.

mod arm64;
mod riscv64;
pub mod x86_64;

use crate::architecture::Arch;
use crate::registers::{self, StatusRegisters};
use crate::vmcoreinfo::{InfoError, VmcoreInfo};

/// All architectures whose kernels can be read.
pub static ALL: [&dyn Arch; 3] = [&x86_64::X86_64, &arm64::Arm64, &riscv64::Riscv64];

/// Keys that only kernels of one architecture export (`arch/*/kernel/*vmcore_info*.c` and their forebears), of those that are
/// not among [`ALL`].
const OTHERS: [(&str, &str); 3] =
    [("SYMBOL(lowcore_ptr)", "s390"), ("SYMBOL(vmemmap_list)", "ppc64"), ("CONFIG_X86_PAE", "32-bit x86")];

/// Returns the architecture of the kernel with this VMCOREINFO, checked.
///
/// # Errors
/// [`InfoError`] if it is another, or contradicts itself.
pub fn of_kernel(info: &VmcoreInfo) -> Result<&'static dyn Arch, InfoError> {
    let exports = |key: &&str| info.get(key).is_some();
    if let Some(arch) = ALL.into_iter().find(|arch| arch.marks().iter().any(exports)) {
        return arch.check(info).map(|()| arch);
    }
    Err(InfoError::Unsupported(match OTHERS.iter().find(|(key, _)| exports(key)) {
        Some((_, machine)) => {
            format!("this kernel is for {machine}; only {} kernels are supported", names())
        }
        None => {
            let marks = ALL
                .map(|arch| format!("{}, which {} kernels export", arch.marks().join(" or "), arch.name()));
            format!("VMCOREINFO lacks {}; only these are supported", marks.join(", and "))
        }
    }))
}

/// Returns the architecture of machines with this `e_machine`.
pub fn of_elf_machine(elf_machine: u16) -> Option<&'static dyn Arch> {
    ALL.into_iter().find(|arch| arch.elf_machine() == elf_machine)
}

/// Returns the names of all architectures: `x86_64 and arm64`.
pub fn names() -> String {
    let names = ALL.map(Arch::name);
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => names.concat(),
    }
}

/// Returns the words of `pr_reg` of 64-bit machines with this `e_machine`, if they are known.
pub fn status_registers(elf_machine: u16) -> Option<&'static StatusRegisters> {
    match of_elf_machine(elf_machine) {
        Some(arch) => Some(&arch.registers().status),
        None => registers::of_others(elf_machine),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_are_told_apart() {
        for arch in ALL {
            for mark in arch.marks() {
                assert!(ALL.iter().filter(|other| other.marks().contains(mark)).count() == 1, "{mark}");
                assert!(OTHERS.iter().all(|(key, _)| key != mark), "{mark}");
            }
            assert_eq!(of_elf_machine(arch.elf_machine()).unwrap().name(), arch.name());
            let registers = arch.registers();
            assert!(registers.status.names.contains(&registers.status.summary[0]));
            let words = registers.status.names.len();
            assert!(crate::registers::PR_REG + 8 * words <= registers.status_bytes, "{}", arch.name());
            assert!(registers.printed.iter().all(|(_, word)| *word < words), "{}", arch.name());
        }
        assert_eq!(names(), "x86_64, arm64 and riscv64");
    }

    #[test]
    fn other_kernels_are_named() {
        let refused = |text: &str| of_kernel(&VmcoreInfo::parse(text.as_bytes())).unwrap_err().to_string();
        assert_eq!(
            refused("SYMBOL(lowcore_ptr)=1\n"),
            "this kernel is for s390; only x86_64, arm64 and riscv64 kernels are supported"
        );
        let unknown = refused("SYMBOL(swapper_pg_dir)=1\n");
        assert!(unknown.contains("NUMBER(kimage_voffset), which arm64 kernels export"), "{unknown}");
    }
}
