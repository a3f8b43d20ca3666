//! Redacts who owns the memory.

use pagehaul_owners::{
    Allocation, Balance, Cgroup, CgroupGenerations, Cgroups, FileDetail, Generations, Kmemleak, KmemleakUser,
    Owner, Row, RowKind, Site, Sites, SlabUser, SlabUsers, Spoiler, Stacks, Suspect,
};

use crate::Redaction;
use crate::allowed::is_device;
use crate::names::Names;
use crate::report::identifier;

/// How the names of BPF maps begin.
const MAP: &str = "BPF map ";

impl Redaction {
    /// Redacts the names of owners: processes, files, and the file systems' devices. `names` are those of the same dump's report.
    pub fn owners(&self, balance: &mut Balance, names: &Names) {
        let Balance {
            page_size: _,
            managed: _,
            rows,
            outside: _,
            suspects,
            cgroups,
            generations,
            fragmentation,
            stacks,
            sites,
            slab_users,
            kmemleak,
            identities: _,
            not_made,
            missing,
            is_whole: _,
            incomplete: _,
        } = balance;
        for Row { kind, pages: _, owners, owner_count: _ } in rows {
            for Owner { name, pages: _, notes: _, file, allocation } in owners {
                *name = match allocation {
                    // Functions, and nothing else.
                    Some(allocation) if !allocation.stack.is_empty() => name.clone(),
                    // A function, and a file, which may be of a module of others.
                    Some(_) => name.split(", ").next().unwrap_or_default().to_owned(),
                    None => self.owner(*kind, name, file.is_some()),
                };
                file.iter_mut().for_each(|file| self.file(file));
                if let Some(Allocation { stack: _, allocated_by, tasks: _ }) = allocation {
                    allocated_by.iter_mut().for_each(|task| *task = self.process(task));
                }
            }
        }
        suspects.iter_mut().for_each(|suspect| self.suspect(suspect));
        let Cgroups { largest, count: _, removed: _, removed_pages: _ } = cgroups;
        largest.iter_mut().for_each(|cgroup| self.cgroup(cgroup));
        let lists = generations.iter_mut().flat_map(|Generations { largest, .. }| largest);
        for CgroupGenerations { path, node: _, generations: _ } in lists {
            *path = self.cgroup_path(path);
        }
        for Spoiler { kind, name, blocks: _, pages: _ } in
            fragmentation.iter_mut().flat_map(|it| &mut it.spoilt_by)
        {
            if let Some(name) = name {
                *name = self.owner(*kind, name, false);
            }
        }
        // Functions.
        let _: &Option<Stacks> = stacks;
        let users = slab_users.iter_mut().flat_map(|SlabUsers { largest, .. }| largest);
        for SlabUser { cache, objects: _, bytes: _, stack: _, pids: _, tasks: _ } in users {
            *cache = identifier(cache);
        }
        if let Some(Kmemleak {
            objects: _,
            bytes: _,
            unreferenced: _,
            unreferenced_bytes: _,
            scanned: _,
            is_enabled: _,
            unrecorded: _,
            is_whole: _,
            leaks,
            leak_count: _,
            largest,
            count: _,
        }) = kmemleak
        {
            for KmemleakUser { objects: _, bytes: _, stack: _, allocated_by, tasks: _ } in
                leaks.iter_mut().chain(largest)
            {
                allocated_by.iter_mut().for_each(|task| *task = self.process(task));
            }
        }
        if let Some(Sites { bytes: _, calls: _, largest, count: _ }) = sites {
            for Site { file, line: _, function: _, module: _, bytes: _, calls: _ } in largest {
                // Modules of others have the path at which they were built.
                if file.starts_with('/') {
                    *file = self.name("path", file);
                }
            }
        }
        let reasons = not_made.iter_mut().map(|check| &mut check.why);
        missing.iter_mut().chain(reasons).for_each(|why| *why = self.sentence(why, names));
    }

    fn owner(&self, kind: RowKind, name: &str, is_file: bool) -> String {
        match kind {
            _ if is_file => self.name("path", name),
            RowKind::Anonymous | RowKind::File | RowKind::Shmem | RowKind::HugeTlb => self.process(name),
            RowKind::PageTables | RowKind::KernelStacks | RowKind::Pipes => self.process(name),
            RowKind::Sockets | RowKind::IoUring | RowKind::KvmTables => self.process(name),
            RowKind::Vmalloc | RowKind::RingBuffers if name.starts_with(MAP) => self.map(name),
            RowKind::RingBuffers => match name.strip_prefix("tracefs instances/") {
                Some(instance) => format!("tracefs instances/{}", self.name("path", instance)),
                // Of perf events.
                None => self.process(name),
            },
            _ => identifier(name),
        }
    }

    /// A program chose the map's name, which the number follows but in the name of several.
    fn map(&self, name: &str) -> String {
        let name = name.trim_start_matches(MAP);
        match name.rsplit_once('/') {
            Some((map, id)) => format!("{MAP}{}/{id}", self.name("map", map)),
            None => format!("{MAP}{}", self.name("map", name)),
        }
    }

    fn suspect(&self, suspect: &mut Suspect) {
        let Suspect {
            kind,
            name,
            pages: _,
            members,
            largest,
            deleted: _,
            deleted_pages: _,
            held_by,
            holders: _,
            mounted,
        } = suspect;
        let hidden = |name: &str| match kind {
            RowKind::Shmem | RowKind::File if *mounted || !is_device(name) => self.name("path", name),
            RowKind::Shmem | RowKind::File => name.to_owned(),
            // The name of several processes, without an ID.
            _ if kind.is_of_processes() && *members > 1 => self.name("comm", name),
            _ => self.owner(*kind, name, false),
        };
        if let Some(name) = name {
            *name = hidden(name);
        }
        if let Some((name, _)) = largest {
            *name = self.owner(*kind, name, matches!(kind, RowKind::Shmem | RowKind::File));
        }
        held_by.iter_mut().for_each(|name| *name = self.process(name));
    }

    fn cgroup(&self, cgroup: &mut Cgroup) {
        let Cgroup {
            path,
            usage: _,
            max: _,
            high: _,
            peak: _,
            swap: _,
            events: _,
            removed: _,
            processes: _,
            process,
        } = cgroup;
        *path = self.cgroup_path(path);
        if let Some(process) = process {
            *process = self.process(process);
        }
    }

    fn cgroup_path(&self, path: &str) -> String {
        if path == "/" { path.to_owned() } else { self.name("path", path) }
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
            mount,
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
        if let Some(mount) = mount {
            *mount = self.name("path", mount);
        }
        if !is_device(device) {
            *device = self.name("word", device);
        }
        held_by.iter_mut().for_each(|name| *name = self.process(name));
    }
}
