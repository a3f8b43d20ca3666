//! A sandbox for a program that this process becomes, such as an interpreter that runs code of the user.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, RestrictSelfAttr, RestrictionStatus, Ruleset,
    RulesetAttr, RulesetError, RulesetStatus, Scope,
};

use crate::{Gap, Sandbox, capabilities, descriptors, files};

impl Sandbox {
    /// Confines the process for a program that it executes next. Less is out of reach than after [`enter`](Self::enter): the program
    /// reads and executes every file that the user may, and calls the system as it likes. It writes only below the directories of
    /// [`writing_below`](Self::writing_below), signals no other process, and connects to nothing unless `network`.
    pub fn enter_for_program(self, network: bool) -> Vec<Gap> {
        descriptors::close_inherited();
        let _ = rustix::thread::set_no_new_privs(true);
        let mut gaps = Vec::new();
        let kept = capabilities::needed(&self.inputs, self.trees.iter());
        match self.restrict_files(network) {
            Ok(RestrictionStatus { ruleset: RulesetStatus::NotEnforced, .. }) | Err(_) => {
                gaps.push(Gap::Files)
            }
            Ok(_) => {}
        }
        // A program of root has them back, but for those that are gone when it may gain no privileges.
        gaps.extend(capabilities::drop_all_but(kept));
        gaps
    }

    fn restrict_files(&self, network: bool) -> Result<RestrictionStatus, RulesetError> {
        let mut ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(files::NEWEST))?
            .scope(Scope::from_all(files::NEWEST))?;
        if !network {
            ruleset = ruleset.handle_access(AccessNet::from_all(files::NEWEST))?;
        }
        let mut ruleset = ruleset.create()?;
        files::allow(&mut ruleset, Path::new("/"), AccessFs::from_read(ABI::V1));
        files::allow(&mut ruleset, Path::new("/dev/null"), AccessFs::ReadFile | AccessFs::WriteFile);
        for path in &self.trees {
            let write = AccessFs::from_write(ABI::V3) & !(AccessFs::MakeBlock | AccessFs::MakeChar);
            files::allow(&mut ruleset, path, AccessFs::from_read(ABI::V1) | write);
        }
        ruleset.all_threads(true)?.restrict_self()
    }
}
