//! What is encrypted is read again at any offset; what was cut or changed is not.

use std::io::{self, Read, Write};

use pagehaul_encryption::{
    Decrypted, Encrypting, EncryptingWriter, Identity, Recipient, Recipients, encrypt,
};
use pagehaul_physmem::OpenError;
use pagehaul_physmem::file::{PlainFile, ReadAt};
use proptest::prelude::*;

/// Keys of `age-keygen` and `ssh-keygen`, made for these tests.
const SECRET: &str = include_str!("data/age.txt");
const OTHER: &str = include_str!("data/other.txt");
const SSH_SECRET: &str = include_str!("data/ssh");
const SSH_PUBLIC: &str = include_str!("data/ssh.pub");

/// Bytes of contents in a chunk, and of a chunk in the file.
const CHUNK: usize = 64 << 10;
const SEALED: usize = CHUNK + 16;

/// A file with these bytes, which has no name any more.
fn file(bytes: &[u8]) -> PlainFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    PlainFile::open(file.path()).unwrap()
}

fn identities(text: &str) -> Vec<Identity> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    Identity::read(file.path()).unwrap()
}

fn recipients(names: &[&str]) -> Recipients {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    Recipients::parse(&names).unwrap().unwrap()
}

/// The public key that `age-keygen` wrote above the secret one.
fn public(secret: &str) -> &str {
    secret.lines().find_map(|line| line.strip_prefix("# public key: ")).unwrap()
}

fn open(bytes: Vec<u8>, secret: &str) -> Result<Decrypted<PlainFile>, OpenError> {
    Decrypted::open(file(&bytes), &identities(secret))
}

fn contents(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 31 + at / 251) as u8).collect()
}

fn all(file: &Decrypted<PlainFile>) -> Vec<u8> {
    let mut bytes = vec![0; file.size() as usize];
    file.read_exact_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn every_recipient_reads_files_of_every_size() {
    let both = recipients(&[public(SECRET), SSH_PUBLIC]);
    for size in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 7] {
        let plain = contents(size);
        let file = encrypt(&plain, &both).unwrap();
        for secret in [SECRET, SSH_SECRET] {
            let opened = open(file.clone(), secret).unwrap();
            assert!(opened.is_complete(), "{size}");
            assert_eq!(all(&opened), plain, "{size}");
        }
    }
}

#[test]
fn only_recipients_read_a_file() {
    let file = encrypt(b"secret", &recipients(&[public(SECRET)])).unwrap();
    let message = |secret| {
        let said = open(file.clone(), secret).err().unwrap().to_string();
        // Behind the name of the file.
        said.split_once(": ").unwrap().1.to_owned()
    };
    assert_eq!(message(OTHER), "encrypted (age) to one recipient, none of which is the identity given");
    assert!(message(SSH_SECRET).contains("none of which"));
    let none = Decrypted::open(self::file(&file), &[]).err().unwrap().to_string();
    assert!(none.contains("--identity"), "{none}");
}

#[test]
fn two_files_of_the_same_contents_share_nothing() {
    let to = recipients(&[public(SECRET)]);
    let (one, two) = (encrypt(&contents(1000), &to).unwrap(), encrypt(&contents(1000), &to).unwrap());
    let payload = one.len() - 1016;
    let same = one[payload..].iter().zip(&two[payload..]).filter(|(one, two)| one == two).count();
    assert!(same < 40, "{same} of 1,016 bytes are the same");
}

#[test]
fn a_file_that_breaks_off_ends_with_its_last_whole_chunk() {
    let plain = contents(3 * CHUNK + 1000);
    let file = encrypt(&plain, &recipients(&[public(SECRET)])).unwrap();
    let payload = file.len() - 3 * SEALED - 1016;
    for (cut, whole) in [
        (file.len() - 1, 3),
        (payload + 3 * SEALED, 3),
        (payload + 3 * SEALED - 1, 2),
        (payload + 5, 0),
        (payload, 0),
    ] {
        let opened = open(file[..cut].to_vec(), SECRET);
        if whole == 0 {
            let said = opened.err().unwrap().to_string();
            assert!(said.contains("ends before its first whole piece"), "{said}");
            continue;
        }
        let opened = opened.unwrap();
        assert!(!opened.is_complete(), "{cut}");
        assert_eq!(all(&opened), plain[..whole * CHUNK], "{cut}");
    }
    // Nor does what follows it hide what is in it.
    let other = encrypt(&plain, &recipients(&[public(SECRET)])).unwrap();
    for behind in [&[0; 20][..], &[7; 5 * SEALED], &other] {
        let opened = open([&file, behind].concat(), SECRET).unwrap();
        assert!(!opened.is_complete());
        assert_eq!(all(&opened), plain[..3 * CHUNK]);
    }
}

