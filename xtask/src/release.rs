//! The program as it is released: one static file. It runs on any Linux of its architecture, and a start loads no library,
//! which is a good part of what `exec` costs (P-1).

use std::process::Command;

/// Builds it below `target/<host>/release`.
pub fn build() -> Result<(), String> {
    let host = host()?;
    let status = Command::new("cargo")
        .args([
            "build",
            "--release",
            "--locked",
            "--quiet",
            "-p",
            "agent-mcp",
            "--target",
            &host,
        ])
        // Only together with --target does this not reach build scripts and procedural macros, which cannot be static.
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .current_dir(crate::root())
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    if !status.success() {
        return Err(format!("cargo build: {status}"));
    }
    println!("target/{host}/release/agent-mcp");
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
