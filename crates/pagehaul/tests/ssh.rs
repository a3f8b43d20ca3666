//! Captures over ssh, with a program that stands for the client and runs the commands on this machine. `lab kdump-upload` has a real
//! server.

mod common {
    pub mod setup;
}

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::setup::Setup;
use pagehaul_encryption::{Decrypted, Identity};
use pagehaul_physmem::file::{PlainFile, ReadAt};

/// Fails once as a file next to it says: `cut` after so many bytes of the dump, `kill` likewise, and kills the capture. `begun` and
/// `replaced` name a file that another upload writes to, before and after the dump is sent.
const CLIENT: &str = r#"#!/bin/sh
here=$(dirname "$0")
while [ "$1" != -- ]; do shift; done
echo "$2" >>"$here/hosts"
fail() {
    head -c "$(cat "$here/$1")" | sh -c "$2"
    rm "$here/$1"
}
case $3 in *"dd of="*)
    if [ -e "$here/cut" ]; then
        fail cut "$3"
        echo "Connection to $2 closed by remote host." >&2
        exit 255
    elif [ -e "$here/kill" ]; then
        fail kill "$3"
        kill -9 $PPID
        exit 255
    elif [ -e "$here/begun" ]; then
        there=$(cat "$here/begun")
        rm "$here/begun"
        umask 077
        printf theirs >"$there"
    elif [ -e "$here/replaced" ]; then
        there=$(cat "$here/replaced")
        rm "$here/replaced"
        sh -c "$3"
        printf theirs | dd of="$there" conv=notrunc status=none
        exit
    fi
esac
exec sh -c "$3"
"#;

/// A vmcore, its stream, and a directory of the other host.
struct Scene {
    setup: Setup,
    stream: Vec<u8>,
}

impl Scene {
    fn new() -> Self {
        let setup = Setup::with_noise(3);
        let stream = setup.run(&["capture", "-q", "-d", "0", "vmcore", "-"]).stdout;
        fs::create_dir(setup.path("client")).unwrap();
        fs::create_dir(setup.path("far")).unwrap();
        fs::write(setup.path("client/ssh"), CLIENT).unwrap();
        fs::set_permissions(setup.path("client/ssh"), fs::Permissions::from_mode(0o755)).unwrap();
        Self { setup, stream }
    }

    /// A file of the other host.
    fn far(&self, name: &str) -> PathBuf {
        self.setup.path("far").join(name)
    }

    fn url(&self, name: &str) -> String {
        format!("ssh://dump@host{}", self.far(name).display())
    }

    fn command(&self, arguments: &[&str], name: &str) -> Command {
        let mut command = self.setup.command(&["capture", "-d", "0"]);
        command.args(arguments).args(["vmcore", &self.url(name)]);
        command.env("PAGEHAUL_SSH", self.setup.path("client/ssh"));
        command
    }

    fn capture(&self, arguments: &[&str], name: &str) -> Output {
        self.command(arguments, name).output().unwrap()
    }

    fn fails_at(&self, fault: &str, bytes: usize) {
        fs::write(self.setup.path("client").join(fault), bytes.to_string()).unwrap();
    }

