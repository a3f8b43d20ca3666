//! Names of the files in an initramfs: cpio archives (`Documentation/driver-api/early-userspace/buffer-format.rst`), the last of
//! which is compressed.
//!
//! They are read here, and not by `lsinitramfs` or `lsinitrd`: these start dozens of programs, which took a minute in a loaded
//! guest, and cannot list the files of another machine.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::root::Root;

/// What a listing takes at most.
const TIME: Duration = Duration::from_secs(3);
/// More than any initramfs has.
const MAX_FILES: usize = 1 << 20;
const MAX_NAME: usize = 4096;
/// Bytes of a header of the `newc` format.
const HEADER: usize = 110;
const TRAILER: &[u8] = b"TRAILER!!!";
/// As many links as the kernel follows.
const MAX_LINKS: usize = 40;

/// The files of an initramfs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Initramfs {
    /// Their names, without the first `/`. Without `init` and makedumpfile where they cannot run.
    Files(Vec<String>),
    /// The file is damaged: the kernel finds no `init` in it, or not all of its files.
    Damaged(String),
    /// Why they are not known.
    Unknown(String),
}

impl Initramfs {
    /// Lists the files of an initramfs.
    pub(crate) fn read(root: &Root, path: &Path) -> Self {
        Self::within(root, path, Instant::now() + TIME)
    }

    fn within(root: &Root, path: &Path, deadline: Instant) -> Self {
        let file = match root.file(path) {
            Ok(file) => file,
            Err(error) => return Self::Unknown(format!("it cannot be read: {error}")),
        };
        let mut names = Names { names: Vec::new(), kinds: Vec::new(), deadline };
        match names.image(file, root.is_this_machine()) {
            Ok(()) => {}
            Err(Stop::Unknown(reason)) => return Self::Unknown(reason),
            Err(Stop::Damaged(reason)) => return Self::Damaged(reason),
            Err(Stop::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Self::Damaged("it ends in the middle of a file".into());
            }
            Err(Stop::Io(error)) => return Self::Damaged(error.to_string()),
        }
        // dracut's squash modules put the files into a further image.
        let nested = |name: &&String| {
            let nested = ["squashfs-root.img", "squash-root.img", "squash/root.img", "erofs-root.img"];
            nested.iter().any(|image| name.ends_with(image))
        };
        match names.names.iter().find(nested) {
            Some(nested) => Self::Unknown(format!("its files are in a further image ({nested})")),
            None => Self::Files(names.that_run()),
        }
    }

    /// The releases of the kernels that it has modules of.
    pub(crate) fn releases(&self) -> Vec<String> {
        let Self::Files(names) = self else { return Vec::new() };
        let release = |name: &String| {
            let rest = name.strip_prefix("usr/").unwrap_or(name).strip_prefix("lib/modules/")?;
            rest.split_once('/').map(|(release, _)| release.to_owned())
        };
        let mut found: Vec<String> = names.iter().filter_map(release).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Whether one of the files satisfies a condition; `None` if they are not known.
    pub(crate) fn any(&self, is_it: impl Fn(&str) -> bool) -> Option<bool> {
        match self {
            Self::Files(names) => Some(names.iter().any(|name| is_it(name))),
            _ => None,
        }
    }
}

enum Stop {
    Io(io::Error),
    Damaged(String),
    Unknown(String),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

struct Names {
    names: Vec<String>,
    /// What each of them is.
    kinds: Vec<Kind>,
    deadline: Instant,
}

enum Kind {
    Link(String),
    /// A regular file that is empty or not executable.
    Data,
    Other,
}

impl Kind {
    /// Of a header's mode, number of links and size. Of several links to a file, only the last has its bytes.
    fn of(mode: u64, links: u64, size: u64) -> Self {
        let is_file = mode & 0o170_000 == 0o100_000;
        let runs = mode & 0o111 != 0 && (size > 0 || links > 1);
        if is_file && !runs { Self::Data } else { Self::Other }
    }
}

impl Names {
    /// The names, without programs that are empty or not executable, and without links to them or to nowhere.
    fn that_run(self) -> Vec<String> {
        let kinds: HashMap<&str, &Kind> = self.names.iter().map(String::as_str).zip(&self.kinds).collect();
        let is_program = |name: &str| name == "init" || name.ends_with("/makedumpfile");
        let names = self.names.iter().filter(|name| !is_program(name) || runs(name, &kinds));
        names.cloned().collect()
    }

