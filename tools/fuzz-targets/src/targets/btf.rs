//! BTF of a kernel, and of a module on top of it.

use std::sync::Arc;

use pagehaul_btf::Btf;

/// Runs the target.
pub fn run(data: &[u8]) {
    let Ok(btf) = Btf::parse(data.to_vec()) else { return };
    let walk = |btf: &Btf| {
        for id in 0..=btf.len().min(1000) as u32 {
            let _ = (btf.size(id), btf.pointee(id), btf.array(id));
            let _ = (btf.member(id, "a.b[3].c"), btf.get(id).map(|found| btf.name(&found)));
        }
        let _ = (btf.record("task_struct"), btf.enumerator("NR_FREE_PAGES"), btf.enum_with("NR_FREE_PAGES"));
    };
    walk(&btf);
    let base = Arc::new(btf);
    if let Ok(split) = Btf::parse_split(data.to_vec(), base) {
        walk(&split);
    }
}
