//! What GRUB's settings say, and what the generated `grub.cfg` has.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::boot::{crashkernel, grub_config, is_entry};
use crate::root::Root;
use crate::shell::{Atom, Script, atoms};

/// `grub-mkconfig` sources this file, and on Debian those of the directory after it.
const SETTINGS: &str = "/etc/default/grub";
const DIRECTORY: &str = "/etc/default/grub.d";
/// The parameters of all entries, and of those that are not for a rescue, in the order of `/etc/grub.d/10_linux`.
const KEYS: [&str; 2] = ["GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT"];

/// More than any kernel takes (`COMMAND_LINE_SIZE`): values that grow by themselves (`A=$A$A`) end there.
const LONGEST: usize = 64 << 10;

/// The `crashkernel=` parameters that GRUB's settings ask for, next to those of the entries that were made from them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrubSettings {
    /// What the settings ask for, or why that is not known.
    pub wanted: Result<Vec<String>, String>,
    /// What all generated entries have.
    pub generated: Vec<String>,
}

impl GrubSettings {
    /// Reads both. `None` if there are no settings, or if `/etc/grub.d/10_linux` made no entries, or such that differ. `has_directory`
    /// says whether files of the directory count.
    pub(crate) fn read(root: &Root, has_directory: bool) -> Option<Self> {
        let (_, text) = grub_config(root)?;
        let generated = generated(&text)?;
        let mut names = root.names(DIRECTORY);
        names.retain(|name| name.as_encoded_bytes().ends_with(b".cfg"));
        if names.is_empty() && !root.exists(SETTINGS) {
            return None;
        }
        Some(Self { wanted: wanted(root, names, has_directory), generated })
    }

    /// Whether the settings ask for something else than the entries have.
    pub fn is_pending(&self) -> bool {
        let sorted = |words: &[String]| {
            let mut words = words.to_vec();
            words.sort();
            words
        };
        self.wanted.as_ref().is_ok_and(|wanted| sorted(wanted) != sorted(&self.generated))
    }
}

/// The parameters of the entries of `10_linux`, if they are all the same.
fn generated(text: &str) -> Option<Vec<String>> {
    let (_, section) = text.split_once("### BEGIN /etc/grub.d/10_linux ###")?;
    let (section, _) = section.split_once("### END /etc/grub.d/10_linux ###")?;
    let mut entries = section.lines().filter(|line| is_entry(line)).map(crashkernel);
    let first = entries.next()?;
    entries.all(|entry| entry == first).then_some(first)
}

fn wanted(root: &Root, mut names: Vec<OsString>, has_directory: bool) -> Result<Vec<String>, String> {
    names.sort();
    // A shell sorts them by its locale.
    let folded = |name: &OsString| {
        let bytes = name.as_encoded_bytes().iter();
        bytes.filter(|byte| byte.is_ascii_alphanumeric()).map(u8::to_ascii_lowercase).collect::<Vec<_>>()
    };
    if !names.is_sorted_by_key(folded) {
        return Err(format!("the order of the files in {DIRECTORY} depends on the language"));
    }
    if !has_directory && !names.is_empty() {
        return Err(format!("whether files in {DIRECTORY} count is not known"));
    }
    let mut set = HashMap::new();
    let settings = root.exists(SETTINGS).then(|| PathBuf::from(SETTINGS));
    for file in settings.into_iter().chain(names.iter().map(|name| Path::new(DIRECTORY).join(name))) {
        let failed = |reason: String| format!("{}: {reason}", file.display());
        let text = root.read(&file).map_err(|error| failed(error.to_string()))?;
        source(&text, &mut set).map_err(failed)?;
    }
    let values = KEYS.map(|key| set.remove(key).unwrap_or(Some(String::new())));
    let [Some(all), Some(default)] = values else { return Err("a shell computes them".into()) };
    Ok(crashkernel(&format!("{all} {default}")))
}

/// Adds the variables of a file; those that are computed have no value.
fn source(text: &[u8], set: &mut HashMap<String, Option<String>>) -> Result<(), String> {
    let script = Script::parse(text).map_err(|error| error.to_string())?;
    for key in KEYS {
        if script.statements.iter().any(|statement| Script::is_unclear(statement, key)) {
            return Err(format!("a command may change {key}"));
        }
    }
    for found in script.assignments() {
        let mut value = Some(Vec::new()).filter(|_| found.is_certain && !found.appends);
        for atom in atoms(found.value.parts, text) {
            match (&mut value, atom) {
                (Some(value), Atom::Byte(byte)) => value.push(byte),
                (Some(bytes), Atom::Expansion(raw)) => match variable(&raw, set) {
                    Some(text) if bytes.len() + text.len() <= LONGEST => bytes.extend(text.bytes()),
                    _ => value = None,
                },
                (None, _) => {}
            }
        }
        let value = value.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        set.insert(found.name, value);
    }
    Ok(())
}

