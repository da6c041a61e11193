//! `cargo xtask matrix [--vm]`: every row of the escape matrix on every configuration, in one table.
//!
//! The rows and the probe are the test binaries' own (`confinement --matrix`, `machines --matrix`); this only runs them as
//! root, as an ordinary user and, with `--vm`, on kernel 6.1, and puts the answers side by side. `DENY` is refused with the exact
//! errno, `OK` works as it must, `named` is open and named as missing by the report (partial enforcement, read-only mode
//! only), `-` cannot be asked in that mode.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

type Result<T> = std::result::Result<T, String>;

/// Configuration, then row and way, then verdict and control.
type Cells = BTreeMap<String, BTreeMap<(String, String), (String, String)>>;

pub fn run(with_vm: bool) -> Result<()> {
    let programs = [build("confinement")?, build("machines")?];
    let mut cells = Cells::new();
    let is_root = output(Command::new("id").arg("-u"))?.0.trim() == "0";
    if is_root {
        for program in &programs {
            take(&mut cells, "root", &mut Command::new(program))?;
        }
        as_nobody(&mut cells, &programs)?;
    } else {
        for program in &programs {
            take(&mut cells, "user", &mut Command::new(program))?;
        }
    }
    if with_vm {
        for user in ["root", "user"] {
            let mut vm = Command::new(crate::root().join(".ci/vm"));
            vm.args([user, "confinement", &programs[0]]);
            take(&mut cells, &format!("6.1 {user}"), &mut vm)?;
        }
    }
    print(&cells)
}

/// Where another user may read it; not below /tmp, which is the sandbox's private area. Ours alone, and new.
fn as_nobody(cells: &mut Cells, programs: &[String]) -> Result<()> {
    let name = format!("agent-mcp-matrix-{}", std::process::id());
    let place = std::path::Path::new("/var/tmp").join(name);
    std::fs::create_dir(&place).map_err(|error| error.to_string())?;
    let result = programs
        .iter()
        .enumerate()
        .try_for_each(|(index, program)| {
            let copied = place.join(index.to_string());
            std::fs::copy(program, &copied).map_err(|error| error.to_string())?;
            let mut user = Command::new("setpriv");
            user.args(["--reuid=65534", "--regid=65534", "--clear-groups"])
                .arg(&copied);
            take(cells, "user", &mut user)
        });
    std::fs::remove_dir_all(&place).map_err(|error| error.to_string())?;
    result
}

fn output(command: &mut Command) -> Result<(String, bool)> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok((text, output.status.success()))
}

fn build(test: &str) -> Result<String> {
    let (text, built) = output(Command::new("cargo").current_dir(crate::root()).args([
        "test",
        "--locked",
        "--no-run",
        "-p",
        "sandbox-linux",
        "--test",
        test,
        "--message-format=json",
    ]))?;
    let marker = "\"executable\":\"";
    text.lines()
        .filter(|line| built && line.contains(&format!("\"name\":\"{test}\"")))
        .find_map(|line| line.split(marker).nth(1)?.split('"').next())
        .map(str::to_owned)
        .ok_or_else(|| format!("the test {test} does not build"))
}

fn take(cells: &mut Cells, configuration: &str, command: &mut Command) -> Result<()> {
    let (text, _escapes_are_counted) = output(command.arg("--matrix"))?;
    let mut rows = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.trim_end().split('\t').collect();
        let (column, key, answer) = match words[..] {
            ["matrix", row, way, verdict, control] if matches!(way, "Once" | "Standing") => {
                (configuration.to_owned(), (row, way), (verdict, control))
            }
            ["matrix", machine, row, way, verdict] => {
                let column = format!("{configuration}, {machine}");
                (column, (row, way), (verdict, "elsewhere"))
            }
            _ => continue,
        };
        rows += 1;
        cells.entry(column).or_default().insert(
            (key.0.to_owned(), key.1.to_owned()),
            (answer.0.to_owned(), answer.1.to_owned()),
        );
    }
    if rows == 0 {
        return Err(format!("{configuration}: nothing ran"));
    }
    Ok(())
}

/// Fails when something escaped, or a configuration did not answer for a row.
fn print(cells: &Cells) -> Result<()> {
    let rows: std::collections::BTreeSet<_> =
        cells.values().flat_map(BTreeMap::keys).cloned().collect();
    let (mut escapes, mut missing, mut passed, mut out_of_reach, mut named) = (0, 0, 0, 0, 0);
    for (number, configuration) in (1..).zip(cells.keys()) {
        println!("({number}) {configuration}");
    }
    let head: Vec<String> = (1..=cells.len())
        .map(|number| format!("{number:>6}"))
        .collect();
    println!("{:<52} {:<9}{}", "attack", "way", head.concat());
    for key in &rows {
        let mut line = String::new();
        for (configuration, column) in cells {
            let (verdict, control) = match column.get(key) {
                Some((verdict, control)) => (verdict.as_str(), control.as_str()),
                // Machines that lack something are asked what read-only mode can be asked.
                None if configuration.contains(", ") => ("-", ""),
                None => ("none", ""),
            };
            match verdict {
                "ESC" | "BAD" => {
                    escapes += 1;
                    eprintln!("{configuration}: {} {}: {control}", key.0, key.1);
                }
                "none" => missing += 1,
                "named" => named += 1,
                _ if control == "passed" => passed += 1,
                _ if control.starts_with("needs") => out_of_reach += 1,
                _ => {}
            }
            line.push_str(&format!("{verdict:>6}"));
        }
        println!("{:<52} {:<9}{line}", key.0, key.1);
    }
    println!(
        "{} rows on {} configurations: {escapes} escapes or broken rows, {missing} skips, {passed} controls passed, {out_of_reach} \
         controls out of reach of that user or machine, {named} open where the report names the missing control",
        rows.len(),
        cells.len()
    );
    if escapes + missing > 0 {
        return Err("the matrix does not hold".to_owned());
    }
    Ok(())
}