    /// All archives of an image.
    fn image(&mut self, file: File, runs_programs: bool) -> Result<(), Stop> {
        let mut reader = BufReader::with_capacity(1 << 16, file);
        let mut is_first = true;
        loop {
            // Archives are padded with zeros.
            loop {
                let bytes = reader.fill_buf()?;
                let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
                if zeros == 0 {
                    break;
                }
                reader.consume(zeros);
            }
            let magic = reader.fill_buf()?;
            if magic.is_empty() {
                return if is_first { Err(Stop::Damaged("it is empty".into())) } else { Ok(()) };
            }
            let program = match magic {
                [b'0', b'7', b'0', b'7', b'0', ..] => {
                    self.archive(&mut reader)?;
                    is_first = false;
                    continue;
                }
                [0x1f, 0x8b, ..] => return self.compressed(flate2::bufread::GzDecoder::new(reader)),
                [0x28, 0xb5, 0x2f, 0xfd, ..] => {
                    let context = zstd_safe::DCtx::try_create();
                    let context = context.ok_or_else(|| Stop::Unknown("there is no memory left".into()))?;
                    return self.compressed(Zstd { reader, context, is_between: false });
                }
                [0xfd, b'7', b'z', ..] => "xz",
                [0x02, 0x21, 0x4c, 0x18, ..] | [0x04, 0x22, 0x4d, 0x18, ..] => "lz4",
                [b'B', b'Z', b'h', ..] => "bzip2",
                [0x5d, 0, 0, ..] => "lzma",
                [0x89, b'L', b'Z', b'O', ..] => "lzop",
                _ => {
                    return Err(Stop::Damaged(
                        "it begins with neither a cpio archive nor a compressed file".into(),
                    ));
                }
            };
            if !runs_programs {
                return Err(Stop::Unknown(format!("it is compressed by {program}, which is not run")));
            }
            let at = reader.stream_position()?;
            let mut file = reader.into_inner();
            file.seek(SeekFrom::Start(at))?;
            return self.decompressed(file, program);
        }
    }

    /// Has a program decompress the rest of a file.
    fn decompressed(&mut self, file: File, program: &str) -> Result<(), Stop> {
        let run =
            Command::new(program).arg("-dc").stdin(file).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = Ended(run.map_err(|_| Stop::Unknown(format!("{program} is not installed")))?);
        let Some(out) = child.0.stdout.take() else { return Err(Stop::Unknown("it has no output".into())) };
        self.compressed(out)?;
        Ok(())
    }

    fn compressed(&mut self, reader: impl Read) -> Result<(), Stop> {
        let mut reader = BufReader::with_capacity(1 << 16, reader);
        self.archive(&mut reader)?;
        // To the end, where a checksum is; what follows an archive is padding.
        let mut bytes = vec![0; 1 << 16];
        while reader.read(&mut bytes)? > 0 {
            self.go_on()?;
        }
        Ok(())
    }

    /// An archive, up to its trailer.
    fn archive(&mut self, reader: &mut impl BufRead) -> Result<(), Stop> {
        loop {
            self.go_on()?;
            let mut header = [0; HEADER];
            reader.read_exact(&mut header)?;
            if !header.starts_with(b"070701") && !header.starts_with(b"070702") {
                return Err(Stop::Damaged("what it holds is not a cpio archive".into()));
            }
            let field = |number: usize| {
                let digits = header.get(6 + 8 * number..14 + 8 * number)?;
                u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
            };
            let (Some(size), Some(length)) = (field(6), field(11).and_then(|of| usize::try_from(of).ok()))
            else {
                return Err(Stop::Damaged("a header of its cpio archive has no numbers".into()));
            };
            if length > MAX_NAME || self.names.len() >= MAX_FILES {
                return Err(Stop::Damaged("its cpio archive has names or files beyond measure".into()));
            }
            let mut name = vec![0; length];
            reader.read_exact(&mut name)?;
            skip(reader, padding(HEADER as u64 + length as u64))?;
            while name.last() == Some(&0) {
                name.pop();
            }
            let (mode, links) = (field(1).unwrap_or(0), field(4).unwrap_or(0));
            let kind = if mode & 0o170_000 == 0o120_000 && size <= MAX_NAME as u64 {
                let mut target = Vec::new();
                reader.by_ref().take(size).read_to_end(&mut target)?;
                skip(reader, size - target.len() as u64)?;
                Kind::Link(String::from_utf8_lossy(&target).into_owned())
            } else {
                skip(reader, size)?;
                Kind::of(mode, links, size)
            };
            skip(reader, padding(size))?;
            if name == TRAILER {
                return Ok(());
            }
            let name = String::from_utf8_lossy(&name);
            self.kinds.push(kind);
            self.names.push(name.trim_start_matches("./").trim_start_matches('/').to_owned());
        }
    }

