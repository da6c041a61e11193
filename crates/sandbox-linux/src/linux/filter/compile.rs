//! From the table to BPF: a binary tree over call numbers, because the kernel runs the filter on every call.

use super::FilterChoice;
use super::table::{Action, Check, Condition, REVIEWED_BELOW, Verdict, rules};
use crate::backend::explain::calls::{self, Ask};
use libc::sock_filter;

const LOAD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const JUMP_ANY_BIT: u16 = 0x45;
const JUMP: u16 = 0x05;
const AND: u16 = 0x54;
const RETURN: u16 = 0x06;

const RETURN_KILL_PROCESS: u32 = 0x8000_0000;
const RETURN_ERRNO: u32 = 0x0005_0000;
const RETURN_ASK: u32 = 0x7fc0_0000;
const RETURN_ALLOW: u32 = 0x7fff_0000;

const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;

#[cfg(target_arch = "x86_64")]
const OUR_ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const OUR_ARCHITECTURE: u32 = 0xc000_00b7;

/// x86_64's second call table (x32) starts here; other architectures have nothing there.
const FOREIGN_TABLE: u32 = 0x4000_0000;

fn statement(code: u16, k: u32) -> sock_filter {
    sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    }
}

fn branch(code: u16, k: u32, yes: u8, no: u8) -> sock_filter {
    sock_filter {
        code,
        jt: yes,
        jf: no,
        k,
    }
}

fn low_half(argument: u32) -> u32 {
    16 + 8 * argument
}

/// The end of a way through the filter, seen with or without init. Init answers a refusal with the same error number.
fn verdict(verdict: Verdict, ask: Ask) -> Vec<sock_filter> {
    match (verdict, ask) {
        (Verdict::Refuse(errno), Ask::Never) => {
            vec![statement(RETURN, RETURN_ERRNO | errno as u32)]
        }
        (Verdict::Refuse(_), _) | (Verdict::Allow, Ask::Always) => {
            vec![statement(RETURN, RETURN_ASK)]
        }
        (Verdict::Allow, Ask::Never | Ask::Refusals) => vec![statement(RETURN, RETURN_ALLOW)],
        (Verdict::Allow, Ask::Writing(flags)) => vec![
            statement(LOAD, low_half(flags)),
            branch(JUMP_ANY_BIT, calls::WRITING, 0, 1),
            statement(RETURN, RETURN_ASK),
            statement(RETURN, RETURN_ALLOW),
        ],
    }
}

fn check(check: &Check, ask: Ask) -> Vec<sock_filter> {
    let mut program = Vec::new();
    for case in check.cases {
        // Per condition: what to load, the mask, the comparison. A failed one skips to the next case.
        let mut parts: Vec<Vec<sock_filter>> = Vec::new();
        for condition in case.conditions {
            parts.push(match *condition {
                Condition::Equals(argument, value) => vec![
                    statement(LOAD, low_half(argument)),
                    branch(JUMP_EQUAL, value, 0, 0),
                ],
                Condition::MaskedEquals(argument, mask, value) => vec![
                    statement(LOAD, low_half(argument)),
                    statement(AND, mask),
                    branch(JUMP_EQUAL, value, 0, 0),
                ],
                Condition::AnyBit(argument, mask) => vec![
                    statement(LOAD, low_half(argument)),
                    branch(JUMP_ANY_BIT, mask, 0, 0),
                ],
            });
        }
        let end = verdict(case.then, ask);
        let mut left: usize = parts.iter().map(Vec::len).sum();
        for mut part in parts {
            left -= part.len();
            if let Some(comparison) = part.last_mut() {
                comparison.jf = (left + end.len()) as u8;
            }
            program.extend(part);
        }
        program.extend(end);
    }
    program.extend(verdict(check.otherwise, ask));
    program
}

/// What happens to a call, and whether init sees it.
type Answer = (Action, Ask);

const NOTHING: Answer = (Action::Allow, Ask::Never);

fn leaf((action, ask): Answer) -> Vec<sock_filter> {
    match action {
        Action::Allow => verdict(Verdict::Allow, ask),
        Action::Refuse(errno) => verdict(Verdict::Refuse(errno), ask),
        Action::Ask => vec![statement(RETURN, RETURN_ASK)],
        Action::Check(of) => check(of, ask),
    }
}

