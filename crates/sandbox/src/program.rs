//! A sandbox for a program that this process becomes, such as an interpreter that runs code of the user.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, RestrictSelfAttr, RestrictionStatus, Ruleset,
    RulesetAttr, RulesetError, RulesetStatus, Scope,
};

use crate::files::{self, Rule};
use crate::{EnterError, Gap, Sandbox, capabilities, descriptors};

impl Sandbox {
    /// Confines the process for a program that it executes next. Less is out of reach than after [`enter`](Self::enter): the program
    /// reads and executes every file that the user may, and calls the system as it likes. It writes only below the directories of
    /// [`writing_below`](Self::writing_below), signals no other process, and connects to nothing unless `network`.
    ///
    /// # Errors
    /// Fails if the process can open no more files.
    pub fn enter_for_program(self, network: bool) -> Result<Vec<Gap>, EnterError> {
        descriptors::close_inherited();
        let _ = rustix::thread::set_no_new_privs(true);
        let mut gaps = Vec::new();
        let kept = capabilities::needed(&self.inputs, self.trees.iter());
        match restrict_files(self.rules_for_program()?, network) {
            Ok(RestrictionStatus { ruleset: RulesetStatus::NotEnforced, .. }) | Err(_) => {
                gaps.push(Gap::Files)
            }
            Ok(_) => {}
        }
        // A program of root has them back, but for those that are gone when it may gain no privileges.
        gaps.extend(capabilities::drop_all_but(kept));
        Ok(gaps)
    }

    fn rules_for_program(&self) -> Result<Vec<Rule>, EnterError> {
        let mut rules = Vec::new();
        rules.extend(files::rule(Path::new("/"), AccessFs::from_read(ABI::V1))?);
        rules.extend(files::rule(Path::new("/dev/null"), AccessFs::ReadFile | AccessFs::WriteFile)?);
        for path in &self.trees {
            let write = AccessFs::from_write(ABI::V3) & !(AccessFs::MakeBlock | AccessFs::MakeChar);
            rules.extend(files::rule(path, AccessFs::from_read(ABI::V1) | write)?);
        }
        Ok(rules)
    }
}

fn restrict_files(rules: Vec<Rule>, network: bool) -> Result<RestrictionStatus, RulesetError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(files::NEWEST))?
        .scope(Scope::from_all(files::NEWEST))?;
    if !network {
        ruleset = ruleset.handle_access(AccessNet::from_all(files::NEWEST))?;
    }
    let mut ruleset = ruleset.create()?;
    files::add(&mut ruleset, rules);
    ruleset.all_threads(true)?.restrict_self()
}
