//! Finds the kernel modules that a guest needs, in load order.
//!
//! Debian's packages contain no modules.dep, which is made on installation. Modules list their dependencies in their
//! `.modinfo` section.

use crate::kernels::Kernel;
use crate::tools::Tools;
use anyhow::{Context, Result};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A module to load.
pub struct Module {
    /// Name, with underscores.
    pub name: String,
    /// Content, decompressed.
    pub content: Vec<u8>,
}

/// Returns modules and their dependencies, dependencies first. Skips names that are built in or do not exist: a missing
/// driver shows when the guest looks for its disks.
pub fn load_order(kernel: &Kernel, tools: &Tools, wanted: &[&str]) -> Result<Vec<Module>> {
    let mut paths = HashMap::new();
    find(&kernel.modules()?.join("kernel"), &mut paths)?;
    let mut order = Vec::new();
    for name in wanted {
        visit(name, &paths, tools, &mut order)?;
    }
    Ok(order)
}

fn visit(name: &str, paths: &HashMap<String, PathBuf>, tools: &Tools, order: &mut Vec<Module>) -> Result<()> {
    if order.iter().any(|module| module.name == name) {
        return Ok(());
    }
    let Some(path) = paths.get(name) else { return Ok(()) };
    let content = tools.decompress(path)?;
    for dependency in depends(&content) {
        visit(&dependency, paths, tools, order)?;
    }
    order.push(Module { name: name.to_owned(), content });
    Ok(())
}

/// Returns a module's dependencies. `.modinfo` is a sequence of NUL-terminated "key=value" strings, and no other part
/// of a module contains this key.
fn depends(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else { return Vec::new() };
    let value = module.get(at + KEY.len()..).unwrap_or_default().split(|byte| *byte == 0).next();
    let value = String::from_utf8_lossy(value.unwrap_or_default()).into_owned();
    value.split(',').filter(|name| !name.is_empty()).map(normalize).collect()
}

/// Replaces hyphens by underscores, which the kernel treats alike.
fn normalize(name: &str) -> String {
    name.replace('-', "_")
}

fn find(directory: &Path, paths: &mut HashMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry.with_context(|| directory.display().to_string())?.path();
        if path.is_dir() {
            find(&path, paths)?;
        } else if let Some((name, _)) =
            path.file_name().and_then(|n| n.to_str()).and_then(|n| n.split_once(".ko"))
        {
            paths.insert(normalize(name), path.clone());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_come_from_modinfo() {
        let module = b"\x7fELF....\0alias=x\0depends=virtio,virtio-ring\0name=virtio_pci\0";
        assert_eq!(depends(module), ["virtio", "virtio_ring"]);
        assert_eq!(depends(b"..\0depends=\0name=virtio\0"), Vec::<String>::new());
        assert_eq!(depends(b"..\0depends=cut"), ["cut"]);
        assert_eq!(depends(b""), Vec::<String>::new());
    }
}
