//! Parses `/proc/vmallocinfo`.

use serde::Serialize;

use crate::error::VmallocError;

/// The areas of the vmalloc space.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Areas {
    /// In file order: sorted by address, since 6.9 (72210662c5a2) only within each vmap node.
    pub list: Vec<Area>,
    /// The kernel hashed the addresses (`kernel.kptr_restrict` is 0): sizes are valid, addresses are not.
    pub hashed: bool,
}

/// One area.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Area {
    /// First address.
    pub start: u64,
    /// Bytes, guard page included.
    pub size: u64,
    /// Kind of the area.
    pub kind: AreaKind,
    /// The allocating function, without offset.
    pub caller: Option<String>,
    /// Pages mapped, if the kernel prints them.
    pub pages: u64,
    /// Pages by NUMA node, if the kernel prints them.
    pub nodes: Vec<(u32, u64)>,
}

/// Kind of an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AreaKind {
    /// Memory of vmalloc().
    Vmalloc,
    /// Pages mapped by vmap().
    Vmap,
    /// Pages mapped by vm_map_ram().
    VmMapRam,
    /// Device memory.
    Ioremap,
    /// DMA memory.
    Dma,
    /// Freed, but not purged.
    Unpurged,
    /// Reserved, or of an unknown kind.
    Other,
}

impl AreaKind {
    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vmalloc => "vmalloc",
            Self::Vmap => "vmap",
            Self::VmMapRam => "vm_map_ram",
            Self::Ioremap => "ioremap",
            Self::Dma => "dma",
            Self::Unpurged => "unpurged",
            Self::Other => "other",
        }
    }
}

impl Areas {
    /// Parses the text of the file.
    ///
    /// # Errors
    /// [`VmallocError::Areas`] with the line that does not parse.
    pub fn parse(text: &str) -> Result<Self, VmallocError> {
        let mut areas = Self::default();
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let fault = || VmallocError::Areas { line: at + 1, text: line.chars().take(80).collect() };
            let (area, end) = parse_line(line).ok_or_else(fault)?;
            areas.hashed |= area.start.checked_add(area.size) != Some(end);
            areas.list.push(area);
        }
        Ok(areas)
    }

    /// Returns the areas sorted by address; `None` if the kernel hashed the addresses.
    pub fn by_address(&self) -> Option<Vec<&Area>> {
        if self.hashed {
            return None;
        }
        let mut list: Vec<&Area> = self.list.iter().collect();
        list.sort_by_key(|area| area.start);
        Some(list)
    }
}

/// Parses `0xSTART-0xEND SIZE CALLER+0x12/0x34 pages=4 vmalloc N0=4`. Returns the area and its end.
fn parse_line(line: &str) -> Option<(Area, u64)> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let address = |text: &str| u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok();
    let (start, end) = (address(start)?, address(end)?);
    let size = words.next()?.parse().ok()?;
    let mut area = Area { start, size, kind: AreaKind::Other, caller: None, pages: 0, nodes: Vec::new() };
    for (position, word) in words.enumerate() {
        match word {
            "vmalloc" => area.kind = AreaKind::Vmalloc,
            "vmap" => area.kind = AreaKind::Vmap,
            "vm_map_ram" => area.kind = AreaKind::VmMapRam,
            "ioremap" => area.kind = AreaKind::Ioremap,
            "dma-coherent" => area.kind = AreaKind::Dma,
            "unpurged" => area.kind = AreaKind::Unpurged,
            // "unpurged vm_area", "user", "vpages", "sparse" … carry nothing of interest.
            _ if position == 0 && word.contains("+0x") => {
                area.caller = word.split_once("+0x").map(|(name, _)| name.to_owned());
            }
            _ => match word.split_once('=') {
                Some(("pages", count)) => area.pages = count.parse().ok()?,
                Some((node, count)) if node.starts_with('N') => {
                    if let (Ok(node), Ok(count)) = (node[1..].parse(), count.parse()) {
                        area.nodes.push((node, count));
                    }
                }
                _ => {}
            },
        }
    }
    Some((area, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
0xffffc90000000000-0xffffc90000005000   20480 irq_init_percpu_irqstack+0xf8/0x130 vmap
0xffffc90000005000-0xffffc90000007000    8192 acpi_os_map_iomem+0x1a9/0x1e0 phys=0x000000001ffe2000 ioremap
0xffffc9000000c000-0xffffc90000011000   20480 kernel_clone+0xbd/0x440 pages=4 vmalloc N0=3 N1=1
0xffffc90000015000-0xffffc9000001a000   20480 unpurged vm_area
0xffffc90000020000-0xffffc90000022000    8192 vm_map_ram
";

    #[test]
    fn every_kind_of_line_is_read() {
        let areas = Areas::parse(TEXT).unwrap();
        let kinds: Vec<_> = areas.list.iter().map(|area| area.kind).collect();
        use AreaKind::{Ioremap, Unpurged, VmMapRam, Vmalloc, Vmap};
        assert_eq!(kinds, [Vmap, Ioremap, Vmalloc, Unpurged, VmMapRam]);
        assert_eq!(areas.list[2].caller.as_deref(), Some("kernel_clone"));
        assert_eq!((areas.list[2].pages, &areas.list[2].nodes[..]), (4, &[(0, 3), (1, 1)][..]));
        assert!(!areas.hashed);
        assert_eq!(areas.by_address().unwrap().len(), 5);
    }

    #[test]
    fn hashed_addresses_are_noticed() {
        let text =
            "0x00000000a1e3f8e5-0x000000009a49d296   20480 kernel_clone+0xbd/0x440 pages=4 vmalloc N0=4\n";
        let areas = Areas::parse(text).unwrap();
        assert!(areas.hashed && areas.by_address().is_none());
    }

    #[test]
    fn errors_name_the_line() {
        let error = Areas::parse(&format!("{TEXT}nonsense\n")).unwrap_err().to_string();
        assert!(error.contains("line 6") && error.contains("nonsense"), "{error}");
    }
}
