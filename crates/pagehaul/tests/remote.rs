//! Dumps on servers: read by URL as they are read as files.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use jiff::{SignedDuration, Timestamp};
use pagehaul_synth::{Era, Machine, Message};
use pagehaul_test_support::server::{Request, Response, Server};
use rusty_s3::{Bucket, Method, UrlStyle, signing};

const BINARY: &str = env!("CARGO_BIN_EXE_pagehaul");
const KEY: &str = "AKIDEXAMPLE";
const SECRET: &str = "test-secret-key";

/// Dumps of one machine in every format, and checksums.
fn dumps(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut machine = Machine::new(Era::V6_12);
    machine.sampler(0x4000);
    machine.log(
        0x6000,
        &[Message { nanoseconds: 0, level: 0, caller: 7, text: "Kernel panic - not syncing: test" }],
    );
    machine.build().elf().write(&directory.join("vmcore")).unwrap();
    let capture = |output: &str| {
        let mut command = Command::new(BINARY);
        command.current_dir(directory).args(["capture", "-q", "-d", "0", "vmcore", output]);
        command
    };
    assert!(capture("dump").arg("--checksums").status().unwrap().success());
    let stream = capture("-").output().unwrap();
    assert!(stream.status.success());
    fs::write(directory.join("dump.flat"), stream.stdout).unwrap();
    ["vmcore", "dump", "dump.sums", "dump.flat"]
        .into_iter()
        .map(|name| (format!("/{name}"), fs::read(directory.join(name)).unwrap()))
        .collect()
}

