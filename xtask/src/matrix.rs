//! `cargo xtask matrix [--vm]`: every row of the escape matrix on every configuration, in one table.
//!
//! The rows and the probe are the test binary's own (`confinement --matrix`); this only runs it as root, as an ordinary
//! user and, with `--vm`, on kernel 6.1, and puts the answers side by side.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

type Result<T> = std::result::Result<T, String>;

/// Configuration, then row and way, then verdict and control.
type Cells = BTreeMap<String, BTreeMap<(String, String), (String, String)>>;

pub fn run(with_vm: bool) -> Result<()> {
    let binary = build()?;
    let mut cells = Cells::new();
    let is_root = output(Command::new("id").arg("-u"))?.0.trim() == "0";
    if is_root {
        take(&mut cells, "root", &mut Command::new(&binary))?;
        // Where another user may read it; not below /tmp, which is the sandbox's private area. Ours alone, and new.
        let name = format!("agent-mcp-matrix-{}", std::process::id());
        let copy = std::path::Path::new("/var/tmp").join(name);
        std::fs::create_dir(&copy).map_err(|error| error.to_string())?;
        let copied = copy.join("confinement");
        std::fs::copy(&binary, &copied).map_err(|error| error.to_string())?;
        let mut user = Command::new("setpriv");
        user.args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&copied);
        take(&mut cells, "user", &mut user)?;
        std::fs::remove_dir_all(&copy).map_err(|error| error.to_string())?;
    } else {
        take(&mut cells, "user", &mut Command::new(&binary))?;
    }
    if with_vm {
        for user in ["root", "user"] {
            let mut vm = Command::new(crate::root().join(".ci/vm"));
            vm.args([user, "confinement", &binary]);
            take(&mut cells, &format!("6.1 {user}"), &mut vm)?;
        }
    }
    print(&cells)
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

fn build() -> Result<String> {
    let (text, built) = output(Command::new("cargo").current_dir(crate::root()).args([
        "test",
        "--locked",
        "--no-run",
        "-p",
        "sandbox-linux",
        "--test",
        "confinement",
        "--message-format=json",
    ]))?;
    let marker = "\"executable\":\"";
    text.lines()
        .filter(|line| built && line.contains("\"name\":\"confinement\""))
        .find_map(|line| line.split(marker).nth(1)?.split('"').next())
        .map(str::to_owned)
        .ok_or_else(|| "the confinement test does not build".to_owned())
}

fn take(cells: &mut Cells, configuration: &str, command: &mut Command) -> Result<()> {
    let (text, _escapes_are_counted) = output(command.arg("--matrix"))?;
    let column = cells.entry(configuration.to_owned()).or_default();
    for line in text.lines() {
        let words: Vec<&str> = line.trim_end().split('\t').collect();
        if let ["matrix", row, way, verdict, control] = words[..] {
            let key = (row.to_owned(), way.to_owned());
            column.insert(key, (verdict.to_owned(), control.to_owned()));
        }
    }
    if column.is_empty() {
        return Err(format!("{configuration}: nothing ran"));
    }
    Ok(())
}

/// Fails when something escaped, or a configuration did not answer for a row.
fn print(cells: &Cells) -> Result<()> {
    let rows: std::collections::BTreeSet<_> =
        cells.values().flat_map(BTreeMap::keys).cloned().collect();
    let (mut escapes, mut missing, mut passed, mut out_of_reach) = (0, 0, 0, 0);
    let head: Vec<String> = cells.keys().map(|name| format!("{name:>9}")).collect();
    println!("{:<52} {:<9}{}", "attack", "way", head.concat());
    for key in &rows {
        let mut line = String::new();
        for (configuration, column) in cells {
            let (verdict, control) = match column.get(key) {
                Some((verdict, control)) => (verdict.as_str(), control.as_str()),
                None => ("none", ""),
            };
            match verdict {
                "ESC" | "BAD" => {
                    escapes += 1;
                    eprintln!("{configuration}: {} {}: {control}", key.0, key.1);
                }
                "none" => missing += 1,
                _ if control == "passed" => passed += 1,
                _ if control.starts_with("needs") => out_of_reach += 1,
                _ => {}
            }
            line.push_str(&format!("{verdict:>9}"));
        }
        println!("{:<52} {:<9}{line}", key.0, key.1);
    }
    println!(
        "{} rows: {escapes} escapes or broken rows, {missing} skips, {passed} controls passed, {out_of_reach} controls out of reach of \
         that user or machine",
        rows.len()
    );
    if escapes + missing > 0 {
        return Err("the matrix does not hold".to_owned());
    }
    Ok(())
}
