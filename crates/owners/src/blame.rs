//! Findings of `triage` that point to owners.

use pagehaul_facts::Kind;
use pagehaul_inspect::{Evidence, Finding, Next, TriageReport};
use pagehaul_machine::PageCount;
use pagehaul_present::number::{bytes, count, counted, percent};

use crate::allocations::names::callers;
use crate::report::{Balance, Cgroup, Row, RowKind, Suspect};

/// Rows and suspects that are named as evidence, of each.
const ROWS: usize = 3;
/// Cgroups that are named as evidence.
const CGROUPS: usize = 2;

/// Whether owners of memory are evidence for a finding: the machine ran out of it, or tasks reclaim it.
pub fn are_evidence(report: &TriageReport) -> bool {
    ran_out(report) || report.verdict.iter().any(Finding::is_reclaim)
}

fn ran_out(report: &TriageReport) -> bool {
    report.death.kind == Some(Kind::OomPanic)
}

/// Makes the rows the uses of memory in a report, which counters know but roughly: they lack page directories, and until 6.18 have
/// large kmalloc as slab.
pub fn use_rows(report: &mut TriageReport, balance: &Balance) {
    if !is_whole(balance) {
        return;
    }
    let known = balance.rows.iter().filter(|row| row.kind != RowKind::NoOwner);
    report.memory.usage = known.map(|row| (row.kind.name(), row.pages)).collect();
    let sum: PageCount = report.memory.usage.iter().map(|(_, pages)| *pages).sum();
    let (managed, _) = report.memory.total();
    report.memory.by_pages = true;
    report.memory.unaccounted = Some((managed.get() as i64).saturating_sub(sum.get() as i64));
}

/// Names the culprit in the findings of a machine that ran out of memory, and the owners of memory in those of one that reclaims it.
/// Names none if many struct pages are missing.
pub fn blame(report: &mut TriageReport, balance: &Balance) {
    if !is_whole(balance) {
        return;
    }
    let out_of_memory = ran_out(report);
    let full = full_cgroup(report, balance);
    let finding = match out_of_memory {
        true => report.verdict.first_mut(),
        false => report.verdict.iter_mut().find(|finding| finding.is_reclaim()),
    };
    let Some(finding) = finding else { return };
    let mut evidence = Vec::new();
    if out_of_memory {
        if let Some(cgroup) = full {
            finding.text = cgroup_text(balance, cgroup);
        } else if let Some(text) = culprit(balance, &mut evidence) {
            // The finding has the largest use by the kernel's counters.
            let what = finding.text.split(": ").next().unwrap_or_default();
            finding.text = format!("{what}: {text}");
        }
        finding.next = Next::Owners;
        let others = balance.cgroups.largest.iter().filter(|it| it.is_full() && full != Some(*it));
        evidence.extend(others.take(CGROUPS).map(|cgroup| cgroup_text(balance, cgroup)));
    }
    evidence.extend(unreferenced(balance));
    evidence.extend(balance.largest().take(ROWS).map(|row| row_text(balance, row)));
    finding.evidence.extend(evidence.into_iter().map(Evidence));
}

/// Whether the rows are the managed pages, but for a few percent.
fn is_whole(balance: &Balance) -> bool {
    const PERCENT: u64 = 5;
    let Some(managed) = balance.managed.map(PageCount::get) else { return false };
    let most = managed / 100 * PERCENT;
    balance.sum().get().abs_diff(managed) <= most && balance.pages(RowKind::Undecided).get() <= most
}