/// The table's rules and what is to be explained, sorted by number.
fn answers(choice: FilterChoice) -> Vec<(u32, Answer)> {
    let ask = |number: u32| calls::ask(number.into(), choice.explain);
    let mut answers: Vec<(u32, Answer)> = rules(choice)
        .into_iter()
        .map(|(number, action)| (number, (action, ask(number))))
        .collect();
    for number in calls::numbers().map(|number| number as u32) {
        // A call that is not in the rules is allowed: then only asking each time makes a difference.
        if ask(number) == Ask::Always && answers.iter().all(|listed| listed.0 != number) {
            answers.push((number, (Action::Allow, Ask::Always)));
        }
    }
    answers.sort_unstable_by_key(|(number, _)| *number);
    answers
}

/// Consecutive numbers with one answer, each from its number to the next segment's.
fn segments(rules: &[(u32, Answer)]) -> Vec<(u32, Answer)> {
    let mut segments: Vec<(u32, Answer)> = vec![(0, NOTHING)];
    let mut add = |start: u32, action: Answer| {
        if segments.last().is_some_and(|last| last.0 == start) {
            segments.pop();
        }
        if segments.last().is_none_or(|last| last.1 != action) {
            segments.push((start, action));
        }
    };
    for (number, action) in rules {
        add(*number, *action);
        add(*number + 1, NOTHING);
    }
    add(REVIEWED_BELOW, (Action::Refuse(libc::ENOSYS), Ask::Never));
    segments
}

fn tree(segments: &[(u32, Answer)]) -> Vec<sock_filter> {
    let [.., _, _] = segments else {
        return segments.first().map_or_else(Vec::new, |only| leaf(only.1));
    };
    let (left, right) = segments.split_at(segments.len() / 2);
    let (below, above) = (tree(left), tree(right));
    let mut program = Vec::with_capacity(below.len() + above.len() + 2);
    match u8::try_from(below.len()) {
        Ok(distance) => program.push(branch(JUMP_AT_LEAST, right[0].0, distance, 0)),
        Err(_) => {
            program.push(branch(JUMP_AT_LEAST, right[0].0, 0, 1));
            program.push(statement(JUMP, below.len() as u32));
        }
    }
    program.extend(below);
    program.extend(above);
    program
}

