//! The plan's rules as a Landlock rule set.

use crate::backend::failure::{At as _, Failure, Stage};
use crate::backend::plan::Plan;
use crate::backend::sys::{Fd, file, landlock as ll};

/// Makes the rule set. What is gone by now needs no rule; a link that stands there now is not followed.
pub(crate) fn load(plan: &Plan) -> Result<Option<Fd>, Failure> {
    let Some(bare) = &plan.bare else {
        return Ok(None);
    };
    let ruleset = ll::create(plan.landlock).at(Stage::LandlockRules)?;
    let known = ll::known_rights(plan.landlock);
    for rule in &bare.rules {
        let flags = file::O_PATH_CLOEXEC | libc::O_NOFOLLOW;
        let beneath = match file::open_at(Fd::CWD, &rule.path, flags, 0) {
            Ok(beneath) => beneath,
            // What cannot be opened even to be named cannot be opened by a program of this user either.
            Err(errno) if matches!(errno.0, libc::ENOENT | libc::EACCES) => continue,
            Err(errno) => return Err(errno).at(Stage::LandlockRules),
        };
        let result = if rule.access & known == 0 {
            Ok(())
        } else {
            ll::allow_beneath(ruleset, beneath, rule.access & known)
        };
        file::close(beneath);
        result.at(Stage::LandlockRules)?;
    }
    Ok(Some(ruleset))
}