    fn go_on(&self) -> Result<(), Stop> {
        if Instant::now() < self.deadline {
            return Ok(());
        }
        Err(Stop::Unknown(format!("reading it took more than {} s", TIME.as_secs())))
    }
}

/// Whether a path leads to a program that can run, as far as the archives show. Directories may have no entry.
fn runs(path: &str, kinds: &HashMap<&str, &Kind>) -> bool {
    let names = |path: &str| path.split('/').rev().map(str::to_owned).collect::<Vec<_>>();
    let (mut pending, mut at, mut links) = (names(path), Vec::new(), 0);
    let mut last = None;
    while let Some(name) = pending.pop() {
        match name.as_str() {
            "" | "." => continue,
            ".." => {
                at.pop();
                continue;
            }
            _ => at.push(name),
        }
        last = kinds.get(at.join("/").as_str());
        if let Some(Kind::Link(target)) = last {
            links += 1;
            if links > MAX_LINKS {
                return false;
            }
            at.pop();
            if target.starts_with('/') {
                at.clear();
            }
            pending.extend(names(target));
        }
    }
    matches!(last, Some(Kind::Other))
}

/// A program that is stopped when its output is not wanted any more.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn padding(length: u64) -> u64 {
    length.next_multiple_of(4) - length
}

fn skip(reader: &mut impl BufRead, mut length: u64) -> io::Result<()> {
    while length > 0 {
        let there = reader.fill_buf()?.len().min(usize::try_from(length).unwrap_or(usize::MAX));
        if there == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        reader.consume(there);
        length -= there as u64;
    }
    Ok(())
}

/// A zstd stream of frames.
struct Zstd<R> {
    reader: R,
    context: zstd_safe::DCtx<'static>,
    /// Whether a frame has ended, and no other has begun.
    is_between: bool,
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let bytes = self.reader.fill_buf()?;
            let is_end = bytes.is_empty();
            // Zeros that fill up a block.
            if self.is_between && bytes.first().is_none_or(|byte| *byte == 0) {
                return Ok(0);
            }
            let mut input = zstd_safe::InBuffer::around(bytes);
            let mut output = zstd_safe::OutBuffer::around(out);
            let left = self.context.decompress_stream(&mut output, &mut input).map_err(|code| {
                io::Error::new(io::ErrorKind::InvalidData, zstd_safe::get_error_name(code))
            })?;
            let (consumed, written) = (input.pos(), output.pos());
            self.reader.consume(consumed);
            self.is_between = left == 0;
            if written > 0 {
                return Ok(written);
            }
            if is_end {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    /// An archive of files: name, mode, bytes.
    fn archive(files: &[(&str, usize, &str)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, mode, bytes) in files.iter().chain(&[("TRAILER!!!", 0, "")]) {
            let mut fields = [0; 13];
            (fields[1], fields[4], fields[6], fields[11]) = (*mode, 1, bytes.len(), name.len() + 1);
            out.extend(b"070701");
            fields.iter().for_each(|field| out.extend(format!("{field:08x}").into_bytes()));
            out.extend(format!("{name}\0").into_bytes());
            out.resize(out.len().next_multiple_of(4), 0);
            out.extend(bytes.as_bytes());
            out.resize(out.len().next_multiple_of(4), 0);
        }
        out
    }

    #[test]
    fn programs_that_cannot_run_are_left_out() {
        let merged = [("bin", 0o120_777, "usr/bin"), ("usr/bin/sh", 0o100_755, "#!")];
        for (file, is_there) in [
            (("init", 0o100_755, "#!"), true),
            (("init", 0o100_644, "#!"), false),
            (("init", 0o100_755, ""), false),
            (("init", 0o120_777, "bin/sh"), true),
            (("init", 0o120_777, "/bin/../bin/./sh"), true),
            (("init", 0o120_777, "usr/lib/systemd/systemd"), false),
            (("init", 0o120_777, "init"), false),
            (("init", 0o120_777, ""), false),
            (("usr/bin/makedumpfile", 0o100_755, ""), false),
            (("usr/bin/makedumpfile", 0o120_777, "sh"), true),
            (("usr/bin/makedumpfile", 0o120_777, "gone"), false),
            (("etc/makedumpfile.conf", 0o100_644, ""), true),
        ] {
            let Initramfs::Files(names) = list(&archive(&[merged[0], merged[1], file])) else { panic!() };
            assert_eq!(names.iter().any(|name| name == file.0), is_there, "{file:?}");
        }
    }

    /// An archive with files of some bytes each.
    fn cpio(names: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, size) in names.iter().map(|name| (*name, 1001)).chain([("TRAILER!!!", 0)]) {
            let mut fields = [0; 13];
            fields[6] = size;
            fields[11] = name.len() + 1;
            out.extend(b"070701");
            fields.iter().for_each(|field| out.extend(format!("{field:08x}").into_bytes()));
            out.extend(name.as_bytes());
            out.push(0);
            out.resize(out.len().next_multiple_of(4), 0);
            out.resize((out.len() + size).next_multiple_of(4), b'x');
        }
        out
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(zstd_safe::compress_bound(bytes.len()));
        let mut context = zstd_safe::CCtx::try_create().unwrap();
        context.set_parameter(zstd_safe::CParameter::ChecksumFlag(true)).unwrap();
        context.compress2(&mut out, bytes).unwrap();
        out
    }

