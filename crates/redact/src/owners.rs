//! Redacts who owns the memory.

use pagehaul_owners::{Balance, FileDetail, Owner, Row, RowKind};

use crate::allowed::is_device;
use crate::report::identifier;
use crate::{Names, Redaction};

impl Redaction {
    /// Redacts the names of owners: processes, files, and the file systems' devices. `names` are those of the same dump's report.
    pub fn owners(&self, balance: &mut Balance, names: &Names) {
        let Balance { page_size: _, managed: _, rows, outside: _, identities: _, missing } = balance;
        for Row { kind, pages: _, owners, owner_count: _ } in rows {
            for Owner { name, pages: _, notes: _, file } in owners {
                *name = self.owner(*kind, name, file.is_some());
                file.iter_mut().for_each(|file| self.file(file));
            }
        }
        missing.iter_mut().for_each(|why| *why = self.sentence(why, names));
    }

    fn owner(&self, kind: RowKind, name: &str, is_file: bool) -> String {
        match kind {
            _ if is_file => self.name("path", name),
            RowKind::Anonymous | RowKind::File | RowKind::Shmem | RowKind::HugeTlb => self.process(name),
            RowKind::PageTables | RowKind::KernelStacks | RowKind::Pipes => self.process(name),
            _ => identifier(name),
        }
    }

    /// `comm/pid`, or a phrase of ours.
    fn process(&self, name: &str) -> String {
        match name.rsplit_once('/') {
            Some((comm, pid)) if pid.parse::<u32>().is_ok() => format!("{}/{pid}", self.name("comm", comm)),
            // A path.
            Some(_) => self.name("path", name),
            None => name.to_owned(),
        }
    }

    fn file(&self, file: &mut FileDetail) {
        let FileDetail {
            filesystem: _,
            device,
            inode: _,
            size: _,
            dirty: _,
            writeback: _,
            swapped: _,
            deleted: _,
            held_by,
            holders: _,
        } = file;
        if !is_device(device) {
            *device = self.name("word", device);
        }
        held_by.iter_mut().for_each(|name| *name = self.process(name));
    }
}