    /// Expects that the file is the stream.
    fn assert_whole(&self, output: &Output, name: &str) {
        assert!(output.status.success(), "{}", told(output));
        assert!(fs::read(self.far(name)).unwrap() == self.stream, "{name}");
        assert!(!self.far(&format!("{name}.incomplete")).exists(), "{name}");
    }
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_capture_over_ssh_is_the_stream_that_a_pipe_gets() {
    let scene = Scene::new();
    for name in ["dump", "with 'quotes' and spaces", "$(touch injected); `touch injected` & \\ \"", "-n", "*"]
    {
        let output = scene.capture(&["--facts"], name);
        scene.assert_whole(&output, name);
        let mode = fs::metadata(scene.far(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    assert!(!scene.setup.path("injected").exists() && !scene.far("injected").exists());
    let hosts = fs::read_to_string(scene.setup.path("client/hosts")).unwrap();
    assert!(hosts.lines().all(|host| host == "dump@host"), "{hosts}");
    // No file replaces another.
    let again = scene.capture(&["--force", "-c", "none"], "dump");
    assert_eq!(again.status.code(), Some(1));
    assert!(told(&again).contains("none is replaced"), "{}", told(&again));
    assert!(fs::read(scene.far("dump")).unwrap() == scene.stream);
}

#[test]
fn a_lost_connection_does_not_cost_the_dump() {
    let scene = Scene::new();
    for (number, bytes) in [0, 1, 1_500_000, scene.stream.len() - 1].into_iter().enumerate() {
        scene.fails_at("cut", bytes);
        let name = number.to_string();
        let output = scene.capture(&[], &name);
        scene.assert_whole(&output, &name);
        assert!(told(&output).contains("closed by remote host"), "{}", told(&output));
        assert_eq!(told(&output).contains("were there"), bytes > 0, "{}", told(&output));
    }
}

#[test]
fn a_capture_that_is_killed_continues() {
    let scene = Scene::new();
    for threads in ["1", "2"] {
        scene.fails_at("kill", 2_000_000);
        let killed = scene.capture(&["-t", "1"], threads);
        assert_eq!(killed.status.code(), None, "{}", told(&killed));
        assert!(!scene.far(threads).exists());
        let incomplete = scene.far(&format!("{threads}.incomplete"));
        assert_eq!(fs::read(&incomplete).unwrap(), scene.stream[..2_000_000]);
        // Readers take it for what it is.
        let info = scene.setup.run(&["info", incomplete.to_str().unwrap()]);
        let text = String::from_utf8_lossy(&info.stdout);
        assert!(info.status.code() == Some(3) && text.contains("complete      no"), "{info:?}");
        let output = scene.capture(&["-t", threads], threads);
        scene.assert_whole(&output, threads);
        assert!(told(&output).contains("were there"), "{}", told(&output));
    }
}

/// Each try of an encrypted dump has another key: what an earlier one left is no part of it.
#[test]
fn an_encrypted_dump_is_whole_or_begins_anew() {
    let scene = Scene::new();
    let keys = concat!(env!("CARGO_MANIFEST_DIR"), "/../encryption/tests/data/");
    let recipients =
        ["--encrypt-to", concat!(env!("CARGO_MANIFEST_DIR"), "/../encryption/tests/data/ssh.pub")];
    let identity = Identity::read(&Path::new(keys).join("ssh")).unwrap();
    let decrypted = |name: &str| {
        let file = Decrypted::open(PlainFile::open(&scene.far(name)).unwrap(), &identity).unwrap();
        let mut bytes = vec![0; file.size() as usize];
        file.read_exact_at(0, &mut bytes).unwrap();
        bytes
    };
    for (name, fault, bytes) in
        [("lost", "cut", 1_500_000), ("start", "cut", 10), ("killed", "kill", 2_000_000)]
    {
        scene.fails_at(fault, bytes);
        let mut output = scene.capture(&recipients, name);
        let mut left = Vec::new();
        if fault == "kill" {
            assert_eq!(output.status.code(), None, "{}", told(&output));
            left = fs::read(scene.far(&format!("{name}.incomplete"))).unwrap();
            assert_eq!(left.len(), bytes);
            output = scene.capture(&recipients, name);
        }
        assert!(output.status.success(), "{name}: {}", told(&output));
        assert!(decrypted(name) == scene.stream, "{name}");
        if fault == "kill" {
            assert!(fs::read(scene.far(&format!("{name}.incomplete.1"))).unwrap() == left);
        }
    }
}

#[test]
fn what_another_dump_left_is_kept() {
    let scene = Scene::new();
    let longer = [&scene.stream[..], b"more"].concat();
    let mut later = scene.stream.clone();
    later[2_500_000] ^= 1;
    for (name, left) in [("first", &b"another dump"[..]), ("longer", &longer), ("later", &later)] {
        fs::write(scene.far(&format!("{name}.incomplete")), left).unwrap();
        let output = scene.capture(&[], name);
        scene.assert_whole(&output, name);
        assert!(fs::read(scene.far(&format!("{name}.incomplete.1"))).unwrap() == left, "{name}");
    }
}

#[test]
fn what_others_left_there_is_not_written_to() {
    let scene = Scene::new();
    // A file that others may have open.
    for (name, left) in [("open", &b"theirs"[..]), ("empty", b"")] {
        let there = scene.far(&format!("{name}.incomplete"));
        fs::write(&there, left).unwrap();
        fs::set_permissions(&there, fs::Permissions::from_mode(0o666)).unwrap();
        let output = scene.capture(&[], name);
        scene.assert_whole(&output, name);
        assert_eq!(fs::metadata(scene.far(name)).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read(scene.far(&format!("{name}.incomplete.1"))).unwrap(), left);
    }
    // What is not a file.
    symlink(scene.far("elsewhere"), scene.far("link.incomplete")).unwrap();
    symlink(scene.far("open"), scene.far("taken.incomplete")).unwrap();
    fs::create_dir(scene.far("directory.incomplete")).unwrap();
    let made = Command::new("mkfifo").arg(scene.far("pipe.incomplete")).status().unwrap();
    assert!(made.success());
    for name in ["link", "taken", "directory", "pipe"] {
        let output = scene.capture(&[], name);
        assert_eq!(output.status.code(), Some(1), "{}", told(&output));
        assert!(told(&output).contains(".incomplete there is not a file; remove it"), "{}", told(&output));
        assert!(!scene.far(name).exists(), "{name}");
    }
    assert!(!scene.far("elsewhere").exists());
    assert!(fs::read(scene.far("open")).unwrap() == scene.stream);
}

#[test]
fn two_dumps_at_once_do_not_mix() {
    let scene = Scene::new();
    for fault in ["begun", "replaced"] {
        let there = scene.far(&format!("{fault}.incomplete"));
        fs::write(scene.setup.path("client").join(fault), there.to_str().unwrap()).unwrap();
        let output = scene.capture(&[], fault);
        scene.assert_whole(&output, fault);
        let other = fs::read(scene.far(&format!("{fault}.incomplete.1"))).unwrap();
        assert!(other.starts_with(b"theirs"), "{fault}");
    }
}

#[test]
fn a_name_that_is_not_utf8_is_refused() {
    let scene = Scene::new();
    let name = OsStr::from_bytes(b"/dump-\xff");
    let mut url = OsString::from(scene.url(""));
    url.push(name);
    let mut command = scene.setup.command(&["capture", "-d", "0", "vmcore"]);
    let output = command.arg(&url).env("PAGEHAUL_SSH", scene.setup.path("client/ssh")).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(told(&output).contains("the name is not UTF-8"), "{}", told(&output));
    assert!(fs::read_dir(scene.setup.path("far")).unwrap().next().is_none());
}

#[test]
fn a_host_that_is_not_there_has_nothing() {
    let scene = Scene::new();
    let path = scene.setup.path("client/other");
    let script = "#!/bin/sh\necho tried >>client/tried\n\
        echo 'ssh: Could not resolve hostname hots: Name or service not known' >&2\nexit 255\n";
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = scene.command(&[], "dump");
    let mut child = command.env("PAGEHAUL_SSH", path).stderr(Stdio::piped()).spawn().unwrap();
    let tried = scene.setup.path("client/tried");
    while fs::read_to_string(&tried).unwrap_or_default().lines().count() < 4 {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    // Once, not at each try.
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("Could not resolve hostname") && said.contains("trying again for 60 s"), "{said}");
    assert!(!said.contains("what was sent") && said.lines().count() == 1, "{said}");
}

#[test]
fn what_cannot_be_sent_is_explained() {
    let scene = Scene::new();
    let fails = |output: Output, reason: &str| {
        assert_eq!(output.status.code(), Some(1), "{}", told(&output));
        assert!(told(&output).contains(reason), "{}", told(&output));
        assert_eq!(told(&output).lines().filter(|line| line.starts_with("pagehaul: cannot")).count(), 1);
    };
    // Nothing was sent, though the client took some.
    let missing = scene.capture(&[], "none/dump");
    assert!(!told(&missing).contains("what was sent"), "{}", told(&missing));
    fails(missing, "none/dump.incomplete: ");
    let client = |script: &str| {
        let path = scene.setup.path("client/other");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        scene.command(&[], "dump").env("PAGEHAUL_SSH", path).output().unwrap()
    };
    fails(
        client("echo 'dump@host: Permission denied (publickey).' >&2; exit 255"),
        "Permission denied (publickey)",
    );
    fails(client("echo 'Welcome!'"), "expected a shell");
    let none = scene.command(&[], "dump").env("PAGEHAUL_SSH", "/nonexistent/ssh").output().unwrap();
    fails(none, "cannot run the ssh client");
    for url in ["ssh://-oProxyCommand=id/dump", "ssh://host/", "ssh://user:secret@host/dump"] {
        let output = scene.setup.run(&["capture", "vmcore", url]);
        assert!(!told(&output).contains("secret"), "{}", told(&output));
        fails(output, "cannot write ssh://");
    }
    for arguments in [&["vmcore", &scene.url("a"), "other"][..], &["--checksums", "vmcore", &scene.url("a")]]
    {
        let output = scene.setup.run(&[&["capture"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    }
    assert_eq!(scene.setup.run(&["convert", "vmcore", &scene.url("a")]).status.code(), Some(2));
    assert!(fs::read_dir(scene.setup.path("far")).unwrap().next().is_none());
}
