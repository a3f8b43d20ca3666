//! Checkpoints of processes with huge pages (hugetlbfs): CRIU cannot restore those of private mappings from pipes, and needs as many as
//! the mappings have. With a stand-in for CRIU, whose images are made here.
#![cfg(feature = "process")]

mod common {
    pub mod criu;
    pub mod subject;
}

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use common::criu::{said, with_criu};
use common::subject::{Subject, tool};
use tempfile::{TempDir, tempdir};

/// A PID that no process has.
const FREE: &str = "4194303";
/// `MAP_PRIVATE`, `MAP_NORESERVE`, and `MAP_HUGETLB` with pages of 2 MiB.
const PRIVATE: u64 = 2;
const NO_RESERVE: u64 = 0x4000;
const HUGE: u64 = 0x4_0000 | 21 << 26;

fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// CRIU's image of the memory of a process that has one mapping.
fn memory(bytes: u64, flags: u64) -> Vec<u8> {
    let mut mapping = Vec::new();
    for (field, value) in
        [(1, 1 << 40), (2, (1 << 40) + bytes), (3, 0), (4, 0), (5, 3), (6, flags), (7, 0x201)]
    {
        number(&mut mapping, field << 3);
        number(&mut mapping, value);
    }
    let mut memory = vec![8, 7, 14 << 3 | 2];
    number(&mut memory, mapping.len() as u64);
    memory.extend(mapping);
    let mut image = vec![7; 8];
    image.extend((memory.len() as u32).to_le_bytes());
    image.extend(memory);
    image
}

/// A checkpoint with one more image.
struct Saved {
    directory: TempDir,
}

impl Saved {
    fn new(name: &str, image: &[u8]) -> Self {
        Self::with(name, image, &[])
    }

    fn with(name: &str, image: &[u8], options: &[&str]) -> Self {
        let this = Self { directory: tempdir().unwrap() };
        fs::create_dir(this.path("images")).unwrap();
        fs::write(this.path("images").join(name), image).unwrap();
        let subject = Subject::start(&["1", "1"]);
        let mut command = with_criu("checkpoint");
        command.args(["--leave-running", &subject.pid()]).arg(this.path("checkpoint")).args(options);
        let output = command.env("TREE", FREE).env("IMAGES", this.path("images")).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        this
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns what a restart said, and what the stand-in found. Nothing is left of the images.
    fn restart(&self, pretend: &str) -> (Output, Option<String>) {
        let temporary = self.path("temporary");
        let _ = fs::create_dir(&temporary);
        self.restart_with(pretend, &temporary, &[])
    }

    fn restart_with(&self, pretend: &str, temporary: &Path, options: &[&str]) -> (Output, Option<String>) {
        let _ = fs::remove_file(self.path("restarted"));
        let mut command = with_criu("restart");
        command
            .arg(self.path("checkpoint"))
            .env("TREE", FREE)
            .env("PRETEND", pretend)
            .env("TMPDIR", temporary)
            .args(options);
        command.env("IMAGES", self.path("images")).env("RESTARTED", self.path("restarted"));
        let output = command.output().unwrap();
        assert_eq!(names(temporary), [""; 0]);
        (output, fs::read_to_string(self.path("restarted")).ok())
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// `preadv` of CRIU's restorer fails on a pipe.
#[test]
fn private_huge_pages_are_restored_from_files() {
    let saved = Saved::new("mm-7.img", &memory(2 << 20, HUGE | PRIVATE | NO_RESERVE));
    let (output, found) = saved.restart("files");
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(found.as_deref(), Some("whole"));
    // Others come through pipes as before.
    let saved = Saved::new("mm-7.img", &memory(2 << 20, PRIVATE));
    assert_eq!(saved.restart("").1.as_deref(), Some("whole"));
    let (output, found) = saved.restart("files");
    assert!(said(&output).contains("Can't read pages data") && found.is_none(), "{}", said(&output));
}

#[test]
fn too_few_free_huge_pages_are_refused_before_anything_is_touched() {
    // 4 TiB.
    let saved = Saved::new("mm-7.img", &memory(4 << 40, HUGE | PRIVATE));
    let (output, found) = saved.restart("");
    assert_eq!((output.status.code(), found), (Some(1), None), "{}", said(&output));
    let sentence = "the processes need huge pages of 2048 KiB: 2097152, of which ";
    assert!(said(&output).contains(sentence), "{}", said(&output));
    assert!(
        said(&output).contains("(/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages)"),
        "{}",
        said(&output)
    );
}

#[test]
fn an_image_that_makes_no_sense_is_named() {
    let saved = Saved::new("mm-7.img", &[7; 40]);
    let (output, found) = saved.restart("");
    assert_eq!((output.status.code(), found), (Some(1), None), "{}", said(&output));
    assert!(said(&output).contains("its mm-7.img is invalid"), "{}", said(&output));
    let output = tool(&["info"]).arg(saved.path("checkpoint")).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

/// Nothing of one is ever in a file in the clear.
#[test]
fn an_encrypted_checkpoint_is_put_into_memory_only() {
    // `TMPFS_MAGIC` of include/uapi/linux/magic.h.
    let is_in_memory =
        |path: &Path| rustix::fs::statfs(path).is_ok_and(|system| system.f_type as u64 == 0x0102_1994);
    let key = Path::new(env!("CARGO_MANIFEST_DIR")).join("../encryption/tests/data/age.txt");
    let secret = fs::read_to_string(&key).unwrap();
    let public = secret.lines().find_map(|line| line.strip_prefix("# public key: ")).unwrap();
    let image = memory(2 << 20, HUGE | PRIVATE | NO_RESERVE);
    let saved = Saved::with("mm-7.img", &image, &["--encrypt-to", public]);
    let identity = ["--identity", key.to_str().unwrap()];
    let on_disk = tempdir().unwrap();
    if !is_in_memory(on_disk.path()) {
        let (output, found) = saved.restart_with("files", on_disk.path(), &identity);
        assert_eq!((output.status.code(), found), (Some(1), None), "{}", said(&output));
        assert!(said(&output).contains("would be in the clear in "), "{}", said(&output));
    }
    if let Ok(in_memory) = tempfile::tempdir_in("/dev/shm")
        && is_in_memory(in_memory.path())
    {
        let (output, found) = saved.restart_with("files", in_memory.path(), &identity);
        assert_eq!(found.as_deref(), Some("whole"), "{}", said(&output));
    }
}