/// The value of `$NAME` or `${NAME}`. A variable that no file sets may come from the environment, but for those that are read here.
fn variable(raw: &[u8], set: &HashMap<String, Option<String>>) -> Option<String> {
    let name = std::str::from_utf8(raw).ok()?.strip_prefix('$')?;
    let name = name.strip_prefix('{').and_then(|name| name.strip_suffix('}')).unwrap_or(name);
    match set.get(name) {
        Some(value) => value.clone(),
        None => KEYS.contains(&name).then(String::new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(settings: &str, directory: &[(&str, &str)], generated: &str) -> Option<GrubSettings> {
        let machine = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = machine.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("etc/default/grub", settings);
        for (name, text) in directory {
            write(&format!("etc/default/grub.d/{name}"), text);
        }
        write("boot/grub/grub.cfg", generated);
        GrubSettings::read(&Root::open(machine.path()).unwrap(), true)
    }

    fn section(words: &str) -> String {
        format!(
            "linux /memtest crashkernel=1M\n### BEGIN /etc/grub.d/10_linux ###\n\tlinux\t/v root=x ro {words}\n\
             \tlinux\t/v root=x ro single\n### END /etc/grub.d/10_linux ###\nlinux /v mine\n"
        )
    }

    fn wanted(settings: &str, directory: &[(&str, &str)]) -> Result<Vec<String>, String> {
        of(settings, directory, &section("quiet")).unwrap().wanted
    }

    #[test]
    fn settings_are_read_in_the_order_of_their_files() {
        let grub = "GRUB_DISTRIBUTOR=`( . /etc/os-release && echo ${NAME} )`\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\n\
                    GRUB_CMDLINE_LINUX=\"crashkernel=1G\"\n";
        let debian = "GRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT crashkernel=512M-:192M\"\n";
        let words = |words: &[&str]| Ok(words.iter().map(|word| (*word).to_owned()).collect());
        assert_eq!(wanted(grub, &[]), words(&["crashkernel=1G"]));
        let both = words(&["crashkernel=1G", "crashkernel=512M-:192M"]);
        assert_eq!(wanted(grub, &[("kdump-tools.cfg", debian), ("x.bak", "(")]), both);
        let cloud = ("50-cloud.cfg", "GRUB_CMDLINE_LINUX_DEFAULT='crashkernel=2G'\nA=1");
        let all = words(&["crashkernel=1G", "crashkernel=2G", "crashkernel=512M-:192M"]);
        assert_eq!(wanted(grub, &[("kdump-tools.cfg", debian), cloud]), all);
        let later = ("z.cfg", "GRUB_CMDLINE_LINUX_DEFAULT=quiet GRUB_CMDLINE_LINUX=");
        assert_eq!(wanted(grub, &[("kdump-tools.cfg", debian), later]), words(&[]));
        assert_eq!(wanted("", &[("kdump-tools.cfg", debian)]), words(&["crashkernel=512M-:192M"]));
        let named = "WORDS=crashkernel=3G\nGRUB_CMDLINE_LINUX=\"a ${WORDS}\"";
        assert_eq!(wanted(named, &[]), words(&["crashkernel=3G"]));
    }

    #[test]
    fn what_a_shell_computes_is_not_known() {
        for settings in [
            "GRUB_CMDLINE_LINUX=\"$(cat /etc/words)\"",
            "GRUB_CMDLINE_LINUX=$OTHER",
            "GRUB_CMDLINE_LINUX=\"${A:-crashkernel=1G}\"",
            "if [ -e /x ]; then GRUB_CMDLINE_LINUX=crashkernel=1G; fi",
            ". /etc/words",
            "GRUB_CMDLINE_LINUX=a\nGRUB_CMDLINE_LINUX+=crashkernel=1G",
            "GRUB_CMDLINE_LINUX='a",
            &("A=1234\n".to_owned() + &"A=$A$A\n".repeat(60) + "GRUB_CMDLINE_LINUX=$A"),
        ] {
            assert!(wanted(settings, &[]).is_err(), "{settings}");
        }
        assert!(wanted("", &[("50-a.cfg", ""), ("a-b.cfg", ""), ("az.cfg", "")]).is_ok());
        for names in [["B.cfg", "a.cfg"], ["a-z.cfg", "ab.cfg"]] {
            let files = names.map(|name| (name, ""));
            assert!(wanted("", &files).is_err(), "a locale may sort them otherwise: {names:?}");
        }
    }

    #[test]
    fn only_generated_entries_that_agree_are_compared() {
        let grub = "GRUB_CMDLINE_LINUX=crashkernel=1G";
        assert!(!of(grub, &[], &section("crashkernel=1G")).unwrap().is_pending());
        assert!(of(grub, &[], &section("crashkernel=2G")).unwrap().is_pending());
        assert!(of(grub, &[], &section("")).unwrap().is_pending());
        assert_eq!(of(grub, &[], "linux /v root=x\n"), None);
        let differ = section("crashkernel=2G").replace("single", "quiet");
        assert_eq!(of(grub, &[], &differ), None);
    }
}