/// Runs a command without the environment's credentials, proxies and settings.
fn pagehaul(directory: &Path, arguments: &str, settings: &[(&str, &str)]) -> Output {
    let mut command = Command::new(BINARY);
    command.current_dir(directory).args(arguments.split_ascii_whitespace()).env_clear();
    command.env("HOME", directory).env("AWS_EC2_METADATA_DISABLED", "true").envs(settings.iter().copied());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn dumps_read_the_same_from_a_web_server() {
    let directory = tempfile::tempdir().unwrap();
    let files = dumps(directory.path());
    let server = Server::start(move |request| {
        let path = request.target.split('?').next().unwrap();
        match files.get(path) {
            Some(bytes) if request.method == "GET" => Response::range(request, bytes, "v1"),
            _ => Response::status(404, ""),
        }
    });
    for (name, commands) in [
        ("vmcore", &["info", "dmesg", "read --phys 0x4000000"][..]),
        (
            "dump",
            &[
                "info",
                "dmesg",
                "facts",
                "read --phys 0x4000000",
                "verify",
                "pages --json",
                "convert -q -c lzo",
            ],
        ),
        ("dump.flat", &["info", "dmesg", "verify"]),
    ] {
        let url = server.url(&format!("/{name}?X-Amz-Signature=hidden"));
        for command in commands {
            let output = if command.starts_with("convert") { " -" } else { "" };
            let local = pagehaul(directory.path(), &format!("{command} {name}{output}"), &[]);
            let remote = pagehaul(directory.path(), &format!("{command} {url}{output}"), &[]);
            assert_eq!(remote.status.code(), local.status.code(), "{command}: {}", text(&remote.stderr));
            let shown = text(&remote.stdout).replace(&server.url(&format!("/{name}")), name);
            assert!(
                shown == text(&local.stdout),
                "{command} {url}:\n{shown}\nexpected:\n{}",
                text(&local.stdout)
            );
            assert!(!text(&remote.stderr).contains("hidden"), "{}", text(&remote.stderr));
        }
    }
    let other =
        pagehaul(directory.path(), &format!("info {}", server.url("/dump.sums?X-Amz-Signature=hidden")), &[]);
    let told = text(&other.stderr);
    assert!(told.contains(&format!("{}: at offset 0x0", server.url("/dump.sums"))), "{told}");
    assert!(!told.contains("hidden"), "{told}");
}

#[test]
fn verbose_commands_print_what_they_fetched() {
    let directory = tempfile::tempdir().unwrap();
    let dump = dumps(directory.path()).remove("/dump").unwrap();
    let server = Server::start(move |request| Response::range(request, &dump, "v1"));
    let output = pagehaul(directory.path(), &format!("dmesg -v {}", server.url("/dump")), &[]);
    assert!(output.status.success());
    let told = text(&output.stderr);
    assert!(told.contains(&format!("fetched in {} ranges", server.requests().len())), "{told}");
}

#[test]
fn a_server_that_refuses_midway_fails_the_command() {
    let directory = tempfile::tempdir().unwrap();
    let dump = dumps(directory.path()).remove("/dump").unwrap();
    for (status, version, reason) in [(403, "v1", "403"), (404, "v1", "404"), (206, "v2", "replaced")] {
        for command in ["pages", "facts", "info --classes", "verify"] {
            let dump = dump.clone();
            let server = Server::start(move |request| match (request.number, status) {
                _ if request.target != "/dump" => Response::status(404, ""),
                (0..=2, _) => Response::range(request, &dump, "v1"),
                (_, 206) => Response::range(request, &dump, version),
                _ => Response::status(status, ""),
            });
            let output = pagehaul(directory.path(), &format!("{command} {}", server.url("/dump")), &[]);
            let told = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{command} {status}: {told}");
            assert!(
                told.contains(&server.url("/dump")) && told.contains(reason),
                "{command} {status}: {told}"
            );
            // What was on its way, and no more.
            assert!(server.requests().len() < 40, "{command} {status}: {}", server.requests().len());
        }
    }
}

/// A store whose clock is ahead of this machine's, and which checks signatures.
fn store(object: Vec<u8>, ahead: SignedDuration) -> Server {
    Server::start(move |request| {
        let now = Timestamp::now().checked_add(ahead).unwrap();
        let error = |status, code: &str| {
            let mut response = Response::status(status, &format!("<Error><Code>{code}</Code></Error>"));
            let date = now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
            response.headers.push(("Date".into(), date));
            response
        };
        let query = request.query();
        let signed: Timestamp =
            Timestamp::strptime("%Y%m%dT%H%M%S%z", query["X-Amz-Date"].replace('Z', "+0000")).unwrap();
        if signed.duration_until(now).abs() > SignedDuration::from_mins(15) {
            // As stores answer signed URLs of another time.
            return error(403, "AccessDenied");
        }
        if query.get("X-Amz-Security-Token") == Some(&"old") {
            return error(403, "ExpiredToken");
        }
        if query["X-Amz-Signature"] != signature(request, signed) {
            return error(403, "SignatureDoesNotMatch");
        }
        match request.target.split('?').next().unwrap() {
            "/crashes/host%207/dump" => Response::range(request, &object, "v1"),
            _ => error(403, "AccessDenied"),
        }
    })
}

/// Computes what a signature has to be.
fn signature(request: &Request, time: Timestamp) -> String {
    let endpoint = format!("http://{}", request.headers["host"]).parse().unwrap();
    let bucket = Bucket::new(endpoint, UrlStyle::Path, "crashes", "eu-test-1").unwrap();
    let key =
        request.target.strip_prefix("/crashes/").unwrap().split('?').next().unwrap().replace("%20", " ");
    let none = std::iter::empty;
    let token = request.target.contains("X-Amz-Security-Token=new").then_some("new");
    let url = signing::sign(
        &time,
        Method::Get,
        bucket.object_url(&key),
        KEY,
        SECRET,
        token,
        "eu-test-1",
        900,
        none(),
        none(),
    );
    url.as_str().split("X-Amz-Signature=").nth(1).unwrap().to_owned()
}

#[test]
fn objects_of_a_store_are_read_with_signed_requests() {
    let directory = tempfile::tempdir().unwrap();
    let dump = dumps(directory.path()).remove("/dump").unwrap();
    let local = text(&pagehaul(directory.path(), "dmesg dump", &[]).stdout);
    fs::rename(directory.path().join("dump"), directory.path().join("moved")).unwrap();
    // Arguments are split at spaces, so that the key's is written as the shell would pass it.
    let run = |url: &str, settings: &[(&str, &str)]| {
        let output = Command::new(BINARY)
            .current_dir(directory.path())
            .args(["dmesg", "-v", url])
            .env_clear()
            .env("HOME", directory.path())
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .env("AWS_REGION", "eu-test-1")
            .envs(settings.iter().copied())
            .output()
            .unwrap();
        let told = text(&output.stderr);
        assert!(!told.contains(SECRET) && !told.contains("Signature="), "{told}");
        (output.status.success(), text(&output.stdout), told)
    };
    let url = "s3://crashes/host 7/dump";
    let keys = [("AWS_ACCESS_KEY_ID", KEY), ("AWS_SECRET_ACCESS_KEY", SECRET)];
    // A capture kernel's clock may be off by years.
    for ahead in [SignedDuration::ZERO, SignedDuration::from_hours(24 * 365 * 10)] {
        let store = store(dump.clone(), ahead);
        let endpoint = store.url("");
        let with = |more: &[(&'static str, &'static str)]| {
            let mut settings = vec![("AWS_ENDPOINT_URL", endpoint.as_str())];
            settings.extend(more);
            run(url, &settings)
        };
        let (succeeded, log, told) = with(&keys);
        assert!(succeeded && log == local, "{told}");

        let (succeeded, _, told) = with(&[("AWS_ACCESS_KEY_ID", KEY), ("AWS_SECRET_ACCESS_KEY", "another")]);
        assert!(!succeeded && told.contains("the secret key is wrong"), "{told}");

        let (succeeded, _, told) = with(&[keys[0], keys[1], ("AWS_SESSION_TOKEN", "old")]);
        assert!(!succeeded && told.contains("get new temporary credentials"), "{told}");

        let (succeeded, _, told) = with(&[]);
        assert!(!succeeded && told.contains("set AWS_ACCESS_KEY_ID"), "{told}");
    }
    // The credentials file of an initramfs comes before the environment, and must be readable by its owner only.
    let store = store(dump, SignedDuration::ZERO);
    let file = directory.path().join("s3");
    let lines = format!(
        "aws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\nendpoint_url = {}\n",
        store.url("")
    );
    fs::write(&file, lines).unwrap();
    for (mode, expected) in [(0o644, false), (0o600, true)] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let settings = [
            ("PAGEHAUL_S3", file.to_str().unwrap()),
            ("AWS_ACCESS_KEY_ID", "other"),
            ("AWS_SECRET_ACCESS_KEY", "other"),
        ];
        let (succeeded, _, told) = run(url, &settings);
        assert_eq!(succeeded, expected, "{told}");
        assert_eq!(told.contains("chmod 600"), !expected, "{told}");
    }
    let (succeeded, _, told) =
        run("s3://crashes/other", &[keys[0], keys[1], ("AWS_ENDPOINT_URL", &store.url(""))]);
    assert!(!succeeded && told.contains("cannot open s3://crashes/other: the server answers 403"), "{told}");
}