#[test]
fn a_stream_that_fails_never_gets_its_last_chunk() {
    struct Fails(usize);
    impl Read for Fails {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let count = self.0.min(buf.len());
            self.0 -= count;
            buf[..count].fill(7);
            if count == 0 { Err(io::Error::other("the capture failed")) } else { Ok(count) }
        }
    }
    for size in [0, 10, CHUNK, 2 * CHUNK, 2 * CHUNK + 10] {
        let mut file = Vec::new();
        let mut stream = Encrypting::new(Fails(size), &recipients(&[public(SECRET)])).unwrap();
        assert_eq!(stream.read_to_end(&mut file).unwrap_err().to_string(), "the capture failed");
        // It fails again rather than to end.
        assert!(stream.read_to_end(&mut file).is_err());
        if let Ok(opened) = open(file, SECRET) {
            assert!(!opened.is_complete(), "{size}");
        }
    }
}

#[test]
fn what_is_written_in_pieces_is_one_file() {
    let to = recipients(&[public(SECRET), SSH_PUBLIC]);
    for size in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 40 * CHUNK, 40 * CHUNK + 7] {
        let plain = contents(size);
        for piece in [1000, CHUNK, 1 << 20] {
            let mut writer = EncryptingWriter::new(Vec::new(), &to).unwrap();
            plain.chunks(piece).for_each(|piece| writer.write_all(piece).unwrap());
            let opened = open(writer.finish().unwrap(), SSH_SECRET).unwrap();
            assert!(opened.is_complete() && all(&opened) == plain, "{size} in pieces of {piece}");
        }
    }
}

#[test]
fn what_is_not_finished_breaks_off_and_a_failed_write_cannot_be_finished() {
    /// Takes so many bytes.
    struct Disk<'a>(&'a mut Vec<u8>, usize);
    impl Write for Disk<'_> {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            let count = buf.len().min(self.1 - self.0.len());
            self.0.extend(&buf[..count]);
            if count == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(count) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let to = recipients(&[public(SECRET)]);
    let plain = contents(40 * CHUNK);
    let mut file = Vec::new();
    let mut writer = EncryptingWriter::new(Disk(&mut file, usize::MAX), &to).unwrap();
    writer.write_all(&plain).unwrap();
    drop(writer);
    let opened = open(file, SECRET).unwrap();
    assert!(!opened.is_complete() && plain.starts_with(&all(&opened)));
    let mut file = Vec::new();
    let mut writer = EncryptingWriter::new(Disk(&mut file, 20 * CHUNK), &to).unwrap();
    assert_eq!(writer.write_all(&plain).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert!(writer.write_all(&plain).is_err() && writer.finish().is_err());
    assert!(!open(file, SECRET).unwrap().is_complete());
}

#[test]
fn other_keys_are_refused_with_a_reason() {
    let refused = |text: &str| Recipient::parse(text).unwrap_err().to_string();
    assert!(refused(SECRET.lines().last().unwrap()).contains("this is a secret key"));
    assert!(refused("ssh-rsa AAAAB3NzaC1yc2E").contains("only those of kind ssh-ed25519"));
    assert!(refused("age1qqqq").contains("expected a recipient"));
    let mut damaged = public(SECRET).to_owned();
    damaged.replace_range(10..11, if &damaged[10..11] == "q" { "p" } else { "q" });
    assert!(refused(&damaged).contains("expected a recipient"));
    assert!(
        Recipients::parse(&["/nonexistent/recipients".to_owned()])
            .unwrap_err()
            .to_string()
            .contains("/nonexistent")
    );
    let encrypted = include_str!("data/ssh_passphrase");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), encrypted).unwrap();
    assert!(Identity::read(file.path()).err().unwrap().to_string().contains("has a passphrase"));
}

