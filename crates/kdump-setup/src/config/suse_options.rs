//! The options of `/etc/sysconfig/kdump`, as `option` of kdump-read-config.sh takes them (openSUSE kdump 2.1.9).

use std::collections::HashMap;

/// What a value must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Bool,
    Int,
}

/// All options with their defaults (`kdump_read_config_main`), but for those that are deprecated: they do nothing.
const OPTIONS: [(Kind, &str, &str); 32] = [
    (Kind::Bool, "KDUMP_AUTO_RESIZE", "false"),
    (Kind::Text, "KDUMP_COMMANDLINE", ""),
    (Kind::Text, "KDUMP_COMMANDLINE_APPEND", ""),
    (Kind::Bool, "KDUMP_CONTINUE_ON_ERROR", "true"),
    (Kind::Int, "KDUMP_CPUS", "32"),
    (Kind::Text, "KDUMP_CRASHKERNEL", "auto"),
    (Kind::Text, "KDUMP_DUMPFORMAT", "compressed"),
    (Kind::Int, "KDUMP_DUMPLEVEL", "31"),
    (Kind::Bool, "KDUMP_FADUMP", "false"),
    (Kind::Bool, "KDUMP_FADUMP_SHELL", "false"),
    (
        Kind::Text,
        "FADUMP_COMMANDLINE_APPEND",
        "numa=off cgroup_disable=memory cma=0 kvm_cma_resv_ratio=0 hugetlb_cma=0 transparent_hugepage=never novmcoredd \
         udev.children-max=2",
    ),
    (Kind::Int, "KDUMP_FREE_DISK_SIZE", "64"),
    (Kind::Text, "KDUMP_HOST_KEY", ""),
    (Kind::Bool, "KDUMP_IMMEDIATE_REBOOT", "true"),
    (Kind::Int, "KDUMP_KEEP_OLD_DUMPS", "0"),
    (Kind::Text, "KDUMP_KERNELVER", ""),
    (Kind::Text, "KDUMP_NETCONFIG", "auto"),
    (Kind::Int, "KDUMP_NET_TIMEOUT", "30"),
    (Kind::Text, "KDUMP_NOTIFICATION_CC", ""),
    (Kind::Text, "KDUMP_NOTIFICATION_TO", ""),
    (Kind::Text, "KDUMP_POSTSCRIPT", ""),
    (Kind::Text, "KDUMP_PRESCRIPT", ""),
    (Kind::Text, "KDUMP_REQUIRED_PROGRAMS", ""),
    (Kind::Text, "KDUMP_SAVEDIR", "/var/crash"),
    (Kind::Text, "KDUMP_SMTP_PASSWORD", ""),
    (Kind::Text, "KDUMP_SMTP_SERVER", ""),
    (Kind::Text, "KDUMP_SMTP_USER", ""),
    (Kind::Text, "KDUMP_SSH_IDENTITY", ""),
    (Kind::Text, "KDUMP_TRANSFER", ""),
    (Kind::Int, "KDUMP_VERBOSE", "0"),
    (Kind::Text, "KEXEC_OPTIONS", ""),
    (Kind::Text, "MAKEDUMPFILE_OPTIONS", ""),
];

/// A value that the scripts ignore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ignored {
    pub(crate) setting: &'static str,
    pub(crate) value: String,
    /// What it must be.
    pub(crate) wanted: &'static str,
    /// What they take instead.
    pub(crate) default: &'static str,
}

/// The values that the scripts work with.
pub(super) struct Options {
    values: HashMap<&'static str, String>,
    pub(super) ignored: Vec<Ignored>,
    /// Options whose value a shell computes, and which must be numbers or booleans.
    pub(super) computed: Vec<&'static str>,
}

impl Options {
    pub(super) fn new(set: &HashMap<String, String>) -> Self {
        let mut options = Self { values: HashMap::new(), ignored: Vec::new(), computed: Vec::new() };
        for (kind, setting, default) in OPTIONS {
            let value = set.get(setting).map(String::as_str).filter(|value| !value.is_empty());
            let value = value.map_or(default, |value| options.taken(kind, setting, value, default));
            options.values.insert(setting, value.to_owned());
        }
        options
    }