#[test]
fn the_credentials_of_an_instance_come_last() {
    let directory = tempfile::tempdir().unwrap();
    let dump = dumps(directory.path()).remove("/dump").unwrap();
    let store = store(dump, SignedDuration::ZERO);
    // The metadata service of a cloud instance, version 2: a token first.
    let metadata = Server::start(|request| {
        let token = request.headers.get("x-aws-ec2-metadata-token").map(String::as_str);
        let role = "/latest/meta-data/iam/security-credentials/";
        match (request.method.as_str(), request.target.as_str(), token) {
            ("PUT", "/latest/api/token", None) => Response::status(200, "metadata-token"),
            ("GET", target, Some("metadata-token")) if target == role => Response::status(200, "dumper\n"),
            ("GET", target, Some("metadata-token")) if target == format!("{role}dumper") => Response::status(
                200,
                &format!(
                    r#"{{"Code":"Success","AccessKeyId":"{KEY}","SecretAccessKey":"{SECRET}","Token":"new","Expiration":"2030-01-01T00:00:00Z"}}"#
                ),
            ),
            _ => Response::status(401, ""),
        }
    });
    let (endpoint, service) = (store.url(""), metadata.url("/"));
    let run = |more: &[(&str, &str)]| {
        let common = [
            ("AWS_ENDPOINT_URL", endpoint.as_str()),
            ("AWS_REGION", "eu-test-1"),
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.as_str()),
            ("AWS_EC2_METADATA_DISABLED", "false"),
        ];
        // With -v, and with each of the tokens that it could tell.
        let output = Command::new(BINARY)
            .current_dir(directory.path())
            .args(["dmesg", "-v", "s3://crashes/host 7/dump"])
            .env_clear()
            .env("HOME", directory.path())
            .envs(common.iter().chain(more).copied())
            .output()
            .unwrap();
        let told = text(&output.stdout) + &text(&output.stderr);
        assert!(
            ![SECRET, "metadata-token", "Signature="].iter().any(|hidden| told.contains(hidden)),
            "{told}"
        );
        (output.status.success(), told, metadata.requests().len())
    };
    let (succeeded, told, asked) = run(&[]);
    assert!(succeeded && asked == 3, "{asked}: {told}");
    // The files of the AWS tools come before it, and the environment before them.
    fs::create_dir(directory.path().join(".aws")).unwrap();
    let profile = |key: &str| {
        let lines = format!("[default]\naws_access_key_id = {key}\naws_secret_access_key = {SECRET}\n");
        fs::write(directory.path().join(".aws/credentials"), lines).unwrap();
    };
    profile(KEY);
    let (succeeded, told, asked) = run(&[]);
    assert!(succeeded && asked == 3, "{asked}: {told}");
    profile("AKIDWRONG");
    let (succeeded, told, asked) = run(&[("AWS_ACCESS_KEY_ID", KEY), ("AWS_SECRET_ACCESS_KEY", SECRET)]);
    assert!(succeeded && asked == 3, "{asked}: {told}");
    let (succeeded, told, asked) = run(&[]);
    assert!(!succeeded && asked == 3 && told.contains("SignatureDoesNotMatch"), "{asked}: {told}");
}