#[test]
fn keys_with_which_anybody_could_read_a_file_are_refused() {
    // u of Curve25519's points of low order and those that are 0 and 1 above its prime.
    let order_8 = "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800";
    let other_order_8 = "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157";
    let hex = |text: &str| -> [u8; 32] {
        std::array::from_fn(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
    };
    let small = |first: u8| std::array::from_fn(|at| if at == 0 { first } else { 0 });
    let large = |first: u8| {
        std::array::from_fn(|at| match at {
            0 => first,
            31 => 0x7f,
            _ => 0xff,
        })
    };
    let points: [[u8; 32]; 7] =
        [small(0), small(1), hex(order_8), hex(other_order_8), large(0xec), large(0xed), large(0xee)];
    let hrp = bech32::Hrp::parse("age").unwrap();
    for point in points {
        let key = bech32::encode::<bech32::Bech32>(hrp, &point).unwrap();
        let said = Recipient::parse(&key).unwrap_err().to_string();
        assert!(said.contains("everybody could read"), "{key}: {said}");
    }
    // y = 0 and 1 of Ed25519.
    for key in [
        "AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "AAAAC3NzaC1lZDI1NTE5AAAAIAEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    ] {
        let said = Recipient::parse(&format!("ssh-ed25519 {key} user@host")).unwrap_err().to_string();
        assert!(said.contains("everybody could read"), "{key}: {said}");
    }
}

#[test]
fn no_key_of_a_file_is_left_out_because_the_file_is_large() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let name = file.path().to_str().unwrap().to_owned();
    let write = |text: &str| std::fs::write(file.path(), text).unwrap();
    let comment = "# nothing\n".repeat(110_000);
    // The last character is cut in the middle by a reader that stops at 1 MiB.
    for text in
        [format!("{}\n{comment}{SSH_PUBLIC}", public(SECRET)), format!("{}ä", "#".repeat((1 << 20) - 1))]
    {
        write(&text);
        let said = Recipients::parse(std::slice::from_ref(&name)).unwrap_err().to_string();
        assert!(said.contains(&name) && said.contains("larger than 1 MiB"), "{said}");
        assert!(
            Recipients::of_text(&text, file.path()).unwrap_err().to_string().contains("larger than 1 MiB")
        );
    }
    write(&format!("{SECRET}{comment}{OTHER}"));
    assert!(Identity::read(file.path()).err().unwrap().to_string().contains("larger than 1 MiB"));
    let many = format!("{}\n", public(SECRET)).repeat(257);
    let said = Recipients::of_text(&many, file.path()).unwrap_err().to_string();
    assert!(said.contains("at most 256 recipients"), "{said}");
}

#[test]
fn files_of_keys_may_be_those_of_windows() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let name = [file.path().to_str().unwrap().to_owned()];
    std::fs::write(file.path(), format!("\u{feff}# of me\r\n{}\r\n", public(SECRET))).unwrap();
    assert_eq!(Recipients::parse(&name).unwrap(), Some(recipients(&[public(SECRET)])));
    let text = format!("\u{feff}{}", SECRET.replace('\n', "\r\n"));
    let encrypted = encrypt(b"secret", &recipients(&[public(SECRET)])).unwrap();
    assert_eq!(all(&open(encrypted, &text).unwrap()), b"secret");
    std::fs::write(file.path(), b"\xff\xfe").unwrap();
    assert!(Recipients::parse(&name).unwrap_err().to_string().contains("it is not UTF-8"));
    assert!(Recipients::parse(&[String::new()]).unwrap_err().to_string().contains("expected a public key"));
}

#[test]
fn what_fits_into_the_room_of_a_size_does() {
    for names in [&[public(SECRET)][..], &[public(SECRET), SSH_PUBLIC]] {
        let to = recipients(names);
        for size in [0, 100, 1000, CHUNK, SEALED + 1000, 5 * SEALED + 17] {
            let room = to.room(size as u64) as usize;
            let file = encrypt(&contents(room), &to).unwrap();
            assert!(file.len() <= size || room == 0, "{size}: {} bytes for {room}", file.len());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_range_is_what_was_written(size in 0..5 * CHUNK, ranges in prop::collection::vec((any::<prop::sample::Index>(), 0..200_000usize), 1..8)) {
        let plain = contents(size);
        let opened = open(encrypt(&plain, &recipients(&[public(SECRET)])).unwrap(), SECRET).unwrap();
        for (start, length) in ranges {
            let start = start.index(size + 1);
            let length = length.min(size - start);
            let mut read = vec![0; length];
            opened.read_exact_at(start as u64, &mut read).unwrap();
            prop_assert_eq!(&read[..], &plain[start..start + length]);
        }
    }

    #[test]
    fn a_changed_byte_is_never_passed_on(at in any::<prop::sample::Index>(), flip in 1..=255u8) {
        let plain = contents(2 * CHUNK + 100);
        let mut file = encrypt(&plain, &recipients(&[public(SECRET), SSH_PUBLIC])).unwrap();
        let at = at.index(file.len());
        file[at] ^= flip;
        if let Ok(opened) = open(file, SECRET) {
            for (offset, &expected) in plain.iter().enumerate().step_by(997) {
                let mut byte = [0];
                if opened.read_exact_at(offset as u64, &mut byte).is_ok() {
                    prop_assert_eq!(byte[0], expected, "{}", offset);
                }
            }
            let mut all = vec![0; plain.len()];
            let is_whole = opened.is_complete() && opened.read_exact_at(0, &mut all).is_ok();
            prop_assert!(!is_whole || all == plain);
        }
    }

    #[test]
    fn no_text_makes_the_parsers_panic(text in "\\PC{0,300}", bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = Recipient::parse(&text);
        let _ = Decrypted::open(file(&bytes), &[]);
        let _ = Decrypted::open(file(&[b"age-encryption.org/v1\n", text.as_bytes(), &bytes].concat()), &identities(SECRET));
    }
}
