//! What a capture knows before it begins, and its report afterwards.

use std::ops::Range;
use std::path::Path;

use pagehaul_codec::Method;
use pagehaul_elfcore::dump::{SHORTEST_HOLE, Segments};
use pagehaul_elfcore::notes;
use pagehaul_kdump::write::codec_flag;
use pagehaul_kdump::{Header, Layout};
use pagehaul_kernel::{AddressSpace, Kernel, PageClass, Undecidable};
use pagehaul_machine::{PageSize, Platform, arch};
use pagehaul_output::StoredBitmap;

use crate::compression::Compression;
use crate::error::CaptureError;
use crate::identity;
use crate::options::{Format, Options};
use crate::owners::{OwnerFilter, OwnerRules};
use crate::priority::OrderedPages;
use crate::priority::Priority;
use crate::report::{CaptureReport, Found, MethodCount, PriorityCount};
use crate::report::{Clock, class_counts};
use crate::selection::{Selection, Tally};
use crate::write::WriteStats;
use pagehaul_run::{Phase, Progress};
use pagehaul_vmcore::Source;

/// A prepared capture.
pub(crate) struct Job<'a> {
    pub(crate) source: &'a Source,
    pub(crate) options: &'a Options,
    pub(crate) progress: &'a Progress,
    kernel: Option<Kernel>,
    /// The kernel's, or if it is not known, the source's.
    page_size: PageSize,
    /// Pages whose priority is known beforehand; `None` where pages are not ordered by priority.
    ordered: Option<OrderedPages>,
    /// Free pages on per-CPU lists; none if they are kept.
    free: Option<&'a [Range<u64>]>,
    warnings: Vec<String>,
    /// Bytes that whatever reads the output may hold, and has to send on.
    pub(crate) buffered: u64,
}

impl<'a> Job<'a> {
    /// Finds the kernel in the source's memory.
    pub(crate) fn prepare(
        source: &'a Source,
        options: &'a Options,
        progress: &'a Progress,
    ) -> Result<Self, CaptureError> {
        progress.begin(Phase::Prepare, 0);
        let memory = source.memory();
        let platform = memory.platform();
        check_machine(platform)?;
        if options.keep_all && options.owners.is_some() {
            return Err(CaptureError::Refused(
                "to exclude pages by owner, pages have to be classified".into(),
            ));
        }
        let mut warnings = source.warnings();
        let kernel = match Kernel::discover(memory) {
            Ok(kernel) => Some(kernel),
            // Keeping all pages needs no kernel.
            Err(_) if options.keep_all => None,
            Err(error) if options.level.bits() <= 1 && options.owners.is_none() => {
                warnings
                    .push(format!("poisoned and offline pages cannot be distinguished from others: {error}"));
                None
            }
            Err(error) => return Err(error.into()),
        };
        let page_size = kernel.as_ref().map_or(platform.page_size, Kernel::page_size);
        let pages = memory.ranges().partly_stored(page_size).count();
        if pages > 0 {
            warnings.push(format!(
                "{pages} pages are in the source in part only: their excluded bytes are written as zeros"
            ));
        }
        let classified = kernel.iter().filter(|_| !options.keep_all);
        let gaps = classified.flat_map(Kernel::undecidable).filter(|gap| gap.class != PageClass::Unaccepted);
        warnings.extend(gaps.map(Undecidable::to_string));
        Ok(Self {
            source,
            options,
            progress,
            kernel,
            page_size,
            ordered: None,
            free: None,
            warnings,
            buffered: 0,
        })
    }

    /// Enables ordering pages by priority, those of `first` before all others.
    pub(crate) fn order_by_priority(&mut self, first: &[Range<u64>]) {
        let memory = self.source.memory();
        let kernel = self.kernel.as_ref().map(|kernel| kernel.kernel_mapped_pages(memory));
        self.ordered = Some(OrderedPages { first: first.to_vec(), kernel: kernel.unwrap_or_default() });
    }

    /// Excludes these pages, which are on per-CPU lists, with the free ones.
    pub(crate) fn exclude_free(&mut self, pages: Option<&'a [Range<u64>]>) {
        self.free = pages;
    }

    /// Adds a warning to the report.
    pub(crate) fn warning(&mut self, text: String) {
        self.warnings.push(text);
    }

