//! BPF maps: the areas of vmalloc that they have, and the pages of their ring buffers.

use std::collections::BTreeMap;

use pagehaul_btf::{Fault, Object};

use super::Walks;
use crate::claims::Claimant;

/// Hash tables, whose memory is apart from the map (include/uapi/linux/bpf.h).
const HASHES: [&str; 5] = ["HASH", "PERCPU_HASH", "LRU_HASH", "LRU_PERCPU_HASH", "HASH_OF_MAPS"];
const RING_BUFFERS: [&str; 2] = ["RINGBUF", "USER_RINGBUF"];
const PREFIX: &str = "BPF_MAP_TYPE_";

impl Walks<'_> {
    /// Returns addresses that are in memory of BPF maps, with the map's name, and claims their ring buffers.
    pub(super) fn bpf_maps(&mut self) -> BTreeMap<u64, String> {
        let mut found = BTreeMap::new();
        match self.maps(&mut found) {
            // A kernel without BPF, or without its types.
            Ok(()) | Err(Fault::NoSymbol(_) | Fault::NoType(_)) => {}
            Err(why) => self.missing("BPF maps", format_args!("not checked: {why}")),
        }
        found
    }

    fn maps(&mut self, found: &mut BTreeMap<u64, String>) -> Result<(), Fault> {
        let machine = self.machine;
        let types = machine.space().btf().enum_with("BPF_MAP_TYPE_HASH");
        let walk = machine.variable("map_idr", "idr")?.get("idr_rt")?.xarray()?;
        let mut broken = walk.broken;
        for (_, address) in walk.items {
            let map = machine.space().object(address, "bpf_map")?;
            // One that cannot be read does not end the table.
            if let Err(why) = self.map(&map, &types, found) {
                broken.get_or_insert_with(|| format!("that at {address:#x}: {why}"));
            }
        }
        self.missing.extend(broken.map(|why| format!("BPF maps: {why}")));
        found.remove(&0);
        Ok(())
    }

    fn map(
        &mut self,
        map: &Object<'_>,
        types: &[(String, i64)],
        found: &mut BTreeMap<u64, String>,
    ) -> Result<(), Fault> {
        let number = map.number("map_type")?;
        let kind = types.iter().find(|(_, value)| *value as u64 == number);
        let kind = kind.and_then(|(name, _)| name.strip_prefix(PREFIX)).unwrap_or_default();
        let (name, id) = (map.get("name")?.text()?, map.number("id")?);
        let name = if name.is_empty() { kind.to_lowercase() } else { name };
        let label = format!("BPF map {name}/{id}");
        if HASHES.contains(&kind) {
            let table = map.cast("bpf_htab")?;
            for part in ["buckets", "elems"] {
                found.insert(table.get(part)?.pointer()?, label.clone());
            }
        } else if RING_BUFFERS.contains(&kind) {
            self.ring_buffer_of_map(map, &label)?;
        }
        found.insert(map.address(), label);
        Ok(())
    }

    /// 457f44363a88 (5.8): pages one by one, which vmalloc only maps.
    fn ring_buffer_of_map(&mut self, map: &Object<'_>, label: &str) -> Result<(), Fault> {
        let buffer = map.cast("bpf_ringbuf_map")?.get("rb")?.target()?;
        let claimant = self.claims.claimant(Claimant::RingBuffer { owner: label.to_owned() });
        self.claim_array(&buffer, "pages", "nr_pages", claimant)
    }
}