/// Returns the cgroup that ran out of memory, if the machine did not: an OOM killer of a cgroup panics with panic_on_oom=2.
fn full_cgroup<'a>(report: &TriageReport, balance: &'a Balance) -> Option<&'a Cgroup> {
    let zones = &report.memory.zones;
    let (free, high) = zones
        .iter()
        .fold((0_u64, 0_u64), |sum, zone| (sum.0 + zone.free.get(), sum.1 + zone.watermarks[2].get()));
    if free <= high {
        return None;
    }
    let full = balance.cgroups.largest.iter().filter(|cgroup| cgroup.is_full());
    // The one whose OOM killer was called; a parent's limit comes before a child's.
    full.max_by_key(|cgroup| (cgroup.events("oom") > 0, cgroup.usage))
}

/// Returns what took the memory, in one phrase, and adds evidence. One owner is named if it has at least half as much as the largest
/// row: many owners can share a row, none of which is to blame.
fn culprit(balance: &Balance, evidence: &mut Vec<String>) -> Option<String> {
    let largest = balance.largest().next()?;
    let suspect =
        balance.suspects.first().filter(|it| it.pages.get().saturating_mul(2) >= largest.pages.get());
    let Some(suspect) = suspect else {
        let owners = counted(largest.owner_count as u64, "owner");
        return Some(format!("{}, by {owners}", row_text(balance, largest)));
    };
    evidence.extend(holders(balance, suspect));
    evidence.extend(slab_users(balance, suspect));
    if let Some((name, pages)) = suspect.largest.as_ref().filter(|_| suspect.members > 1) {
        evidence.push(format!(
            "the largest of {}: {name} {}",
            count(suspect.members as u64),
            size(balance, *pages)
        ));
    }
    let others = balance.suspects.iter().skip(1).take(ROWS);
    let others = others.map(|other| format!("{} {}", subject(other), share(balance, other.pages)));
    evidence.push(format!("after it: {}", others.collect::<Vec<_>>().join("; ")));
    let mut text = format!("{} {}", subject(suspect), share(balance, suspect.pages));
    if suspect.deleted > 0 {
        text += &format!(
            ", {} of it in {}",
            size(balance, suspect.deleted_pages),
            counted(suspect.deleted as u64, "deleted file")
        );
        if let Some(first) = suspect.held_by.first() {
            text += &format!(" held by {first}");
        }
    } else if suspect.members > 1 && suspect.mounted {
        text += &format!(", in {}", counted(suspect.members as u64, "file"));
    }
    Some(text)
}

/// Who allocated the objects of a slab cache, if the kernel kept it.
fn slab_users(balance: &Balance, suspect: &Suspect) -> Option<String> {
    let name = suspect.name.as_deref().filter(|_| suspect.kind == RowKind::Slab)?;
    let users = balance.slab_users.as_ref()?;
    // The one with the most bytes comes first.
    let user = users.largest.iter().find(|user| user.cache == name)?;
    Some(format!(
        "{}{} in {name} allocated in {}, by slub_debug",
        if users.is_whole { "" } else { "at least " },
        counted(user.objects, "object"),
        callers(&user.stack).join(" < ")
    ))
}

/// What kmemleak's last scan found no pointer to, if it is a large part of the memory.
fn unreferenced(balance: &Balance) -> Option<String> {
    const LARGE: u64 = 10;
    let found = balance.kmemleak.as_ref()?;
    let managed = balance.managed?.bytes(balance.page_size);
    let first = found.leaks.first().filter(|_| found.unreferenced_bytes >= managed / LARGE)?;
    Some(format!(
        "{}{}, {}, have no pointer to them, by kmemleak's last scan; the most allocated in {}",
        if found.is_whole { "" } else { "at least " },
        counted(found.unreferenced, "object"),
        bytes(found.unreferenced_bytes),
        callers(&first.stack).join(" < ")
    ))
}

/// The processes that hold deleted files.
fn holders(balance: &Balance, suspect: &Suspect) -> Option<String> {
    (suspect.deleted > 0 && !suspect.held_by.is_empty()).then(|| {
        format!(
            "{} of deleted files {}: held by {}{}",
            size(balance, suspect.deleted_pages),
            suspect.name.as_deref().map_or_else(String::new, |name| format!("in {name}")),
            suspect.held_by.join(", "),
            match suspect.holders.saturating_sub(suspect.held_by.len()) {
                0 => String::new(),
                more => format!(" and {} more", count(more as u64)),
            }
        )
    })
}