    /// Returns what selects the pages to keep.
    pub(crate) fn selection(&self) -> Selection<'_> {
        Selection {
            memory: self.source.memory(),
            page_size: self.page_size,
            kernel: self.kernel.as_ref().filter(|_| !self.options.keep_all),
            level: self.options.level,
            owners: self.options.owners.as_deref(),
            ordered: self.ordered.as_ref(),
            free: self.free.unwrap_or_default(),
            shortest_hole: match self.options.format {
                // Contents of excluded pages would be in a dump that is given away.
                Format::Elf | Format::FlattenedElf if self.is_erased() => 1,
                Format::Elf | Format::FlattenedElf => SHORTEST_HOLE,
                Format::Kdump | Format::Flattened => 1,
            },
        }
    }

    /// Whether something is erased from the dump, now or before.
    fn is_erased(&self) -> bool {
        self.source.is_changed() || notes::lines_of(self.source.memory().notes(), notes::ERASED).is_some()
    }

    /// Returns how pages are compressed.
    pub(crate) fn compression(&self) -> Compression {
        match self.options.format {
            Format::Elf | Format::FlattenedElf => Compression::Fixed(Method::NONE),
            Format::Kdump | Format::Flattened => self.options.compression,
        }
    }

    /// Returns the layout of a kdump-compressed file.
    pub(crate) fn layout(&self) -> Result<Layout, CaptureError> {
        let notes = self.source.memory().notes().len() as u64;
        Ok(Layout::new(self.page_size, self.selection().max_pfn(), notes)?)
    }

    fn space(&self) -> Option<&AddressSpace> {
        self.kernel.as_ref().map(Kernel::space)
    }

    /// Returns the segments of an ELF file that holds the pages of `kept`.
    pub(crate) fn segments(&self, kept: StoredBitmap) -> Segments<'a> {
        let memory = self.source.memory();
        let direct_map = self.space().map_or_else(|| memory.direct_map(), AddressSpace::direct_map);
        Segments { memory, page_size: self.page_size, kept, direct_map }
    }

    /// Returns the header of a kdump-compressed file.
    pub(crate) fn header(&self) -> Header<'a> {
        let notes = self.source.memory().notes();
        let space = self.space();
        Header {
            uts: identity::utsname(self.source, space),
            crash_time: space.and_then(AddressSpace::crash_time).unwrap_or(0) as i64,
            dump_level: u32::from(self.options.level.bits()) | self.source.level(),
            nr_cpus: notes::cpu_count(notes),
            phys_base: space.map_or(0, AddressSpace::phys_base),
            // A hint only: descriptors name the codec of each page.
            codec: self.compression().ladder().last().map_or(0, |method| codec_flag(method.codec())),
            notes,
            split: None,
        }
    }

    fn found(&self) -> Found {
        let space = self.space();
        Found {
            page_size: self.page_size.bytes(),
            max_pfn: self.selection().max_pfn(),
            ranges: self.source.memory().ranges().pieces().len(),
            build_id: space.and_then(AddressSpace::build_id).map(str::to_owned),
            paging_levels: space.map(|space| space.translator().levels()),
            phys_base: space.map(AddressSpace::phys_base),
            direct_map: space.and_then(AddressSpace::direct_map),
        }
    }

    pub(crate) fn report(
        &self,
        output: Option<&Path>,
        tally: &Tally,
        stats: WriteStats,
        output_bytes: u64,
        clock: &Clock,
    ) -> CaptureReport {
        let mut warnings = self.warnings.clone();
        if let Some(inconsistency) = &tally.inconsistency {
            let many = match tally.contradictions {
                0 => String::new(),
                1 => " (1 page contradicts others)".into(),
                pages => format!(" ({pages} pages contradict others)"),
            };
            warnings.push(format!(
                "struct pages are damaged; undecidable pages are kept{many}: PFN {:#x}: {}",
                inconsistency.pfn, inconsistency.what
            ));
        }
        // Only confidential guests have unaccepted memory: kernels lack its type on most machines without a loss.
        if tally.kept[PageClass::Undecided as usize] > 0 && !self.options.keep_all {
            let gaps = self.kernel.iter().flat_map(Kernel::undecidable);
            warnings
                .extend(gaps.filter(|gap| gap.class == PageClass::Unaccepted).map(Undecidable::to_string));
        }
        let owner_rules = self.options.owners.as_deref().map(OwnerFilter::rules);
        if let Some(rules) = owner_rules {
            warnings.extend(owner_warnings(rules, tally));
        }
        let count = |&method: &Method| {
            let (_, pages) = stats.packed.iter().find(|(known, _)| *known == method)?;
            Some(MethodCount { method: method.to_string(), pages: *pages })
        };
        let methods = self.compression().ladder().iter().filter_map(count).collect();
        CaptureReport {
            outcome: stats.outcome,
            source: self.source.path().display().to_string(),
            output: output.map(|path| path.display().to_string()),
            parts: Vec::new(),
            kernel: self.space().map(|space| space.release().to_owned()),
            crash_time: self.space().and_then(AddressSpace::crash_time),
            found: self.found(),
            level: self.options.level.bits(),
            format: self.options.format.name(),
            codec: self.compression().to_string(),
            threads: self.options.threads,
            classes: class_counts(&tally.kept, &tally.excluded),
            other_owners: owner_rules.and_then(|rules| rules.keep.as_ref()).map(|_| tally.other_owners),
            dropped_file_systems: owner_rules.and_then(|rules| rules.drop.as_ref()).map(|_| tally.dropped),
            per_cpu_free: self.free.map(|_| tally.per_cpu_free),
            contradictions: tally.contradictions,
            excluded_from_source: tally.missing,
            pages_kept: tally.pages_kept(),
            pages_excluded: tally.pages_excluded(),
            pages_written: stats.written,
            unwritten: unwritten(&tally.by_priority, stats.by_priority),
            zero_pages: stats.zero,
            raw_pages: stats.raw,
            compressed_pages: stats.packed.iter().map(|(_, pages)| pages).sum(),
            methods,
            unreadable_pages: stats.unreadable_pages,
            unreadable: stats.unreadable,
            memory_bytes: self.source.memory().ranges().bytes(),
            stored_bytes: stats.stored_bytes,
            output_bytes,
            seconds: clock.seconds,
            warnings,
        }
    }
}

