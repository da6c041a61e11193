//! Names are resolved once, before the sandbox exists, and mean the same until its end.

use crate::flows::{inside, spec};
use crate::support::{Spec, Way, confined, prepare, request, standing, temporary};
use crate::{Checked, PUBLIC, PUBLIC_6, Test, servers};
use policy::Code;
use policy::sandbox::SandboxError;

pub const TESTS: &[(&str, Test)] = &[
    ("a_name_is_both_its_addresses", both_families),
    ("sec_inv_06_a_name_that_leads_inwards_is_refused", inwards),
    (
        "a_name_that_never_answers_is_refused_in_time",
        never_answers,
    ),
    ("a_listed_address_is_allowed_for_its_name", listed_itself),
    ("inside_only_listed_names_exist", only_listed),
    ("the_snapshot_never_changes", snapshot),
];

fn named(spec: &mut Spec, list: &[(&str, u16)]) {
    spec.restricted = list
        .iter()
        .map(|(host, port)| ((*host).to_owned(), *port))
        .collect();
}

/// The code, and what the refusal says.
fn refused(way: Way, spec: &Spec) -> (String, String) {
    match way {
        Way::Once => {
            let ran = confined(way, spec, &["/bin/true"]);
            (ran.code, ran.stderr)
        }
        Way::Standing => match prepare(spec) {
            Ok(_) => ("0".into(), String::new()),
            Err(error) => {
                assert_eq!(error.code(), Code::NetworkDenied);
                assert!(matches!(error, SandboxError::Refused(_)));
                ("126".into(), error.to_string())
            }
        },
    }
}

fn both_families(way: Way) -> Checked {
    let directory = temporary();
    let mut spec = spec(&directory);
    let port = servers::echo(PUBLIC).port();
    named(&mut spec, &[("both.test", port)]);
    let line = inside(way, &spec, &["resolve", "both.test"]);
    assert_eq!(line, format!("OK {PUBLIC_6} {PUBLIC}"));
    let address = format!("both.test:{port}");
    // Only IPv4 listens: the first that is tried may be reset, so the four-only name must work for sure.
    named(&mut spec, &[("four.test", port)]);
    let line = inside(
        way,
        &spec,
        &["echo-by-name", &address.replace("both", "four"), "10"],
    );
    assert_eq!(line, "OK 13 true");
    Ok(())
}

fn inwards(way: Way) -> Checked {
    let directory = temporary();
    let mut spec = spec(&directory);
    for (name, address) in [
        ("mixed.test", "10.0.0.5"),
        ("loop.test", "127.0.0.1"),
        ("meta.test", "169.254.169.254"),
        ("localhost", "::1"),
    ] {
        // A good one beside it does not help.
        named(&mut spec, &[(name, 443), ("four.test", 443)]);
        let (code, text) = refused(way, &spec);
        assert_eq!(code, "126", "{name}: {text}");
        assert!(text.contains(&format!("{name}:443")), "{text}");
        assert!(text.contains(address), "{text}");
    }
    named(&mut spec, &[("four.test", 443)]);
    assert_eq!(refused(way, &spec).0, "0");
    Ok(())
}

fn never_answers(way: Way) -> Checked {
    let directory = temporary();
    let mut spec = spec(&directory);
    named(&mut spec, &[("never.test", 443), ("four.test", 443)]);
    let (code, text) = refused(way, &spec);
    assert_eq!(code, "126");
    assert!(text.contains("never.test:443"), "{text}");
    assert!(text.contains("no answer within 5 s"), "{text}");
    Ok(())
}

fn listed_itself(way: Way) -> Checked {
    let directory = temporary();
    let mut spec = spec(&directory);
    let address = servers::echo("127.0.0.1");
    named(
        &mut spec,
        &[("loop.test", address.port()), ("127.0.0.1", address.port())],
    );
    let by_name = format!("loop.test:{}", address.port());
    let line = inside(way, &spec, &["echo-by-name", &by_name, "10"]);
    assert_eq!(line, "OK 13 true");
    Ok(())
}

fn only_listed(way: Way) -> Checked {
    let directory = temporary();
    let mut spec = spec(&directory);
    named(&mut spec, &[("four.test", 443)]);
    assert_eq!(
        inside(way, &spec, &["resolve", "four.test"]),
        format!("OK {PUBLIC}")
    );
    assert_eq!(
        inside(way, &spec, &["resolve", "localhost"]),
        "OK 127.0.0.1 ::1"
    );
    // The host knows it; the sandbox does not.
    for name in ["both.test", "never.test"] {
        let line = inside(way, &spec, &["resolve", name]);
        assert!(line.starts_with("ERROR failed to lookup"), "{name}: {line}");
    }
    Ok(())
}

/// The hosts file is what the Task started with, whoever writes; nobody inside can.
fn snapshot(way: Way) -> Checked {
    let directory = temporary();
    let mut spec = spec(&directory);
    named(&mut spec, &[("four.test", 443)]);
    let script = "echo '1.1.1.1 four.test' >> /etc/hosts; cat /etc/hosts";
    let argv = ["/bin/sh", "-c", script];
    let expected = format!("127.0.0.1 localhost\n::1 localhost\n{PUBLIC} four.test\n");
    match way {
        Way::Once => assert_eq!(confined(way, &spec, &argv).stdout, expected),
        Way::Standing => {
            let sandbox = standing(&spec);
            for _ in 0..2 {
                let outcome = sandbox.run(&request(&spec, &argv))?;
                assert_eq!(outcome.stdout.head, expected.as_bytes());
            }
            sandbox.end()?;
        }
    }
    Ok(())
}