/// What is accused, as the subject of a phrase.
fn subject(suspect: &Suspect) -> String {
    let Some(name) = suspect.name.as_deref() else { return suspect.kind.name().to_owned() };
    match (suspect.kind, suspect.members) {
        (RowKind::Shmem, _) if suspect.mounted => format!("tmpfs {name}"),
        (RowKind::Shmem, _) => format!("shared memory {name}"),
        (RowKind::File, _) => format!("page cache of {name}"),
        (RowKind::HugeTlb, _) if name == "free" => "free huge pages".into(),
        (RowKind::HugeTlb, _) => format!("huge pages of {name}"),
        (RowKind::Slab, _) => format!("slab cache {name}"),
        (RowKind::Vmalloc, 1) => format!("vmalloc areas of {name}"),
        // Nothing else is grouped there.
        (RowKind::Vmalloc, many) => {
            format!(
                "vmalloc areas of {} BPF maps {}",
                count(many as u64),
                name.trim_start_matches("BPF map ")
            )
        }
        // `allocated in F < G`.
        (RowKind::NoOwner | RowKind::LargeKmalloc, _) => format!("memory {name}"),
        (RowKind::RingBuffers, _) => format!("ring buffers of {name}"),
        (RowKind::Cma, _) => format!("CMA area {name}"),
        (RowKind::Zsmalloc, _) => format!("compressed memory of {name}"),
        (kind, members) => {
            let what = match kind {
                RowKind::PageTables => "page tables",
                RowKind::KvmTables => "page tables of KVM",
                RowKind::Sockets => "packets in sockets",
                RowKind::IoUring => "io_uring rings",
                _ => "anonymous memory",
            };
            match members {
                1 => format!("{what} of {name}"),
                many => format!("{what} of {} processes {name}", count(many as u64)),
            }
        }
    }
}

fn size(balance: &Balance, pages: PageCount) -> String {
    bytes(pages.bytes(balance.page_size))
}

/// A size, and its share of the managed memory.
fn share(balance: &Balance, pages: PageCount) -> String {
    // Who is blamed without it is not said.
    let managed = balance.managed.unwrap_or_default();
    format!(
        "{} of {} ({})",
        size(balance, pages),
        size(balance, managed),
        percent(pages.get(), managed.get())
    )
}

fn cgroup_text(balance: &Balance, cgroup: &Cgroup) -> String {
    let limit = cgroup.max.map_or_else(String::new, |max| format!(" of its limit of {}", size(balance, max)));
    let mut text = format!(
        "the memory cgroup {} is full: {}{limit}",
        cgroup.path,
        size(balance, cgroup.usage.unwrap_or_default())
    );
    if let Some(process) = &cgroup.process {
        let processes = format!(
            "{} {}",
            count(cgroup.processes as u64),
            if cgroup.processes == 1 { "process" } else { "processes" }
        );
        text += &format!(", {processes}, {process} among them");
    }
    text
}