    fn list(bytes: &[u8]) -> Initramfs {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("initrd"), bytes).unwrap();
        Initramfs::read(&Root::open(directory.path()).unwrap(), Path::new("/initrd"))
    }

    #[test]
    fn names_of_all_archives_are_listed() {
        let early = cpio(&["kernel/x86/microcode/GenuineIntel.bin"]);
        let main = cpio(&["init", "./usr/lib/modules/6.1/a.ko", "usr/bin/sh"]);
        let padding = vec![0; 700];
        let files =
            ["kernel/x86/microcode/GenuineIntel.bin", "init", "usr/lib/modules/6.1/a.ko", "usr/bin/sh"];
        let expected = Initramfs::Files(files.map(str::to_owned).into());
        for main in [main.clone(), gzip(&main), zstd(&main)] {
            assert_eq!(list(&[&early[..], &padding, &main].concat()), expected);
        }
        let nested = list(&cpio(&["init", "squashfs-root.img"]));
        assert!(matches!(nested, Initramfs::Unknown(reason) if reason.contains("further image")));
        let unknown = list(b"\xfd7zXZ\0abc");
        assert!(matches!(unknown, Initramfs::Unknown(reason) if reason.contains("xz")));
    }

    #[test]
    fn an_image_that_is_cut_or_changed_is_damaged() {
        let names: Vec<String> = (0..200).map(|number| format!("file{number}")).collect();
        let main = cpio(&names.iter().map(String::as_str).collect::<Vec<_>>());
        for image in [main.clone(), gzip(&main), zstd(&main)] {
            for at in (0..image.len()).step_by(image.len() / 50 + 1) {
                assert!(matches!(list(&image[..at]), Initramfs::Damaged(_)), "{at} of {}", image.len());
            }
            assert!(matches!(list(&image[..image.len() - 1]), Initramfs::Damaged(_)) || image == main);
        }
        assert!(matches!(list(b"image"), Initramfs::Damaged(_)));
    }

    #[test]
    fn a_listing_ends_in_time() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("initrd"), cpio(&["init"])).unwrap();
        let root = Root::open(directory.path()).unwrap();
        let listed = Initramfs::within(&root, Path::new("/initrd"), Instant::now());
        assert!(matches!(listed, Initramfs::Unknown(reason) if reason.contains("took more")));
    }

    proptest! {
        #[test]
        fn any_bytes_are_listed(bytes in prop::collection::vec(any::<u8>(), 0..300), magic in 0..4_usize) {
            let magics: [&[u8]; 4] = [b"", b"070701", b"\x1f\x8b\x08\0", b"\x28\xb5\x2f\xfd"];
            list(&[magics[magic], &bytes].concat());
        }
    }
}
