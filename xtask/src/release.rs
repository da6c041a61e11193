//! The program as it is released: one static file. It runs on any Linux of its architecture, and a start loads no library,
//! which is a good part of what `exec` costs (P-1). Beside it: completions, manual pages and the locale files (X-LOCALE).

use std::path::Path;
use std::process::Command;

/// Static, and at a fixed address: moved to a random one, 29,000 pointers would be written at each start, into 130 pages
/// that would otherwise be shared (decision 0010). Without the fallback that asks two devices for what one call gives.
const FLAGS: &str = "-C target-feature=+crt-static -C relocation-model=static --cfg getrandom_backend=\"linux_getrandom\"";

/// Builds it below `target/<host>/dist`.
pub fn build() -> Result<(), String> {
    let host = host()?;
    let status = Command::new("cargo")
        .args([
            "build",
            "--profile",
            "dist",
            "--locked",
            "--quiet",
            "-p",
            "agent-mcp",
            "--target",
            &host,
        ])
        // Only together with --target does this not reach build scripts and procedural macros, which cannot be static.
        .env("RUSTFLAGS", FLAGS)
        .current_dir(crate::root())
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    if !status.success() {
        return Err(format!("cargo build: {status}"));
    }
    // Where cargo put it; a relative one is relative to where we run cargo.
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let directory = crate::root().join(target).join(&host).join("dist");
    beside(&directory)?;
    println!(
        "{}: agent-mcp, completions, man, locales",
        directory.display()
    );
    Ok(())
}

/// What is made by the program itself, so that it fits it.
fn beside(directory: &Path) -> Result<(), String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", directory.display());
    let ask = |words: &[&str]| {
        let output = Command::new(directory.join("agent-mcp"))
            .args(words)
            .output()
            .map_err(wrong)?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        Err(format!("agent-mcp {}: {}", words.join(" "), output.status))
    };
    for part in ["completions", "man", "man/ja", "locales"] {
        std::fs::create_dir_all(directory.join(part)).map_err(wrong)?;
    }
    for (shell, file) in [
        ("bash", "agent-mcp.bash"),
        ("zsh", "_agent-mcp"),
        ("fish", "agent-mcp.fish"),
        ("powershell", "_agent-mcp.ps1"),
        ("elvish", "agent-mcp.elv"),
    ] {
        let script = ask(&["completions", shell])?;
        std::fs::write(directory.join("completions").join(file), script).map_err(wrong)?;
    }
    for (lang, part) in [("en", "man"), ("ja", "man/ja")] {
        let place = directory.join(part).display().to_string();
        ask(&["man", &place, "--lang", lang])?;
        let name = format!("{lang}.json");
        let from = crate::root().join("crates/agent-mcp/locales").join(&name);
        std::fs::copy(from, directory.join("locales").join(&name)).map_err(wrong)?;
    }
    Ok(())
}

fn host() -> Result<String, String> {
    let output = Command::new("rustc")
        .arg("-vV")
        .output()
        .map_err(|error| format!("rustc: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| "rustc names no host".to_owned())
}