/// A row in one phrase: its size and share, and its largest owner.
fn row_text(balance: &Balance, row: &Row) -> String {
    let mut text = format!("{} {}", row.kind.name(), share(balance, row.pages));
    if let Some(owner) = row.owners.first() {
        let part = percent(owner.pages.get(), row.pages.get());
        text += &format!(", {} {} ({part} of it)", owner.name, size(balance, owner.pages));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Cgroups;
    use pagehaul_machine::PageSize;

    fn pages(count: u64) -> PageCount {
        PageCount::new(count)
    }

    fn balance(rows: &[(RowKind, u64)], suspects: Vec<Suspect>) -> Balance {
        let row = |(kind, count): &(RowKind, u64)| Row {
            kind: *kind,
            pages: pages(*count),
            owners: Vec::new(),
            owner_count: 12,
        };
        Balance {
            page_size: PageSize::KIB_4,
            managed: Some(pages(1000)),
            rows: rows.iter().map(row).collect(),
            outside: Vec::new(),
            suspects,
            cgroups: Cgroups::default(),
            generations: None,
            fragmentation: None,
            stacks: None,
            sites: None,
            slab_users: None,
            kmemleak: None,
            identities: Vec::new(),
            not_made: Vec::new(),
            missing: Vec::new(),
            is_whole: true,
            incomplete: false,
        }
    }

    fn suspect(kind: RowKind, name: &str, count: u64, members: usize) -> Suspect {
        Suspect { pages: pages(count), members, ..Suspect::new(kind, Some(name.into())) }
    }

    #[test]
    fn the_culprit_is_one_owner_or_a_row_of_many() {
        let text = |rows: &[(RowKind, u64)], suspect| {
            culprit(&balance(rows, vec![suspect]), &mut Vec::new()).unwrap()
        };
        let rows = [(RowKind::PageTables, 500), (RowKind::Anonymous, 200)];
        assert_eq!(
            text(&rows, suspect(RowKind::PageTables, "bomb", 400, 70)),
            "page tables of 70 processes bomb 1.6 MiB of 3.9 MiB (40.0 %)"
        );
        // A cache in a smaller row has more than half of the largest row.
        assert_eq!(
            text(&rows, suspect(RowKind::Slab, "dentry", 251, 1)),
            "slab cache dentry 1004.0 KiB of 3.9 MiB (25.1 %)"
        );
        assert_eq!(
            text(&rows, suspect(RowKind::Slab, "dentry", 249, 1)),
            "page tables 2.0 MiB of 3.9 MiB (50.0 %), by 12 owners"
        );
        let files = Suspect {
            deleted: 3,
            deleted_pages: pages(300),
            held_by: vec!["java/4711".into()],
            holders: 1,
            mounted: true,
            ..suspect(RowKind::Shmem, "/var/log", 610, 5)
        };
        assert_eq!(
            text(&[(RowKind::Shmem, 610)], files),
            "tmpfs /var/log 2.4 MiB of 3.9 MiB (61.0 %), 1.2 MiB of it in 3 deleted files held by java/4711"
        );
        let recorded = suspect(RowKind::NoOwner, "allocated in rx_fill < rx_poll", 600, 1);
        assert_eq!(
            text(&[(RowKind::NoOwner, 600)], recorded),
            "memory allocated in rx_fill < rx_poll 2.3 MiB of 3.9 MiB (60.0 %)"
        );
        let nobody = Suspect { pages: pages(600), ..Suspect::new(RowKind::NoOwner, None) };
        assert_eq!(text(&[(RowKind::NoOwner, 600)], nobody), "no owner known 2.3 MiB of 3.9 MiB (60.0 %)");
    }

    #[test]
    fn a_cgroup_at_its_limit_is_full() {
        let full = |usage, max: Option<u64>| {
            Cgroup { usage: Some(pages(usage)), max: max.map(pages), ..Cgroup::default() }.is_full()
        };
        assert!(full(10_000, Some(10_000)) && full(9_800, Some(10_000)) && full(70, Some(128)));
        assert!(!full(9_799, Some(10_000)) && !full(9_999, None));
        let cgroup = Cgroup {
            path: "/scene".into(),
            usage: Some(pages(990)),
            max: Some(pages(1000)),
            processes: 1,
            process: Some("tenant/7".into()),
            ..Cgroup::default()
        };
        assert_eq!(
            cgroup_text(&balance(&[], Vec::new()), &cgroup),
            "the memory cgroup /scene is full: 3.9 MiB of its limit of 3.9 MiB, 1 process, tenant/7 among them"
        );
    }
}