/// What the user should know of pages whose owner decides.
fn owner_warnings(rules: &OwnerRules, tally: &Tally) -> Vec<String> {
    let mut warnings = Vec::new();
    let undecided = tally.kept[PageClass::Undecided as usize];
    if undecided > 0 {
        warnings.push(format!("{undecided} pages whose use and owner are not known are kept"));
    }
    if tally.unknown_files > 0 {
        let pages = tally.unknown_files;
        warnings.push(format!("{pages} pages of files whose file system is not known are kept"));
    }
    if tally.missing_of_owners > 0 {
        let pages = tally.missing_of_owners;
        warnings
            .push(format!("pages of the owners whose pages are to be kept that the source lacks: {pages}"));
    }
    let user = [PageClass::Cache, PageClass::CachePrivate, PageClass::Anon, PageClass::HugeTlb];
    if rules.keep.is_some() && user.iter().all(|class| tally.kept[*class as usize] == 0) {
        warnings.push("no page of the owners whose pages are to be kept is in the dump".into());
    }
    warnings
}

/// Refuses machines whose kernels are unknown.
fn check_machine(platform: Platform) -> Result<(), CaptureError> {
    // Hypervisors may leave the machine field empty.
    let known = platform.machine == 0 || arch::of_elf_machine(platform.machine).is_some();
    if known && platform.wide && !platform.big_endian {
        return Ok(());
    }
    Err(CaptureError::Refused(format!(
        "the source's machine is {} ({} bits, {}-endian): its memory can be read, but only dumps of {} machines can \
         be written",
        platform.name(),
        if platform.wide { 64 } else { 32 },
        if platform.big_endian { "big" } else { "little" },
        arch::names(),
    )))
}

/// Returns how many pages of `kept` were not written.
fn unwritten(kept: &[u64; Priority::COUNT], written: Option<[u64; Priority::COUNT]>) -> Vec<PriorityCount> {
    let Some(written) = written else { return Vec::new() };
    let count = |priority: Priority| {
        let kept = kept[priority as usize];
        PriorityCount { priority, kept, unwritten: kept.saturating_sub(written[priority as usize]) }
    };
    Priority::ALL.into_iter().map(count).filter(|count| count.kept > 0).collect()
}
