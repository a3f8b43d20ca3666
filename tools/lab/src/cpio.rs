//! Writes initramfs archives: cpio's "newc" format (Documentation/driver-api/early-userspace/buffer-format.rst).

/// An archive under construction. Files keep the order in which they were added and have fixed dates: the same content
/// gives the same bytes.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    directories: Vec<String>,
    entries: u32,
}

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const DEVICE: u32 = 0o020_600;

impl Archive {
    /// Adds a file, as executable, and its parent directories.
    pub fn file(&mut self, path: &str, content: &[u8]) {
        let path = path.trim_start_matches('/');
        for (at, _) in path.match_indices('/') {
            let directory = path.get(..at).unwrap_or_default().to_owned();
            if !self.directories.contains(&directory) {
                self.entry(&directory, DIRECTORY, (0, 0), &[]);
                self.directories.push(directory);
            }
        }
        self.entry(path, PROGRAM, (0, 0), content);
    }

    /// Adds /dev/console, which the kernel opens as init's standard output.
    pub fn console(&mut self) {
        self.entry("dev", DIRECTORY, (0, 0), &[]);
        self.directories.push("dev".into());
        self.entry("dev/console", DEVICE, (5, 1), &[]);
    }

    /// Finishes the archive. An initramfs may hold several, one after the other.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        self.entries += 1;
        let links = if mode == DIRECTORY { 2 } else { 1 };
        let size = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let name_size = u32::try_from(name.len() + 1).unwrap_or(u32::MAX);
        self.bytes.extend(b"070701");
        // inode, mode, user, group, links, date, size, device of the file, device it is, name size, checksum
        let fields = [self.entries, mode, 0, 0, links, 0, size, 0, 0, device.0, device.1, name_size, 0];
        for field in fields {
            self.bytes.extend(format!("{field:08x}").bytes());
        }
        self.bytes.extend(name.bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_come_once_and_before_their_files() {
        let mut archive = Archive::default();
        archive.console();
        archive.file("/a/b/one", b"1");
        archive.file("/a/b/two", b"22222");
        let bytes = archive.finish();
        let text = String::from_utf8_lossy(&bytes);
        let at = |name: &str| text.find(&format!("{name}\0")).unwrap();
        assert!(at("dev/console") < at("a"));
        assert!(at("a/b") < at("a/b/one") && at("a/b/one") < at("a/b/two"));
        assert_eq!(text.matches("070701").count(), 7);
        assert_eq!(bytes.len() % 4, 0);
        // Header and name of the console are padded together: 110 + 12 bytes.
        assert!(text.contains("TRAILER!!!"));
    }
}