/// The filter program for this choice.
pub(crate) fn compile(choice: FilterChoice) -> Vec<sock_filter> {
    let mut program = vec![
        statement(LOAD, ARCHITECTURE),
        branch(JUMP_EQUAL, OUR_ARCHITECTURE, 1, 0),
        statement(RETURN, RETURN_KILL_PROCESS),
        statement(LOAD, NUMBER),
        branch(JUMP_AT_LEAST, FOREIGN_TABLE, 0, 1),
        statement(RETURN, RETURN_KILL_PROCESS),
    ];
    program.extend(tree(&segments(&answers(choice))));
    program
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::filter::refusal;
    use crate::exec::Explain;

    /// Runs a program as the kernel would.
    fn run(program: &[sock_filter], architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let mut accumulator = 0u32;
        let mut at = 0usize;
        loop {
            let instruction = program[at];
            at += 1;
            let mut jump = |yes: bool| {
                at += usize::from(if yes { instruction.jt } else { instruction.jf });
            };
            match instruction.code {
                LOAD => {
                    accumulator = match instruction.k {
                        NUMBER => number,
                        ARCHITECTURE => architecture,
                        offset => arguments[(offset as usize - 16) / 8] as u32,
                    }
                }
                AND => accumulator &= instruction.k,
                JUMP => at += instruction.k as usize,
                JUMP_EQUAL => jump(accumulator == instruction.k),
                JUMP_AT_LEAST => jump(accumulator >= instruction.k),
                JUMP_ANY_BIT => jump(accumulator & instruction.k != 0),
                RETURN => return instruction.k,
                other => panic!("unknown instruction {other:#x}"),
            }
        }
    }

    fn both() -> [FilterChoice; 2] {
        [true, false].map(|loopback| FilterChoice {
            loopback,
            execution_limited: !loopback,
            explain: Explain::Off,
            memory_counted: loopback,
            quiet: false,
            no_truncation: !loopback,
            alone: None,
        })
    }

    /// The tree answers every number as the plain list does.
    #[test]
    fn tree_and_table_agree_on_every_number() {
        for choice in both() {
            let program = compile(choice);
            assert!(program.len() < 4096, "{} instructions", program.len());
            let table = rules(choice);
            for number in 0..600 {
                let listed = table
                    .iter()
                    .find(|rule| rule.0 == number)
                    .map(|rule| rule.1);
                let wanted = match listed {
                    _ if number >= REVIEWED_BELOW => RETURN_ERRNO | libc::ENOSYS as u32,
                    None => RETURN_ALLOW,
                    Some(Action::Refuse(errno)) => RETURN_ERRNO | errno as u32,
                    Some(Action::Ask) => RETURN_ASK,
                    Some(Action::Allow | Action::Check(_)) => continue,
                };
                let got = run(&program, OUR_ARCHITECTURE, number, [0; 6]);
                assert_eq!(got, wanted, "call {number}");
            }
        }
    }

    /// Explaining changes who answers, never the answer: what is refused without it is refused with it, by the filter or by
    /// init with the same number, and what init lets go on the filter would have allowed.
    #[test]
    fn explaining_refuses_what_is_refused_without_it() {
        for plain in both() {
            let without = compile(plain);
            for explain in [Explain::On, Explain::Opens] {
                let choice = FilterChoice { explain, ..plain };
                let with = compile(choice);
                assert!(with.len() < 4096, "{} instructions", with.len());
                for number in 0..REVIEWED_BELOW + 2 {
                    for arguments in samples() {
                        let expected = run(&without, OUR_ARCHITECTURE, number, arguments);
                        let seen = run(&with, OUR_ARCHITECTURE, number, arguments);
                        let init = match refusal(choice, number as i32, &arguments) {
                            None => RETURN_ALLOW,
                            Some(errno) => RETURN_ERRNO | errno as u32,
                        };
                        let is_connect = number == libc::SYS_connect as u32;
                        let answered = if seen == RETURN_ASK && !is_connect {
                            assert!(calls::call(number.into()).is_some(), "call {number}");
                            init
                        } else {
                            seen
                        };
                        assert_eq!(answered, expected, "call {number} with {arguments:?}");
                    }
                }
            }
        }
    }

    /// Arguments that meet and miss the table's conditions.
    fn samples() -> Vec<[u64; 6]> {
        let first = [0, 1, 2, 3, 10, 16, 17, 35, 0x1000_0000, u64::from(u32::MAX)];
        let second = [0, 1, 2, 3, 5, 0o1777, 0o4755, 0x5412, 0x241];
        let mut samples = Vec::new();
        for first in first {
            for second in second {
                for third in [0, 6, 0o6000, 0x241, 262] {
                    samples.push([first, second, third, 0o4755, 0, 0]);
                }
            }
        }
        samples
    }

    /// Reading files costs nothing by default.
    #[test]
    fn only_opens_that_can_change_something_stop_at_init() {
        let compiled = |explain| {
            compile(FilterChoice {
                explain,
                ..both()[0]
            })
        };
        let open = |program: &[sock_filter], flags: i32| {
            let arguments = [0, 0, flags as u64, 0, 0, 0];
            run(
                program,
                OUR_ARCHITECTURE,
                libc::SYS_openat as u32,
                arguments,
            )
        };
        let [off, on, opens] = [Explain::Off, Explain::On, Explain::Opens].map(compiled);
        for flags in [libc::O_RDONLY, libc::O_CLOEXEC | libc::O_DIRECTORY] {
            assert_eq!(open(&on, flags), RETURN_ALLOW);
            assert_eq!(open(&opens, flags), RETURN_ASK);
        }
        for flags in [libc::O_WRONLY, libc::O_RDWR, libc::O_CREAT, libc::O_TRUNC] {
            assert_eq!(open(&off, flags), RETURN_ALLOW);
            assert_eq!(open(&on, flags), RETURN_ASK);
        }
    }

    /// Foreign call tables end the program: a filter that reads their numbers as ours would be wrong.
    #[test]
    fn foreign_architectures_are_killed() {
        let program = compile(both()[0]);
        let native = libc::SYS_getpid as u32;
        assert_eq!(
            run(&program, 0x4000_0003, native, [0; 6]),
            RETURN_KILL_PROCESS
        );
        assert_eq!(
            run(&program, OUR_ARCHITECTURE, FOREIGN_TABLE + native, [0; 6]),
            RETURN_KILL_PROCESS
        );
    }

    /// SEC-INV-06: family and protocol decide together.
    #[test]
    fn sockets_are_judged_by_family_type_and_protocol() {
        let [private, none] = both().map(compile);
        let socket = |program: &[sock_filter], family: i32, kind: i32, protocol: i32| {
            let arguments = [family as u64, kind as u64, protocol as u64, 0, 0, 0];
            run(
                program,
                OUR_ARCHITECTURE,
                libc::SYS_socket as u32,
                arguments,
            )
        };
        let errno = |errno: i32| RETURN_ERRNO | errno as u32;
        let stream = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        assert_eq!(socket(&none, libc::AF_INET, stream, 0), errno(libc::EACCES));
        assert_eq!(
            socket(&none, libc::AF_INET6, stream, 0),
            errno(libc::EACCES)
        );
        assert_eq!(socket(&none, libc::AF_UNIX, stream, 0), RETURN_ALLOW);
        assert_eq!(
            socket(&none, libc::AF_UNIX, libc::SOCK_DGRAM, 0),
            errno(libc::EPERM)
        );
        assert_eq!(
            socket(&none, libc::AF_NETLINK, libc::SOCK_RAW, 0),
            errno(libc::EAFNOSUPPORT)
        );
        assert_eq!(
            socket(&none, libc::AF_VSOCK, stream, 0),
            errno(libc::EAFNOSUPPORT)
        );
        assert_eq!(socket(&private, libc::AF_INET, stream, 0), RETURN_ALLOW);
        assert_eq!(socket(&private, libc::AF_INET, stream, 6), RETURN_ALLOW);
        assert_eq!(
            socket(&private, libc::AF_INET, stream, 262),
            errno(libc::EPROTONOSUPPORT)
        );
        assert_eq!(
            socket(&private, libc::AF_INET, stream, 132),
            errno(libc::EPROTONOSUPPORT)
        );
        assert_eq!(
            socket(&private, libc::AF_INET, libc::SOCK_DGRAM, 0),
            errno(libc::EACCES)
        );
        assert_eq!(
            socket(&private, libc::AF_INET6, libc::SOCK_DGRAM, 136),
            errno(libc::EACCES)
        );
        assert_eq!(
            socket(&private, libc::AF_INET, libc::SOCK_RAW, 1),
            errno(libc::EACCES)
        );
        assert_eq!(
            socket(&private, libc::AF_NETLINK, libc::SOCK_RAW, 0),
            RETURN_ALLOW
        );
        assert_eq!(
            socket(&private, libc::AF_NETLINK, libc::SOCK_RAW, 9),
            errno(libc::EAFNOSUPPORT)
        );
    }

    /// SEC-INV-10: no set-id file is left behind; a mode that is not looked at does not matter.
    #[test]
    fn set_id_bits_are_refused_wherever_a_mode_is_given() {
        let program = compile(both()[1]);
        let made = |number: libc::c_long, arguments: [u64; 6]| {
            run(&program, OUR_ARCHITECTURE, number as u32, arguments)
        };
        let refused = RETURN_ERRNO | libc::EPERM as u32;
        let create = (libc::O_CREAT | libc::O_WRONLY) as u64;
        for bits in [0o4755, 0o2755, 0o6755] {
            assert_eq!(made(libc::SYS_fchmodat, [0, 0, bits, 0, 0, 0]), refused);
            assert_eq!(made(452, [0, 0, bits, 0, 0, 0]), refused);
            assert_eq!(made(libc::SYS_fchmod, [0, bits, 0, 0, 0, 0]), refused);
            assert_eq!(made(libc::SYS_openat, [0, 0, create, bits, 0, 0]), refused);
            assert_eq!(
                made(libc::SYS_openat, [0, 0, libc::O_TMPFILE as u64, bits, 0, 0]),
                refused
            );
            assert_eq!(made(libc::SYS_openat, [0, 0, 0, bits, 0, 0]), RETURN_ALLOW);
        }
        assert_eq!(
            made(libc::SYS_fchmodat, [0, 0, 0o1777, 0, 0, 0]),
            RETURN_ALLOW
        );
        assert_eq!(
            made(libc::SYS_openat, [0, 0, create, 0o755, 0, 0]),
            RETURN_ALLOW
        );
    }

    #[test]
    fn namespaces_are_refused_and_threads_allowed() {
        let program = compile(both()[1]);
        let clone = |flags: i32| {
            run(
                &program,
                OUR_ARCHITECTURE,
                libc::SYS_clone as u32,
                [flags as u64, 0, 0, 0, 0, 0],
            )
        };
        assert_eq!(
            clone(libc::CLONE_VM | libc::CLONE_THREAD | libc::SIGCHLD),
            RETURN_ALLOW
        );
        for flag in [libc::CLONE_NEWUSER, libc::CLONE_NEWNS, libc::CLONE_NEWNET] {
            assert_eq!(
                clone(flag | libc::SIGCHLD),
                RETURN_ERRNO | libc::EPERM as u32
            );
        }
    }
}
