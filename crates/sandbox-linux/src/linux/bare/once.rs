//! One command without namespaces: a guard that orphans are given to watches it, and outlives the launcher for as long
//! as it takes to end the tree.

use super::{load_rules, tree};
use crate::backend::confine;
use crate::backend::failure::{At as _, Failure, Stage};
use crate::backend::launch::{Init, Launch, Never, Role, ring};
use crate::backend::program::Refused;
use crate::backend::sys::signal::{self, SignalSet};
use crate::backend::sys::{Errno, Fd, file, memory, process};
use crate::backend::watch::Watch;
use std::sync::atomic::Ordering;

/// Starts the guard, which starts the command.
pub(crate) fn start(launch: &Launch<'_>) -> Result<Init, Failure> {
    let stack = memory::new_stack().at(Stage::Command)?;
    let argument = std::ptr::from_ref(launch).cast_mut().cast::<u8>();
    // Descriptors are common, so that the command's pidfd is the launcher's too; memory is not.
    // SAFETY: the guard has its own copy of all memory, made while this process has one thread.
    let pid = unsafe { process::start_on(libc::CLONE_FILES, stack, guard, argument) }
        .at(Stage::Command)?;
    let pidfd = process::open_pidfd(pid, 0).at(Stage::Command)?;
    Ok(Init {
        pidfd,
        pid,
        separated: false,
        // It ends the tree first.
        ends_with: libc::SIGTERM,
    })
}

extern "C" fn guard(launch: *mut u8) -> ! {
    // SAFETY: `start` passed a reference, and our copy of it is never freed.
    let launch = unsafe { &*launch.cast::<Launch<'_>>() };
    let failure = match run_guard(launch) {
        Ok(never) => match never {},
        Err(failure) => failure,
    };
    tree::end_below(process::id());
    launch.shared.fail(failure);
    if let Role::Once { done, .. } = launch.role {
        ring(done);
    }
    process::exit(125)
}

fn run_guard(launch: &Launch<'_>) -> Result<Never, Failure> {
    const WATCHED: SignalSet = SignalSet::of(&[libc::SIGCHLD, libc::SIGTERM]);
    let Launch { plan, shared, .. } = launch;
    let Role::Once { done, .. } = launch.role else {
        return Err(Errno(libc::EINVAL)).at(Stage::Command);
    };
    signal::block_only(SignalSet::ALL).at(Stage::ParentDeath)?;
    // A launcher that is killed leaves us the time to end the tree.
    process::signal_with_parent(libc::SIGTERM).at(Stage::ParentDeath)?;
    let mut alive = [signal::readable(launch.launcher)];
    if signal::poll(&mut alive, Some(0)).at(Stage::ParentDeath)? > 0 {
        process::exit(137);
    }
    // Signals to the launcher's group and terminal are for the launcher to pass on.
    process::new_session().at(Stage::ParentDeath)?;
    process::adopt_orphans().at(Stage::ParentDeath)?;
    let signals = signal::descriptor(WATCHED).at(Stage::Supervisor)?;
    if let Some(ruleset) = load_rules(plan)? {
        shared.ruleset.store(ruleset.0 + 1, Ordering::Release);
    }
    let stack = memory::new_stack().at(Stage::Command)?;
    let argument = std::ptr::from_ref(launch).cast_mut().cast::<u8>();
    let flags = libc::CLONE_VM | libc::CLONE_FILES;
    // SAFETY: `launch` lives as long as this process; the command dies with it and neither allocates nor panics.
    let command = unsafe { process::start_on(flags, stack, run, argument) }.at(Stage::Command)?;
    let pidfd = process::open_pidfd(command, 0).at(Stage::Command)?;
    shared.command.store(pidfd.0, Ordering::Release);
    process::drop_own_privileges().at(Stage::Privileges)?;
    let own = process::id();
    let private = file::open_at(Fd::CWD, &plan.private.path, file::O_PATH_CLOEXEC, 0)
        .at(Stage::Supervisor)?;
    let mut watch =
        Watch::new(plan.limits.memory_bytes, plan.page, private).at(Stage::Supervisor)?;
    watch.only_below(own);
    watch.rearm();
    let status = 'running: loop {
        loop {
            match process::wait(-1, libc::WNOHANG) {
                Ok(Some((pid, status))) if pid == command => break 'running status,
                Ok(Some(_)) | Err(Errno(libc::EINTR)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        let pause = watch.pause(process::monotonic_ns());
        let mut list = [signal::readable(signals)];
        signal::poll(&mut list, Some(pause)).at(Stage::Supervisor)?;
        while let Some(number) = signal::take(signals) {
            if number == libc::SIGTERM {
                tree::end_below(own);
                super::place::remove(&plan.private.path_of(None));
                process::exit(137);
            }
        }
        if watch.is_over(process::monotonic_ns()) {
            shared.out_of_memory.store(1, Ordering::Release);
            tree::kill_below(own);
        }
    };
    let leftovers = watch.count().saturating_sub(1);
    tree::end_below(own);
    shared.leftovers.store(leftovers as i32, Ordering::Release);
    shared.status.store(status, Ordering::Release);
    memory::publish(&shared.ended, 1);
    ring(done);
    process::exit(0)
}

/// The command, until it executes the program.
extern "C" fn run(launch: *mut u8) -> ! {
    // SAFETY: `run_guard` passed a reference that outlives this process.
    let launch = unsafe { &*launch.cast::<Launch<'_>>() };
    match run_command(launch) {
        Ok(refused) => {
            launch
                .shared
                .refused
                .store(refused.pack(), Ordering::Release);
            process::exit(126)
        }
        Err(failure) => {
            launch.shared.fail(failure);
            process::exit(125)
        }
    }
}

fn run_command(launch: &Launch<'_>) -> Result<Refused, Failure> {
    let Role::Once {
        program, directory, ..
    } = &launch.role
    else {
        return Err(Errno(libc::EINVAL)).at(Stage::Command);
    };
    process::die_with_parent().at(Stage::ParentDeath)?;
    process::new_session().at(Stage::Command)?;
    process::new_keyring();
    confine::limit(&launch.plan.limits)?;
    process::drop_own_privileges().at(Stage::Privileges)?;
    if !memory::wait_while(&launch.shared.recorded, 0, Some(60_000)) {
        return Err(Errno(libc::ETIMEDOUT)).at(Stage::Command);
    }
    confine::apply_landlock(launch.shared.ruleset())?;
    confine::load_filter(&launch.filter, launch.plan.filter.quiet)?;
    if let Err(errno) = file::change_directory(directory) {
        return Ok(Refused::Directory(errno.0));
    }
    confine::leave_nothing().at(Stage::Descriptors)?;
    // SAFETY: the arrays were made by `StringArray` and live as long as `launch`.
    Ok(unsafe { crate::backend::program::execute(program) })
}