    fn taken<'v>(
        &mut self,
        kind: Kind,
        setting: &'static str,
        value: &'v str,
        default: &'static str,
    ) -> &'v str {
        let taken = match kind {
            Kind::Text => return value,
            _ if is_computed(value) => {
                self.computed.push(setting);
                return value;
            }
            // In lower case only.
            Kind::Bool => match value {
                "yes" | "1" | "true" => Some("true"),
                "no" | "0" | "false" => Some("false"),
                _ => None,
            },
            Kind::Int => {
                let digits = value.strip_prefix('-').unwrap_or(value);
                let is_int = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
                is_int.then_some(value)
            }
        };
        taken.unwrap_or_else(|| {
            let wanted = if kind == Kind::Int { "a number" } else { "true or false" };
            self.ignored.push(Ignored { setting, value: value.to_owned(), wanted, default });
            default
        })
    }

    pub(super) fn text(&self, setting: &str) -> &str {
        self.values.get(setting).map_or("", String::as_str)
    }

    pub(super) fn is_true(&self, setting: &str) -> bool {
        self.text(setting) == "true"
    }

    /// A number as the arithmetic of bash takes it: octal after a 0, modulo 2^64. `None` if bash finds an error in it, and a comparison
    /// is false.
    pub(super) fn number(&self, setting: &str) -> Option<i64> {
        let text = self.text(setting);
        let (is_negative, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text),
        };
        let base = if digits.starts_with('0') { 8 } else { 10 };
        let number = digits.chars().try_fold(0_i64, |number, digit| {
            Some(number.wrapping_mul(base.into()).wrapping_add(digit.to_digit(base)?.into()))
        })?;
        Some(if is_negative { number.wrapping_neg() } else { number })
    }
}

/// Whether a shell puts something into a value.
pub(super) fn is_computed(value: &str) -> bool {
    value.contains(['$', '`'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(setting: &str, value: &str) -> Options {
        Options::new(&HashMap::from([(setting.to_owned(), value.to_owned())]))
    }

    #[test]
    fn values_are_those_of_the_script() {
        for (setting, value, taken, is_ignored) in [
            ("KDUMP_DUMPLEVEL", "", "31", false),
            ("KDUMP_DUMPLEVEL", "17", "17", false),
            ("KDUMP_DUMPLEVEL", "-1", "-1", false),
            ("KDUMP_DUMPLEVEL", "abc", "31", true),
            ("KDUMP_DUMPLEVEL", "0x1f", "31", true),
            ("KDUMP_DUMPLEVEL", "1,31", "31", true),
            ("KDUMP_DUMPLEVEL", "-", "31", true),
            ("KDUMP_DUMPLEVEL", " 1", "31", true),
            ("KDUMP_FADUMP", "yes", "true", false),
            ("KDUMP_FADUMP", "1", "true", false),
            ("KDUMP_FADUMP", "True", "false", true),
            ("KDUMP_IMMEDIATE_REBOOT", "no", "false", false),
            ("KDUMP_IMMEDIATE_REBOOT", "0", "false", false),
            ("KDUMP_IMMEDIATE_REBOOT", "off", "true", true),
            ("KDUMP_DUMPFORMAT", "RAW", "RAW", false),
            ("KDUMP_CPUS", "$(nproc)", "$(nproc)", false),
        ] {
            let options = options(setting, value);
            assert_eq!(options.text(setting), taken, "{setting}={value}");
            assert_eq!(!options.ignored.is_empty(), is_ignored, "{setting}={value}");
        }
    }

    #[test]
    fn numbers_are_those_of_bash() {
        for (value, number) in [
            ("31", Some(31)),
            ("-1", Some(-1)),
            ("040", Some(32)),
            ("08", None),
            ("18446744073709551617", Some(1)),
            ("$X", None),
        ] {
            assert_eq!(options("KDUMP_DUMPLEVEL", value).number("KDUMP_DUMPLEVEL"), number, "{value}");
        }
    }
}
